//! A machine that performs random operations of programs, compared with a model of their view.
//!
//! The operating system simulates no contents, so that this model keeps the content of each frame from the
//! reported clears, copies and reads. A TLB and walk caches of unlimited size drop only invalidated entries.

mod blocks;
mod gaps;
mod holes;
mod ops;

use std::collections::{BTreeMap, HashMap};

use octavo_oracle::{NaiveSpaces, file_value};
use octavo_os::frames::fragmentation::{Faults, Fragmentation, HoleLayout};
use octavo_os::frames::{MemoryShape, Order, OutOfMemory, Owner};
use octavo_os::page_table::Format;
use octavo_os::policy::{Policy, PolicyConfig};
use octavo_os::vmas::{Backing, Pages, Vma, pages_of};
use octavo_os::{Content, CopyOnWrite, Memory, Os, ProcessId, SamePages, around};
use octavo_types::{
    Access, AddrRange, Event, FrameNumber, MapSource, PageNumber, PageSize, Protection, VirtAddr,
};
use proptest::prelude::*;

use blocks::NaiveBlocks;
use gaps::CachedGappedPages;
pub use gaps::GappedPages;
use holes::CachedPagesWithHoles;
pub use ops::{Op, PAGES, op};

/// The configuration of a machine.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Base frames of its memory.
    pub frames: u64,
    /// The initial state of its memory.
    pub start: Fragmentation,
    /// The page sizes of its page tables.
    pub sizes: Vec<PageSize>,
    /// The page-table format.
    pub format: Format,
    /// How it copies large pages on a store.
    pub copy_on_write: CopyOnWrite,
    /// The identical pages merged at each background tick.
    pub same_pages: SamePages,
}

/// The content of a frame that was never written.
const GARBAGE: u64 = u64::MAX;

/// Maximum pages of a file mapped at once.
const MAX_FILE_PAGES: u64 = 40;

/// Maximum number of live processes.
const MAX_LIVE: usize = 6;

pub struct Machine {
    os: Os,
    live: Vec<ProcessId>,
    turn: usize,
    instructions: u64,
    naive: NaiveSpaces,
    /// The content of each frame.
    contents: Vec<u64>,
    /// The last stored value; all stored values are distinct.
    stored: u64,
    /// Cached translations: frame and store permission.
    tlb: BTreeMap<(ProcessId, u64), (FrameNumber, bool)>,
    /// Cached nodes, by level and number of the region that they translate.
    walk_caches: BTreeMap<(ProcessId, u8, u64), FrameNumber>,
    holes: CachedPagesWithHoles,
    gaps: CachedGappedPages,
    blocks: NaiveBlocks,
    /// Number of faulty frames.
    faulty_frames: u64,
    /// Number of failures for lack of memory.
    pub failures: u64,
}

impl Machine {
    pub fn new(setup: &Setup, policy: Box<dyn Policy>) -> Self {
        let shape = MemoryShape::new(setup.frames, Order::LINUX).unwrap();
        let frames = setup.start.build(shape, setup.frames).unwrap();
        let mut memory = Memory::new(frames, &setup.sizes, setup.format);
        let faulty_frames = memory.frames.used_frames(Owner::Faulty);
        memory.record_contents();
        let mut os = Os::new(memory, policy).with_copy_on_write(setup.copy_on_write);
        os = os.with_same_pages(setup.same_pages, 1);
        let first = os.spawn().unwrap();
        let mut naive = NaiveSpaces::default();
        naive.spawn(u32::from(first.0));
        Machine {
            os,
            live: vec![first],
            turn: 0,
            instructions: 0,
            naive,
            contents: vec![GARBAGE; setup.frames as usize],
            stored: 0,
            tlb: BTreeMap::new(),
            walk_caches: BTreeMap::new(),
            holes: CachedPagesWithHoles::default(),
            gaps: CachedGappedPages::default(),
            blocks: NaiveBlocks::default(),
            faulty_frames,
            failures: 0,
        }
    }

    pub fn step(&mut self, op: &Op) {
        self.turn += 1;
        let process = self.live[self.turn % self.live.len()];
        match *op {
            Op::Map { at, pages, file, shared } => {
                // File pages stay in memory and must not fill it.
                let pages = if file { pages.min(MAX_FILE_PAGES) } else { pages };
                let source = match file {
                    true => MapSource::File {
                        path: ["a", "b"][at as usize % 2].to_owned(),
                        offset_bytes: (at % 7) << 12,
                    },
                    false => MapSource::Anonymous,
                };
                let flags = if shared { 1 } else { 2 };
                let protection = Protection::from_bits(3);
                self.event(
                    process,
                    &Event::Map { range: range(at, pages), protection, source, flags },
                );
            }
            Op::Unmap { at, pages } => {
                self.event(process, &Event::Unmap { range: range(at, pages) });
            }
            Op::Move { from, pages, to, to_pages } => {
                self.remap(process, from, pages, to, to_pages)
            }
            Op::Protect { at, pages, write } => {
                let protection = Protection::from_bits(if write { 3 } else { 1 });
                self.event(process, &Event::Protect { range: range(at, pages), protection });
            }
            Op::Advise { at, pages, advice } => {
                self.event(process, &Event::Advise { range: range(at, pages), advice });
            }
            Op::Present { at, pages } => {
                let (range, known, first) = (range(at, pages), true, false);
                self.event(process, &Event::Present { range, known, first });
                self.copy_file_pages(process, &pages_of(range));
            }
            Op::Touch { at, pages, store } => {
                for page in at..at + pages {
                    if self.touch(process, PageNumber::new(page), store).is_err() {
                        self.failures += 1;
                        break;
                    }
                }
            }
            Op::Fork if self.live.len() < MAX_LIVE => match self.os.fork(process) {
                Ok(child) => {
                    self.naive.fork(u32::from(process.0), u32::from(child.0));
                    self.live.push(child);
                }
                Err(_) => self.failures += 1,
            },
            Op::End if self.live.len() > 1 => self.end(process),
            Op::Background => {
                self.instructions += 1;
                self.os.background(self.instructions);
            }
            Op::Fork | Op::End => {}
        }
        self.apply_invalidations();
    }

    /// Marks the pages of private mappings that no longer lie in the file's frames as copies, as a store does.
    fn copy_file_pages(&mut self, process: ProcessId, pages: &Pages) {
        let memory = self.os.memory();
        let space = memory.process(process);
        for (part, vma) in space.vmas.within(pages) {
            let Backing::Object { object, origin, shared: false } = vma.backing else { continue };
            for page in part {
                let leaf = space.table.leaf(PageNumber::new(page));
                let in_file = memory.object_page(object, page.wrapping_sub(origin));
                if leaf.is_some_and(|leaf| Some(leaf.frame) != in_file) {
                    let process = u32::from(process.0);
                    let value = self.naive.load(process, page);
                    self.naive.store(process, page, value);
                }
            }
        }
    }

    fn end(&mut self, process: ProcessId) {
        self.live.retain(|other| *other != process);
        self.os.end(process);
        self.naive.end(u32::from(process.0));
        self.blocks.end(process);
        self.apply_invalidations();
        assert!(!self.tlb.keys().any(|(owner, _)| *owner == process), "all of it is stale");
        self.walk_caches.retain(|(owner, _, _), _| *owner != process);
        self.holes.end(process);
        self.gaps.invalidate(process, &(0..u64::MAX));
    }

    fn event(&mut self, process: ProcessId, event: &Event) {
        match self.os.event(process, event) {
            Ok(()) => self.naive.event(u32::from(process.0), event),
            Err(_) => self.failures += 1,
        }
    }

    /// Remaps as Linux allows it: one mapping, without overlap.
    fn remap(&mut self, process: ProcessId, from: u64, pages: u64, to: u64, to_pages: u64) {
        let found = self.os.memory().process(process).vmas.find(PageNumber::new(from));
        let Some((mapping, _)) = found else { return };
        let (from, to) = (range(from, pages.min(mapping.end - from)), range(to, to_pages));
        if from.end() <= to.start() || to.end() <= from.start() || from.start() == to.start() {
            self.event(process, &Event::Remap { from, to });
        }
    }

    fn touch(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        store: bool,
    ) -> Result<(), OutOfMemory> {
        // Excess parts of large pages beyond their mapping are unmapped with it and must not be used.
        let space = self.os.memory().process(process);
        let large = space.table.leaf(page).is_some_and(|leaf| leaf.size > PageSize::BASE);
        if large && space.vmas.find(page).is_none() {
            return Ok(());
        }
        let access = if store { Access::Store } else { Access::Load };
        let served = |os: &Os| {
            let leaf = os.memory().process(process).table.leaf(page);
            leaf.filter(|leaf| !store || leaf.rights.write)
        };
        if served(&self.os).is_none() {
            self.os.fault(process, page, access)?;
            self.apply_invalidations();
        }
        let leaf = served(&self.os).expect("a fault maps the page");
        let frame = leaf.frame_of(page);
        let (number, at) = (u32::from(process.0), page.raw());
        assert_eq!(self.contents[frame.raw() as usize], self.naive.load(number, at), "{page:?}");
        if store {
            self.stored += 1;
            self.contents[frame.raw() as usize] = self.stored;
            self.os.memory_mut().record_store(frame);
            self.naive.store(number, at, self.stored);
        }
        self.os.memory_mut().process_mut(process).table.mark(page, store);
        let walk = self.os.memory().process(process).table.walk(page);
        let cached = walk.cacheable().expect("it is mapped");
        assert_eq!(cached.frame_of(page), frame, "{page:?} is at its place in its block");
        let has_hint = cached != leaf;
        let pages = if has_hint { around(page, cached.size) } else { around(page, PageSize::BASE) };
        for at in pages {
            let frame = cached.frame_of(PageNumber::new(at));
            let before = self.tlb.insert((process, at), (frame, leaf.rights.write));
            let is_right = |(cached, write): (FrameNumber, bool)| {
                cached == frame && (leaf.rights.write || !write)
            };
            assert!(before.is_none_or(is_right), "page {at} was stale");
        }
        for step in walk.steps() {
            self.walk_caches.insert((process, step.level, at >> (9 * step.level)), step.at.frame());
        }
        self.holes.walked(self.os.memory(), process, page);
        self.gaps.walked(self.os.memory(), process, page);
        Ok(())
    }

    /// Applies the effects of the last operation.
    fn apply_invalidations(&mut self) {
        for content in self.os.memory_mut().take_contents() {
            let slots = |frame: FrameNumber, frames: u64| {
                frame.raw() as usize..(frame.raw() + frames) as usize
            };
            match content {
                Content::Zeroed { frame, frames } => self.contents[slots(frame, frames)].fill(0),
                Content::Copied { from, to, frames } => {
                    self.contents.copy_within(slots(from, frames), to.raw() as usize);
                }
                Content::Read { object, index, frame } => {
                    self.contents[frame.raw() as usize] = file_value(object.0, index);
                }
            }
        }
        let invalidations = self.os.take_invalidations();
        self.blocks.end_operation(self.os.memory());
        for stale in invalidations {
            let (process, pages) = (stale.process, stale.pages);
            remove_range(&mut self.tlb, (process, pages.start)..(process, pages.end));
            self.holes.invalidate(process, &pages);
            self.gaps.invalidate(process, &pages);
            for level in 1..=5 {
                let region = |page: u64| (process, level, page >> (9 * level));
                let end = (process, level, region(pages.end - 1).2 + 1);
                remove_range(&mut self.walk_caches, region(pages.start)..end);
            }
        }
    }

    /// Checks all invariants.
    pub fn check(&self) {
        let memory = self.os.memory();
        assert_eq!(memory.check(), Ok(()));
        // Faulty frames hold no data, by the owners and by this model.
        assert_eq!(memory.frames.used_frames(Owner::Faulty), self.faulty_frames);
        let mut writers: HashMap<FrameNumber, (ProcessId, u64)> = HashMap::new();
        for process in &self.live {
            let space = memory.process(*process);
            let number = u32::from(process.0);
            for leaf in memory.leaves(*process, &(0..u64::MAX)) {
                let vma = space.vmas.find(leaf.page).map(|(_, vma)| vma);
                let alone = leaf.rights.write && !vma.is_some_and(|vma| is_shared(&vma));
                for page in around(leaf.page, leaf.size) {
                    let frame = leaf.frame_of(PageNumber::new(page));
                    let (holds, expected) =
                        (self.contents[frame.raw() as usize], self.naive.load(number, page));
                    assert_eq!(holds, expected, "{process:?}, page {page} in {frame:?}");
                    if alone {
                        let before = writers.insert(frame, (*process, page));
                        assert_eq!(before, None, "{frame:?} is one page's alone");
                        assert!(!memory.is_frame_shared(frame), "{frame:?} is shared");
                    }
                }
            }
            for page in self.naive.own_pages(number) {
                let used = space.table.used(PageNumber::new(page));
                assert_eq!(used.map(|used| used.1), Some(true), "page {page} was stored to");
            }
        }
        self.check_cached();
    }

    /// Checks that cached translations are correct.
    fn check_cached(&self) {
        let table = |process| &self.os.memory().process(process).table;
        for ((process, page), (frame, write)) in &self.tlb {
            let page = PageNumber::new(*page);
            let leaf = table(*process).leaf(page);
            let leaf = leaf.unwrap_or_else(|| panic!("{page:?} is stale: nothing is there"));
            assert_eq!(leaf.frame_of(page), *frame, "{page:?} is stale");
            assert!(leaf.rights.write || !write, "{page:?} is stale: no stores now");
        }
        for ((process, level, region), frame) in &self.walk_caches {
            let walk = table(*process).walk(PageNumber::new(region << (9 * level)));
            let step = walk.steps().iter().find(|step| step.level == *level);
            let node = step.map(|step| step.at.frame());
            assert_eq!(node, Some(*frame), "the node of level {level}, region {region} is stale");
        }
        self.holes.check(self.os.memory());
        self.gaps.check(self.os.memory());
    }

    /// Ends all processes, and checks that nothing remains.
    pub fn finish(mut self) {
        self.check();
        for process in self.live.clone() {
            self.end(process);
            self.check();
        }
        assert_eq!(self.tlb.len(), 0);
    }

    /// The operating system.
    pub fn os(&self) -> &Os {
        &self.os
    }
}

/// Addresses of base pages.
pub fn range(at: u64, pages: u64) -> AddrRange {
    AddrRange::new(VirtAddr::new(at << 12), pages << 12)
}

/// Removes all keys of a range.
fn remove_range<K: Ord + Copy, V>(map: &mut BTreeMap<K, V>, keys: std::ops::Range<K>) {
    let removed: Vec<K> = map.range(keys).map(|(key, _)| *key).collect();
    for key in removed {
        map.remove(&key);
    }
}

fn is_shared(vma: &Vma) -> bool {
    matches!(vma.backing, Backing::Object { shared: true, .. })
}

/// Plays a program, with periodic checks. Returns the number of failures for lack of memory.
pub fn play(setup: &Setup, policy: Box<dyn Policy>, ops: &[Op]) -> u64 {
    let mut machine = Machine::new(setup, policy);
    for (number, op) in ops.iter().enumerate() {
        machine.step(op);
        if number % 8 == 0 {
            machine.check();
        }
    }
    let failures = machine.failures;
    machine.finish();
    failures
}

/// Random machines with much memory or little. [`preserves_contents`] adds the page sizes that a policy requires.
pub fn setup() -> impl Strategy<Value = Setup> {
    let frames = prop_oneof![Just(1u64 << 16), 40u64..6000];
    let same_pages = prop_oneof![
        3 => Just(SamePages::Never), 1 => Just(SamePages::Base), 1 => Just(SamePages::All),
    ];
    (frames, any::<bool>(), any::<bool>(), 0u32..5, same_pages).prop_map(
        |(frames, conventional, whole, faults, same_pages)| {
            let (portion, layout) = (f64::from(faults) / 100.0, HoleLayout::Dispersed);
            let all_sizes = || (12..=30).filter_map(PageSize::from_log2).collect();
            Setup {
                frames,
                start: Fragmentation::Faults(Faults { portion, layout }),
                sizes: if conventional { vec![PageSize::HUGE] } else { all_sizes() },
                format: Format::default(),
                copy_on_write: if whole { CopyOnWrite::Whole } else { CopyOnWrite::Split },
                same_pages,
            }
        },
    )
}

/// Plays operations under a policy, which must not fail with much memory.
pub fn preserves_contents(
    mut setup: Setup,
    config: &PolicyConfig,
    ops: &[Op],
) -> Result<(), TestCaseError> {
    setup.sizes.extend(config.required_sizes());
    let failures = play(&setup, config.build(), ops);
    prop_assert!(setup.frames < 1 << 16 || failures == 0);
    Ok(())
}
