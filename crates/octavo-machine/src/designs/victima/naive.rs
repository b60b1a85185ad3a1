//! The slow, obvious twin of Victima: blocks are maps from pages to translations, for which the second-level cache only
//! holds lines; the counters of walks are plain numbers by page; a walk asks the page tables for each page of a block
//! by itself. The tests compare every counter of both, and check laws of the design.
//!
//! Where the description of the design leaves a choice, the twin does this:
//!
//! - After a second-level hit whose entry does not permit the access, no block is looked up. A block whose page does
//!   not permit it is used, counted as a hit, and costs nothing; the walk continues.
//! - A walk is counted before the predictor is asked about its page. Walks that set a dirty bit count, too.
//! - The window of misses ends when the predictor is asked about a page. It is asked about evicted pages only if their
//!   block is not there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use octavo_config::{MachineConfig, PageSizes, TlbArray, Ways};
use octavo_oracle::strategies::Step;
use octavo_os::ProcessId;
use octavo_os::vmas::Pages;
use octavo_types::{
    AddrRange, Event, FrameNumber, Instructions, ItemKind, PageNumber, PageSize, Protection,
    VirtAddr,
};
use proptest::prelude::*;

use super::{Predictor, VictimaSettings};
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::designs::Conventional;
use crate::designs::build::{self, Tables};
use crate::designs::leaf_line_twin::shown;
use crate::designs::registry::policies;
use crate::designs::twins::{
    self, Action, GUEST, actions, all_events, configs, counted, counted_last, differences, machine,
    map, references, run, setup, tiny, with,
};
use crate::env::Env;
use crate::front::LineAccess;
use crate::machine::AnyMachine;
use crate::tlb::{Lookup, TlbEntry, Translation};

/// The pages of a block, by first base page.
type Block = BTreeMap<u64, TlbEntry>;

/// By process, size and first base page: the frame that the counters are for, walks, and walks that read memory.
type WalkCounts = BTreeMap<(ProcessId, PageSize, u64), (FrameNumber, u64, u64)>;

/// The unit of one core.
struct Naive {
    conventional: Conventional,
    settings: VictimaSettings,
    /// Pages of a block.
    pages: u64,
    /// By address space, size and number. Blocks that the cache has evicted may remain.
    blocks: BTreeMap<(octavo_hw::Asid, PageSize, u64), Block>,
    /// Shared by all cores.
    walks: Arc<Mutex<WalkCounts>>,
    /// Instructions and misses when the window began, and whether the one before had many.
    window: (u64, u64, bool),
    hits: u64,
    misses: u64,
    fills: u64,
    filled_pages: u64,
    renewals: u64,
    background: (u64, u64),
}

/// The first base page of the page of a size that holds a base page.
fn first_of(page: PageNumber, size: PageSize) -> u64 {
    let pages = size.bytes() / 4096;
    page.raw() / pages * pages
}

impl Naive {
    /// The number of the block of a page.
    fn number(&self, page: u64, size: PageSize) -> u64 {
        page * 4096 / size.bytes() / self.pages
    }

    fn find(&mut self, env: &mut Env, page: PageNumber) -> Option<Translation> {
        for size in [PageSize::BASE, PageSize::HUGE] {
            let number = self.number(page.raw(), size);
            if env.translation_line(size, number).is_some()
                && let Some(entry) =
                    self.blocks[&(env.asid(), size, number)].get(&first_of(page, size))
            {
                self.hits += 1;
                return Some(Translation { size, entry: *entry });
            }
        }
        self.misses += 1;
        None
    }

    /// Whether a page is worth a block.
    fn is_costly(&mut self, env: &Env, page: PageNumber, walked: Translation) -> bool {
        match self.settings.predictor {
            Predictor::Always => return true,
            Predictor::Never => return false,
            Predictor::Bounds => {}
        }
        let (instructions, misses) = env.fetches_and_l2_misses();
        let (first, misses_before, _) = self.window;
        if instructions - first >= self.settings.window_instructions {
            let per_thousand =
                (misses - misses_before) as f64 * 1000.0 / (instructions - first) as f64;
            let is_many = per_thousand > self.settings.bypass_misses as f64;
            self.window = (instructions, misses, is_many);
        }
        let key = (env.process(), walked.size, first_of(page, walked.size));
        let known = self.walks.lock().unwrap().get(&key).copied();
        let (_, walks, from_memory) =
            known.filter(|(frame, ..)| *frame == walked.entry.frame()).unwrap_or_default();
        let VictimaSettings { frequency_min, frequency_max, cost_min, cost_max, .. } =
            self.settings;
        self.window.2
            || frequency_min <= walks
                && walks <= frequency_max
                && cost_min <= from_memory
                && from_memory <= cost_max
    }

    fn count(&mut self, env: &Env, page: PageNumber, walked: Translation, read_memory: bool) {
        let key = (env.process(), walked.size, first_of(page, walked.size));
        let frame = walked.entry.frame();
        let mut all = self.walks.lock().unwrap();
        let counts = all.entry(key).or_insert((frame, 0, 0));
        if counts.0 != frame {
            *counts = (frame, 0, 0);
        }
        let most = |bits: u64| 2u64.pow(bits as u32) - 1;
        counts.1 = most(self.settings.frequency_bits).min(counts.1 + 1);
        counts.2 = most(self.settings.cost_bits).min(counts.2 + u64::from(read_memory));
    }

    /// The pages of the block of a mapped page that the walk to it has seen.
    fn seen(&self, env: &Env, page: PageNumber, size: PageSize) -> Block {
        let first = self.number(page.raw(), size) * self.pages * (size.bytes() / 4096);
        let all = (0..self.pages).map(|at| first + at * (size.bytes() / 4096));
        let entry = |other: u64| {
            let seen = shown(env, self.pages, page.raw(), other)?;
            (seen.size == size).then_some(seen.entry)
        };
        all.filter_map(|other| Some((other, entry(other)?))).collect()
    }

    /// Puts a block into the cache, or renews it.
    fn fill(&mut self, env: &mut Env, page: PageNumber, size: PageSize, block: Block) {
        let number = self.number(page.raw(), size);
        let key = (env.asid(), size, number);
        if env.translation_line(size, number).is_some() {
            self.renewals += 1;
            self.blocks.get_mut(&key).unwrap().extend(block);
        } else {
            env.fill_translation_line(size, number, [0; 8]);
            self.fills += 1;
            self.filled_pages += block.len() as u64;
            self.blocks.insert(key, block);
        }
    }

    fn walk_and_fill(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        (held, is_clean): (Lookup, bool),
    ) -> Option<Translation> {
        let read_before = env.entries_read_from_memory();
        let translation = self.walk(env, page, access, is_clean)?;
        self.conventional.fill_l2(env.asid(), page, translation, held);
        let size = translation.size;
        if [PageSize::BASE, PageSize::HUGE].contains(&size) {
            let read_memory = env.entries_read_from_memory() != read_before;
            self.count(env, page, translation, read_memory);
            let is_costly = self.is_costly(env, page, translation);
            let is_there = env.translation_line(size, self.number(page.raw(), size)).is_some();
            if is_costly || is_there {
                let mut block = self.seen(env, page, size);
                block.insert(first_of(page, size), translation.entry);
                self.fill(env, page, size, block);
            }
        }
        Some(translation)
    }

    /// Walks in the background to a costly page that the second level has evicted.
    fn after_fills(&mut self, env: &mut Env) {
        let Some((asid, page, evicted)) = self.conventional.take_evicted_from_l2() else { return };
        let whole = evicted.whole();
        let number = self.number(page.raw(), whole.size);
        if !self.settings.fill_on_eviction
            || asid != env.asid()
            || whole.size > PageSize::HUGE
            || env.translation_line(whole.size, number).is_some()
            || !self.is_costly(env, page, whole)
        {
            return;
        }
        if let Some(references) = self.walk_in_background(env, page) {
            self.background = (self.background.0 + 1, self.background.1 + references);
            let block = self.seen(env, page, whole.size);
            if block.contains_key(&first_of(page, whole.size)) {
                self.fill(env, page, whole.size, block);
            }
        }
    }
}

impl Design for Naive {
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let translation = match self.conventional.look_up_l1(env, page, access) {
            Lookup::Hit(translation) => return Some(translation.frame_of(page)),
            held @ Lookup::PermissionMiss { is_clean } => {
                let walked = self.walk_and_fill(env, page, access, (held, is_clean))?;
                self.conventional.replace_l1(env.asid(), page, walked, access);
                walked
            }
            Lookup::Miss => match self.conventional.look_up_l2(env, page, access) {
                Lookup::Hit(translation) => translation,
                in_second => {
                    let is_miss = matches!(in_second, Lookup::Miss);
                    let found = if is_miss { self.find(env, page) } else { None };
                    let latency_cycles = found.map(|found| {
                        let number = self.number(page.raw(), found.size);
                        env.use_translation_line(found.size, number)
                    });
                    let is_store = access.is_store();
                    let translation = match found {
                        Some(found) if found.entry.permits(is_store) => {
                            env.charge_lookup(latency_cycles.unwrap());
                            self.conventional.fill_l2(env.asid(), page, found, in_second);
                            found
                        }
                        _ => {
                            let in_block = found.is_some_and(|found| found.entry.is_writable());
                            let is_clean = in_block
                                || matches!(in_second, Lookup::PermissionMiss { is_clean: true });
                            self.walk_and_fill(env, page, access, (in_second, is_clean))?
                        }
                    };
                    self.conventional.fill_l1(env.asid(), page, translation, access);
                    translation
                }
            },
        };
        self.after_fills(env);
        env.stopped().is_none().then_some(translation.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.conventional.invalidate(space, pages);
    }

    fn flush(&mut self) {
        self.conventional.flush();
    }

    fn report(&self, counters: &mut Counters) {
        self.conventional.report(counters);
        for (counter, value) in [
            ("accesses", self.hits + self.misses),
            ("hits", self.hits),
            ("misses", self.misses),
            ("fills", self.fills),
            ("filled_pages", self.filled_pages),
            ("renewals", self.renewals),
            ("background_walks", self.background.0),
            ("background_references", self.background.1),
        ] {
            counters.add("tlb.blocks", counter, value);
        }
    }
}

fn naive(config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    let pages = (config.cache.line_bytes / 8).min(8);
    let tables = Tables { pages_of_translation_line: Some(pages), ..Tables::default() };
    let os = policies().parse(policy).unwrap();
    let walks = Arc::new(Mutex::new(WalkCounts::new()));
    let made = build::machine_with_tables(config, &setup(config), tables, &os, |_| {
        Ok(Naive {
            conventional: Conventional::new(&config.tlb, Instructions::PORTABLE)?,
            settings: *config.designs.get::<VictimaSettings>(),
            pages,
            blocks: BTreeMap::new(),
            walks: Arc::clone(&walks),
            window: (0, 0, false),
            hits: 0,
            misses: 0,
            fills: 0,
            filled_pages: 0,
            renewals: 0,
            background: (0, 0),
        })
    });
    made.unwrap()
}

/// Settings of the design that change what it does on small programs.
fn settings() -> [VictimaSettings; 4] {
    let usual = VictimaSettings::default();
    [
        VictimaSettings { predictor: Predictor::Always, ..usual },
        // No window has many misses, so that the counters decide.
        VictimaSettings { bypass_misses: 1000, ..usual },
        VictimaSettings {
            frequency_bits: 2,
            cost_bits: 1,
            frequency_min: 2,
            cost_min: 0,
            bypass_misses: 300,
            window_instructions: 10,
            ..usual
        },
        VictimaSettings {
            frequency_max: 2,
            cost_max: 1,
            bypass_misses: 1000,
            fill_on_eviction: false,
            ..usual
        },
    ]
}

/// Plays actions on the design and its twin, and compares every counter. Returns those of the design.
fn compare_one(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    twins::compare(config, [machine("victima", config, policy), naive(config, policy)], actions)
}

/// As [`compare_one`], with each of [`settings`], and a second-level cache that keeps some blocks.
fn compare(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<(), TestCaseError> {
    for (settings, kib) in settings().into_iter().zip([16, 16, 2, 4]) {
        let mut config = with(config, settings);
        config.cache.l2.bytes = kib << 10;
        compare_one(&config, policy, actions)?;
    }
    Ok(())
}

twins::equals_twin!(compare);

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    #[test]
    fn design_without_costly_pages_is_the_conventional_one(
        config in configs(&["victima.predictor=never"]),
        actions in actions(),
    ) {
        for policy in ["base", "thp"] {
            let machines = ["conventional", "victima"].map(|hardware| machine(hardware, &config, policy));
            let counters = counted(&config, machines.into(), &actions);
            prop_assert_eq!(differences(&counters[0], &counters[1]), Vec::new());
            let own = differences(&counters[1], &counters[0]);
            for (component, counter, value, _) in own {
                let is_own = ["tlb.blocks", "cache.l2.translations"].contains(&component);
                prop_assert!(is_own, "{}", component);
                prop_assert!(value == 0 || ["accesses", "misses"].contains(&counter));
            }
        }
    }

    /// The TLBs hit and miss as without blocks, and only a hit takes the place of a walk.
    #[test]
    fn blocks_replace_only_walks(config in configs(&[]), actions in actions()) {
        let config = MachineConfig { memory: tiny(&[]).memory, ..config };
        let config = with(&config, settings()[0]);
        for policy in ["base", "thp"] {
            let machines = ["conventional", "victima"].map(|hardware| machine(hardware, &config, policy));
            let counters = counted(&config, machines.into(), &actions);
            let tlb_counters = |counters: &Counters| -> Vec<_> {
                let all = counters.iter().filter(|(component, ..)| component.starts_with("tlb.l"));
                all.map(|(component, counter, value)| (component.to_owned(), counter, value)).collect()
            };
            prop_assert_eq!(tlb_counters(&counters[0]), tlb_counters(&counters[1]));
            let get = |at: usize, component, counter| counters[at].get(component, counter).unwrap();
            let [before, after] = [0, 1].map(|at| get(at, "walker", "walks"));
            prop_assert!(after <= before && before - after <= get(1, "tlb.blocks", "hits"));
            let [fills, evicted, invalidated] = ["fills", "evicted", "invalidated"]
                .map(|counter| get(1, "cache.l2.translations", counter));
            prop_assert_eq!(fills, get(1, "tlb.blocks", "fills"));
            prop_assert!(evicted + invalidated <= fills);
        }
    }
}

const FIRST: u64 = 0x40_0000_0000;

fn protect(range: AddrRange) -> impl Iterator<Item = Step> {
    let protect = move |bits| Event::Protect { range, protection: Protection::from_bits(bits) };
    [1, 3].into_iter().map(move |bits| Step::Event(protect(bits)))
}

/// Loads of 8N mapped pages that neither TLBs nor blocks hold, in a machine with a second-level TLB of 12 entries.
fn cold_pass(settings: &[&str], policy: &str, size: PageSize, blocks: u64) -> Counters {
    let config = tiny(&[&["victima.predictor=always", "cache.l2.bytes=64KiB"], settings].concat());
    let page = |number: u64| FIRST + number * size.bytes();
    // The lines of data are in other sets of the second-level cache than the blocks.
    let pass = || references(ItemKind::Load, (0..8 * blocks).map(|number| page(number) + 2048));
    let bytes = page(8 * blocks) - FIRST;
    let range = AddrRange::new(VirtAddr::new(FIRST), bytes);
    let mut steps = vec![map(FIRST, bytes >> 12)];
    steps.extend(pass().chain(protect(range)));
    let runs = [run(steps), run(pass().collect())];
    counted_last(&config, || machine("victima", &config, policy), &runs)
}

#[test]
fn one_walk_fills_a_block_of_eight_pages() {
    const BLOCKS: u64 = 10;
    for (policy, size, references) in [("base", PageSize::BASE, 4), ("thp", PageSize::HUGE, 3)] {
        let walk_caches =
            ["walker.caches.pde=none", "walker.caches.pdpte=none", "walker.caches.pml4e=none"];
        let counters = cold_pass(&walk_caches, policy, size, BLOCKS);
        let get = |component, counter| counters.get(component, counter).unwrap();
        assert_eq!(get("walker", "walks"), BLOCKS, "{policy}");
        assert_eq!(get("tlb.blocks", "hits"), 7 * BLOCKS);
        assert_eq!(get("tlb.blocks", "filled_pages"), 8 * BLOCKS);
        // A walk that a hit ends reads nothing.
        assert_eq!(get("walker", "references"), references * BLOCKS);
        assert_eq!(get("tlb.l2", "misses"), 8 * BLOCKS);
    }
    // The host's line shows the frames of the guest's pages if these are neighbours, too; a huge page shows all.
    for host in ["base", "thp"] {
        let host = format!("host.policy={host}");
        let counters = cold_pass(&[&GUEST[..], &[&host]].concat(), "base", PageSize::BASE, BLOCKS);
        let walks = counters.get("walker", "walks").unwrap();
        assert!((BLOCKS..=3 * BLOCKS).contains(&walks), "{host}: {walks} walks");
        let hits = counters.get("tlb.blocks", "hits").unwrap();
        assert_eq!(walks + hits, 8 * BLOCKS);
    }
}

/// Each hit takes as long as one of the second-level cache.
#[test]
fn hit_is_charged_once() {
    let counters = cold_pass(
        &["cache.l2.latency_cycles=16", "tlb.l2.hit_latency_cycles=9"],
        "base",
        PageSize::BASE,
        4,
    );
    assert_eq!(counters.get("core", "cycles_tlb_l2"), Some(32 * 9 + 28 * 16));
}

/// The counters decide which walk fills a block: one between the bounds.
#[test]
fn bounds_select_walks() {
    let page = || references(ItemKind::Load, [FIRST].into_iter());
    // Each pass drops the page from TLBs and blocks, and walks to it once.
    let range = AddrRange::new(VirtAddr::new(FIRST), 4096);
    let filled = |settings: &[&str], passes: u64| {
        let config = tiny(
            &[&["victima.bypass_misses=1000", "victima.fill_on_eviction=false"], settings].concat(),
        );
        let runs: Vec<_> = (0..passes)
            .map(|pass| {
                let maps = (pass == 0).then(|| map(FIRST, 1));
                run(maps.into_iter().chain(protect(range)).chain(page()).collect())
            })
            .collect();
        let counters = counted_last(&config, || machine("victima", &config, "base"), &runs);
        // The first pass has faults of the page and of the code.
        assert_eq!(counters.get("walker", "walks"), Some(if passes == 1 { 4 } else { 1 }));
        counters.get("tlb.blocks", "fills").unwrap()
    };
    let settings = ["victima.cost_min=0", "victima.frequency_min=2", "victima.frequency_max=3"];
    let fills_by_passes: Vec<_> = (1..6).map(|passes| filled(&settings, passes)).collect();
    assert_eq!(fills_by_passes, [0, 1, 1, 0, 0]);
    // A counter of a bit ends at 1.
    let narrow = [&settings[..], &["victima.frequency_bits=1"]].concat();
    assert_eq!(filled(&narrow, 3), 0);
}

/// With more misses than the setting allows, pages fill blocks that their counters would not.
#[test]
fn predictor_is_bypassed_while_the_cache_misses() {
    let fills = |bypass: &str, window: &str| {
        let never = ["victima.cost_min=9", "victima.cost_max=9", "victima.cost_bits=3"];
        let config = tiny(&[&never[..], &[bypass, window]].concat());
        let steps = references(ItemKind::Load, (0..64).map(|page| FIRST + (page << 12)));
        let runs = [run([map(FIRST, 64)].into_iter().chain(steps).collect())];
        let counters = counted_last(&config, || machine("victima", &config, "base"), &runs);
        counters.get("tlb.blocks", "fills").unwrap()
    };
    let short = "victima.window_instructions=1";
    assert!(fills("victima.bypass_misses=5", short) > 0);
    assert_eq!(fills("victima.bypass_misses=1000", "victima.window_instructions=1000"), 0);
    // No window of this length ends.
    assert_eq!(fills("victima.bypass_misses=0", "victima.window_instructions=1000"), 0);
}

/// Data has evicted the blocks of twelve pages that the TLBs still hold. When the TLBs evict these pages, walks in the
/// background fill their two blocks again.
#[test]
fn evicted_pages_are_walked_to_in_the_background() {
    let counted = |keeps: bool| {
        let keeps = format!("victima.fill_on_eviction={keeps}");
        let config = tiny(&[&keeps, "victima.predictor=always"]);
        let load = |addresses: Vec<u64>| references(ItemKind::Load, addresses.into_iter());
        let pages = |first: u64, pages: u64| (0..pages).map(|page| first + (page << 12)).collect();
        // Lines of data at the start of a page belong to set 0 of the second-level cache, the blocks to sets 1 and
        // 2, and those of the others to sets 4 to 6.
        let (first, others) = (FIRST + (8 << 12), FIRST + (36 << 12));
        let steps = [map(FIRST, 64)].into_iter().chain(load(pages(first, 12)));
        let steps = steps.chain(load((0..64).map(|line| first + (line << 6)).collect()));
        let other_pages: Vec<_> = (others..).step_by(4096).take(20).collect();
        let runs = [
            run(steps.collect()),
            run(load(other_pages).collect()),
            run(load(pages(first, 12)).collect()),
        ];
        let make = || machine("victima", &config, "base");
        [2, 3].map(|count| counted_last(&config, make, &runs[..count]))
    };
    let walks = |counters: &Counters| counters.get("walker", "walks").unwrap();
    let background = |counters: &Counters| counters.get("tlb.blocks", "background_walks").unwrap();
    let [while_evicted, again] = counted(true);
    assert_eq!((background(&while_evicted), walks(&again)), (2, 0));
    let [while_evicted, again] = counted(false);
    assert_eq!((background(&while_evicted), walks(&again)), (0, 2));
}

#[test]
fn compared_events_occur() {
    let gigantic = "hugetlb:all_anonymous=1GiB:nr_gigantic_pages=2";
    for (settings, policy) in [(&[][..], "thp"), (&[], "base"), (&GUEST, "thp"), (&[], gigantic)] {
        for spaces in ["core.address_spaces=tagged", "core.address_spaces=flushed"] {
            let own = [spaces, "core.count=2", "victima.bypass_misses=1000", "cache.l2.bytes=8KiB"];
            let mut config = tiny(&[settings, &own].concat());
            config.host.iter_mut().for_each(|host| host.policy = "thp".to_owned());
            if policy == gigantic {
                config.memory.bytes = 4 << 30;
                config.memory.largest_block = PageSize::LARGEST;
                let arrays = &mut config.tlb.l2.as_mut().unwrap().arrays;
                let page_sizes = PageSizes::List(vec![PageSize::LARGEST]);
                let one =
                    TlbArray { entries: 1, ways: Ways::Full, page_sizes, ..arrays["main"].clone() };
                arrays.insert("1g".to_owned(), one);
            }
            let counters = compare_one(&config, policy, &all_events()).unwrap();
            for counter in ["hits", "misses", "fills", "renewals", "background_walks"] {
                let value = counters.get("tlb.blocks", counter).unwrap();
                assert!(value > 0, "{policy}, {spaces}: {counter}");
            }
            for counter in ["evicted", "invalidated"] {
                let value = counters.get("cache.l2.translations", counter).unwrap();
                assert!(value > 0, "{policy}, {spaces}: {counter}");
            }
            assert!(counters.get("os", "copy_on_write_faults") > Some(0));
            assert!(counters.get("walker", "walks_dirty") > Some(0));
        }
    }
}
