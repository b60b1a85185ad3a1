//! The slow, obvious twin: queues as lists, all misses of an address space as a list, counters by distance in a map, and
//! the table of the paper's counters row by row. It asks the page tables for each page by itself. The tests compare every
//! counter of both, and check laws of the design.

use std::collections::BTreeMap;

use octavo_config::MachineConfig;
use octavo_hw::Asid;
use octavo_os::vmas::Pages;
use octavo_types::{Access, FrameNumber, Instructions, ItemKind, PageNumber, PageSize};
use proptest::prelude::*;

use super::AtpSettings;
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::designs::Conventional;
use crate::designs::build;
use crate::designs::leaf_line_twin::shown;
use crate::designs::registry::policies;
use crate::designs::twins::{
    self, Action, GUEST, actions, all_events, configs, counted, counted_last, differences,
    guest_configs, load, machine, map, references, run, run_loads, setup, tiny, with,
};
use crate::env::Env;
use crate::front::LineAccess;
use crate::machine::AnyMachine;
use crate::tlb::{Lookup, Translation};

/// A page in a list: its first base page, and their number.
#[derive(Clone, Copy, PartialEq)]
struct Page {
    first: u64,
    pages: u64,
}

impl Page {
    /// The page of a size that holds a base page.
    fn of(page: u64, size: PageSize) -> Self {
        let pages = size.bytes() / 4096;
        Page { first: page - page % pages, pages }
    }

    fn has(self, page: u64) -> bool {
        self.first <= page && page < self.first + self.pages
    }
}

/// Pages with values, oldest first.
type List<T> = Vec<(Page, T)>;

fn place<T>(list: &List<T>, page: u64) -> Option<usize> {
    list.iter().position(|(held, _)| held.has(page))
}

fn take<T>(list: &mut List<T>, page: u64) -> Option<T> {
    place(list, page).map(|at| list.remove(at).1)
}

/// Adds a page, unless the list holds it. Returns whether the oldest page was evicted.
fn add<T>(list: &mut List<T>, most: u64, page: Page, value: T) -> bool {
    if place(list, page.first).is_some() {
        return false;
    }
    list.push((page, value));
    let is_full = list.len() as u64 > most;
    if is_full {
        list.remove(0);
    }
    is_full
}

/// The misses of an instruction since it has been in the table, and the time of the last one.
struct Known {
    site: u64,
    misses: Vec<u64>,
    time: u64,
}

#[derive(Default)]
struct Memory {
    /// Translations, with the distance of a free prefetch.
    queue: List<(Translation, Option<i64>)>,
    sampler: List<i64>,
    useful: BTreeMap<i64, u64>,
    misses: Vec<u64>,
    known: Vec<Known>,
    /// Of H2P, MASP and STP.
    fake: [List<()>; 3],
    /// How far each counter is above its start.
    enable: i64,
    select_1: i64,
    select_2: i64,
}

struct Naive {
    conventional: Conventional,
    settings: AtpSettings,
    /// Page-table entries of a line.
    in_line: u64,
    asid: Asid,
    memory: Memory,
    time: u64,
    hits: u64,
    misses: u64,
    counts: BTreeMap<&'static str, u64>,
}

const COUNTERS: [&str; 15] = [
    "free_hits",
    "sampler_hits",
    "chosen_h2p",
    "chosen_masp",
    "chosen_stp",
    "chosen_none",
    "prefetches_h2p",
    "prefetches_masp",
    "prefetches_stp",
    "walk_references",
    "held",
    "dropped",
    "free",
    "sampled",
    "evicted",
];

/// Moves a counter up or down. Its value is relative to its start, which is the largest value below half.
fn count(counter: &mut i64, bits: u64, step: i64) {
    let half = 2i64.pow(bits as u32) / 2;
    let (least, most) = if bits == 0 { (0, 0) } else { (1 - half, half) };
    *counter = (*counter + step).clamp(least, most);
}

impl Naive {
    fn count_up(&mut self, counter: &'static str, by: u64) {
        *self.counts.entry(counter).or_default() += by;
    }

    fn on(&self) -> [bool; 3] {
        [self.settings.h2p, self.settings.masp, self.settings.stp]
    }

    fn is_useful(&self, distance: i64) -> bool {
        self.memory.useful.get(&distance).copied().unwrap_or(0) > self.settings.threshold
    }

    fn count_distance(&mut self, distance: i64) {
        *self.memory.useful.entry(distance).or_default() += 1;
        if self.memory.useful[&distance] == 2u64.pow(self.settings.distance_bits as u32) - 1 {
            self.memory.useful.values_mut().for_each(|count| *count /= 2);
        }
    }

    /// The other pages of the line of a page.
    fn neighbours(&self, page: u64, size: PageSize) -> Vec<(i64, u64)> {
        let pages = size.bytes() / 4096;
        let number = page / pages;
        let in_line = |other: u64| other / self.in_line == number / self.in_line;
        let distances = (-7..=7).filter(|distance| *distance != 0);
        let others =
            distances.filter_map(|distance| Some((distance, number.checked_add_signed(distance)?)));
        others.filter(|(_, other)| in_line(*other)).map(|(at, other)| (at, other * pages)).collect()
    }

    fn holds(&mut self, page: u64) -> bool {
        let own = self.asid;
        let in_second = self.conventional.l2().is_some_and(|l2| {
            l2.arrays().flat_map(|array| array.entries()).any(|(asid, first, order, _)| {
                asid == own && (Page { first: first.raw(), pages: 1 << order }).has(page)
            })
        });
        in_second || place(&self.memory.queue, page).is_some()
    }

    fn add_to_queue(&mut self, page: u64, translation: Translation, distance: Option<i64>) {
        let added = Page::of(page, translation.size);
        if add(&mut self.memory.queue, self.settings.entries, added, (translation, distance)) {
            self.count_up("evicted", 1);
        }
    }

    fn free(&mut self, env: &Env, walked: u64, size: PageSize) {
        if !self.settings.sbfp {
            return;
        }
        for (distance, other) in self.neighbours(walked, size) {
            match shown(env, self.in_line, walked, other) {
                Some(translation) if translation.size == size => {
                    if self.is_useful(distance) {
                        if !self.holds(other) {
                            self.add_to_queue(other, translation, Some(distance));
                            self.count_up("free", 1);
                        }
                    } else {
                        let most = self.settings.sampler_entries;
                        add(&mut self.memory.sampler, most, Page::of(other, size), distance);
                        self.count_up("sampled", 1);
                    }
                }
                _ => {}
            }
        }
    }

    /// The pages at these distances.
    fn at(&self, env: &Env, miss: Page, distances: &[i64]) -> Vec<u64> {
        let all = env.tables(PageNumber::new(miss.first)).next().unwrap().0.reach_pages();
        let mut found = Vec::new();
        for distance in distances {
            let page = i128::from(miss.first) + i128::from(*distance);
            if (0..i128::from(all)).contains(&page) {
                let page = page as u64 - page as u64 % miss.pages;
                if page != miss.first && !found.contains(&page) {
                    found.push(page);
                }
            }
        }
        found
    }

    /// The predictions of H2P, MASP and STP.
    fn predict(&mut self, env: &Env, miss: Page, site: Option<u64>) -> [Vec<u64>; 3] {
        let distance = |pages: &[u64], at: usize| pages[at] as i64 - pages[at - 1] as i64;
        self.memory.misses.push(miss.first);
        let by_all = match self.memory.misses.len() {
            0..3 => Vec::new(),
            len => [len - 1, len - 2].map(|at| distance(&self.memory.misses, at)).to_vec(),
        };
        let mut by_site = Vec::new();
        if let Some(site) = site {
            self.time += 1;
            let sets = self.settings.masp_sets;
            let known = self.memory.known.iter_mut().find(|known| known.site == site);
            if let Some(known) = known {
                known.misses.push(miss.first);
                known.time = self.time;
                let len = known.misses.len();
                by_site = (1..len).rev().take(2).map(|at| distance(&known.misses, at)).collect();
                by_site.reverse();
            } else {
                let in_set = |known: &&Known| known.site % sets == site % sets;
                let of_set: Vec<_> = self.memory.known.iter().filter(in_set).collect();
                if of_set.len() as u64 == self.settings.masp_ways {
                    let oldest = of_set.iter().map(|known| known.time).min().unwrap();
                    self.memory.known.retain(|known| known.time != oldest);
                }
                let misses = vec![miss.first];
                self.memory.known.push(Known { site, misses, time: self.time });
            }
        }
        let two_aside = [-2, -1, 1, 2].map(|pages| pages * miss.pages as i64);
        let all = [by_all, by_site, two_aside.to_vec()];
        let [h2p, masp, stp] = all.map(|distances| self.at(env, miss, &distances));
        let on = |is_on: bool, pages| if is_on { pages } else { Vec::new() };
        let [is_h2p, is_masp, is_stp] = self.on();
        [on(is_h2p, h2p), on(is_masp, masp), on(is_stp, stp)]
    }

    /// Looks a page up in the fake queues, and moves the counters by the rows of the paper's table.
    fn judge(&mut self, page: u64) {
        let had = [0, 1, 2].map(|number| take(&mut self.memory.fake[number], page).is_some());
        let (enable, select_1, select_2) = match had {
            [false, false, false] => (-1, 0, 0),
            [false, false, true] => (1, -1, 1),
            [false, true, false] => (1, -1, -1),
            [false, true, true] => (1, -1, 0),
            [true, false, false] => (1, 1, 0),
            [true, false, true] => (1, 0, 1),
            [true, true, false] => (1, 0, -1),
            [true, true, true] => (1, 0, 0),
        };
        count(&mut self.memory.enable, self.settings.enable_bits, enable);
        count(&mut self.memory.select_1, self.settings.select_1_bits, select_1);
        count(&mut self.memory.select_2, self.settings.select_2_bits, select_2);
    }

    /// The number of the chosen prefetcher.
    fn choice(&self) -> Option<usize> {
        let Memory { enable, select_1, select_2, .. } = self.memory;
        if self.settings.enable_bits > 0 && enable <= 0 {
            return None;
        }
        let other = match self.on() {
            [_, true, true] => Some(if select_2 > 0 { 2 } else { 1 }),
            [_, true, false] => Some(1),
            [_, false, true] => Some(2),
            [_, false, false] => None,
        };
        match other {
            Some(other) if self.settings.h2p => Some(if select_1 > 0 { 0 } else { other }),
            Some(other) => Some(other),
            None => Some(0),
        }
    }

    fn follow(
        &mut self,
        env: &mut Env,
        page: u64,
        size: PageSize,
        site: Option<u64>,
    ) -> Option<()> {
        if self.on() == [false; 3] {
            return Some(());
        }
        let miss = Page::of(page, size);
        self.judge(page);
        let choice = self.choice();
        let predicted = self.predict(env, miss, site);
        let chosen = ["chosen_h2p", "chosen_masp", "chosen_stp"];
        self.count_up(choice.map_or("chosen_none", |number| chosen[number]), 1);
        if let Some(number) = choice {
            for target in predicted[number].clone() {
                if self.holds(target) {
                    self.count_up("held", 1);
                    continue;
                }
                self.count_up(["prefetches_h2p", "prefetches_masp", "prefetches_stp"][number], 1);
                let references = env.walk_to_prefetch(PageNumber::new(target))?;
                self.count_up("walk_references", references);
                if let Some(translation) = shown(env, self.in_line, target, target) {
                    self.add_to_queue(target, translation, None);
                    self.free(env, target, translation.size);
                } else {
                    self.count_up("dropped", 1);
                }
            }
        }
        for (number, targets) in predicted.into_iter().enumerate() {
            for target in targets {
                let mut would = vec![target];
                if self.settings.sbfp {
                    let free = self.neighbours(target, size).into_iter();
                    would.extend(free.filter(|(at, _)| self.is_useful(*at)).map(|(_, page)| page));
                }
                for page in would {
                    let most = self.settings.fake_entries;
                    add(&mut self.memory.fake[number], most, Page::of(page, size), ());
                }
            }
        }
        Some(())
    }

    /// Serves a miss of all TLBs.
    fn serve(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation> {
        if env.asid() != self.asid {
            (self.asid, self.memory) = (env.asid(), Memory::default());
        }
        env.charge_lookup(self.settings.lookup_cycles);
        let found = take(&mut self.memory.queue, page.raw());
        let held = found.map(|(translation, _)| translation);
        let is_clean = held.is_some_and(|held| held.entry.is_writable());
        let permitted = found.filter(|(held, _)| held.entry.permits(access.is_store()));
        let translation = match permitted {
            Some((translation, distance)) => {
                self.hits += 1;
                if let Some(distance) = distance {
                    self.count_up("free_hits", 1);
                    self.count_distance(distance);
                }
                translation
            }
            None => {
                self.misses += 1;
                if let Some(distance) = take(&mut self.memory.sampler, page.raw()) {
                    self.count_up("sampler_hits", 1);
                    self.count_distance(distance);
                }
                self.walk(env, page, access, is_clean)?
            }
        };
        let asid = env.asid();
        self.conventional.fill_l2(asid, page, translation, Lookup::Miss);
        self.conventional.fill_l1(asid, page, translation, access);
        if permitted.is_none() {
            self.free(env, page.raw(), translation.size);
        }
        if permitted.is_none() || self.settings.follow_hits {
            let site = (access.kind() != Access::Fetch).then(|| env.site());
            self.follow(env, page.raw(), translation.size, site)?;
        }
        Some(translation)
    }
}

impl Design for Naive {
    const FOLLOWS_INSTRUCTIONS: bool = true;

    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let is_used =
            self.settings.entries > 0 && (self.settings.sbfp || self.on().contains(&true));
        let translation = match self.conventional.look_up_l1(env, page, access) {
            Lookup::Hit(translation) => translation,
            held @ Lookup::PermissionMiss { is_clean } => {
                let walked = self.walk(env, page, access, is_clean)?;
                self.conventional.fill_l2(env.asid(), page, walked, held);
                self.conventional.replace_l1(env.asid(), page, walked, access);
                walked
            }
            Lookup::Miss => match self.conventional.look_up_l2(env, page, access) {
                Lookup::Hit(translation) => translation,
                Lookup::Miss if is_used => self.serve(env, page, access)?,
                held => {
                    let walked = self.walk(env, page, access, held.is_clean())?;
                    self.conventional.fill_l2(env.asid(), page, walked, held);
                    self.conventional.fill_l1(env.asid(), page, walked, access);
                    walked
                }
            },
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.conventional.invalidate(space, pages);
        if space.asid == self.asid {
            let stays =
                |page: Page| page.first >= pages.end || page.first + page.pages <= pages.start;
            self.memory.queue.retain(|(page, _)| stays(*page));
            self.memory.sampler.retain(|(page, _)| stays(*page));
        }
    }

    fn flush(&mut self) {
        self.conventional.flush();
        self.memory = Memory::default();
    }

    fn report(&self, counters: &mut Counters) {
        self.conventional.report(counters);
        counters.add("tlb.pq", "accesses", self.hits + self.misses);
        counters.add("tlb.pq", "hits", self.hits);
        counters.add("tlb.pq", "misses", self.misses);
        for counter in COUNTERS {
            counters.add("atp", counter, self.counts.get(counter).copied().unwrap_or(0));
        }
    }
}

fn naive(config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    let os = policies().parse(policy).unwrap();
    let made = build::machine(config, &setup(config), &os, || {
        Ok(Naive {
            conventional: Conventional::new(&config.tlb, Instructions::PORTABLE)?,
            settings: *config.designs.get::<AtpSettings>(),
            in_line: (config.cache.line_bytes / 8).min(8),
            asid: Asid::ONLY,
            memory: Memory::default(),
            time: 0,
            hits: 0,
            misses: 0,
            counts: BTreeMap::new(),
        })
    });
    made.unwrap()
}

/// Queues and counters so small that they overflow; each prefetcher, and free prefetches, by themselves.
fn settings() -> Vec<AtpSettings> {
    let usual = AtpSettings::default();
    let eager = AtpSettings { enable_bits: 0, threshold: 0, follow_hits: true, ..usual };
    let none = AtpSettings { h2p: false, masp: false, stp: false, ..eager };
    vec![
        usual,
        eager,
        AtpSettings {
            entries: 5,
            lookup_cycles: 7,
            masp_sets: 3,
            masp_ways: 2,
            fake_entries: 3,
            enable_bits: 2,
            select_1_bits: 1,
            select_2_bits: 1,
            sampler_entries: 4,
            distance_bits: 2,
            threshold: 1,
            ..usual
        },
        AtpSettings { h2p: true, sbfp: false, entries: 2, ..none },
        AtpSettings { masp: true, masp_ways: 1, follow_hits: false, ..none },
        AtpSettings { masp: true, stp: true, sbfp: false, select_2_bits: 1, ..none },
        none,
    ]
}

/// Compares design and twin with all settings.
fn compare(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<(), TestCaseError> {
    for settings in settings() {
        let config = with(config, settings);
        let machines = [machine("atp", &config, policy), naive(&config, policy)];
        twins::compare(&config, machines, actions)?;
    }
    Ok(())
}

twins::equals_twin!(compare);

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    #[test]
    fn without_prefetches_it_is_the_conventional_design(
        config in configs(&[]),
        actions in actions(),
    ) {
        let all = AtpSettings::default();
        let no_entries = AtpSettings { entries: 0, ..all };
        let all_off = AtpSettings { h2p: false, masp: false, stp: false, sbfp: false, ..all };
        for (settings, policy) in [(no_entries, "base"), (all_off, "thp")] {
            let config = with(&config, settings);
            let machines = ["conventional", "atp"].map(|hardware| machine(hardware, &config, policy));
            let counters = counted(&config, machines.into(), &actions);
            prop_assert_eq!(differences(&counters[0], &counters[1]), Vec::new());
            for (component, counter, value, _) in differences(&counters[1], &counters[0]) {
                let is_own = component == "atp" || component == "tlb.pq";
                prop_assert!(is_own && value == 0, "{component}/{counter} {value}");
            }
        }
    }

    /// Prefetches cause no page fault, neither in a guest nor in its host.
    #[test]
    fn prefetches_change_nothing_in_memory(
        config in configs(&[]),
        guests in guest_configs(),
        actions in actions(),
    ) {
        let eager = settings()[1];
        for (config, policy) in [&config, &guests[0], &guests[1]].iter().zip(["base", "thp", "base"]) {
            let config = with(config, eager);
            let machines = ["conventional", "atp"].map(|hardware| machine(hardware, &config, policy));
            let counters = counted(&config, machines.into(), &actions);
            let mut found = differences(&counters[0], &counters[1]);
            found.retain(|(component, ..)| component.starts_with("os") || component.starts_with("host.os"));
            prop_assert_eq!(found, Vec::new());
        }
    }
}

#[test]
fn compared_events_occur() {
    // Pages at distances that are never the last ones.
    let squares = (0..200).map(|at| 0x10_0800_0000 + ((at * at % 59) << 12));
    let squares = run(references(ItemKind::Load, squares).collect());
    let actions = [all_events(), vec![(0, squares)]].concat();
    for settings in [&[][..], &GUEST] {
        for policy in ["base", "thp"] {
            let config = tiny(&[settings, &["core.count=2", "memory.bytes=2GiB"]].concat());
            let mut sums = BTreeMap::new();
            for settings in self::settings() {
                let config = with(&config, settings);
                let machines = [machine("atp", &config, policy), naive(&config, policy)];
                let counters = twins::compare(&config, machines, &actions).unwrap();
                for counter in COUNTERS {
                    *sums.entry(counter).or_insert(0) += counters.get("atp", counter).unwrap();
                }
                *sums.entry("hits").or_insert(0) += counters.get("tlb.pq", "hits").unwrap();
            }
            assert!(sums.values().all(|sum| *sum > 0), "{policy} {settings:?} {sums:?}");
        }
    }
}

const FIRST: u64 = 0x40_0000_0000;

/// Runs loads, each of one of three instructions, at these pages.
fn loads(loads: impl Iterator<Item = (usize, u64)>) -> Action {
    run_loads(loads.map(|(instruction, page)| load(instruction, FIRST + (page << 12))).collect())
}

/// The counters of both designs in the last of these actions, after loads of all `pages` pages.
fn after_touching(
    pages: u64,
    (policy, settings): (&str, &[&str]),
    last: &[Action],
) -> [Counters; 2] {
    let config = tiny(settings);
    let mapping = run_loads(vec![map(FIRST, pages)]);
    let touch = loads((0..pages).map(|page| (2, page)));
    let actions = [&[mapping, touch][..], last].concat();
    ["conventional", "atp"]
        .map(|hardware| counted_last(&config, || machine(hardware, &config, policy), &actions))
}

fn get(counters: &Counters, component: &str, counter: &'static str) -> u64 {
    counters.get(component, counter).unwrap()
}

fn walks(counters: &Counters) -> u64 {
    get(counters, "walker", "walks")
}

/// Walks for prefetches.
fn prefetches(counters: &Counters) -> u64 {
    let all = ["prefetches_h2p", "prefetches_masp", "prefetches_stp"];
    all.iter().map(|counter| get(counters, "atp", counter)).sum()
}

/// Passes over pages in order save most walks, natively and in a guest, as most pages are free.
#[test]
fn passes_in_order_hardly_walk() {
    for (guest, most_walks) in [(&[][..], 400), (&GUEST, 650)] {
        let pass = || loads((0..2000).map(|page| (0, page)));
        let [plain, counters] = after_touching(2000, ("base", guest), &[pass(), pass()]);
        assert_eq!(walks(&plain), 2000);
        assert_eq!(walks(&counters) + get(&counters, "tlb.pq", "hits"), 2000);
        let [walks, prefetches] = [walks(&counters), prefetches(&counters)];
        assert!(walks < most_walks / 2, "{walks} {guest:?}");
        assert!(walks + prefetches < most_walks, "{walks} {prefetches} {guest:?}");
        assert!(get(&counters, "atp", "free_hits") > 1300, "{guest:?}");
    }
}

/// Where hits of the queue are followed, nearly all walks for pages in order are walks in the background: no miss then
/// shows that free pages are useful.
#[test]
fn passes_in_order_walk_in_the_background_where_hits_are_followed() {
    let pass = || loads((0..2000).map(|page| (0, page)));
    let settings = ["atp.follow_hits=true"];
    let [_, counters] = after_touching(2000, ("base", &settings), &[pass(), pass()]);
    assert!(walks(&counters) < 20, "{}", walks(&counters));
    assert!((1980..2020).contains(&prefetches(&counters)), "{}", prefetches(&counters));
    assert_eq!(get(&counters, "atp", "free"), 0);
}

/// Two instructions, each with its own distance: MASP follows both.
#[test]
fn each_instruction_has_its_own_distance() {
    let settings = ["atp.sbfp=false", "atp.follow_hits=true"];
    let pass = loads((0..300).flat_map(|at| [(0, 13 * at), (1, 3999 - 11 * at)]));
    let [plain, counters] = after_touching(4000, ("base", &settings), &[pass]);
    assert!(walks(&plain) > 590, "{}", walks(&plain));
    assert!(walks(&counters) < 30, "{}", walks(&counters));
    assert!(get(&counters, "atp", "chosen_masp") > 500);
}

/// Pages in no order gain nothing, and after some misses nothing is prefetched for them.
#[test]
fn pages_in_no_order_are_not_prefetched() {
    let mut random = 1u64;
    let mut next = move || {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % 20_000
    };
    let all: Vec<_> = (0..3000).map(|_| (0, next())).collect();
    let (before, last) = all.split_at(1000);
    let actions = [loads(before.iter().copied()), loads(last.iter().copied())];
    let [plain, counters] = after_touching(20_000, ("base", &[]), &actions);
    assert!(walks(&plain) > 1990, "{}", walks(&plain));
    assert!(walks(&plain) - walks(&counters) < 20, "{} {}", walks(&plain), walks(&counters));
    assert!(get(&counters, "atp", "chosen_none") > 1950);
}

#[test]
fn huge_pages_are_prefetched_as_base_pages_are() {
    let pass = || loads((0..100).map(|huge| (0, huge * 512)));
    let settings = ["atp.follow_hits=true"];
    let [plain, counters] =
        after_touching(100 * 512, ("thp", &settings), &[pass(), pass(), pass()]);
    assert_eq!(walks(&plain), 100);
    assert!(walks(&counters) < 10, "{}", walks(&counters));
}
