//! The region of interest: which part of a run counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use octavo_types::{AddressWidth, Consumer, Event, Segment, VirtAddr};

use crate::ring::{Start, WordConsumer};

/// How many instructions a stream takes from the run's budgets at a time.
const LUMP_INSTRUCTIONS: u64 = 1 << 16;

/// The limits of a run, shared by the streams of all its processes.
#[derive(Debug)]
pub struct Limits {
    /// Instructions still to pass before any count.
    skip: AtomicU64,
    /// Instructions that may still count.
    budget: AtomicU64,
    between_marks: bool,
    exhausted: AtomicBool,
}

impl Limits {
    /// Counts at most `max` instructions after the first `skip`, and with `between_marks` only
    /// those between the program's begin and end marks.
    pub fn new(skip: u64, max: Option<u64>, between_marks: bool) -> Arc<Self> {
        Arc::new(Limits {
            skip: AtomicU64::new(skip),
            budget: AtomicU64::new(max.unwrap_or(u64::MAX)),
            between_marks,
            exhausted: AtomicBool::new(false),
        })
    }

    /// Whether all the instructions that may count have counted.
    pub fn exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// How many instructions are still to pass before any count.
    pub fn to_skip(&self) -> u64 {
        if self.between_marks { 0 } else { self.skip.load(Ordering::Relaxed) }
    }

    /// So many instructions have passed unseen.
    pub fn skipped(&self, instructions: u64) {
        let less = |left: u64| Some(left.saturating_sub(instructions));
        let _ = self.skip.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Whether every instruction counts.
    pub fn is_whole_run(&self) -> bool {
        !self.between_marks
            && self.skip.load(Ordering::Relaxed) == 0
            && self.budget.load(Ordering::Relaxed) == u64::MAX
    }
}

/// Takes up to a lump from a shared budget.
fn take(from: &AtomicU64) -> u64 {
    let taken = from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        (left > 0).then(|| left - left.min(LUMP_INSTRUCTIONS))
    });
    taken.map_or(0, |left| left.min(LUMP_INSTRUCTIONS))
}

/// The region of interest as one consumer sees it. It begins and ends on whole segments: at most
/// some sixty instructions late.
pub struct Region {
    limits: Arc<Limits>,
    /// Instructions to pass over, and to count, before asking the limits again.
    skipping: u64,
    counting: u64,
    /// Whether the program has begun it, and not ended it.
    pub marked: bool,
    open: bool,
}

impl Region {
    /// Before anything of one consumer's has come.
    pub fn new(limits: Arc<Limits>) -> Self {
        let open = limits.is_whole_run();
        let marked = !limits.between_marks;
        Region { limits, skipping: 0, counting: 0, marked, open }
    }

    /// Whether a process counts before it has said anything.
    pub fn is_marked_at_first(&self) -> bool {
        !self.limits.between_marks
    }

    /// Lets through to `inner` only what lies inside.
    #[inline(always)]
    pub fn before<'a, C>(&'a mut self, inner: &'a mut C) -> Inside<'a, C> {
        Inside { region: self, inner }
    }

    #[inline(always)]
    fn counts(&mut self, segment: &Segment) -> bool {
        self.open || self.admits(u64::from(segment.instructions()))
    }

    /// Whether a segment of `instructions` falls inside; moves the region's bounds on.
    fn admits(&mut self, instructions: u64) -> bool {
        if !self.marked {
            return false;
        }
        if self.skipping == 0 && self.counting == 0 {
            self.skipping = take(&self.limits.skip);
        }
        if self.skipping > 0 {
            self.skipping = self.skipping.saturating_sub(instructions);
            return false;
        }
        if self.counting == 0 {
            self.counting = take(&self.limits.budget);
        }
        if self.counting == 0 {
            self.limits.exhausted.store(true, Ordering::Relaxed);
            return false;
        }
        self.counting = self.counting.saturating_sub(instructions);
        true
    }

    fn mark(&mut self, event: &Event) {
        if self.limits.between_marks {
            match *event {
                Event::Mark { value: Event::MARK_BEGIN } => self.marked = true,
                Event::Mark { value: Event::MARK_END } => self.marked = false,
                _ => {}
            }
        }
    }

    /// Gives to others what this one took and did not use.
    fn give_back(&self) {
        self.limits.skip.fetch_add(self.skipping, Ordering::Relaxed);
        self.limits.budget.fetch_add(self.counting, Ordering::Relaxed);
    }
}

/// Passes on only the segments inside the region of interest, and every event.
pub struct Inside<'a, C> {
    region: &'a mut Region,
    inner: &'a mut C,
}

impl<C: Consumer> Consumer for Inside<'_, C> {
    #[inline(always)]
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        if self.region.counts(segment) {
            self.inner.segment(segment, addresses);
        }
    }

    fn event(&mut self, event: &Event) {
        self.region.mark(event);
        self.inner.event(event);
    }
}

impl<C: WordConsumer> WordConsumer for Inside<'_, C> {
    fn width(&self) -> Option<AddressWidth> {
        self.inner.width()
    }

    #[inline(always)]
    fn execution(&mut self, segment: &Segment, words: &[u64]) {
        if self.region.counts(segment) {
            self.inner.execution(segment, words);
        }
    }

    fn record(&mut self, words: &[u64], event: Option<&Event>) {
        if let Some(event) = event {
            self.region.mark(event);
        }
        self.inner.record(words, event);
    }

    fn started(&mut self, start: &Start) {
        self.inner.started(start);
    }
}

/// A consumer behind a region of its own.
pub struct Window<C> {
    inner: C,
    region: Region,
}

impl<C> Window<C> {
    /// A window on to `inner` for one stream of a run.
    pub fn new(inner: C, limits: Arc<Limits>) -> Self {
        Window { inner, region: Region::new(limits) }
    }

    /// The consumer behind it.
    pub fn inner(&self) -> &C {
        &self.inner
    }

    /// The consumer behind it, to be told something.
    pub fn inner_mut(&mut self) -> &mut C {
        &mut self.inner
    }

    /// Gives the consumer back, and to the other streams what this one took and did not use.
    pub fn into_inner(self) -> C {
        self.region.give_back();
        self.inner
    }

    #[inline(always)]
    fn inside(&mut self) -> Inside<'_, C> {
        self.region.before(&mut self.inner)
    }
}

impl<C: Consumer> Consumer for Window<C> {
    #[inline(always)]
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.inside().segment(segment, addresses);
    }

    fn event(&mut self, event: &Event) {
        self.inside().event(event);
    }
}

impl<C: WordConsumer> WordConsumer for Window<C> {
    fn width(&self) -> Option<AddressWidth> {
        self.inner.width()
    }

    #[inline(always)]
    fn execution(&mut self, segment: &Segment, words: &[u64]) {
        self.inside().execution(segment, words);
    }

    fn record(&mut self, words: &[u64], event: Option<&Event>) {
        self.inside().record(words, event);
    }

    fn started(&mut self, start: &Start) {
        self.inside().started(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_types::{Item, ItemKind};

    #[derive(Default)]
    struct Counter(u64);

    impl Consumer for Counter {
        fn segment(&mut self, segment: &Segment, _: &[VirtAddr]) {
            self.0 += u64::from(segment.instructions());
        }
        fn event(&mut self, _: &Event) {}
    }

    fn one_instruction() -> Segment {
        let (kind, addr) = (ItemKind::Fetch, VirtAddr::new(0x1000));
        let item = Item { kind, guarded: false, atomic: false, size_bytes: 1, addr };
        Segment::new(vec![item], vec![]).unwrap()
    }

    fn counted(limits: &Arc<Limits>, steps: u64) -> u64 {
        let segment = one_instruction();
        let mut window = Window::new(Counter::default(), limits.clone());
        for _ in 0..steps {
            window.segment(&segment, &[]);
        }
        window.into_inner().0
    }

    #[test]
    fn skip_and_limit_are_exact_and_shared_by_all_streams() {
        let limits = Limits::new(100_000, Some(250_000), false);
        assert_eq!(counted(&limits, 300_000), 200_000);
        assert!(!limits.exhausted());
        assert_eq!(counted(&limits, 300_000), 50_000);
        assert!(limits.exhausted());
        let alone = Limits::new(7, Some(1000), false);
        assert_eq!(counted(&alone, 5000), 1000);
    }

    #[test]
    fn only_what_lies_between_marks_counts() {
        let limits = Limits::new(0, None, true);
        let segment = one_instruction();
        let mut window = Window::new(Counter::default(), limits);
        window.segment(&segment, &[]);
        window.event(&Event::Mark { value: Event::MARK_BEGIN });
        window.segment(&segment, &[]);
        window.event(&Event::Mark { value: 77 });
        window.segment(&segment, &[]);
        window.event(&Event::Mark { value: Event::MARK_END });
        window.segment(&segment, &[]);
        assert_eq!(window.into_inner().0, 2);
    }
}
