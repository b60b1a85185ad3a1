//! Two page sizes under the dynamic policy of Talluri et al., "Tradeoffs in supporting two page
//! sizes", section 3.4, in every TLB at once.
//!
//! At a reference the blocks leave the window that were last referenced before it began (the
//! block that is referenced is not one of them), in order of time; then its block enters; then its
//! page is looked up as it is now. A reference that spans two blocks does so twice.
//!
//! Between touches blocks leave, too: chunks are demoted, and where that is the chunk of the run
//! under way, its next reference is one to a small page. Nothing else happens in a run, so all of
//! it is caught up on when the next touch comes ([`TwoSizes::catch_up`]).

mod by_small;
mod chunks;
mod cores;
mod indexed;
mod result;
mod stacked;
#[cfg(test)]
mod tests;
mod tlbs;
mod turns;
mod wheel;
mod window;

use octavo_types::{Instructions, PageSize};

use self::chunks::Chunks;
use self::cores::Cores;
use self::window::{Leaving, Window};
use crate::touches::{Kernel, Row, Rows, Touches};

pub(crate) use result::add_counts;
pub use result::{
    TwoSizesConfig, TwoSizesIndex, TwoSizesResult, TwoSizesSets, TwoSizesStack, TwoSizesTlbs,
};

/// The kernel for one stream. Times are references, counted from 1.
pub struct TwoSizes {
    config: TwoSizesConfig,
    /// Which of the rows' sizes are the small and the large one.
    numbers: [usize; 2],
    /// The policy's window, and others whose working sets are asked for.
    policy: Window,
    others: Vec<Window>,
    shortest_refs: u64,
    /// Nothing leaves any window before.
    next_event: u64,
    /// By block, when it was last referenced, that of the current one as of its run before; 0 for
    /// never.
    last: Vec<u64>,
    chunks: Chunks,
    tlbs: Cores,
    /// The run under way.
    run: Option<Run>,
    refs: u64,
    promotions: u64,
    demotions: u64,
    blocks_copied: u64,
    blocks_zeroed: u64,
}

/// References to one block, which stay on one page since `since`.
#[derive(Clone, Copy)]
struct Run {
    block: u32,
    chunk: u32,
    is_large: bool,
    since: u64,
}

impl TwoSizes {
    /// One pair of sizes.
    pub fn new(config: TwoSizesConfig, instructions: Instructions) -> Self {
        let bytes = (config.small.bytes(), config.large.bytes());
        let window = |refs: u64| Window::new(refs, config.threshold_blocks, bytes.0, bytes.1);
        let mut others = config.windows_refs.clone();
        others.sort_unstable();
        others.dedup();
        let shortest_refs = others.first().copied().unwrap_or(u64::MAX).min(config.window_refs);
        others.retain(|refs| *refs != config.window_refs);
        TwoSizes {
            numbers: [0; 2],
            policy: window(config.window_refs),
            others: others.into_iter().map(window).collect(),
            shortest_refs,
            next_event: 0,
            last: Vec::new(),
            chunks: Chunks::new(&config),
            tlbs: Cores::new(&config, instructions),
            run: None,
            refs: 0,
            promotions: 0,
            demotions: 0,
            blocks_copied: 0,
            blocks_zeroed: 0,
            config,
        }
    }

    /// The stream is over; it had `refs` references.
    pub fn finish(&mut self, refs: u64) {
        self.interrupt(refs);
        self.tlbs.settle();
        self.refs = refs;
    }

    /// After `refs` references core `number` runs on, of those that have TLBs of their own; 0 has
    /// so far. The policy is the same for all of them.
    pub fn run_on(&mut self, number: usize, refs: u64) {
        self.interrupt(refs);
        self.tlbs.run(number);
    }

    /// After `refs` references, empties the TLBs of a core that does not run.
    pub fn flush_core(&mut self, number: usize, refs: u64) {
        self.interrupt(refs);
        self.tlbs.clear(number);
    }

    /// What the TLBs of each core did, once it is finished.
    pub fn on_cores(&self) -> Vec<TwoSizesTlbs> {
        self.tlbs.results()
    }

    /// Ends the run under way after `refs` references: whatever comes next is looked up.
    fn interrupt(&mut self, refs: u64) {
        self.leave_run(refs);
        self.catch_up(refs, refs, None);
        self.end_run(refs);
        self.run = None;
    }

    /// What came of it, once it is finished.
    pub fn result(&self) -> TwoSizesResult {
        let windows = || self.others.iter().chain([&self.policy]);
        let byte_refs = |refs: &u64| {
            let window = windows().find(|window| window.window_refs == *refs);
            window.map_or(0, |window| window.byte_refs(self.refs))
        };
        let TwoSizesTlbs { small_lookups, large_lookups, stack, sets } =
            TwoSizesTlbs::sum(self.on_cores());
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
    fn take(&mut self, batch: &Touches, rows: &Rows) {
        self.make_room(rows);
        let [small, large] = self.numbers;
        let first = batch.start_refs + 1;
        for touch in &batch.touches {
            let block = rows.id(touch.row(), small);
            if self.run.is_some_and(|run| run.block == block) {
                continue;
            }
            let chunk = rows.id(touch.row(), large);
            let now = first + u64::from(touch.at_refs());
            let left = first.wrapping_add_signed(touch.left_refs());
            self.leave_run(left);
            if now >= self.next_event {
                // What a second half's window begins with has left for the first half.
                self.catch_up(now, left, (left < now).then_some(block));
            }
            self.end_run(left);
            let gap = now - self.last[block as usize];
            if gap + u64::from(touch.is_spilled()) > self.shortest_refs
                || self.last[block as usize] == 0
            {
                self.enter(touch.row(), [block, chunk], now, touch.is_spilled(), rows);
            }
            let is_large = self.policy.is_large(chunk);
            self.run = Some(Run { block, chunk, is_large, since: now });
            self.tlbs.page(self.chunks.page(block, chunk, is_large));
        }
        self.tlbs.settle();
    }

    fn flush(&mut self, refs: u64) {
        self.interrupt(refs);
        self.tlbs.clear_running();
    }
}

impl TwoSizes {
    fn make_room(&mut self, rows: &Rows) {
        let number = |asked: PageSize| {
            let found = rows.sizes().iter().position(|size| size == asked);
            found.expect("rows have ids at both sizes of a pair")
        };
        self.numbers = [self.config.small, self.config.large].map(number);
        let [blocks, chunks] = self.numbers.map(|number| rows.pages_of(number) as usize);
        self.last.resize(blocks, 0);
        self.chunks.make_room(blocks, chunks);
        for window in self.others.iter_mut().chain([&mut self.policy]) {
            window.make_room(blocks, chunks);
        }
    }

    /// The last reference of the run under way was at `left`.
    #[inline(always)]
    fn leave_run(&mut self, left: u64) {
        if let Some(run) = self.run {
            self.last[run.block as usize] = left;
        }
    }

    /// Counts the run's look-ups, up to `left`.
    #[inline(always)]
    fn end_run(&mut self, left: u64) {
        if let Some(run) = self.run {
            self.tlbs.count(run.is_large, left + 1 - run.since);
        }
    }

    /// Lets leave what leaves up to `now`, where the run under way was left at `left` and block
    /// `own` is referenced.
    #[cold]
    #[inline(never)]
    fn catch_up(&mut self, now: u64, left: u64, own: Option<u32>) {
        for window in &mut self.others {
            while window.leave(now, own, &self.last, self.chunks.of_blocks()).is_some() {}
        }
        // When the run under way went on, on a small page, that is not looked up yet.
        let mut went_on = None;
        loop {
            let leaving = self.policy.leave(now, own, &self.last, self.chunks.of_blocks());
            if went_on.is_some_and(|since| leaving.is_none_or(|leaving| leaving.time > since)) {
                went_on = None;
                let run = self.run.map(|run| self.chunks.page(run.block, run.chunk, false));
                run.into_iter().for_each(|page| self.tlbs.page(page));
            }
            let Some(Leaving { time, chunk, demoted }) = leaving else { break };
            if !demoted {
                continue;
            }
            self.demotions += 1;
            self.chunks.changed(chunk, false, &mut self.tlbs);
            if let Some(run) = self.run.as_mut().filter(|run| run.chunk == chunk && time <= left) {
                self.tlbs.count(true, time - run.since);
                (run.is_large, run.since) = (false, time);
                went_on = Some(time);
            }
        }
        let windows = self.others.iter().chain([&self.policy]);
        self.next_event = windows.map(Window::next_event).min().unwrap_or(u64::MAX);
    }

    /// A block is referenced that is not in every window.
    #[inline(never)]
    fn enter(&mut self, row: Row, [block, chunk]: [u32; 2], now: u64, spilled: bool, rows: &Rows) {
        let last = self.last[block as usize];
        // A block is in a window up to the reference where it would leave, if that is to itself; a
        // second half finds that it has left.
        let away = if last == 0 { u64::MAX } else { now - last + u64::from(spilled) };
        let copied = self.chunks.touched(chunk);
        if last == 0 {
            self.chunks.add(block, chunk, rows.page(row).raw());
        }
        for window in self.others.iter_mut().filter(|window| window.window_refs < away) {
            window.enter(block, chunk, now);
        }
        if self.policy.window_refs < away && self.policy.enter(block, chunk, now) {
            self.promotions += 1;
            self.blocks_copied += u64::from(copied);
            self.blocks_zeroed += self.chunks.blocks() - u64::from(copied);
            self.chunks.changed(chunk, true, &mut self.tlbs);
        }
    }
}
