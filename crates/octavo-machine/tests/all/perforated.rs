//! Perforated pages in limiting cases: without holes and with holes only, native and in a guest; and their memory
//! overhead.

mod machines;

use std::collections::BTreeSet;

use crate::common::bounds::{conventional, listed, play_checked, touches, with_small_first};
use crate::common::{check_laws, config, hosted, identity, level, play, tiny};
use machines::{FirstTouch, guest, machine, perforated};
use octavo_config::FragmentationConfig;
use octavo_machine::designs::Variant;
use octavo_machine::designs::registry::policies;
use octavo_machine::{Counters, Sim};
use octavo_oracle::strategies::{loads, stream};
use octavo_os::frames::fragmentation::{HoleKind, HoleLayout};
use octavo_trace::{TimeSlicedConsumer, WordConsumer};
use octavo_types::{
    AddrRange, Event, Item, ItemKind, MapSource, PageSize, Protection, Segment, VirtAddr,
};
use proptest::prelude::*;

/// All counters except those of perforated pages, and of pages and frames by kind.
fn comparable_counters(counters: &Counters) -> Vec<(String, &'static str, u64)> {
    let is_compared = |component: &str, counter: &str| {
        let frame_counters =
            ["page_table_bytes", "peak_page_table_bytes", "reserved_bytes", "bitmap_bytes"];
        let hole_counters = [
            "perforations",
            "entries_written",
            "hole_walks",
            "bitmap_references",
            "hole_shootdowns",
        ];
        let components = [
            "tlb.l2.perforated",
            "tlb.l2.bitmap",
            "tlb.l2.content",
            "tlb.flushes",
            "walker.bitmap_register",
        ];
        !component.starts_with("os.pages")
            && !component.starts_with("host.os.pages")
            && !components.contains(&component)
            && ![&frame_counters[..], &hole_counters, &["punches", "patches"]]
                .concat()
                .contains(&counter)
    };
    listed(counters, |component, counter, _| is_compared(component, counter))
}

proptest! {
    #![proptest_config(octavo_oracle::cases(40))]

    /// Without perforated pages the counters equal those of the conventional design.
    #[test]
    fn perforated_design_without_perforated_pages_equals_thp(stream in stream(1..150)) {
        let kind = tiny();
        for policy in ["base", "thp"] {
            let policy = || (policies().by_name(policy).unwrap().usual)().build();
            let mut machines = vec![machine(&kind, policy(), conventional(&kind))];
            for variant in [Variant::Filtered, Variant::OnDemand, Variant::AllAtOnce] {
                machines.push(machine(&kind, policy(), perforated(&kind, variant)));
            }
            let counted = play_checked(&kind, &stream, machines);
            for other in &counted[1..] {
                prop_assert_eq!(comparable_counters(other), comparable_counters(&counted[0]));
                prop_assert_eq!(other.get("tlb.l2.bitmap", "accesses"), Some(0));
            }
        }
    }

    /// For memory with holes of any kind, and any program.
    #[test]
    fn translations_match_page_tables_and_frames_are_conserved(
        stream in stream(1..200),
        cores in 1u32..3,
        holes in prop::sample::select(vec![
            HoleKind::Immovable, HoleKind::Movable, HoleKind::Unallocated,
        ]),
        portion in prop_oneof![Just(0.9), Just(1.0)],
        is_clustered in any::<bool>(),
        halves in prop::option::of(any::<bool>()),
    ) {
        let mut kind = tiny();
        kind.core.count = cores;
        kind.memory.bytes = 256 << 20;
        kind.memory.fragmentation = FragmentationConfig::Holes {
            portion,
            fraction: 0.2,
            layout: if is_clustered { HoleLayout::Clustered } else { HoleLayout::Dispersed },
            holes,
            seed: 1,
        };
        let designs = [
            "perforated",
            "perforated:unused_are_holes=true",
            "perforated_on_demand:max_filter_bits=8:hole_pages=mapped",
            "perforated_all:max_filter_bits=8:min_parts=0",
            "conventional+perforated",
        ];
        if let Some(caches_halves) = halves {
            // Host memory is fragmented like guest memory.
            kind = hosted(kind, 29, caches_halves);
        }
        let mut sim = Sim::new(&config(kind, &designs)).unwrap();
        play(&mut sim, &stream);
        for (name, machine) in designs.iter().zip(sim.machines()) {
            prop_assert_eq!(machine.check(), Ok(()), "{}", name);
            check_laws(&machine.counters())?;
        }
    }

    /// Bitmap entries have the tag size of 128 KiB pages; supporting this page size changes no count.
    #[test]
    fn second_level_holds_no_pages_of_bitmap_word_size(stream in stream(1..200)) {
        let mut kind = tiny();
        kind.memory.bytes = 256 << 20;
        kind.memory.fragmentation = FragmentationConfig::Holes {
            portion: 1.0,
            fraction: 0.2,
            layout: HoleLayout::Dispersed,
            holes: HoleKind::Immovable,
            seed: 1,
        };
        let mut with_size = kind.clone();
        let sizes = ["4KiB", "128KiB", "2MiB"].map(|size| size.parse().unwrap());
        with_size.tlb.l2 = Some(level(9, &[("main", 12, 3, &sizes)]));
        let designs = ["perforated_on_demand:max_filter_bits=8", "perforated:unused_are_holes=true"];
        let counted = [kind, with_size].map(|kind| {
            let mut sim = Sim::new(&config(kind, &designs)).unwrap();
            play(&mut sim, &stream);
            sim.machines().iter().map(|machine| machine.counters()).collect::<Vec<_>>()
        });
        prop_assert_eq!(&counted[0], &counted[1]);
    }

    /// If the first level holds base pages of both, a perforated page without holes equals a 2 MiB page counter for
    /// counter.
    #[test]
    fn perforated_page_without_holes_equals_huge_page(touches in touches()) {
        let kind = with_small_first();
        let counted = play_checked(&kind, &loads(&touches), vec![
            machine(&kind, Box::new(FirstTouch::NoHoles), perforated(&kind, Variant::Filtered)),
            machine(&kind, Box::new(FirstTouch::Huge), conventional(&kind)),
        ]);
        prop_assert_eq!(comparable_counters(&counted[0]), comparable_counters(&counted[1]));
        prop_assert!(counted[0].get("tlb.l2.perforated", "filtered") > Some(0));
    }

    /// The same in a guest, if guest and host have such pages.
    #[test]
    fn perforated_page_without_holes_equals_huge_page_in_a_guest(touches in touches(), halves in any::<bool>()) {
        let kind = hosted(with_small_first(), 33, halves);
        let counted = play_checked(&kind, &loads(&touches), vec![
            guest(&kind, FirstTouch::NoHoles, perforated(&kind, Variant::Filtered)),
            guest(&kind, FirstTouch::Huge, conventional(&kind)),
        ]);
        prop_assert_eq!(comparable_counters(&counted[0]), comparable_counters(&counted[1]));
        prop_assert!(counted[0].get("tlb.l2.perforated", "filtered") > Some(0));
        prop_assert_eq!(counted[0].get("walker", "splintered"), Some(0));
    }

    /// In a guest, pages of 512 holes equal base pages, if each hole is also a hole of the host. A walk that has to
    /// find the perforated page first reads one more guest entry.
    #[test]
    fn all_hole_pages_equal_base_pages_plus_bitmaps_in_a_guest(touches in touches()) {
        let mut kind = hosted(tiny(), 33, false);
        kind.walker.caches.clear();
        kind.tlb.l2 = Some(level(9, &[("main", 8192, 64, &[PageSize::BASE, PageSize::HUGE])]));
        let counted = play_checked(&kind, &loads(&touches), vec![
            guest(&kind, FirstTouch::AllHoles, perforated(&kind, Variant::Filtered)),
            guest(&kind, FirstTouch::Base, conventional(&kind)),
        ]);
        let [holes, base] = &counted[..] else { unreachable!() };
        let get = |counters: &Counters, component, counter| counters.get(component, counter).unwrap();
        for (component, counter) in [
            ("tlb.l1d", "hits"),
            ("tlb.l1d", "misses"),
            ("tlb.l1i", "hits"),
            ("tlb.l1i", "misses"),
            ("walker", "walks"),
            ("walker", "faulted"),
            ("walker.guest", "marked"),
            ("os", "faults"),
        ] {
            prop_assert_eq!(get(holes, component, counter), get(base, component, counter), "{}", counter);
        }
        let references = |counters| get(counters, "walker.guest", "references");
        let found = get(holes, "walker", "walks") - get(holes, "os", "perforations");
        prop_assert_eq!(references(holes) - references(base), found);
        prop_assert_eq!(get(holes, "tlb.l2.perforated", "filtered"), 0);
        prop_assert!(get(holes, "walker.host", "hole_walks") > 0);
        let pages = touches.iter().map(|(page, ..)| 0x100 + page).chain([0x400]);
        let words: BTreeSet<u64> = pages.map(|page| page / 32).collect();
        prop_assert!(get(holes, "walker.guest", "bitmap_references") >= words.len() as u64);
        // The bitmap fits into one guest page.
        prop_assert_eq!(get(holes, "walker.bitmap_register", "misses"), 1);
    }

    /// A page of 512 holes equals 512 base pages plus the traffic of its bitmap: each second-level miss is a hit of the
    /// page, a bitmap look-up and a walk of equal length. A walk that has to find the page first reads one more entry.
    #[test]
    fn all_hole_page_equals_base_pages_plus_bitmaps(touches in touches()) {
        let mut kind = tiny();
        kind.walker.caches.clear();
        kind.tlb.l2 = Some(level(9, &[("main", 8192, 64, &[PageSize::BASE, PageSize::HUGE])]));
        let counted = play_checked(&kind, &loads(&touches), vec![
            machine(&kind, Box::new(FirstTouch::AllHoles), perforated(&kind, Variant::Filtered)),
            machine(&kind, Box::new(FirstTouch::Base), conventional(&kind)),
        ]);
        let [holes, base] = &counted[..] else { unreachable!() };
        let get = |counters: &Counters, component, counter| counters.get(component, counter).unwrap();
        for component in ["tlb.l1d", "tlb.l1i", "tlb.l1d.4k"] {
            for counter in ["hits", "misses"] {
                prop_assert_eq!(get(holes, component, counter), get(base, component, counter));
            }
        }
        for (component, counter) in
            [("walker", "walks"), ("walker", "faulted"), ("walker", "marked"), ("os", "faults")]
        {
            prop_assert_eq!(get(holes, component, counter), get(base, component, counter), "{}", counter);
        }
        let extra = get(holes, "walker", "references") - get(base, "walker", "references");
        prop_assert_eq!(extra, get(holes, "os", "faults"));
        // The filter excludes no hole, and no bitmap word is read twice.
        prop_assert_eq!(get(holes, "tlb.l2.perforated", "filtered"), 0);
        // The code is on another page; data begin at page 0x100.
        let pages = touches.iter().map(|(page, ..)| 0x100 + page).chain([0x400]);
        let words: BTreeSet<u64> = pages.map(|page| page / 32).collect();
        let fetched = get(holes, "walker", "bitmap_references");
        prop_assert_eq!(fetched, words.len() as u64);
        prop_assert_eq!(fetched, get(holes, "tlb.l2.content", "entries_bitmap"));
    }
}

/// Section IV-E: a bitmap of 0.003% of memory, and 4 KiB of shadow entries per node of entries.
#[test]
fn overheads_match_the_paper() {
    let mut kind = tiny();
    kind.memory.bytes = 1 << 30;
    kind.memory.fragmentation = FragmentationConfig::Holes {
        portion: 1.0,
        fraction: 0.2,
        layout: HoleLayout::Clustered,
        holes: HoleKind::Immovable,
        seed: 1,
    };
    let touches: Vec<_> = (0..20 * 512).map(|page| (page, 1, false)).collect();
    let mut sim = Sim::new(&config(kind, &["perforated", "thp"])).unwrap();
    play(&mut sim, &loads(&touches));
    let counters = sim.machines()[0].counters();
    let get = |component, counter| counters.get(component, counter).unwrap();
    assert_eq!(get("os", "bitmap_bytes"), 32 << 10);
    assert!((get("os", "bitmap_bytes") as f64) < 0.000_031 * f64::from(1u32 << 30));
    // One level-2 node for the data, and one for the code.
    assert!((1..=2).contains(&(get("os", "shadow_bytes") / 4096)));
    assert!(get("os.pages.perforated", "mapped") >= 19);
    assert_eq!(get("os.pages.2MiB", "mapped"), 0);
    assert!(get("tlb.l2.perforated", "filtered") > 0 && get("walker", "hole_walks") > 0);
    let thp = sim.machines()[1].counters();
    assert_eq!(thp.get("os.pages.2MiB", "mapped"), Some(0));
    assert!(get("walker", "references") < thp.get("walker", "references").unwrap());
}

/// Parent and child share a region and its bitmap: a hole punched by the child looks like a hole to the
/// parent, which maps the frame in place by an entry of its own.
#[test]
fn processes_sharing_a_region_have_separate_holes() {
    let start = VirtAddr::new(0x1000_0000);
    let at = |page: u64| start.raw() + (page << 12);
    let item = |kind, addr| Item::new(kind, 4, addr);
    let segment = |kind| {
        let fetch = item(ItemKind::Fetch, VirtAddr::new(0x40_0000));
        Segment::new(vec![fetch, item(kind, VirtAddr::NULL)], Vec::new()).unwrap()
    };
    let (load, store) = (segment(ItemKind::Load), segment(ItemKind::Store));
    let mut sim = Sim::new(&config(tiny(), &["perforated"])).unwrap();
    let protection = Protection::from_bits(3);
    let map = Event::Map {
        range: AddrRange::new(start, 1 << 21),
        protection,
        source: MapSource::Anonymous,
        flags: 2,
    };
    let hole = Event::Protect {
        range: AddrRange::new(VirtAddr::new(at(5)), 1 << 12),
        protection: Protection::from_bits(1),
    };
    sim.begun(&identity(0, None));
    sim.switch_to(0);
    sim.event(&map);
    sim.execution(&store, &[0, at(0)]);
    sim.event(&hole);
    sim.begun(&identity(1, Some(0)));
    sim.switch_to(1);
    sim.event(&map);
    sim.event(&hole);
    sim.execution(&store, &[0, at(7)]);
    let counted = |sim: &mut Sim| {
        sim.finish();
        assert_eq!(sim.machines()[0].check(), Ok(()));
        let counters = sim.machines()[0].counters();
        let get = |component, counter| counters.get(component, counter).unwrap();
        [get("os", "punches"), get("os", "copy_on_write_faults"), get("os", "bytes_copied")]
    };
    assert_eq!(counted(&mut sim), [2, 1, 4096]);
    sim.switch_to(0);
    // Page 7 is in the eighth with a hole of the parent, page 100 in another eighth.
    sim.execution(&load, &[1, at(7)]);
    assert_eq!(counted(&mut sim), [3, 1, 4096]);
    sim.execution(&load, &[1, at(7)]);
    sim.execution(&load, &[1, at(100)]);
    assert_eq!(counted(&mut sim), [3, 1, 4096]);
    sim.execution(&store, &[0, at(8)]);
    assert_eq!(counted(&mut sim), [4, 2, 8192]);
    sim.switch_to(1);
    sim.execution(&load, &[1, at(8)]);
    assert_eq!(counted(&mut sim), [5, 2, 8192]);
}
