//! The cases of `conformance/`: a machine, references, and the effects of each, counted by hand. The format is
//! described in `conformance/README.md`.

mod case;

use std::fs;
use std::path::{Path, PathBuf};

use case::{Case, cases};

use crate::common::outside_lru;
use octavo_machine::designs::DesignSpec;
use octavo_machine::{Counters, Sim, SimConfig, Timing};
use octavo_trace::WordConsumer;
use octavo_types::{
    AddrRange, Event, Instructions, Item, ItemKind, MapSource, PageNumber, Protection, Segment,
    VirtAddr,
};

/// The address of the instruction of every step.
const CODE: VirtAddr = VirtAddr::new(0x40_0000);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance")
}

/// An instruction at an address, with or without data.
fn segment(at: VirtAddr, data: Option<ItemKind>) -> Segment {
    let data = data.map(|kind| Item::new(kind, 8, VirtAddr::NULL));
    let items = [Item::new(ItemKind::Fetch, 4, at)].into_iter().chain(data).collect();
    Segment::new(items, Vec::new()).unwrap()
}

/// A machine that executes the steps of a case.
struct Player {
    sim: Sim,
    /// An instruction without data, a load, and a store; then instructions at addresses of `fetch` steps.
    segments: Vec<Segment>,
    /// The addresses of the latter.
    fetched: Vec<u64>,
    before: Counters,
}

impl Player {
    fn new(case: &Case, instructions: Instructions) -> Self {
        let machine = octavo_machine::resolve(&case.machine, &case.settings);
        let machine = machine.unwrap_or_else(|error| panic!("{}: {error}", case.title));
        let design = match case.design.strip_prefix("outside+") {
            Some(policy) => Ok(outside_lru::spec(policy)),
            None => DesignSpec::parse(&case.design),
        };
        let design = design.unwrap_or_else(|error| panic!("{}: {error}", case.title));
        let config = SimConfig::new(machine.into_config(), vec![design], instructions);
        let mut config = config.expect("no snapshot");
        (config.setup.is_checked, config.timing) = (true, Timing::Additive);
        let mut sim = Sim::new(&config).unwrap();
        sim.event(&Event::Map {
            range: AddrRange::new(CODE, 4096),
            protection: Protection::from_bits(5),
            source: MapSource::File { path: "code".to_owned(), offset_bytes: 0 },
            flags: 2,
        });
        let data = [None, Some(ItemKind::Load), Some(ItemKind::Store)];
        let segments = data.map(|data| segment(CODE, data)).into();
        let mut player = Player { sim, segments, fetched: Vec::new(), before: Counters::default() };
        player.execute(0, None);
        player
    }

    fn execute(&mut self, number: usize, addr: Option<u64>) {
        let words: Vec<u64> = [number as u64].into_iter().chain(addr).collect();
        self.sim.execution(&self.segments[number], &words);
    }

    /// Executes an instruction without data at an address.
    fn fetch(&mut self, addr: u64) {
        let known = self.fetched.iter().position(|fetched| *fetched == addr);
        let number = known.unwrap_or_else(|| {
            self.fetched.push(addr);
            self.segments.push(segment(VirtAddr::new(addr), None));
            self.fetched.len() - 1
        });
        self.execute(3 + number, None);
    }

    /// Executes a step. Returns the difference that it made to the counters.
    fn step(&mut self, action: &str, numbers: &[u64]) -> Counters {
        let range = |bytes: u64| AddrRange::new(VirtAddr::new(numbers[0]), bytes);
        let protect = |bits| Event::Protect {
            range: range(numbers[1]),
            protection: Protection::from_bits(bits),
        };
        match (action, numbers) {
            ("map", [_, bytes]) => self.sim.event(&Event::Map {
                range: range(*bytes),
                protection: Protection::from_bits(3),
                source: MapSource::Anonymous,
                flags: 0x22,
            }),
            // Maps the start of the same file, at any address.
            ("share", [_, bytes]) => self.sim.event(&Event::Map {
                range: range(*bytes),
                protection: Protection::from_bits(3),
                source: MapSource::File { path: "shared".to_owned(), offset_bytes: 0 },
                flags: 1,
            }),
            ("unmap", [_, bytes]) => self.sim.event(&Event::Unmap { range: range(*bytes) }),
            // Invalidates all translations of the range; the second event makes it writable again.
            ("protect", [_, _]) => self.sim.event(&protect(1)),
            ("open", [_, _]) => self.sim.event(&protect(3)),
            ("present", [_, bytes]) => {
                self.sim.event(&Event::Present { range: range(*bytes), known: true, first: true })
            }
            ("load", [addr]) => self.execute(1, Some(*addr)),
            ("store", [addr]) => self.execute(2, Some(*addr)),
            ("fetch", [addr]) => self.fetch(*addr),
            ("load each", [addr, bytes]) => {
                (*addr..addr + bytes).step_by(4096).for_each(|addr| self.execute(1, Some(addr)));
            }
            ("store each", [addr, bytes]) => {
                (*addr..addr + bytes).step_by(4096).for_each(|addr| self.execute(2, Some(addr)));
            }
            _ => panic!("no step `{action}` with {} numbers", numbers.len()),
        }
        self.sim.finish();
        let now = self.sim.machines()[0].counters();
        let difference = now.since(&self.before);
        self.before = now;
        difference
    }
}

/// The TLBs and virtual caches that a case line may name, with their components.
const TLBS: [(&str, &str); 10] = [
    ("l1", "tlb.l1d"),
    ("l2", "tlb.l2"),
    ("bitmap", "tlb.l2.bitmap"),
    ("chunk", "walker.cache.bitmap"),
    ("nested", "tlb.nested"),
    ("register", "walker.bitmap_register"),
    ("range", "tlb.range"),
    ("segment", "segment"),
    ("v1", "vcache.l1d"),
    ("v2", "vcache.l2d"),
];
/// The counts that a case line may name, with their components and counters. Unnamed counts must be 0.
const COUNTS: &[(&str, &str, &str)] = &[
    ("walks", "walker", "walks"),
    ("walks dirty", "walker", "walks_dirty"),
    ("references", "walker", "references"),
    ("faults", "os", "faults"),
    ("promotions", "os", "promotions"),
    ("splits", "os", "splits"),
    ("shootdowns", "os", "shootdowns"),
    ("vector stores", "walker.vectors", "stores"),
    ("vector references", "walker.vectors", "references"),
    ("range walks", "range_walker", "walks"),
    ("range references", "range_walker", "references"),
    ("filtered", "tlb.l2.perforated", "filtered"),
    ("hole walks", "walker", "hole_walks"),
    ("bitmap references", "walker", "bitmap_references"),
    ("punches", "os", "punches"),
    ("patches", "os", "patches"),
    ("flushes", "tlb.flushes", "made"),
    ("splintered", "walker", "splintered"),
    ("guest references", "walker.guest", "references"),
    ("guest bitmap references", "walker.guest", "bitmap_references"),
    ("host bitmap references", "walker.host", "bitmap_references"),
    ("host hole walks", "walker.host", "hole_walks"),
    ("host walks", "walker.host", "walks"),
    ("host references", "walker.host", "references"),
    ("host faults", "host.os", "faults"),
    ("host promotions", "host.os", "promotions"),
    ("invepts", "host.os", "invepts"),
    ("data misses", "softvm", "data_misses"),
    ("fetch misses", "softvm", "fetch_misses"),
    ("handler d1", "softvm", "handler_l1d_misses"),
    ("root d2", "softvm", "handler_l2d_misses"),
    ("entry loads", "softvm", "entry_loads"),
    ("handler i1", "softvm", "handler_l1i_misses"),
    ("handler i2", "softvm", "handler_l2i_misses"),
    ("written", "softvm.write_back", "lines"),
    ("translated again", "softvm.write_back", "data_misses"),
    ("denied", "softvm", "denied"),
    ("lazy", "softvm.lazy", "pages"),
    ("protected", "softvm.protection", "pages"),
    ("dropped", "softvm.unmapped", "pages"),
    ("synonyms", "softvm.synonyms", "pages"),
    ("transferred", "softvm.dma", "pages"),
];

/// The kinds of cycles that a case line may name, with their counters.
const CYCLES: [(&str, &str); 3] =
    [("lookup", "cycles_tlb_l2"), ("nested", "cycles_tlb_nested"), ("walk", "cycles_walks")];

/// The effects of a step in the words of a case: all events, and the other figures that the line asks for, sorted.
fn effects(
    counted: &Counters,
    expected: &[String],
    player: &Player,
    numbers: &[u64],
) -> Vec<String> {
    let get = |component: &str, counter: &'static str| counted.get(component, counter).unwrap_or(0);
    let mut effects = Vec::new();
    for (name, component) in TLBS {
        match (get(component, "hits"), get(component, "misses")) {
            (0, 0) => {}
            (1, 0) => effects.push(format!("{name} hit")),
            (0, 1) => effects.push(format!("{name} miss")),
            (hits, misses) => effects.push(format!("{name} {hits} hits {misses} misses")),
        }
    }
    for (name, component, counter) in COUNTS.iter().copied() {
        let value = get(component, counter);
        if value > 0 {
            effects.push(format!("{name} {value}"));
        }
    }
    let machine = &player.sim.machines()[0];
    for asked in expected {
        if asked.starts_with("page ") {
            let page = PageNumber::new(numbers[0] >> 12);
            let size = machine.leaf(page).map_or("none".to_owned(), |leaf| leaf.size.to_string());
            effects.push(format!("page {size}"));
        } else if let Some((array, _)) =
            asked.strip_prefix("in ").and_then(|rest| rest.split_once(' '))
        {
            let hits = get(&format!("tlb.l1d.{array}"), "hits");
            effects.push(format!("in {array} {hits}"));
        } else if let Some((kind, _)) =
            asked.strip_prefix("entries ").and_then(|rest| rest.split_once(' '))
        {
            let kinds = ["4k", "2m", "perforated", "bitmap"];
            let counters = ["entries_4k", "entries_2m", "entries_perforated", "entries_bitmap"];
            let at = kinds.iter().position(|known| *known == kind).expect("a kind of entry");
            let entries = machine.counters().get("tlb.l2.content", counters[at]).unwrap();
            effects.push(format!("entries {kind} {entries}"));
        } else if let Some((verb, _)) = asked.split_once(' ')
            && ["checked", "changed"].contains(&verb)
        {
            let lines = |counter| get("softvm.protection", counter);
            let levels = match verb {
                "checked" => [lines("l1_checked"), lines("l2_checked")],
                _ => [lines("l1_changed"), lines("l2_changed")],
            };
            effects.push(format!("{verb} {} and {}", levels[0], levels[1]));
        } else if let Some((kind, _)) = asked.split_once(" cycles ") {
            let (_, counter) =
                CYCLES.iter().find(|(name, _)| *name == kind).expect("a kind of cycles");
            effects.push(format!("{kind} cycles {}", get("core", counter)));
        } else if let Some((component, counter)) =
            asked.rsplit_once(' ').and_then(|(name, _)| name.split_once('/'))
        {
            let all = machine.counters();
            let (_, counter, _) = all
                .iter()
                .find(|(owner, name, _)| *owner == component && *name == counter)
                .unwrap_or_else(|| panic!("no counter {counter} of {component}"));
            effects.push(format!("{component}/{counter} {}", get(component, counter)));
        } else if asked.starts_with("dirty ") {
            let kib = |name| machine.counters().get("os.vectors", name).unwrap() >> 10;
            let (parts, pages) = (kib("dirty_parts_bytes"), kib("dirty_bytes"));
            effects.push(format!("dirty {parts}KiB of {pages}KiB"));
        } else if asked.starts_with("resident ") {
            let bytes = machine.counters().get("os", "resident_bytes").unwrap();
            effects.push(format!("resident {}KiB", bytes >> 10));
        }
    }
    effects.sort();
    effects
}

/// Plays a case with every instruction set. Returns one message per line with other effects than expected.
fn failures(file: &str, case: &Case) -> Vec<String> {
    let mut failures = Vec::new();
    for instructions in Instructions::all() {
        let mut fail = |place: String, message: String| {
            failures.push(format!("{file}, {}, {place}, {instructions:?}: {message}", case.title));
        };
        let mut player = Player::new(case, instructions);
        // Effects before the first line are not compared.
        player.sim.finish();
        player.before = player.sim.machines()[0].counters();
        for step in &case.steps {
            let counted = player.step(&step.action, &step.numbers);
            let Some(expected) = &step.expected else { continue };
            let mut wanted = expected.clone();
            wanted.sort();
            let wanted = wanted.join(", ");
            let counted = effects(&counted, expected, &player, &step.numbers).join(", ");
            if counted != wanted {
                let place = format!("line {}", step.line);
                fail(place, format!("{}: `{counted}`, not `{wanted}`", step.action));
            }
        }
        if let Err(error) = player.sim.machines()[0].check() {
            fail("at its end".to_owned(), error.to_string());
        }
    }
    failures
}

/// Plays all cases of a file; fails with a list of the lines that deviate.
fn play(file: &str) {
    let text = fs::read_to_string(folder().join(file)).unwrap();
    let cases = cases(&text);
    assert!(!cases.is_empty(), "{file} has no case");
    for case in &cases {
        let has_expectation = case.steps.iter().any(|step| step.expected.is_some());
        assert!(has_expectation, "{file}, {}: no line says what it does", case.title);
    }
    let failures: Vec<String> = cases.iter().flat_map(|case| failures(file, case)).collect();
    assert!(failures.is_empty(), "{} lines fail:\n{}", failures.len(), failures.join("\n"));
}

// A test of each file, listed by `build.rs`.
include!(concat!(env!("OUT_DIR"), "/conformance.rs"));

/// The cases of `base4k` and `thp`, native and in guests, also hold for an outside second level. Cases without a second
/// level are left out.
#[test]
fn outside_level_has_the_effects_of_the_native_level() {
    let mut played = 0;
    for file in ["conventional.md", "nested.md"] {
        for mut case in cases(&fs::read_to_string(folder().join(file)).unwrap()) {
            case.design = match case.design.as_str() {
                "base4k" => "outside+base".to_owned(),
                "thp" => "outside+thp".to_owned(),
                _ => continue,
            };
            if case.settings.iter().all(|setting| setting != "tlb.l2=none") {
                assert_eq!(failures(file, &case), [""; 0]);
                played += 1;
            }
        }
    }
    assert!(played >= 15, "{played} cases");
}

/// The case has a hit that a line does not name, and a line that names a miss in place of a hit.
#[test]
fn every_deviating_line_is_reported() {
    let text = "# One\n\n```machine\nmachine = skylake\ndesign = base4k\n```\n\n```steps\n\
                map 0x10000000 4KiB\nload 0x10000000 | l1 miss, l2 miss, walks 2, references 3, faults 1\n\
                load 0x10000000 |\nload 0x10000000 | l1 hit\nload 0x10000000 | l1 miss\n```\n";
    let failures: Vec<String> =
        cases(text).iter().flat_map(|case| failures("here.md", case)).collect();
    assert_eq!(failures.len(), 2 * Instructions::all().len());
    assert!(failures[0].starts_with("here.md, One, line 11, "), "{failures:?}");
    assert!(failures[0].ends_with(": load: `l1 hit`, not ``"), "{failures:?}");
    assert!(failures[1].starts_with("here.md, One, line 13, "), "{failures:?}");
    assert!(failures[1].ends_with(": load: `l1 hit`, not `l1 miss`"), "{failures:?}");
}
