//! The naive twin: all misses of an address space as a list, from which frequencies are counted again each time, and one list of
//! entries for all tables. TLBs, walks and what their lines show are those of the machine.

use std::collections::BTreeMap;

use octavo_config::MachineConfig;
use octavo_hw::Asid;
use octavo_oracle::strategies::{RandomStream, Step};
use octavo_os::vmas::Pages;
use octavo_types::{
    Access, FrameNumber, Instructions, Item, ItemKind, PageNumber, Segment, VirtAddr,
};
use proptest::prelude::*;

use super::MorriganSettings;
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::designs::Conventional;
use crate::designs::build;
use crate::designs::leaf_line::{self, seen};
use crate::designs::registry::policies;
use crate::designs::twins::{
    self, Action, GUEST, actions, all_events, configs, counted, counted_last, differences,
    guest_configs, machine, map, references, run, setup, tiny,
};
use crate::env::Env;
use crate::front::LineAccess;
use crate::machine::AnyMachine;
use crate::tlb::{Lookup, Translation};

/// A page that missed, with its successors and their confidences.
struct Known {
    page: u64,
    /// The table, by the most successors of its entries.
    slots: usize,
    /// When it entered the table.
    time: u64,
    /// The number of misses before it became known.
    since: usize,
    successors: Vec<(u64, i32)>,
}

/// A page in the buffer, from its first base page to its end.
type Prefetched = (u64, u64, Translation, &'static str);

#[derive(Default)]
struct Memory {
    /// The oldest first.
    buffer: Vec<Prefetched>,
    known: Vec<Known>,
    misses: Vec<u64>,
    time: u64,
}

struct Naive {
    conventional: Conventional,
    settings: MorriganSettings,
    in_line: u64,
    asid: Asid,
    memory: Memory,
    hits: u64,
    misses: u64,
    counts: BTreeMap<&'static str, u64>,
}

const COUNTERS: [&str; 12] = [
    "hits_markov",
    "hits_sequential",
    "hits_free",
    "prefetches_markov",
    "prefetches_sequential",
    "prefetches_free",
    "walk_references",
    "unpredicted",
    "held",
    "dropped",
    "replaced",
    "evicted",
];

impl Naive {
    fn count(&mut self, counter: &'static str, by: u64) {
        *self.counts.entry(counter).or_default() += by;
    }

    fn capacity(&self, slots: usize) -> u64 {
        match slots {
            1 => self.settings.pages_1,
            2 => self.settings.pages_2,
            4 => self.settings.pages_4,
            8 => self.settings.pages_8,
            _ => 0,
        }
    }

    /// How often a page has missed since it became known, with the miss before that; halved with each phase.
    fn frequency(&self, known: &Known) -> u64 {
        let mut frequency = 1;
        for (at, page) in self.memory.misses.iter().enumerate().skip(known.since) {
            if self.settings.phase_misses > 0
                && (at as u64 + 1).is_multiple_of(self.settings.phase_misses)
            {
                frequency /= 2;
            }
            frequency += u64::from(*page == known.page);
        }
        frequency
    }

    /// Moves a page to the smallest table with at least so many slots that has entries, if there is one.
    fn enter(&mut self, mut known: Known, least_slots: usize) {
        let Some(slots) = [1, 2, 4, 8]
            .into_iter()
            .find(|slots| *slots >= least_slots && self.capacity(*slots) > 0)
        else {
            return;
        };
        let table = self.memory.known.iter().filter(|other| other.slots == slots);
        let table: Vec<_> = table.map(|other| (self.frequency(other), other.time)).collect();
        if table.len() as u64 == self.capacity(slots) {
            let (_, victim) = table.into_iter().min().unwrap();
            self.memory.known.retain(|other| other.time != victim);
            self.count("replaced", 1);
        }
        self.memory.time += 1;
        (known.slots, known.time) = (slots, self.memory.time);
        self.memory.known.push(known);
    }

    fn learn(&mut self, page: u64, next: u64) {
        let since = self.memory.misses.len();
        let Some(at) = self.memory.known.iter().position(|known| known.page == page) else {
            let successors = vec![(next, 0)];
            return self.enter(Known { page, slots: 0, time: 0, since, successors }, 1);
        };
        let known = &mut self.memory.known[at];
        let slots = known.slots;
        if let Some((_, confidence)) = known.successors.iter_mut().find(|(page, _)| *page == next) {
            *confidence = 3.min(*confidence + 1);
            return;
        }
        known.successors.push((next, 0));
        if known.successors.len() <= slots {
            return;
        }
        if [2, 4, 8].into_iter().any(|larger| larger > slots && self.capacity(larger) > 0) {
            let known = self.memory.known.remove(at);
            return self.enter(known, 2 * slots);
        }
        let known = &mut self.memory.known[at];
        let before = &known.successors[..slots];
        let weakest = before.iter().map(|(_, confidence)| *confidence).min().unwrap();
        let weakest = before.iter().position(|(_, confidence)| *confidence == weakest).unwrap();
        known.successors.remove(weakest);
    }

    fn holds(&mut self, page: u64) -> bool {
        let asid = self.asid;
        let in_second =
            self.conventional.l2().is_some_and(|l2| l2.holds(asid, PageNumber::new(page)));
        in_second || self.memory.buffer.iter().any(|held| held.0 <= page && page < held.1)
    }

    fn add(&mut self, page: u64, translation: Translation, source: &'static str) {
        let pages = translation.size.bytes() / 4096;
        let first = page - page % pages;
        if self.memory.buffer.iter().any(|held| held.0 <= first && first < held.1) {
            return;
        }
        self.memory.buffer.push((first, first + pages, translation, source));
        if self.memory.buffer.len() as u64 > self.settings.entries {
            self.memory.buffer.remove(0);
            self.count("evicted", 1);
        }
    }

    fn prefetch(
        &mut self,
        env: &mut Env,
        page: u64,
        (prefetches, hits): (&'static str, &'static str),
        frees: bool,
    ) -> Option<()> {
        if self.holds(page) {
            self.count("held", 1);
            return Some(());
        }
        self.count(prefetches, 1);
        let references = env.walk_to_prefetch(PageNumber::new(page))?;
        self.count("walk_references", references);
        let shown = |other| seen(env, PageNumber::new(page), PageNumber::new(other), self.in_line);
        let Some(translation) = shown(page) else {
            self.count("dropped", 1);
            return Some(());
        };
        let pages = translation.size.bytes() / 4096;
        let line = self.in_line * pages;
        let others = (0..self.in_line).map(|place| page / line * line + place * pages);
        let others = others.filter(|other| page / pages != other / pages);
        let others: Vec<_> = others.filter_map(|other| Some((other, shown(other)?))).collect();
        self.add(page, translation, hits);
        for (other, of_other) in others {
            if frees
                && self.settings.free
                && of_other.size == translation.size
                && !self.holds(other)
            {
                self.count("prefetches_free", 1);
                self.add(other, of_other, "hits_free");
            }
        }
        Some(())
    }

    /// Serves a fetch that all TLBs miss.
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
        let found = |held: &Prefetched| held.0 <= page.raw() && page.raw() < held.1;
        let translation = match self.memory.buffer.iter().position(found) {
            Some(at) => {
                let (.., translation, source) = self.memory.buffer.remove(at);
                self.hits += 1;
                self.count(source, 1);
                translation
            }
            None => {
                self.misses += 1;
                self.walk(env, page, access, false)?
            }
        };
        self.conventional.fill_l2(env.asid(), page, translation, Lookup::Miss);
        self.conventional.fill_l1(env.asid(), page, translation, access);
        let pages = translation.size.bytes() / 4096;
        let first = page.raw() - page.raw() % pages;
        if let Some(last) = self.memory.misses.last().copied().filter(|last| *last != first) {
            self.learn(last, first);
        }
        self.memory.misses.push(first);
        let known = self.memory.known.iter().find(|known| known.page == first);
        let mut next = known.map_or(Vec::new(), |known| known.successors.clone());
        next.sort_by_key(|(_, confidence)| -confidence);
        let markov = ("prefetches_markov", "hits_markov");
        for (number, (page, _)) in next.iter().enumerate() {
            self.prefetch(env, *page, markov, number == 0)?;
        }
        if next.is_empty() {
            self.count("unpredicted", 1);
            let reach = env.tables(page).next().unwrap().0.reach_pages();
            if self.settings.sequential && first + pages < reach {
                let sequential = ("prefetches_sequential", "hits_sequential");
                self.prefetch(env, first + pages, sequential, true)?;
            }
        }
        Some(translation)
    }
}

impl Design for Naive {
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let can_prefetch = [1, 2, 4, 8].into_iter().any(|slots| self.capacity(slots) > 0);
        let is_used = self.settings.entries > 0 && (self.settings.sequential || can_prefetch);
        let is_fetch = access.kind() == Access::Fetch;
        let mut held = self.conventional.look_up_l1(env, page, access);
        let misses_first = matches!(held, Lookup::Miss);
        if misses_first {
            held = self.conventional.look_up_l2(env, page, access);
        }
        let translation = match held {
            Lookup::Hit(translation) => translation,
            Lookup::Miss if is_fetch && is_used => self.serve(env, page, access)?,
            held => {
                let walked = self.walk(env, page, access, held.is_clean())?;
                self.conventional.fill_l2(env.asid(), page, walked, held);
                match misses_first {
                    true => self.conventional.fill_l1(env.asid(), page, walked, access),
                    false => self.conventional.replace_l1(env.asid(), page, walked, access),
                }
                walked
            }
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.conventional.invalidate(space, pages);
        if space.asid == self.asid {
            self.memory.buffer.retain(|held| held.0 >= pages.end || held.1 <= pages.start);
        }
    }

    fn flush(&mut self) {
        self.conventional.flush();
        self.memory = Memory::default();
    }

    fn report(&self, counters: &mut Counters) {
        self.conventional.report(counters);
        counters.add("tlb.ipb", "accesses", self.hits + self.misses);
        counters.add("tlb.ipb", "hits", self.hits);
        counters.add("tlb.ipb", "misses", self.misses);
        for counter in COUNTERS {
            counters.add("morrigan", counter, self.counts.get(counter).copied().unwrap_or(0));
        }
    }
}

fn naive(config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    let os = policies().parse(policy).unwrap();
    let made = build::machine(config, &setup(config), &os, || {
        Ok(Naive {
            conventional: Conventional::new(&config.tlb, Instructions::PORTABLE)?,
            settings: *config.designs.get::<MorriganSettings>(),
            in_line: leaf_line::entries(config.cache.line_bytes),
            asid: Asid::ONLY,
            memory: Memory::default(),
            hits: 0,
            misses: 0,
            counts: BTreeMap::new(),
        })
    });
    made.unwrap()
}

fn with(config: &MachineConfig, settings: MorriganSettings) -> MachineConfig {
    let mut config = config.clone();
    config.designs.set(settings);
    config
}

/// Tables and buffers so small that they overflow, without some of the parts.
fn settings() -> Vec<MorriganSettings> {
    let usual = MorriganSettings::default();
    let small = MorriganSettings {
        entries: 5,
        lookup_cycles: 7,
        pages_1: 3,
        pages_2: 2,
        pages_4: 1,
        pages_8: 2,
        phase_misses: 9,
        ..usual
    };
    vec![
        usual,
        small,
        MorriganSettings { pages_2: 0, pages_8: 0, free: false, ..small },
        MorriganSettings { pages_1: 0, sequential: false, phase_misses: 0, ..small },
    ]
}

/// Instructions in these pages of code, one after another, without data.
fn fetches(pages: &[u64]) -> Action {
    let at = |page: u64| VirtAddr::new(0x5000_0000 + (page << 12));
    let fetch = |page| Item::new(ItemKind::Fetch, 8, at(page));
    let last = pages.iter().max().copied().unwrap_or(0);
    let segments = (0..=last).map(|page| Segment::new(vec![fetch(page)], Vec::new()).unwrap());
    let steps = pages.iter().map(|page| Step::Segment(*page as usize, Vec::new()));
    Action::Run(RandomStream { segments: segments.collect(), steps: steps.collect() })
}

/// Actions with fetches of paths through pages of code, some of which are taken again and again.
fn code() -> impl Strategy<Value = Vec<(usize, Action)>> {
    let path = prop::collection::vec(0u64..40, 1..25);
    let paths = (prop::collection::vec(path, 1..4), prop::collection::vec(0usize..4, 1..12));
    let taken = paths.prop_map(|(paths, order)| {
        let pages = order.into_iter().flat_map(|path| paths[path % paths.len()].clone());
        fetches(&pages.collect::<Vec<_>>())
    });
    let runs = prop::collection::vec((0usize..3, taken), 1..4);
    (runs, actions()).prop_map(|(runs, actions)| {
        let (mut mixed, mut actions) = (Vec::new(), actions.into_iter());
        for run in runs {
            mixed.push(run);
            mixed.extend(actions.next());
        }
        mixed.extend(actions);
        mixed
    })
}

/// Compares design and twin with all settings.
fn compare(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<(), TestCaseError> {
    for settings in settings() {
        let config = with(config, settings);
        let machines = [machine("morrigan", &config, policy), naive(&config, policy)];
        twins::compare(&config, machines, actions)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    #[test]
    fn design_equals_twin(config in configs(&[]), actions in code()) {
        for policy in ["base", "thp"] {
            compare(&config, policy, &actions)?;
        }
    }

    #[test]
    fn design_equals_twin_in_a_guest(configs in guest_configs(), actions in code()) {
        for config in &configs {
            compare(config, "base", &actions)?;
        }
    }

    #[test]
    fn without_prefetches_it_is_the_conventional_design(
        config in configs(&[]),
        actions in code(),
    ) {
        let all = MorriganSettings::default();
        let no_tables = MorriganSettings { pages_1: 0, pages_2: 0, pages_4: 0, pages_8: 0, ..all };
        for (settings, policy) in [
            (MorriganSettings { entries: 0, ..all }, "base"),
            (MorriganSettings { sequential: false, ..no_tables }, "thp"),
        ] {
            let config = with(&config, settings);
            let machines =
                ["conventional", "morrigan"].map(|hardware| machine(hardware, &config, policy));
            let counters = counted(&config, machines.into(), &actions);
            prop_assert_eq!(differences(&counters[0], &counters[1]), Vec::new());
            for (component, counter, value, _) in differences(&counters[1], &counters[0]) {
                let is_own = component == "morrigan" || component == "tlb.ipb";
                prop_assert!(is_own && value == 0, "{component}/{counter} {value}");
            }
        }
    }

    /// Prefetches cause no page fault, neither in a guest nor in its host.
    #[test]
    fn prefetches_change_nothing_in_memory(
        config in configs(&[]),
        guests in guest_configs(),
        actions in code(),
    ) {
        for config in [&config, &guests[0], &guests[1]] {
            let machines =
                ["conventional", "morrigan"].map(|hardware| machine(hardware, config, "base"));
            let counters = counted(config, machines.into(), &actions);
            let mut found = differences(&counters[0], &counters[1]);
            found.retain(|(component, ..)| {
                component.starts_with("os") || component.starts_with("host.os")
            });
            prop_assert_eq!(found, Vec::new());
        }
    }
}

#[test]
fn compared_events_occur() {
    let squares: Vec<u64> = (0..400).map(|at| at * at % 59 + at % 7).collect();
    let forward: Vec<u64> = (0..60).collect();
    let fetches = [&squares, &forward, &squares].map(|pages| (0, fetches(pages)));
    let actions = [&fetches[..], &all_events(), &fetches].concat();
    for settings in [&[][..], &GUEST] {
        let config = tiny(&[settings, &["core.count=2"]].concat());
        let mut sums = BTreeMap::new();
        for settings in self::settings() {
            let config = with(&config, settings);
            let machines = [machine("morrigan", &config, "base"), naive(&config, "base")];
            let counters = twins::compare(&config, machines, &actions).unwrap();
            for counter in COUNTERS {
                *sums.entry(counter).or_insert(0) += counters.get("morrigan", counter).unwrap();
            }
        }
        for counter in COUNTERS {
            assert!(sums[counter] > 0, "{counter}");
        }
    }
}

/// The named counters in the last of these runs.
fn last(config: &MachineConfig, runs: &[Action], names: &[(&str, &'static str)]) -> Vec<u64> {
    let counters = counted_last(config, || machine("morrigan", config, "base"), runs);
    names.iter().map(|(component, counter)| counters.get(component, counter).unwrap()).collect()
}

const PARTS: [(&str, &str); 4] = [
    ("tlb.ipb", "misses"),
    ("morrigan", "hits_markov"),
    ("morrigan", "hits_sequential"),
    ("morrigan", "hits_free"),
];

/// A machine without a second level and with these settings.
fn without_l2(settings: MorriganSettings) -> MachineConfig {
    with(&tiny(&["tlb.l2=none"]), settings)
}

/// Forty pages of code, in an order without runs.
fn lap() -> Action {
    fetches(&(0..40).map(|at| at * 17 % 40).collect::<Vec<_>>())
}

/// A loop over more pages than the TLBs have is predicted from its second lap on.
#[test]
fn loop_is_predicted_after_its_first_lap() {
    let markov = MorriganSettings { sequential: false, ..MorriganSettings::default() };
    let config = without_l2(MorriganSettings { free: false, ..markov });
    assert_eq!(last(&config, &[lap(), lap()], &PARTS), [1, 39, 0, 0]);
    assert_eq!(last(&config, &[lap(), lap(), lap()], &PARTS), [0, 40, 0, 0]);
}

/// A straight line of code, whose pages have been accessed before, is prefetched sequentially where no table has it.
#[test]
fn straight_line_is_prefetched_sequentially() {
    let none = MorriganSettings { pages_1: 0, pages_2: 0, pages_4: 0, ..Default::default() };
    let config = without_l2(MorriganSettings { pages_8: 0, free: false, ..none });
    let line = || fetches(&(0..40).collect::<Vec<_>>());
    assert_eq!(last(&config, &[line(), line()], &PARTS), [1, 0, 39, 0]);
    // The eight pages of a line are prefetched together; the last one misses, and prefetches the next eight.
    let config = without_l2(MorriganSettings { pages_8: 0, ..none });
    assert_eq!(last(&config, &[line(), line()], &PARTS), [1, 0, 5, 34]);
}

/// Loads of more pages than the TLBs have train nothing, and look in no buffer.
#[test]
fn data_does_not_train() {
    let markov = MorriganSettings { sequential: false, ..MorriganSettings::default() };
    let config = without_l2(MorriganSettings { free: false, ..markov });
    let first = 0x40_0000_0000;
    let loads = || references(ItemKind::Load, (0..40).map(|page| first + (page << 12)));
    let mapped = run([map(first, 40)].into_iter().chain(loads()).collect());
    let loads = || run(loads().collect());
    let names = [("tlb.ipb", "accesses"), ("morrigan", "unpredicted")];
    assert_eq!(last(&config, &[mapped.clone(), loads()], &names), [0, 0]);
    // The page of the instruction that loads is all that comes between the laps of a loop.
    let runs = [mapped, lap(), loads(), lap(), loads(), lap()];
    assert_eq!(last(&config, &runs, &PARTS), [0, 40, 0, 0]);
}
