//! The region of interest: which part of a run counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use octavo_types::{AddressWidth, Event, Segment};

use crate::observer::Observer;
use crate::ring::{Segments, Start, WordConsumer, WordWriter};
use crate::window_log::WindowLog;

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
    /// Whether the region is open, apart from its limits; set from outside.
    open: AtomicBool,
    /// Whether the end of the budget ends only the region, and the program goes on.
    ends_softly: AtomicBool,
    /// The region has ended; the program may go on.
    over: AtomicBool,
    /// How many instructions of each window but the first warm the engine and do not count.
    warm: AtomicU64,
}

impl Limits {
    /// Counts at most `max` instructions after the first `skip`; with `between_marks`, only those
    /// between the program's begin and end marks (the region of interest).
    pub fn new(skip: u64, max: Option<u64>, between_marks: bool) -> Arc<Self> {
        Arc::new(Limits {
            skip: AtomicU64::new(skip),
            budget: AtomicU64::new(max.unwrap_or(u64::MAX)),
            between_marks,
            exhausted: AtomicBool::new(false),
            open: AtomicBool::new(true),
            ends_softly: AtomicBool::new(false),
            over: AtomicBool::new(false),
            warm: AtomicU64::new(0),
        })
    }

    /// Whether all the instructions that may count have counted.
    pub fn exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Opens the region or closes it. Each stream follows at its next [`Window::refresh`].
    pub fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Relaxed);
    }

    /// Whether the region is open, and not over.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) && !self.is_over()
    }

    /// From now on the last instruction that may count ends the region, not the run.
    pub fn end_softly(&self) {
        self.ends_softly.store(true, Ordering::Relaxed);
    }

    /// Ends the region for good.
    pub fn set_over(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Lets the first `instructions` instructions of each traced window but the first one warm the
    /// engine and not count. To be called before any stream begins.
    pub fn set_window_warm(&self, instructions: u64) {
        self.warm.store(instructions, Ordering::Relaxed);
    }

    /// Whether the region has ended before the run.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// How many instructions are still to be skipped before counting begins.
    pub fn to_skip(&self) -> u64 {
        if self.between_marks { 0 } else { self.skip.load(Ordering::Relaxed) }
    }

    /// The source has skipped `instructions` instructions.
    pub fn skipped(&self, instructions: u64) {
        let less = |left: u64| Some(left.saturating_sub(instructions));
        let _ = self.skip.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// The last instruction within the limits was counted.
    fn end(&self) {
        let softly = self.ends_softly.load(Ordering::Relaxed);
        let ended = if softly { &self.over } else { &self.exhausted };
        ended.store(true, Ordering::Relaxed);
    }

    /// Whether every instruction counts.
    pub fn is_whole_run(&self) -> bool {
        !self.between_marks
            && self.skip.load(Ordering::Relaxed) == 0
            && self.budget.load(Ordering::Relaxed) == u64::MAX
    }
}

/// Takes up to a lump from a shared budget.
fn take(budget: &AtomicU64) -> u64 {
    let taken = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
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
    /// Whether every instruction counts that comes while the limits are open.
    whole: bool,
    /// Whether the limits were open at the last [`Region::refresh`].
    admitting: bool,
    /// Whether everything counts for now.
    open: bool,
    /// Whether something was left out since the last execution that counted, or before the first.
    left_out: bool,
    /// Instructions executed at the end of the last window, or before the first one, if they were
    /// counted.
    window_end: Option<u64>,
    /// Whether the limits were closed since the last execution that counted, or before the first.
    closed: bool,
    /// Finds the memory that is present where counting begins or goes on after the limits were
    /// closed.
    find_present: Option<FindPresent>,
}

/// Finds the memory that a process has: an [`Event::Present`] for each range.
pub type FindPresent = Box<dyn FnMut() -> Vec<Event> + Send>;

impl Region {
    /// The region before the first words of its consumer.
    pub fn new(limits: Arc<Limits>) -> Self {
        let (whole, admitting) = (limits.is_whole_run(), limits.is_open());
        let (marked, open) = (!limits.between_marks, whole && admitting);
        let left_out = !marked || !admitting || limits.to_skip() > 0;
        Region {
            limits,
            skipping: 0,
            counting: 0,
            marked,
            whole,
            admitting,
            open,
            left_out,
            window_end: Some(0),
            closed: !admitting,
            find_present: None,
        }
    }

    /// Checks whether the limits are open: they may be opened and closed while a program runs.
    pub fn refresh(&mut self) {
        self.admitting = self.limits.is_open();
        self.open = self.whole && self.admitting;
        self.left_out |= !self.admitting;
        self.closed |= !self.admitting;
    }

    /// Whether a process counts before its first mark.
    pub fn is_marked_at_first(&self) -> bool {
        !self.limits.between_marks
    }

    /// A consumer that passes on to `inner` only the segments inside the region.
    #[inline(always)]
    pub fn before<'a, C>(&'a mut self, inner: &'a mut C) -> Inside<'a, C> {
        Inside { region: self, inner }
    }

    #[inline(always)]
    fn counts(&mut self, segment: &Segment) -> bool {
        self.open || self.admits(u64::from(segment.instructions()))
    }

    /// Whether a segment of `instructions` instructions lies inside; takes it from the limits.
    fn admits(&mut self, instructions: u64) -> bool {
        if !self.marked || !self.admitting {
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
            self.limits.end();
            return false;
        }
        self.counting = self.counting.saturating_sub(instructions);
        true
    }

    fn mark(&mut self, event: &Event) {
        match event {
            Event::WindowEnd { at } => self.window_end = at.instructions,
            Event::WindowBegin { at } => {
                self.left_out |= at.instructions.is_none() || at.instructions != self.window_end;
            }
            _ => {}
        }
        if self.limits.between_marks {
            match *event {
                Event::Mark { value: Event::MARK_BEGIN } => self.marked = true,
                Event::Mark { value: Event::MARK_END } => self.marked = false,
                _ => {}
            }
        }
    }

    /// Returns the instructions that it took from the budgets and did not use.
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

impl<C: WordConsumer> WordConsumer for Inside<'_, C> {
    fn width(&self) -> Option<AddressWidth> {
        self.inner.width()
    }

    #[inline(always)]
    fn execution(&mut self, segment: &Segment, words: &[u64]) {
        if !self.region.counts(segment) {
            self.region.left_out = true;
            return;
        }
        if std::mem::take(&mut self.region.left_out) {
            self.resume();
        }
        self.inner.execution(segment, words);
    }

    #[inline(always)]
    fn executions(&mut self, segments: &Segments, words: &[u64]) -> usize {
        let all = self.region.open && !self.region.left_out;
        if all { self.inner.executions(segments, words) } else { 0 }
    }

    fn record(&mut self, words: &[u64], event: Option<&Event>) {
        if let Some(event) = event {
            self.region.mark(event);
            // The next execution is the first one that counts, unless it is skipped here.
            if matches!(event, Event::Present { first: true, .. })
                && std::mem::take(&mut self.region.left_out)
            {
                self.inner.resumed();
            }
        }
        self.inner.record(words, event);
    }

    fn started(&mut self, start: &Start) {
        self.inner.started(start);
    }
}

impl<C: WordConsumer> Inside<'_, C> {
    /// Counting begins or goes on with the next execution.
    #[cold]
    fn resume(&mut self) {
        self.inner.resumed();
        let closed = std::mem::take(&mut self.region.closed);
        let Some(find) = self.region.find_present.as_mut().filter(|_| closed) else { return };
        for event in find() {
            let mut words = WordWriter::default();
            words.event(&event);
            self.inner.record(words.words(), Some(&event));
        }
    }
}

/// A consumer behind a region of its own.
pub struct Window<C> {
    inner: C,
    region: Region,
    log: WindowLog,
    /// How many instructions of a window warm the engine, and how many of them are left in this
    /// window.
    warm: u64,
    warm_left: u64,
}

impl<C> Window<C> {
    /// A window on to `inner` for one stream of a run.
    pub fn new(inner: C, limits: Arc<Limits>) -> Self {
        let warm = limits.warm.load(Ordering::Relaxed);
        let (region, log) = (Region::new(limits), WindowLog::default());
        Window { inner, region, log, warm, warm_left: 0 }
    }

    /// Checks whether the region is open.
    pub fn refresh(&mut self) {
        self.region.refresh();
    }

    /// Sets `find`, which finds the memory that is present where counting begins or goes on after
    /// the limits were closed. The memory is passed on before the first execution that counts.
    pub fn finding_present(mut self, find: FindPresent) -> Self {
        self.region.find_present = Some(find);
        self
    }

    /// The consumer behind the window.
    pub fn inner(&self) -> &C {
        &self.inner
    }

    /// The consumer behind the window.
    pub fn inner_mut(&mut self) -> &mut C {
        &mut self.inner
    }

    /// Returns the consumer, and leaves to the other streams the instructions that this one took
    /// from the budgets and did not use.
    pub fn into_inner(self) -> C {
        self.region.give_back();
        self.inner
    }

    /// The consumer as [`Window::into_inner`] returns it, and the windows that it was traced in.
    pub fn into_parts(mut self) -> (C, WindowLog)
    where
        C: Observer,
    {
        self.end_warming();
        self.log.finish(&self.inner);
        let log = std::mem::take(&mut self.log);
        (self.into_inner(), log)
    }

    /// The windows so far.
    pub fn log(&self) -> WindowLog
    where
        C: Observer,
    {
        let mut log = self.log.clone();
        log.finish(&self.inner);
        log
    }

    #[inline(always)]
    fn inside(&mut self) -> Inside<'_, C> {
        self.region.before(&mut self.inner)
    }
}

impl<C: Observer> Window<C> {
    fn begin_warming(&mut self) {
        if self.warm > 0 && self.inner.set_warming(true) {
            self.warm_left = self.warm;
        }
    }

    /// Counts instructions that warm the engine.
    #[cold]
    fn warmed(&mut self, instructions: u32) {
        if self.warm_left <= u64::from(instructions) {
            self.end_warming();
        } else {
            self.warm_left -= u64::from(instructions);
        }
    }

    fn end_warming(&mut self) {
        if std::mem::take(&mut self.warm_left) > 0 {
            self.inner.set_warming(false);
        }
    }
}

impl<C: Observer> WordConsumer for Window<C> {
    fn width(&self) -> Option<AddressWidth> {
        self.inner.width()
    }

    #[inline(always)]
    fn execution(&mut self, segment: &Segment, words: &[u64]) {
        self.inside().execution(segment, words);
        if self.warm_left > 0 {
            self.warmed(segment.instructions());
        }
    }

    #[inline(always)]
    fn executions(&mut self, segments: &Segments, words: &[u64]) -> usize {
        if self.warm_left > 0 { 0 } else { self.inside().executions(segments, words) }
    }

    fn record(&mut self, words: &[u64], event: Option<&Event>) {
        if let Some(event) = event {
            if matches!(event, Event::WindowEnd { .. }) {
                self.end_warming();
            }
            self.log.event(event, &self.inner);
            if matches!(event, Event::WindowBegin { .. }) {
                self.begin_warming();
            }
        }
        self.inside().record(words, event);
    }

    fn started(&mut self, start: &Start) {
        self.inside().started(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::StreamConsumer;
    use octavo_types::{AddrRange, Consumer, Item, ItemKind, VirtAddr, WindowPlace};

    #[derive(Default)]
    struct Counter(u64);

    impl Consumer for Counter {
        fn segment(&mut self, segment: &Segment, _: &[VirtAddr]) {
            self.0 += u64::from(segment.instructions());
        }
        fn event(&mut self, _: &Event) {}
    }

    impl StreamConsumer for Counter {}

    fn one_instruction() -> Segment {
        let (kind, addr) = (ItemKind::Fetch, VirtAddr::new(0x1000));
        let item = Item::new(kind, 1, addr);
        Segment::new(vec![item], vec![]).unwrap()
    }

    fn counted(limits: &Arc<Limits>, steps: u64) -> u64 {
        let segment = one_instruction();
        let mut window = Window::new(Counter::default(), limits.clone());
        for _ in 0..steps {
            window.inside().execution(&segment, &[0]);
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
    fn a_region_opens_and_closes_at_a_refresh() {
        for max in [None, Some(1_000_000)] {
            let limits = Limits::new(0, max, false);
            let segment = one_instruction();
            limits.set_open(false);
            let mut window = Window::new(Counter::default(), limits.clone());
            let mut steps = |open: Option<bool>| {
                open.inspect(|open| limits.set_open(*open));
                window.refresh();
                (0..10).for_each(|_| window.inside().execution(&segment, &[0]));
                window.inner().0
            };
            let counts = [None, Some(true), None, Some(false), None, Some(true)].map(&mut steps);
            assert_eq!(counts, [0, 10, 20, 20, 20, 30]);
            limits.set_over();
            assert_eq!(steps(Some(true)), 30, "what is over stays over");
        }
    }

    /// The number of executions, and this number at each resumption of counting and at each event
    /// of present memory.
    #[derive(Default)]
    struct Resumptions(u64, Vec<u64>, Vec<u64>);

    impl Consumer for Resumptions {
        fn segment(&mut self, _: &Segment, _: &[VirtAddr]) {
            self.0 += 1;
        }
        fn event(&mut self, event: &Event) {
            if let Event::Present { .. } = event {
                self.2.push(self.0);
            }
        }
    }

    impl StreamConsumer for Resumptions {
        fn resumed(&mut self) {
            self.1.push(self.0);
        }
    }

    #[test]
    fn what_follows_a_part_that_was_left_out_is_resumed() {
        let segment = one_instruction();
        let resumptions = |limits: Arc<Limits>, steps: &mut dyn FnMut(&mut Window<Resumptions>)| {
            let mut window = Window::new(Resumptions::default(), limits);
            steps(&mut window);
            window.inner().1.clone()
        };
        let execute = |window: &mut Window<Resumptions>| {
            (0..10).for_each(|_| window.inside().execution(&segment, &[0]));
        };
        let all = resumptions(Limits::new(0, None, false), &mut |window| execute(window));
        assert!(all.is_empty());
        let first = resumptions(Limits::new(0, Some(5), false), &mut |window| execute(window));
        assert!(first.is_empty(), "nothing is left out before a budget");
        let skipped = resumptions(Limits::new(3, None, false), &mut |window| execute(window));
        assert_eq!(skipped, [0]);
        let places = [(Some(0), Some(10)), (Some(10), Some(20)), (Some(90), None), (None, None)];
        let windows = resumptions(Limits::new(0, None, false), &mut |window| {
            for (begin, end) in places {
                let at = |instructions| WindowPlace { instructions, milliseconds: None };
                window.inside().record(&[], Some(&Event::WindowBegin { at: at(begin) }));
                execute(window);
                window.inside().record(&[], Some(&Event::WindowEnd { at: at(end) }));
            }
        });
        assert_eq!(windows, [20, 30]);
    }

    fn present() -> Event {
        let range = AddrRange::new(VirtAddr::new(0x1000), 4096);
        Event::Present { range, known: true, first: true }
    }

    /// Whenever counting goes on after closed limits, but not after skipped instructions.
    #[test]
    fn memory_that_is_present_comes_before_the_first_execution_that_counts() {
        let (segment, limits) = (one_instruction(), Limits::new(3, None, false));
        let mut window = Window::new(Resumptions::default(), limits.clone())
            .finding_present(Box::new(|| vec![present(), present()]));
        for open in [true, false, true, true, false, true] {
            limits.set_open(open);
            window.refresh();
            (0..10).for_each(|_| window.inside().execution(&segment, &[0]));
        }
        assert_eq!(*window.inner().1, [0, 7, 27]);
        assert_eq!(*window.inner().2, [7, 7, 27, 27]);
    }

    /// As in a replay: the event resumes counting, and so does the first execution after skipped
    /// ones.
    #[test]
    fn counting_is_resumed_before_the_memory_that_is_present() {
        for (skip, expected) in [(0, vec![0]), (3, vec![0, 0])] {
            let segment = one_instruction();
            let mut window = Window::new(Resumptions::default(), Limits::new(skip, None, false));
            let at = WindowPlace { instructions: None, milliseconds: Some(1) };
            window.inside().record(&[], Some(&Event::WindowBegin { at }));
            window.inside().record(&[], Some(&present()));
            (0..10).for_each(|_| window.inside().execution(&segment, &[0]));
            assert_eq!(*window.inner().1, expected);
            assert_eq!(*window.inner().2, [0]);
        }
    }

    #[test]
    fn a_soft_end_ends_the_region_and_not_the_run() {
        let limits = Limits::new(100, Some(1000), false);
        limits.end_softly();
        assert_eq!(counted(&limits, 5000), 1000);
        assert!(limits.is_over() && !limits.is_open() && !limits.exhausted());
    }

    #[test]
    fn only_what_lies_between_marks_counts() {
        let limits = Limits::new(0, None, true);
        let segment = one_instruction();
        let mut window = Window::new(Counter::default(), limits);
        window.inside().execution(&segment, &[0]);
        window.inside().record(&[], Some(&Event::Mark { value: Event::MARK_BEGIN }));
        window.inside().execution(&segment, &[0]);
        window.inside().record(&[], Some(&Event::Mark { value: 77 }));
        window.inside().execution(&segment, &[0]);
        window.inside().record(&[], Some(&Event::Mark { value: Event::MARK_END }));
        window.inside().execution(&segment, &[0]);
        assert_eq!(window.into_inner().0, 2);
    }
}
