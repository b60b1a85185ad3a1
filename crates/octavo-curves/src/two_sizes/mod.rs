//! Two page sizes under the dynamic policy of Talluri et al., "Tradeoffs in supporting two page
//! sizes", section 3.4, in every TLB at once.
//!
//! At a reference the window holds the blocks of the last T references, including the current one with
//! all of its blocks (a reference that spans two blocks enters both at once). Then each chunk is a large
//! page if and only if enough of its blocks are in the window, so that a block that leaves and another
//! block that enters the same chunk at one reference change nothing. After that, the pages of the
//! reference's blocks are looked up, in order.
//!
//! An address space has one page table, so that there is one policy for all references of the program,
//! fetches and data, in program order. Each requested stream has TLBs of its own, which look up the pages
//! of the policy. (The paper's TLBs are unified, and its T counts all references.)
//!
//! All TLBs of a stream see the same uses of pages. So one order of the last uses gives the position of a page in all of
//! them ([`recent`]); behind it each TLB has entries of its own.
//!
//! Most touches are of a block that is in every window, at a time when no block leaves. They need no
//! decision, and [`TwoSizes::decide`] is called only for the others. Blocks also leave between touches:
//! chunks are demoted, and if the chunk of the current run is, the next reference of the run is to a small
//! page. Nothing else happens in a run, so that these changes are applied at the next touch
//! ([`TwoSizes::catch_up`]).

mod alternation;
mod chunks;
mod cores;
mod group;
mod indexed;
mod page;
mod positions;
mod recent;
mod result;
mod stacked;
#[cfg(test)]
mod tests;
mod tlbs;
mod wheel;
mod window;

use octavo_trace::Stream;
use octavo_types::{Instructions, PageSize};

use self::chunks::Chunks;
use self::group::{DATA, FETCH, Group};
use self::page::Page;
use self::window::{KINDS, LastRefs, Leaving, Window};
use crate::touches::{Kernel, Row, Rows, Touch, Touches};

pub(crate) use result::add_counts;
pub use result::{
    TwoSizesConfig, TwoSizesIndex, TwoSizesResult, TwoSizesSets, TwoSizesStack, TwoSizesTlbs,
};

/// The kernel for one pair of sizes and all streams. Times are references of the program, counted
/// from 1.
pub struct TwoSizes {
    config: TwoSizesConfig,
    /// The block and the chunk of each row.
    places: Vec<Place>,
    /// The policy's window.
    policy: Window,
    /// Other windows, whose working sets are requested.
    others: Vec<Window>,
    shortest_refs: u64,
    /// A lower bound on the time at which the next block leaves any window.
    next_event: u64,
    /// The last references of each block, without those of the current run.
    last: LastRefs,
    chunks: Chunks,
    groups: Vec<Group>,
    /// Whether the steps of a group must be processed before the next touch.
    is_full: bool,
    /// Look-ups on the running core, of small pages and of large ones, by kind.
    lookups: [[u64; 2]; KINDS],
    /// The current run.
    run: Option<Run>,
    refs: u64,
    promotions: u64,
    demotions: u64,
    blocks_copied: u64,
    blocks_zeroed: u64,
}

/// A block and its chunk, by their dense numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    block: u32,
    chunk: u32,
}

/// References of one kind to one block, which have been on one page since `since`.
#[derive(Clone, Copy)]
struct Run {
    place: Place,
    /// Fetches or data.
    kind: usize,
    is_large: bool,
    since: u64,
}

/// The kind of a touch.
#[inline(always)]
fn kind_of(touch: &Touch) -> usize {
    if touch.is_fetch() { FETCH } else { DATA }
}

impl TwoSizes {
    /// The state before the first reference, with TLBs for each of the streams.
    pub fn new(config: TwoSizesConfig, streams: &[Stream], instructions: Instructions) -> Self {
        let has_sets = |stream| streams.contains(&stream) && !config.windows_refs.is_empty();
        let kinds = [has_sets(Stream::Fetch), has_sets(Stream::Data)];
        let bytes = (config.small.bytes(), config.large.bytes());
        let window = |refs: u64| Window::new(refs, config.threshold_blocks, bytes, kinds);
        let mut others = config.windows_refs.clone();
        others.sort_unstable();
        others.dedup();
        let shortest_refs = others.first().copied().unwrap_or(u64::MAX).min(config.window_refs);
        others.retain(|refs| *refs != config.window_refs);
        let group = |stream: &Stream| Group::new(*stream, &config, instructions);
        TwoSizes {
            places: Vec::new(),
            policy: window(config.window_refs),
            others: others.into_iter().map(window).collect(),
            shortest_refs,
            next_event: 0,
            last: LastRefs {
                by_kind: kinds.map(|kind| kind.then(Vec::new)),
                ..LastRefs::default()
            },
            chunks: Chunks::new(&config),
            groups: streams.iter().map(group).collect(),
            is_full: false,
            lookups: [[0; 2]; KINDS],
            run: None,
            refs: 0,
            promotions: 0,
            demotions: 0,
            blocks_copied: 0,
            blocks_zeroed: 0,
            config,
        }
    }

    /// Completes the counts at the end of the program, which has made `refs` references.
    pub fn finish(&mut self, refs: u64) {
        self.interrupt(refs);
        self.refs = refs;
    }

    /// Switches, after `refs` references, to core `number`, which has TLBs of its own. Core 0 runs at first. The policy
    /// is common to all cores.
    pub fn run_on(&mut self, number: usize, refs: u64) {
        self.interrupt(refs);
        self.groups.iter_mut().for_each(|group| group.cores.run(number));
    }

    /// After `refs` references, empties the TLBs of a core that does not run.
    pub fn flush_core(&mut self, number: usize, refs: u64) {
        self.interrupt(refs);
        self.groups.iter_mut().for_each(|group| group.cores.clear(number));
    }

    /// The counts of the TLBs by stream and core. [`TwoSizes::finish`] must have been called.
    pub fn on_cores(&self) -> Vec<Vec<TwoSizesTlbs>> {
        self.groups.iter().map(|group| group.cores.results()).collect()
    }

    /// Ends the current run after `refs` references, so that the next reference is looked up, and completes the look-ups
    /// of the running core.
    fn interrupt(&mut self, refs: u64) {
        self.leave_run(refs);
        self.catch_up(refs);
        self.end_run(refs);
        self.run = None;
        self.process_steps();
        let lookups = std::mem::take(&mut self.lookups);
        self.groups.iter_mut().for_each(|group| group.count(lookups));
    }

    /// The result of each stream. [`TwoSizes::finish`] must have been called.
    pub fn results(&self) -> Vec<TwoSizesResult> {
        self.groups.iter().map(|group| self.result(group)).collect()
    }

    fn result(&self, group: &Group) -> TwoSizesResult {
        let windows = || self.others.iter().chain([&self.policy]);
        let byte_refs = |refs: &u64| {
            let window = windows().find(|window| window.window_refs == *refs);
            window.map_or(0, |window| window.byte_refs(group.kind(), self.refs))
        };
        let TwoSizesTlbs { small_lookups, large_lookups, stack, sets } =
            TwoSizesTlbs::sum(group.cores.results());
        TwoSizesResult {
            config: self.config.clone(),
            small_lookups,
            large_lookups,
            promotions: self.promotions,
            demotions: self.demotions,
            blocks_copied: self.blocks_copied,
            blocks_zeroed: self.blocks_zeroed,
            stack,
            sets,
            working_set_byte_refs: self.config.windows_refs.iter().map(byte_refs).collect(),
        }
    }
}

impl Kernel for TwoSizes {
    /// Processes the program's touches, in which kinds are distinguished.
    fn process(&mut self, batch: &Touches, rows: &Rows) {
        self.make_room(rows);
        let first = batch.start_refs + 1;
        let mut number = 0;
        while let Some(touch) = batch.touches.get(number) {
            if self.is_full {
                self.process_steps();
            }
            let alternating = self.alternate(batch, number);
            number += alternating.max(1);
            if alternating > 0 {
                continue;
            }
            let place = self.places[touch.row().index()];
            let kind = kind_of(touch);
            if self.run.is_some_and(|run| run.place.block == place.block && run.kind == kind) {
                continue;
            }
            let now = first + u64::from(touch.at_refs());
            let left = first.wrapping_add_signed(touch.left_refs());
            // The second half of the reference that begins this touch.
            let second = batch.touches.get(number);
            let second =
                second.filter(|second| second.is_spilled_with(touch)).map(|second| second.row());
            self.leave_run(left);
            let last = self.last.of_kind(place.block, kind);
            let is_in_windows = last != 0 && now - last <= self.shortest_refs;
            if now >= self.next_event || !is_in_windows || second.is_some() {
                self.decide((now, kind), left == now, [Some(touch.row()), second], rows);
            }
            self.end_run(left);
            self.begin_run(place, kind, now);
            if let Some(second) = second.map(|row| self.places[row.index()])
                && second.block != place.block
            {
                self.end_run(now);
                self.begin_run(second, kind, now);
            }
        }
        self.process_steps();
    }

    fn flush(&mut self, refs: u64) {
        self.interrupt(refs);
        self.groups.iter_mut().for_each(|group| group.cores.running().clear());
    }
}

impl TwoSizes {
    fn make_room(&mut self, rows: &Rows) {
        let number = |page_size: PageSize| {
            let found = rows.sizes().iter().position(|size| size == page_size);
            found.expect("rows have ids at both sizes of a pair")
        };
        let numbers = [self.config.small, self.config.large].map(number);
        let [blocks, chunks] = numbers.map(|number| rows.pages_of(number) as usize);
        for row in (self.places.len()..rows.len()).map(|row| Row(row as u32)) {
            let [block, chunk] = numbers.map(|number| rows.id(row, number));
            self.places.push(Place { block, chunk });
        }
        self.last.make_room(blocks);
        self.chunks.make_room(blocks, chunks);
        for window in self.others.iter_mut().chain([&mut self.policy]) {
            window.make_room(blocks, chunks);
        }
    }

    /// Processes the touches from `number` on that repeat the two before them in alternation, up to the first one at which
    /// a block may leave a window; none if these are fewer than two. Only the order of the two pages changes. Returns the
    /// number of touches.
    #[inline(always)]
    fn alternate(&mut self, batch: &Touches, number: usize) -> usize {
        let touches = &batch.touches[number.saturating_sub(2)..];
        match (self.run, touches) {
            (Some(run), [a, b, c, d, ..]) if number >= 2 && c.repeats(a) && d.repeats(b) => {
                self.alternate_from(run, batch.start_refs + 1, touches)
            }
            _ => 0,
        }
    }

    /// As [`TwoSizes::alternate`], for the touches behind the first two, the second of which belongs to the current run.
    #[inline(never)]
    fn alternate_from(&mut self, current: Run, first: u64, touches: &[Touch]) -> usize {
        let time = |at: usize| first + u64::from(touches[at].at_refs());
        let mut last = 1;
        while let Some(touch) = touches.get(last + 1)
            && touch.repeats(&touches[last - 1])
            && time(last + 1) < self.next_event
        {
            last += 1;
        }
        // Both halves of a reference enter the windows before it is looked up.
        if touches.get(last + 1).is_some_and(|next| next.is_spilled_with(&touches[last])) {
            last -= 1;
        }
        if last < 3 {
            return 0;
        }
        let (place, kind) = (self.places[touches[0].row().index()], kind_of(&touches[0]));
        let other = Run { place, kind, is_large: self.policy.is_large(place.chunk), since: 0 };
        let end = time(last);
        let of_other = (2..last).step_by(2).map(|at| time(at + 1) - time(at)).sum();
        self.count(other, of_other);
        self.count(current, end - current.since - of_other);
        self.look_up(other);
        self.look_up(current);
        if place.block != current.place.block {
            for group in &mut self.groups {
                group.alternate([kind, current.kind], last as u32 - 3);
            }
        }
        let [left, run] = if last % 2 == 0 { [current, other] } else { [other, current] };
        self.last.reference(left.place.block, left.kind, end - 1);
        self.run = Some(Run { since: end, ..run });
        last - 1
    }

    /// Records the last reference of the current run, at `left`.
    #[inline(always)]
    fn leave_run(&mut self, left: u64) {
        if let Some(run) = self.run {
            self.last.reference(run.place.block, run.kind, left);
        }
    }

    /// Counts the run's look-ups, up to `left`.
    #[inline(always)]
    fn end_run(&mut self, left: u64) {
        if let Some(run) = self.run {
            self.count(run, left + 1 - run.since);
        }
    }

    /// Counts look-ups of the page of a run.
    #[inline(always)]
    fn count(&mut self, run: Run, lookups: u64) {
        self.lookups[run.kind][usize::from(run.is_large)] += lookups;
    }

    /// Begins a run at `now`, after the page size of its chunk has been decided.
    #[inline(always)]
    fn begin_run(&mut self, place: Place, kind: usize, now: u64) {
        let run = Run { place, kind, is_large: self.policy.is_large(place.chunk), since: now };
        self.run = Some(run);
        self.look_up(run);
    }

    /// Looks up the page of a run.
    #[inline(always)]
    fn look_up(&mut self, run: Run) {
        let page = Page::new(run.place.block, run.place.chunk, run.is_large);
        for group in &mut self.groups {
            self.is_full |= group.page(run.kind, page);
        }
    }

    /// Moves the current run to a large page, or to a small page, at `now`, and looks that page up.
    fn change_run(&mut self, is_large: bool, now: u64) {
        if let Some(run) = self.run {
            self.count(run, now - run.since);
            let run = Run { is_large, since: now, ..run };
            self.run = Some(run);
            self.look_up(run);
        }
    }

    #[inline(never)]
    fn process_steps(&mut self) {
        self.is_full = false;
        for group in &mut self.groups {
            let tlbs = group.cores.running();
            tlbs.steps().iter().for_each(|step| self.chunks.list(step.page.block));
            tlbs.process_steps(self.chunks.numbers());
        }
    }

    /// Removes the blocks that leave up to `until`, if only the current run has made references since the last
    /// touch.
    #[cold]
    #[inline(never)]
    fn catch_up(&mut self, until: u64) {
        for window in &mut self.others {
            while window.leave(until, &self.last, self.chunks.of_blocks()).is_some() {}
        }
        // The time from which the current run is on a small page that has not been looked up yet.
        let mut demoted_run = None;
        loop {
            let leaving = self.policy.leave(until, &self.last, self.chunks.of_blocks());
            // All chunks of one reference are demoted before its look-up.
            if let Some(time) = demoted_run
                && leaving.is_none_or(|leaving| leaving.time > time)
            {
                demoted_run = None;
                self.change_run(false, time);
            }
            let Some(Leaving { time, chunk, falls_below }) = leaving else { break };
            if falls_below {
                self.demote(chunk);
                if self.run.is_some_and(|run| run.place.chunk == chunk) {
                    demoted_run = Some(time);
                }
            }
        }
        self.update_next_event();
    }

    /// Moves all windows to the reference `now`, of this kind, and then promotes and demotes chunks. The reference
    /// is to the pages `touched` and, if it is `in_run`, first to the page of the current run.
    #[inline(never)]
    fn decide(
        &mut self,
        (now, kind): (u64, usize),
        in_run: bool,
        touched: [Option<Row>; 2],
        rows: &Rows,
    ) {
        if now > self.next_event {
            self.catch_up(now - 1);
        }
        let places = touched.map(|row| row.map(|row| self.places[row.index()]));
        // Chunks whose blocks enter, each once, with the previous size and the number of touched blocks.
        let mut entered: [Option<(u32, bool, u32)>; 2] = [None; 2];
        for (number, place) in places.iter().enumerate() {
            let Some(Place { chunk, .. }) = *place else { continue };
            if number == 0 || entered[0].is_some_and(|(first, ..)| first != chunk) {
                let is_large = self.policy.is_large(chunk);
                entered[number] = Some((chunk, is_large, self.chunks.touched(chunk)));
            }
        }
        let rows_touched = touched.into_iter().flatten();
        for (row, Place { block, chunk }) in rows_touched.zip(places.into_iter().flatten()) {
            if self.last.any[block as usize] == 0 {
                self.chunks.add(block, chunk, rows.page(row).raw());
            }
            for window in self.others.iter_mut().chain([&mut self.policy]) {
                window.reference((block, chunk), kind, now, &self.last);
            }
            self.last.reference(block, kind, now);
        }
        if now >= self.next_event {
            for window in &mut self.others {
                while window.leave(now, &self.last, self.chunks.of_blocks()).is_some() {}
            }
            while let Some(leaving) = self.policy.leave(now, &self.last, self.chunks.of_blocks()) {
                // Chunks that blocks enter are decided below.
                let is_other = |(chunk, ..): &(u32, bool, u32)| *chunk != leaving.chunk;
                if leaving.falls_below && entered.iter().flatten().all(is_other) {
                    self.demote(leaving.chunk);
                }
            }
            self.update_next_event();
        }
        for (chunk, was_large, touched) in entered.into_iter().flatten() {
            match (was_large, self.policy.is_large(chunk)) {
                (false, true) => self.promote(chunk, touched),
                (true, false) => self.demote(chunk),
                _ => {}
            }
        }
        if let Some(Run { place, is_large, .. }) = self.run
            && in_run
            && self.policy.is_large(place.chunk) != is_large
        {
            self.change_run(!is_large, now);
        }
    }

    fn promote(&mut self, chunk: u32, blocks_touched: u32) {
        self.promotions += 1;
        self.blocks_copied += u64::from(blocks_touched);
        self.blocks_zeroed += self.chunks.blocks() - u64::from(blocks_touched);
        self.process_steps();
        self.chunks.changed(chunk, true, &mut self.groups);
    }

    fn demote(&mut self, chunk: u32) {
        self.demotions += 1;
        self.process_steps();
        self.chunks.changed(chunk, false, &mut self.groups);
    }

    /// Updates the lower bound on the time at which the next block leaves a window.
    fn update_next_event(&mut self) {
        let windows = self.others.iter().chain([&self.policy]);
        self.next_event = windows.map(Window::next_event).min().unwrap_or(u64::MAX);
    }
}
