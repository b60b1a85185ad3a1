//! Same-page merging on whole machines: with any translation hardware, the operating system knows exactly which pages
//! were stored to.

use std::collections::BTreeSet;

use crate::common::{check_laws, config, tiny};
use octavo_machine::Sim;
use octavo_machine::designs::hardware;
use octavo_trace::WordConsumer;
use octavo_types::{AddrRange, Event, Item, ItemKind, MapSource, Protection, Segment, VirtAddr};
use proptest::prelude::*;

const CODE: VirtAddr = VirtAddr::new(0x40_0000);
const DATA: VirtAddr = VirtAddr::new(0x1000_0000);
/// Two huge pages of data.
const PAGES: u64 = 1024;
const OPTION: &str = "same_pages=all:same_pages_every_instructions=1";

/// All hardware without requirements with base pages; and designs with each kind of huge page.
fn designs() -> (Vec<String>, Vec<String>) {
    let base = hardware().filter(|hardware| hardware.needs.is_none());
    let base = base.map(|hardware| format!("{}+base:{OPTION}", hardware.name)).collect();
    let huge = ["thp", "perforated", "perforated_all", "softvm+thp", "conventional+perforated"];
    (base, huge.iter().map(|name| format!("{name}:{OPTION}")).collect())
}

fn item(kind: ItemKind, addr: VirtAddr) -> Item {
    Item::new(kind, 8, addr)
}

/// A simulation, and segments of a load, a store, and many instructions.
struct Player {
    sim: Sim,
    segments: [Segment; 3],
}

impl Player {
    fn new(designs: &[&str]) -> Self {
        let mut sim = Sim::new(&config(tiny(), designs)).unwrap();
        let map = |start, bytes, bits, source| Event::Map {
            range: AddrRange::new(start, bytes),
            protection: Protection::from_bits(bits),
            source,
            flags: 2,
        };
        let file = MapSource::File { path: "code".to_owned(), offset_bytes: 0 };
        sim.event(&map(CODE, 4096, 5, file));
        sim.event(&map(DATA, PAGES << 12, 3, MapSource::Anonymous));
        let segment = |data: Option<ItemKind>, fetches| {
            let mut items = vec![item(ItemKind::Fetch, CODE); fetches];
            items.extend(data.map(|kind| item(kind, VirtAddr::NULL)));
            Segment::new(items, Vec::new()).unwrap()
        };
        let [load, store] = [ItemKind::Load, ItemKind::Store].map(|kind| segment(Some(kind), 1));
        Player { sim, segments: [load, store, segment(None, 4096)] }
    }

    fn touch(&mut self, page: u64, stores: bool, offset: u64) {
        let number = usize::from(stores);
        let addr = DATA.raw() + (page << 12) + offset;
        self.sim.execution(&self.segments[number], &[number as u64, addr]);
    }

    /// Executes instructions until the operating system has merged pages.
    fn run_merging(&mut self) {
        (0..257).for_each(|_| self.sim.execution(&self.segments[2], &[2]));
        self.sim.finish();
    }

    /// Checks all machines, and returns a counter of each.
    fn counted(&self, counter: &'static str) -> Vec<u64> {
        let machines = self.sim.machines().iter();
        let reported = machines.map(|machine| {
            assert_eq!(machine.check(), Ok(()));
            check_laws(&machine.counters()).unwrap();
            machine.counters().get("os", counter).unwrap()
        });
        reported.collect()
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(12))]

    /// Pages that are touched (by themselves or with their huge page) and never stored to are merged; a later store
    /// unmerges them.
    #[test]
    fn pages_never_stored_to_are_merged(
        touches in prop::collection::vec((0..PAGES, any::<bool>(), 0u64..4088), 1..80),
    ) {
        let (base, huge) = designs();
        let pages = touches.iter().map(|(page, ..)| *page);
        let regions: BTreeSet<u64> = pages.clone().map(|page| page / 512).collect();
        let stored = touches.iter().filter(|(_, stores, _)| *stores).map(|(page, ..)| *page);
        let stored: BTreeSet<u64> = stored.collect();
        let touched: BTreeSet<u64> = pages.collect();
        let check = |designs: &[String], touched: u64| -> Result<(), TestCaseError> {
            let names: Vec<&str> = designs.iter().map(String::as_str).collect();
            let mut player = Player::new(&names);
            for (page, stores, offset) in &touches {
                player.touch(*page, *stores, *offset);
            }
            player.run_merging();
            let expected = touched - stored.len() as u64;
            prop_assert_eq!(player.counted("pages_merged"), vec![expected; names.len()]);
            let saved = expected.saturating_sub(1) << 12;
            prop_assert_eq!(player.counted("merged_bytes"), vec![saved; names.len()]);
            for (page, ..) in &touches {
                player.touch(*page, true, 0);
            }
            player.run_merging();
            let unmerged = touches.iter().map(|(page, ..)| *page).collect::<BTreeSet<_>>();
            let unmerged = unmerged.difference(&stored).count() as u64;
            prop_assert_eq!(player.counted("pages_unmerged"), vec![unmerged; names.len()]);
            prop_assert_eq!(player.counted("pages_merged"), vec![expected; names.len()]);
            Ok(())
        };
        check(&base, touched.len() as u64)?;
        check(&huge, regions.len() as u64 * 512)?;
    }
}
