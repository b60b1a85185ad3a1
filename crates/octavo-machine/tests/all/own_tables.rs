//! The operating system's page tables, walks and page-size policies match those of the naive operating system after
//! every step of random programs.

use crate::common::naive_os::{
    NaiveCounters, NaiveOs, NaivePage, NaivePolicy, NaiveShape, NaiveStep,
};
use crate::policies::system::{Op, Source, advise, map, present, protect, range, unmap};
use octavo_machine::designs::registry::policies;
use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
use octavo_os::page_table::Format;
use octavo_os::{Memory, Os, ProcessId};
use octavo_types::{Access, Event, FrameNumber, PageNumber, PageSize};
use proptest::prelude::*;

/// Number of base pages that the programs use: eight huge pages.
const PAGES: u64 = 8 * 512;

fn op() -> impl Strategy<Value = Op> {
    let at = || 0..PAGES - 1100;
    let pages = || prop_oneof![1u64..5, 5u64..80, 500u64..1100];
    let source = prop_oneof![
        4 => Just(Source::Anonymous),
        2 => Just(Source::Heap),
        1 => Just(Source::Stack),
        1 => Just(Source::Shared),
        1 => Just(Source::File),
        1 => Just(Source::SharedFile),
    ];
    prop_oneof![
        6 => (at(), pages(), source).prop_map(|(at, pages, source)| Op::Event(map(at, pages, source))),
        2 => (at(), pages()).prop_map(|(at, pages)| Op::Event(unmap(at, pages))),
        1 => (at(), pages(), at(), pages())
            .prop_map(|(from, pages, to, to_pages)| Op::Move { from, pages, to, to_pages }),
        1 => (0u64..6, 1u64..3, 0u64..6)
            .prop_map(|(from, pages, to)| Op::Move {
                from: from * 512, pages: pages * 512, to: to * 512, to_pages: pages * 512 }),
        2 => (at(), pages(), prop::sample::select(vec![1u64, 3]))
            .prop_map(|(at, pages, rights)| Op::Event(protect(at, pages, rights))),
        2 => (at(), pages(), prop::sample::select(vec![4u64, 8, 9, 14, 15]))
            .prop_map(|(at, pages, advice)| Op::Event(advise(at, pages, advice))),
        16 => (at(), prop_oneof![4 => 1u64..80, 1 => 500u64..1100], any::<bool>())
            .prop_map(|(at, pages, store)| Op::Touch { at, pages, store }),
        2 => (at(), pages()).prop_map(|(at, pages)| Op::Event(present(at, pages))),
        1 => Just(Op::Fork),
        1 => Just(Op::End),
    ]
}

/// Promotion thresholds.
fn percent() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![100, 75, 50])
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..60)
}

/// Whether nodes are merged, and the number of 2 MiB blocks in which background memory holds a frame.
struct Merging {
    merges_levels: bool,
    held_blocks: u64,
}

/// The operating system under test, and the naive one.
struct Pair {
    os: Os,
    naive: NaiveOs,
    steps: usize,
    /// Walks that read a true entry after an alias entry.
    alias_walks: u64,
}

impl Pair {
    fn new(policy: &str, naive: NaivePolicy, frames: u64, levels: u8) -> Self {
        let merging = Merging { merges_levels: false, held_blocks: 0 };
        Self::with_merging(policy, naive, (frames, merging), levels)
    }

    fn with_merging(
        policy: &str,
        naive: NaivePolicy,
        (frames, merging): (u64, Merging),
        levels: u8,
    ) -> Self {
        let Merging { merges_levels, held_blocks } = merging;
        let config = policies().parse(policy).unwrap().policy;
        let is_tailored = matches!(naive, NaivePolicy::Tps { .. });
        let (sizes, largest): (Vec<PageSize>, _) = match naive {
            NaivePolicy::Tps { .. } => {
                ((12..=30).filter_map(PageSize::from_log2).collect(), Order::LARGEST)
            }
            NaivePolicy::Trident { largest } => {
                let largest = Order::new(largest).unwrap();
                (vec![PageSize::HUGE, largest.page_size()], largest)
            }
            _ => (vec![PageSize::HUGE, PageSize::LARGEST], Order::LINUX),
        };
        let mut memory = Frames::new(MemoryShape::new(frames, largest).unwrap());
        let held: Vec<u64> = (0..held_blocks).map(|block| block << 9).collect();
        for frame in &held {
            let owner = Owner::Background { movable: false };
            assert!(memory.allocate_at(FrameNumber::new(*frame), Order::BASE, owner));
        }
        let format = Format { levels, merges: [merges_levels; 2], ..config.page_table_format() };
        let mut os = Os::new(Memory::new(memory, &sizes, format), config.build());
        let (largest, has_copies) = (largest.raw(), policy.contains("aliases=copies"));
        let shape = NaiveShape { frames, largest, levels, is_tailored, has_copies, merges_levels };
        let mut naive = NaiveOs::new(shape, naive);
        held.into_iter().for_each(|frame| naive.hold(frame));
        os.spawn().unwrap();
        naive.spawn();
        Pair { os, naive, steps: 0, alias_walks: 0 }
    }

    fn event(&mut self, process: u16, event: &Event) {
        self.os.event(ProcessId(process), event).unwrap();
        self.naive.event(process, event);
    }

    fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        self.steps += 1;
        let live = self.naive.live();
        let process = live[self.steps % live.len()];
        match *op {
            Op::Event(ref event) => self.event(process, event),
            Op::Move { from, pages, to, to_pages } => {
                let overlap = from < to + to_pages && to < from + pages;
                let to = if overlap { from } else { to };
                let (from, to) = (range(from, pages), range(to, to_pages));
                self.event(process, &Event::Remap { from, to });
            }
            Op::Touch { at, pages, store } => {
                for page in at..at + pages {
                    self.touch(process, page, store && self.naive.allows_store(process, page))?;
                }
            }
            Op::Fork if live.len() < 3 => {
                let child = self.os.fork(ProcessId(process)).unwrap();
                prop_assert_eq!(self.naive.fork(process), child.0);
            }
            Op::End if live.len() > 1 => {
                self.os.end(ProcessId(process));
                self.naive.end(process);
            }
            Op::Fork | Op::End | Op::Background => {}
        }
        self.compare()
    }

    /// A load or store: walks both page tables, and faults if needed.
    fn touch(&mut self, process: u16, page: u64, store: bool) -> Result<(), TestCaseError> {
        let (id, number) = (ProcessId(process), PageNumber::new(page));
        let access = if store { Access::Store } else { Access::Load };
        self.compare_walks(process, page)?;
        let held = self.naive.table(process).find(page);
        if held.is_none_or(|(_, page)| store && !page.rights.write) {
            self.naive.fault(process, page, access);
            self.os.fault(id, number, access).unwrap();
            self.compare_walks(process, page)?;
        }
        let marked = self.os.memory_mut().process_mut(id).table.mark(number, store);
        prop_assert_eq!(marked, self.naive.table_mut(process).mark(page, store));
        Ok(())
    }

    fn compare_walks(&mut self, process: u16, page: u64) -> Result<(), TestCaseError> {
        let walk = self.os.memory().process(ProcessId(process)).table.walk(PageNumber::new(page));
        let table = self.naive.table(process);
        let steps: Vec<NaiveStep> = walk
            .steps()
            .iter()
            .map(|step| NaiveStep { level: step.level, addr: step.at.raw() })
            .collect();
        let expected = table.walk(page);
        prop_assert_eq!(&steps, &expected, "the walk to page {} of {}", page, process);
        self.alias_walks +=
            u64::from(expected.windows(2).any(|pair| pair[0].level == pair[1].level));
        let leaf = walk.leaf.map(|leaf| (leaf.page.raw(), leaf.frame.raw(), leaf.rights));
        let expected = table.find(page);
        let used = expected.map_or((false, false), |(_, page)| (page.accessed, page.dirty));
        let expected = expected.map(|(first, page)| (first, page.frame, page.rights));
        prop_assert_eq!(leaf, expected);
        prop_assert_eq!(walk.used, used);
        Ok(())
    }

    /// Compares all pages of all processes, the counters, and the shootdowns since the last comparison.
    fn compare(&mut self) -> Result<(), TestCaseError> {
        let invalidations = self.os.take_invalidations();
        let mut invalidations: Vec<_> = invalidations
            .iter()
            .map(|one| (one.process.0, one.pages.start, one.pages.end))
            .collect();
        let expected = self.naive.take_invalidations();
        let mut expected: Vec<_> =
            expected.iter().map(|(process, pages)| (*process, pages.start, pages.end)).collect();
        // Invalidations take effect together at the end of a step, so that their order does not matter.
        invalidations.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(invalidations, expected);
        let ours = self.os.memory().counters;
        let counters = NaiveCounters {
            faults: ours.faults,
            faults_unmapped: ours.faults_unmapped,
            copy_on_write_faults: ours.copy_on_write_faults,
            bytes_zeroed: ours.bytes_zeroed,
            bytes_copied: ours.bytes_copied,
            bytes_read: ours.bytes_read,
            promotions: ours.promotions,
            splits: ours.splits,
            shootdowns: ours.shootdowns,
            bytes_mapped_untouched: ours.bytes_mapped_untouched,
            bytes_present: ours.bytes_present,
            fallbacks: ours.fallbacks,
        };
        prop_assert_eq!(counters, self.naive.counters);
        let reserved = self.os.memory().frames.used_frames(Owner::Reserved);
        prop_assert_eq!(reserved, self.naive.reserved_frames());
        let live: Vec<u16> = self.os.memory().live().map(|process| process.0).collect();
        prop_assert_eq!(&live, &self.naive.live());
        for process in live {
            let id = ProcessId(process);
            let table = &self.os.memory().process(id).table;
            let used = |page| table.used(page).unwrap();
            let leaves = self.os.memory().leaves(id, &(0..u64::MAX));
            let pages: Vec<(u64, NaivePage)> = leaves
                .iter()
                .map(|leaf| {
                    let (accessed, dirty) = used(leaf.page);
                    let (order, frame) = (leaf.size.base_shift(), leaf.frame.raw());
                    let rights = leaf.rights;
                    (leaf.page.raw(), NaivePage { order, frame, rights, accessed, dirty })
                })
                .collect();
            let own = self.naive.table(process);
            let expected: Vec<_> = own.pages.iter().map(|(first, page)| (*first, *page)).collect();
            prop_assert_eq!(table.nodes(), own.node_frames());
            let first_difference = pages.iter().zip(&expected).find(|(ours, own)| ours != own);
            prop_assert_eq!(first_difference, None, "ours and the naive one");
            prop_assert_eq!(pages.len(), expected.len());
            for (first, page) in expected {
                let last = first + page.base_pages() - 1;
                for page in [first, last, last + 1] {
                    self.compare_walks(process, page)?;
                }
            }
        }
        Ok(())
    }

    fn play(&mut self, ops: &[Op]) -> Result<(), TestCaseError> {
        for op in ops {
            self.step(op).map_err(|error| match error {
                TestCaseError::Fail(why) => TestCaseError::fail(format!("after {op:?}: {why}")),
                other => other,
            })?;
        }
        Ok(())
    }
}

const FRAMES: u64 = 1 << 17;

proptest! {
    #![proptest_config(octavo_oracle::cases(30))]

    #[test]
    fn base_pages_match_the_naive_system(ops in ops(), levels in 4u8..=5) {
        Pair::new("base", NaivePolicy::Base, FRAMES, levels).play(&ops)?;
    }

    #[test]
    fn huge_pages_match_the_naive_system(ops in ops(), levels in 4u8..=5) {
        Pair::new("thp", NaivePolicy::Thp, FRAMES, levels).play(&ops)?;
    }

    /// Pages of 4 or 8 MiB in place of 1 GiB.
    #[test]
    fn trident_matches_the_naive_system(
        ops in ops(),
        levels in 4u8..=5,
        largest in 10u8..=11,
        free_blocks in prop_oneof![1 => Just(FRAMES >> 9), 1 => 0u64..80],
    ) {
        let policy = format!("trident:largest={}MiB:clear_every_instructions=0", 4 << (largest - 10));
        let merging = Merging { merges_levels: false, held_blocks: (FRAMES >> 9) - free_blocks };
        let naive = NaivePolicy::Trident { largest };
        Pair::with_merging(&policy, naive, (FRAMES, merging), levels).play(&ops)?;
    }

    /// Enough free blocks for all nodes, for few of them, or for none.
    #[test]
    fn merged_nodes_match_the_naive_system(
        ops in ops(),
        levels in 4u8..=5,
        huge in any::<bool>(),
        free_blocks in prop_oneof![1 => Just(FRAMES >> 9), 3 => 0u64..20],
    ) {
        let (policy, naive) = if huge { ("thp", NaivePolicy::Thp) } else { ("base", NaivePolicy::Base) };
        let merging = Merging { merges_levels: true, held_blocks: (FRAMES >> 9) - free_blocks };
        Pair::with_merging(policy, naive, (FRAMES, merging), levels).play(&ops)?;
    }

    #[test]
    fn reserved_huge_pages_match_the_naive_system(ops in ops(), percent in percent()) {
        let policy = format!("reserved_thp:promotion_threshold_percent={percent}");
        Pair::new(&policy, NaivePolicy::ReservedThp { percent }, FRAMES, 4).play(&ops)?;
    }

    #[test]
    fn tailored_pages_match_the_naive_system(
        ops in ops(),
        percent in percent(),
        aliases in prop::sample::select(vec!["pointers", "copies"]),
    ) {
        let policy = format!("tps:promotion_threshold_percent={percent}:aliases={aliases}");
        Pair::new(&policy, NaivePolicy::Tps { percent }, FRAMES, 4).play(&ops)?;
    }
}

/// A program that shares, splits, extends and moves memory, and breaks its reservations.
fn busy(pages: u64) -> Vec<Op> {
    let touch = |at, pages, store| Op::Touch { at, pages, store };
    vec![
        Op::Event(map(512, pages, Source::Anonymous)),
        touch(512, 520, true),
        Op::Event(protect(520, 3, 1)),
        Op::Event(map(512 + pages, pages, Source::Anonymous)),
        touch(512 + pages, 3, false),
        Op::Fork,
        touch(1024, 8, true),
        Op::End,
        touch(512, 8, false),
        Op::Move { from: 512, pages: 512, to: 1, to_pages: 512 },
        touch(600, 1, true),
    ]
}

/// The comparisons are not vacuous: their events occur.
#[test]
fn compared_events_occur() {
    let busy_pages = 1500;
    for (policy, naive) in [
        ("thp", NaivePolicy::Thp),
        ("reserved_thp", NaivePolicy::ReservedThp { percent: 100 }),
        ("tps", NaivePolicy::Tps { percent: 100 }),
    ] {
        let mut pair = Pair::new(policy, naive, 1 << 12, 4);
        pair.play(&busy(busy_pages)).unwrap();
        let counts = pair.naive.counters;
        assert!(
            counts.splits > 0 && counts.copy_on_write_faults > 0 && counts.shootdowns > 0,
            "{counts:?}"
        );
        assert_eq!(naive == NaivePolicy::Thp, counts.promotions == 0, "{counts:?}");
        assert_eq!(pair.alias_walks > 0, policy == "tps");
    }
    let mut pair = Pair::new("tps", NaivePolicy::Tps { percent: 100 }, 1 << 12, 4);
    // The second mapping gets no memory of its own, and the first loses its reservation.
    pair.play(&[
        Op::Event(map(0, 2048, Source::Anonymous)),
        Op::Event(map(2048, 2048, Source::Anonymous)),
        Op::Touch { at: 0, pages: 9, store: true },
        Op::Event(map(4096, 1024, Source::File)),
        Op::Touch { at: 4096, pages: 1024, store: false },
        Op::Touch { at: 9, pages: 90, store: false },
        Op::Touch { at: 2048, pages: 90, store: false },
    ])
    .unwrap();
    assert!(pair.naive.counters.fallbacks > 0 && pair.naive.broken_reservations() > 0);
    // The heap grows into the reservation past its end, and becomes one page.
    let mut pair = Pair::new("tps", NaivePolicy::Tps { percent: 100 }, 1 << 12, 4);
    for part in 0..4 {
        let at = 512 + part * 128;
        pair.step(&Op::Event(map(at, 128, Source::Heap))).unwrap();
        pair.step(&Op::Touch { at, pages: 128, store: true }).unwrap();
    }
    assert_eq!(
        pair.naive.table(0).find(600).map(|(first, page)| (first, page.order)),
        Some((512, 9))
    );
}
