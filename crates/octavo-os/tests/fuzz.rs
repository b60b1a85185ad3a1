//! Processes that map, touch, unmap, move, protect and fork at random: no frame is lost, none is
//! held by two that should not share it, and what was touched is mapped.

use std::collections::HashMap;

use octavo_os::frames::{Frames, MemoryShape, Order};
use octavo_os::page_table::Format;
use octavo_os::policy::{BasePages, Policy, Thp, ThpConfig};
use octavo_os::{Access, Memory, Os, ProcessId};
use octavo_types::{
    AddrRange, Event, FrameNumber, MapSource, PageNumber, PageSize, Protection, VirtAddr,
};
use proptest::prelude::*;

const FRAMES: u64 = 1 << 15;
/// Base pages that the processes use: twelve huge pages.
const PAGES: u64 = 12 * 512;

#[derive(Clone, Debug)]
enum Op {
    Map { at: u64, pages: u64, file: bool, shared: bool },
    Unmap { at: u64, pages: u64 },
    Move { from: u64, pages: u64, to: u64, to_pages: u64 },
    Protect { at: u64, pages: u64, write: bool },
    Discard { at: u64, pages: u64 },
    Touch { at: u64, pages: u64, store: bool },
    Fork,
    End,
    Background,
}

fn op() -> impl Strategy<Value = Op> {
    let at = || 0..PAGES - 1100;
    let pages = || prop_oneof![1u64..5, 500u64..1100];
    prop_oneof![
        4 => (at(), pages(), any::<bool>(), any::<bool>())
            .prop_map(|(at, pages, file, shared)| Op::Map { at, pages, file, shared }),
        2 => (at(), pages()).prop_map(|(at, pages)| Op::Unmap { at, pages }),
        1 => (at(), pages(), at(), pages())
            .prop_map(|(from, pages, to, to_pages)| Op::Move { from, pages, to, to_pages }),
        2 => (at(), pages(), any::<bool>())
            .prop_map(|(at, pages, write)| Op::Protect { at, pages, write }),
        1 => (at(), pages()).prop_map(|(at, pages)| Op::Discard { at, pages }),
        12 => (at(), 1u64..40, any::<bool>())
            .prop_map(|(at, pages, store)| Op::Touch { at, pages, store }),
        1 => Just(Op::Fork),
        1 => Just(Op::End),
        2 => Just(Op::Background),
    ]
}

fn range(at: u64, pages: u64) -> AddrRange {
    AddrRange::new(VirtAddr::new(at << 12), pages << 12)
}

/// A system and the processes that live in it.
struct Machine {
    os: Os,
    live: Vec<ProcessId>,
    turn: usize,
    instructions: u64,
}

impl Machine {
    fn new(policy: Box<dyn Policy>) -> Self {
        let sizes = [PageSize::BASE, PageSize::HUGE];
        let mut memory = Memory::new(
            Frames::new(MemoryShape::new(FRAMES, Order::LINUX).unwrap()),
            &sizes,
            Format::default(),
        );
        let first = memory.spawn().unwrap();
        let os = Os::new(memory, policy);
        let live = vec![first];
        Machine { os, live, turn: 0, instructions: 0 }
    }

    fn step(&mut self, op: &Op) {
        self.turn += 1;
        let process = self.live[self.turn % self.live.len()];
        let os = &mut self.os;
        match *op {
            Op::Map { at, pages, file, shared } => {
                let source = match file {
                    true => MapSource::File { path: "a".to_owned(), offset_bytes: (at % 7) << 12 },
                    false => MapSource::Anonymous,
                };
                let flags = if shared { 1 } else { 2 };
                let protection = Protection::from_bits(3);
                let event = Event::Map { range: range(at, pages), protection, source, flags };
                os.event(process, &event).unwrap();
            }
            Op::Unmap { at, pages } => {
                os.event(process, &Event::Unmap { range: range(at, pages) }).unwrap();
            }
            Op::Move { from, pages, to, to_pages } => {
                let (from, to) = (range(from, pages), range(to, to_pages));
                if from.end() <= to.start() || to.end() <= from.start() {
                    os.event(process, &Event::Remap { from, to }).unwrap();
                }
            }
            Op::Protect { at, pages, write } => {
                let protection = Protection::from_bits(if write { 3 } else { 1 });
                let event = Event::Protect { range: range(at, pages), protection };
                os.event(process, &event).unwrap();
            }
            Op::Discard { at, pages } => {
                let event = Event::Advise { range: range(at, pages), advice: 4 };
                os.event(process, &event).unwrap();
            }
            Op::Touch { at, pages, store } => {
                for page in at..at + pages {
                    self.touch(process, PageNumber::new(page), store);
                }
            }
            Op::Fork if self.live.len() < 3 => {
                self.live.push(os.memory_mut().fork(process).unwrap());
            }
            Op::End if self.live.len() > 1 => {
                self.live.retain(|of| *of != process);
                os.memory_mut().end(process);
            }
            Op::Background => {
                self.instructions += 1;
                os.background(self.instructions);
            }
            Op::Fork | Op::End => {}
        }
    }

    fn touch(&mut self, process: ProcessId, page: PageNumber, store: bool) {
        let access = if store { Access::Store } else { Access::Load };
        let served = |os: &Os| {
            let leaf = os.memory().process(process).table.leaf(page);
            leaf.filter(|leaf| !store || leaf.rights.write)
        };
        if served(&self.os).is_none() {
            self.os.fault(process, page, access).unwrap();
        }
        assert!(served(&self.os).is_some(), "a fault maps the page");
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let memory = self.os.memory();
        let used = FRAMES - memory.frames.free_frames();
        prop_assert_eq!(used, memory.frames_in_use(), "no frame is lost");
        let mut writers: HashMap<FrameNumber, (ProcessId, u64)> = HashMap::new();
        for process in &self.live {
            for (pages, vma) in memory.process(*process).vmas.within(&(0..PAGES * 2)) {
                for leaf in memory.leaves(*process, &pages) {
                    let shared = matches!(
                        vma.backing,
                        octavo_os::vmas::Backing::Object { shared: true, .. }
                    );
                    if !leaf.rights.write || shared {
                        continue;
                    }
                    for page in leaf.page.raw()..leaf.page.raw() + octavo_os::base_pages(leaf.size)
                    {
                        let frame = leaf.frame_of(PageNumber::new(page));
                        let before = writers.insert(frame, (*process, page));
                        prop_assert_eq!(before, None, "{:?} is one page's alone", frame);
                        prop_assert!(!memory.has_others(frame), "{:?} is nobody else's", frame);
                    }
                }
            }
        }
        Ok(())
    }
}

fn play(policy: Box<dyn Policy>, ops: &[Op]) -> Result<(), TestCaseError> {
    let mut machine = Machine::new(policy);
    for (number, op) in ops.iter().enumerate() {
        machine.step(op);
        if number % 16 == 0 {
            machine.check()?;
        }
    }
    machine.check()?;
    for process in std::mem::take(&mut machine.live) {
        machine.os.memory_mut().end(process);
    }
    machine.check()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn base_pages_are_conserved(ops in prop::collection::vec(op(), 1..60)) {
        play(Box::new(BasePages), &ops)?;
    }

    #[test]
    fn transparent_huge_pages_are_conserved(ops in prop::collection::vec(op(), 1..60)) {
        let config = ThpConfig { scan_every_instructions: 1, ..ThpConfig::default() };
        play(Box::new(Thp::new(config)), &ops)?;
    }
}
