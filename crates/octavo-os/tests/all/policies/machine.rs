//! A system under random events, with the invariants of every policy: frames are neither lost nor wrongly
//! shared, touched pages are mapped, and cached translations that obey invalidations are never wrong.

use std::collections::{BTreeSet, HashMap};

use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
use octavo_os::page_table::Format;
use octavo_os::policy::Policy;
use octavo_os::vmas::{Backing, Pages, Vma, pages_of};
use octavo_os::{Memory, Os, ProcessId, base_pages};
use octavo_types::{
    Access, AddrRange, Event, FrameNumber, MapSource, PageNumber, PageSize, Protection, VirtAddr,
};
use proptest::prelude::*;

/// Base pages that the processes use: twelve huge pages.
pub const PAGES: u64 = 12 * 512;

/// `MADV_DONTNEED` of `madvise(2)`.
const DONTNEED: u64 = 4;

#[derive(Clone, Debug)]
pub enum Op {
    Event(Event),
    Move { from: u64, pages: u64, to: u64, to_pages: u64 },
    Touch { at: u64, pages: u64, store: bool },
    Fork,
    End,
    Background,
}

#[derive(Clone, Copy, Debug)]
pub enum Source {
    Anonymous,
    Heap,
    Stack,
    HugeTlb,
    Shared,
    File,
    SharedFile,
}

pub fn op() -> impl Strategy<Value = Op> {
    let at = || 0..PAGES - 1100;
    let pages = || prop_oneof![1u64..5, 5u64..80, 500u64..1100];
    let source = prop_oneof![
        4 => Just(Source::Anonymous),
        2 => Just(Source::Heap),
        1 => Just(Source::Stack),
        2 => Just(Source::HugeTlb),
        1 => Just(Source::Shared),
        1 => Just(Source::File),
        1 => Just(Source::SharedFile),
    ];
    prop_oneof![
        6 => (at(), pages(), source).prop_map(|(at, pages, source)| Op::Event(map(at, pages, source))),
        2 => (at(), pages()).prop_map(|(at, pages)| Op::Event(unmap(at, pages))),
        1 => (at(), pages(), at(), pages())
            .prop_map(|(from, pages, to, to_pages)| Op::Move { from, pages, to, to_pages }),
        2 => (at(), pages(), prop::sample::select(vec![0u64, 1, 3]))
            .prop_map(|(at, pages, rights)| Op::Event(protect(at, pages, rights))),
        1 => (at(), pages()).prop_map(|(at, pages)| Op::Event(advise(at, pages, DONTNEED))),
        16 => (at(), 1u64..80, any::<bool>())
            .prop_map(|(at, pages, store)| Op::Touch { at, pages, store }),
        2 => (at(), pages()).prop_map(|(at, pages)| Op::Event(present(at, pages))),
        1 => Just(Op::Fork),
        1 => Just(Op::End),
        2 => Just(Op::Background),
    ]
}

pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..60)
}

pub fn unmap(at: u64, pages: u64) -> Event {
    Event::Unmap { range: range(at, pages) }
}

pub fn protect(at: u64, pages: u64, rights: u64) -> Event {
    Event::Protect { range: range(at, pages), protection: Protection::from_bits(rights) }
}

pub fn advise(at: u64, pages: u64, advice: u64) -> Event {
    Event::Advise { range: range(at, pages), advice }
}

pub fn present(at: u64, pages: u64) -> Event {
    Event::Present { range: range(at, pages), known: true, first: false }
}

pub fn range(at: u64, pages: u64) -> AddrRange {
    AddrRange::new(VirtAddr::new(at << 12), pages << 12)
}

pub fn map(at: u64, pages: u64, source: Source) -> Event {
    /// `MAP_SHARED`, `MAP_PRIVATE`, `MAP_HUGETLB` of `mmap(2)`.
    const SHARED: u64 = 1;
    const PRIVATE: u64 = 2;
    const HUGETLB: u64 = 0x40000;
    let file = MapSource::File { path: "a".to_owned(), offset_bytes: (at % 7) << 12 };
    let (source, flags) = match source {
        Source::Anonymous => (MapSource::Anonymous, PRIVATE),
        Source::Heap => (MapSource::Heap, 0),
        Source::Stack => (MapSource::Stack, 0),
        Source::HugeTlb => (MapSource::Anonymous, PRIVATE | HUGETLB),
        Source::Shared => (MapSource::Anonymous, SHARED),
        Source::File => (file, PRIVATE),
        Source::SharedFile => (file, SHARED),
    };
    Event::Map { range: range(at, pages), protection: Protection::from_bits(3), source, flags }
}

/// All sizes from 4 KiB to 1 GiB.
pub fn all_sizes() -> Vec<PageSize> {
    (12..=30).filter_map(PageSize::from_log2).collect()
}

/// A system with its processes.
pub struct Machine {
    pub os: Os,
    pub live: Vec<ProcessId>,
    turn: usize,
    instructions: u64,
    /// Translations cached by hardware of unlimited size: frame and store permission.
    cached: HashMap<(ProcessId, u64), (FrameNumber, bool)>,
    /// Pages touched and not given back since, which must be mapped.
    present: BTreeSet<(ProcessId, u64)>,
}

impl Machine {
    pub fn new(frames: u64, largest: Order, sizes: &[PageSize], policy: Box<dyn Policy>) -> Self {
        let frames = Frames::new(MemoryShape::new(frames, largest).unwrap());
        Machine::with(Memory::new(frames, sizes, Format::default()), policy)
    }

    pub fn with(mut memory: Memory, policy: Box<dyn Policy>) -> Self {
        let first = memory.spawn().unwrap();
        let os = Os::new(memory, policy);
        Machine {
            os,
            live: vec![first],
            turn: 0,
            instructions: 0,
            cached: HashMap::new(),
            present: BTreeSet::new(),
        }
    }

    pub fn event(&mut self, process: ProcessId, event: &Event) {
        match event {
            Event::Map { range, .. } | Event::Unmap { range } | Event::Advise { range, .. } => {
                self.give_back(process, pages_of(*range));
            }
            Event::Remap { from, to } => self.moved(process, pages_of(*from), pages_of(*to)),
            Event::Present { range, .. } => {
                let parts = self.os.memory().process(process).vmas.within(&pages_of(*range));
                let is_shared = |vma: &Vma| vma.shared_object().is_some();
                for (part, _) in parts.into_iter().filter(|(_, vma)| !is_shared(vma)) {
                    self.present.extend(part.map(|page| (process, page)));
                }
            }
            _ => {}
        }
        self.os.event(process, event).unwrap();
        self.invalidate();
    }

    fn give_back(&mut self, process: ProcessId, pages: Pages) -> Vec<u64> {
        let keys = (process, pages.start)..(process, pages.end);
        let removed: Vec<_> = self.present.range(keys).copied().collect();
        removed.iter().for_each(|page| assert!(self.present.remove(page)));
        removed.into_iter().map(|(_, page)| page).collect()
    }

    fn moved(&mut self, process: ProcessId, from: Pages, to: Pages) {
        let pages = self.give_back(process, from.clone());
        self.give_back(process, to.clone());
        let moved = pages.into_iter().map(|page| page - from.start + to.start);
        self.present.extend(moved.filter(|page| to.contains(page)).map(|page| (process, page)));
    }

    pub fn step(&mut self, op: &Op) {
        self.turn += 1;
        let process = self.live[self.turn % self.live.len()];
        match *op {
            Op::Event(ref event) => self.event(process, event),
            Op::Move { from, pages, to, to_pages } => {
                let (from, mut to) = (range(from, pages), range(to, to_pages));
                if from.end() > to.start() && to.end() > from.start() {
                    to = AddrRange::new(from.start(), to.bytes());
                }
                // Nothing grows over existing mappings.
                let behind = pages_of(from).end..pages_of(to).end;
                let vmas = &self.os.memory().process(process).vmas;
                if from.start() == to.start() && !vmas.within(&behind).is_empty() {
                    return;
                }
                self.event(process, &Event::Remap { from, to });
            }
            Op::Touch { at, pages, store } => {
                (at..at + pages).for_each(|page| self.touch(process, page, store));
            }
            Op::Fork if self.live.len() < 3 => {
                let child = self.os.fork(process).unwrap();
                self.live.push(child);
                let pages = self.present.range((process, 0)..(process, u64::MAX));
                let copied: Vec<_> = pages.map(|(_, page)| (child, *page)).collect();
                self.present.extend(copied);
                self.invalidate();
            }
            Op::End if self.live.len() > 1 => self.end(process),
            Op::Background => {
                self.instructions += 1;
                self.os.background(self.instructions);
                self.invalidate();
            }
            Op::Fork | Op::End => {}
        }
    }

    pub fn end(&mut self, process: ProcessId) {
        self.live.retain(|other| *other != process);
        self.os.end(process);
        self.invalidate();
        self.cached.retain(|(owner, _), _| *owner != process);
        self.give_back(process, 0..u64::MAX);
    }

    pub fn touch(&mut self, process: ProcessId, page: u64, store: bool) {
        let access = if store { Access::Store } else { Access::Load };
        let served = |os: &Os| {
            let leaf = os.memory().process(process).table.leaf(PageNumber::new(page));
            leaf.filter(|leaf| !store || leaf.rights.write)
        };
        if served(&self.os).is_none() {
            self.os.fault(process, PageNumber::new(page), access).unwrap();
            self.invalidate();
        }
        let leaf = served(&self.os).expect("a fault maps the page");
        self.os.memory_mut().process_mut(process).table.mark(PageNumber::new(page), store);
        // Pages past the end of mappings are released with the page that reached there.
        if self.os.memory().process(process).vmas.find(PageNumber::new(page)).is_some() {
            self.present.insert((process, page));
        }
        let frame = leaf.frame_of(PageNumber::new(page));
        let cached = self.cached.entry((process, page)).or_insert((frame, false));
        assert_eq!(cached.0, frame, "page {page} moved without an invalidation");
        cached.1 |= leaf.rights.write;
    }

    fn invalidate(&mut self) {
        for stale in self.os.take_invalidations() {
            if stale.pages.end - stale.pages.start > self.cached.len() as u64 {
                self.cached.retain(|(process, page), _| {
                    *process != stale.process || !stale.pages.contains(page)
                });
                continue;
            }
            for page in stale.pages {
                self.cached.remove(&(stale.process, page));
            }
        }
    }

    /// Number of data frames.
    pub fn data_frames(&self) -> u64 {
        self.os.memory().frames.used_frames(Owner::Data)
    }

    pub fn check(&self) -> Result<(), TestCaseError> {
        let memory = self.os.memory();
        let frames = &memory.frames;
        let used = frames.shape().frames() - frames.free_frames();
        let foreign =
            [true, false].map(|movable| frames.used_frames(Owner::Background { movable }));
        let others = frames.used_frames(Owner::Reserved) + foreign.iter().sum::<u64>();
        prop_assert_eq!(used, memory.frames_in_use() + others, "no frame is lost");
        prop_assert_eq!(memory.check(), Ok(()));
        for (&(process, page), &(frame, write)) in &self.cached {
            let leaf = memory.process(process).table.leaf(PageNumber::new(page));
            let now = leaf.map(|leaf| leaf.frame_of(PageNumber::new(page)));
            prop_assert_eq!(now, Some(frame), "page {} is kept wrongly", page);
            prop_assert!(!write || leaf.unwrap().rights.write, "page {} is kept for stores", page);
        }
        for &(process, page) in &self.present {
            let leaf = memory.process(process).table.leaf(PageNumber::new(page));
            prop_assert!(leaf.is_some(), "page {} was touched, and is gone", page);
        }
        self.check_writers()
    }

    fn check_writers(&self) -> Result<(), TestCaseError> {
        let memory = self.os.memory();
        let mut writers: HashMap<FrameNumber, (ProcessId, u64)> = HashMap::new();
        for process in &self.live {
            for leaf in memory.leaves(*process, &(0..PAGES * 2)) {
                let vma = memory.process(*process).vmas.find(leaf.page);
                let shared = vma.is_some_and(|(_, vma)| {
                    matches!(vma.backing, Backing::Object { shared: true, .. })
                });
                if !leaf.rights.write || shared {
                    continue;
                }
                for page in leaf.page.raw()..leaf.page.raw() + base_pages(leaf.size) {
                    let frame = leaf.frame_of(PageNumber::new(page));
                    let before = writers.insert(frame, (*process, page));
                    prop_assert_eq!(before, None, "{:?} is one page's alone", frame);
                    prop_assert!(!memory.is_frame_shared(frame), "{:?} is shared", frame);
                    prop_assert_eq!(memory.frames.owner(frame), Some(Owner::Data));
                }
            }
        }
        Ok(())
    }

    /// Plays events with periodic checks, and ends all processes: only `kept_frames` may remain allocated.
    pub fn play(&mut self, ops: &[Op], kept_frames: u64) -> Result<(), TestCaseError> {
        for (number, op) in ops.iter().enumerate() {
            self.step(op);
            if number % 8 == 0 {
                self.check()?;
            }
        }
        self.check()?;
        for process in self.live.clone() {
            self.end(process);
        }
        self.check()?;
        let frames = &self.os.memory().frames;
        prop_assert_eq!(frames.used_frames(Owner::Reserved), kept_frames);
        Ok(())
    }
}
