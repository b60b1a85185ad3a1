//! Designs whose mechanism has nothing to do count the same as the conventional design, counter for counter.

use crate::common::bounds::{self, listed};
use crate::common::{level, tiny};
use octavo_config::{
    FirstLevel, FragmentationConfig, HostConfig, MachineConfig, MemoryConfig, TlbsHold, Ways,
};
use octavo_machine::designs::registry::policies;
use octavo_machine::designs::tps::TpsConfig;
use octavo_machine::designs::{Conventional, Setup, TranslationHardware, designs};
use octavo_machine::{AnyMachine, Counters, Env, Machine};
use octavo_oracle::strategies::{RandomStream, stream};
use octavo_os::frames::{Frames, MemoryShape, Order};
use octavo_os::page_table::Format;
use octavo_os::policy::{BaseConfig, OsConfig, PolicyConfig};
use octavo_os::{Memory, Os};
use octavo_types::{Instructions, PageSize};
use proptest::prelude::*;

/// A machine of any hardware and policy.
fn machine(config: &MachineConfig, hardware: &str, policy: &PolicyConfig) -> Box<dyn AnyMachine> {
    let setup = Setup { is_checked: true, ..Setup::new(config, Instructions::PORTABLE).unwrap() };
    TranslationHardware::by_name(hardware)
        .unwrap()
        .make(config, &setup, &OsConfig::new(policy.clone()))
        .unwrap()
}

/// Plays a stream on machines and returns their counters.
fn play_checked(stream: &RandomStream, machines: Vec<Box<dyn AnyMachine>>) -> Vec<Counters> {
    bounds::play_checked(&tiny(), stream, machines)
}

/// The counters of one machine that the other machine also has.
fn shared(counters: &Counters, other: &Counters) -> Vec<(String, &'static str, u64)> {
    listed(counters, |component, counter, _| other.get(component, counter).is_some())
}

/// All counters of components common to all designs.
fn common_counters(counters: &Counters) -> Vec<(String, &'static str, u64)> {
    let is_common =
        |component: &str| !component.starts_with("tlb.l1d.") && !component.starts_with("range");
    // Page tables report pages only of supported sizes.
    let is_none = |component: &str, value: u64| component.starts_with("os.pages.") && value == 0;
    listed(counters, |component, _, value| is_common(component) && !is_none(component, value))
}

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    /// Tailored page sizes with pages of 4 KiB only.
    #[test]
    fn designs_agree_without_large_pages(stream in stream(1..150)) {
        let config = tiny();
        let usual = |name| (policies().by_name(name).unwrap().usual)();
        let small = TpsConfig { largest: PageSize::BASE, ..TpsConfig::default() };
        let counted = play_checked(&stream, vec![
            machine(&config, "conventional", &usual("base")),
            machine(&config, "tps", &usual("base")),
            machine(&config, "tps", &small.into()),
        ]);
        for other in &counted[1..] {
            prop_assert_eq!(common_counters(&counted[0]), common_counters(other));
        }
    }

    /// Ideal bounds take the same page faults as the machine that they bound, and never walk.
    #[test]
    fn ideal_bounds_map_the_same_pages(stream in stream(1..150)) {
        let config = tiny();
        let base = BaseConfig {}.into();
        let counted = play_checked(&stream, vec![
            machine(&config, "conventional", &base),
            machine(&config, "perfect_l1", &base),
            machine(&config, "perfect_l2", &base),
        ]);
        let counters_of = |at: usize, component: &str| -> Vec<_> {
            let all = counted[at].iter().filter(|(owner, ..)| *owner == component);
            all.map(|(_, counter, value)| (counter, value)).collect()
        };
        for (at, bound) in counted.iter().enumerate().skip(1) {
            prop_assert_eq!(counters_of(0, "os"), counters_of(at, "os"));
            prop_assert_eq!(bound.get("walker", "walks"), Some(0));
        }
        prop_assert_eq!(counters_of(0, "tlb.l1i"), counters_of(2, "tlb.l1i"));
        prop_assert_eq!(counters_of(0, "tlb.l1d"), counters_of(2, "tlb.l1d"));
    }

    /// CoLT with one entry per line and fully associative levels: walks read no neighbours, and groups select no set.
    #[test]
    fn colt_without_contiguity_equals_conventional(stream in stream(1..150)) {
        let mut config = tiny();
        // One page-table entry per line.
        config.cache.line_bytes = 8;
        let usual = |name| (policies().by_name(name).unwrap().usual)();
        for policy in ["base", "thp", "eager"] {
            let counted = bounds::play_checked(&config, &stream, vec![
                machine(&config, "conventional", &usual(policy)),
                machine(&config, "colt_fa", &usual(policy)),
            ]);
            prop_assert_eq!(shared(&counted[1], &counted[0]), shared(&counted[0], &counted[1]));
            let mut config = config.clone();
            let FirstLevel::Split { l1i, l1d } = &mut config.tlb.first else { unreachable!() };
            for level in [l1i, l1d, config.tlb.l2.as_mut().unwrap()] {
                level.arrays.values_mut().for_each(|array| array.ways = Ways::Full);
            }
            let counted = bounds::play_checked(&config, &stream, vec![
                machine(&config, "conventional", &usual(policy)),
                machine(&config, "colt", &usual(policy)),
                machine(&config, "colt_sa", &usual(policy)),
            ]);
            for other in &counted[1..] {
                prop_assert_eq!(shared(other, &counted[0]), shared(&counted[0], other));
            }
        }
    }

    /// Redundant Memory Mappings and direct segments under policies that create no ranges.
    #[test]
    fn range_designs_agree_without_ranges(stream in stream(1..150)) {
        let config = tiny();
        for policy in ["base", "thp"] {
            let policy = (policies().by_name(policy).unwrap().usual)();
            let counted = play_checked(&stream, vec![
                machine(&config, "conventional", &policy),
                machine(&config, "rmm", &policy),
                machine(&config, "direct_segment", &policy),
            ]);
            for other in &counted[1..] {
                let is_lookup = |counter: &str| counter == "cycles_tlb_l2";
                let compared = |one: &Counters, other: &Counters| {
                    let all = shared(one, other).into_iter();
                    all.filter(|(_, counter, _)| !is_lookup(counter)).collect::<Vec<_>>()
                };
                prop_assert_eq!(compared(other, &counted[0]), compared(&counted[0], other));
            }
            // The range TLB is looked up with the second level, or alone if the first level has an entry that
            // does not permit the access.
            let get = |at: usize, component, counter| counted[at].get(component, counter).unwrap();
            let alone = get(1, "tlb.range", "accesses") - get(1, "tlb.l2", "accesses");
            let cycles = [0, 1, 2].map(|at| get(at, "core", "cycles_tlb_l2"));
            prop_assert_eq!(cycles, [cycles[0], cycles[0] + 9 * alone, cycles[0]]);
            prop_assert_eq!(counted[1].get("tlb.range", "hits"), Some(0));
            prop_assert_eq!(counted[2].get("segment", "hits"), Some(0));
        }
    }

    /// A guest with all memory in 1 GiB host pages, which always hit the nested TLB.
    #[test]
    fn guest_on_1gib_host_pages_equals_native(stream in stream(1..150)) {
        let mut alone = tiny();
        alone.memory.bytes = 2 << 30;
        let largest = [PageSize::LARGEST];
        let guest = |policy: &str| {
            let host = HostConfig {
                policy: policy.to_owned(),
                tlbs_hold: TlbsHold::Final,
                memory: MemoryConfig {
                    tiers: Default::default(),
                    bytes: 4 << 30,
                    largest_block: PageSize::LARGEST,
                    fragmentation: FragmentationConfig::Empty,
                },
                page_table: alone.page_table,
                tlb: Some(level(0, &[("1g", 2, 2, &largest)])),
                walk_caches: alone.walker.caches.clone(),
            };
            MachineConfig { host: Some(host), ..alone.clone() }
        };
        for known in designs() {
            let guest = guest(match TranslationHardware::by_name(known.hardware).unwrap().needs {
                Some(needs) if needs.is_of_host => "eager:largest=1GiB",
                _ => "hugetlb:all_anonymous=1GiB:nr_gigantic_pages=2",
            });
            if !known.supports(&guest) {
                continue;
            }
            let policy = policies().parse(known.policy).unwrap().policy;
            // In a guest the walker reads the page's entry also where a native machine finds hole bits without it; it
            // then need not look the bits up again.
            let reads_more = known.hardware.starts_with("perforated");
            let counted = bounds::play_unchecked(&guest, &stream, vec![
                machine(&alone, known.hardware, &policy),
                machine(&guest, known.hardware, &policy),
            ]);
            // Guest pages have no gaps, and guest memory no chunk bitmaps.
            let is_gap_counter = |component: &str, counter: &str| {
                let is_of_host = ["gapped", "bitmap_bytes", "free_bytes"].contains(&counter);
                known.hardware == "gtsm" && (is_of_host || component == "os.pages.gapped")
            };
            // Tables of a design lie in host memory.
            let has_tables = counted[0].get("os", "design_table_bytes").is_some();
            let compared = |counters| {
                let is_same = |component: &str, counter: &str| match component {
                    other if is_gap_counter(other, counter) => false,
                    "os" if has_tables && ["design_table_bytes", "free_bytes"].contains(&counter) => {
                        false
                    }
                    "walker" => counter == "faulted" || counter == "walks" && !reads_more,
                    "range_walker" => counter == "walks",
                    "tlb.nested" | "tlb.nested.1g" => false,
                    other if reads_more && other.starts_with("tlb.l2") => false,
                    other => ["tlb", "os", "segment", "softvm", "vcache"].contains(&other.split('.').next().unwrap()),
                };
                listed(counters, |component, counter, _| is_same(component, counter))
            };
            prop_assert_eq!(compared(&counted[0]), compared(&counted[1]), "{}", known.name);
            let references = |machine: usize, walker| counted[machine].get(walker, "references");
            let [alone, nested] = [references(0, "walker"), references(1, "walker.guest")];
            // Where a guest reads more, the content of the second level and therefore the walks differ.
            prop_assert!(alone == nested || reads_more, "{}", known.name);
            let marked = counted[0].get("walker", "marked");
            prop_assert_eq!(marked, counted[1].get("walker.guest", "marked"), "{}", known.name);
            prop_assert!(counted[1].get("tlb.nested", "misses") <= Some(2), "{}", known.name);
            prop_assert_eq!(counted[1].get("walker", "splintered"), Some(0));
        }
    }

    /// Transparent huge pages in a memory that has no block of 2 MiB.
    #[test]
    fn huge_page_policies_use_base_pages_without_free_blocks(stream in stream(1..150)) {
        let config = tiny();
        let instructions = Instructions::PORTABLE;
        let small_blocks = |policy: &PolicyConfig| -> Box<dyn AnyMachine> {
            let largest = Order::of(PageSize::from_bytes(1 << 20).unwrap());
            let shape = MemoryShape::new(config.memory.bytes >> 12, largest).unwrap();
            let format = Format { levels: config.page_table.levels, ..Format::default() };
            let memory = Memory::new(Frames::new(shape), &[PageSize::HUGE], format);
            let env = Env::new(&config, Os::new(memory, policy.build()), instructions).unwrap();
            let mmu = Conventional::new(&config.tlb, instructions).unwrap();
            Box::new(Machine::new(env.checked(true), vec![mmu], instructions))
        };
        let thp = (policies().by_name("thp").unwrap().usual)();
        let mut counted = play_checked(&stream, vec![small_blocks(&BaseConfig {}.into()), small_blocks(&thp)]);
        let thp = counted.pop().unwrap();
        // The policies differ only in attempts to make huge pages.
        let attempts = ["fallbacks", "compactions", "frames_compacted"];
        let others = |counters| listed(counters, |_, counter, _| !attempts.contains(&counter));
        prop_assert_eq!(others(&counted[0]), others(&thp));
    }
}
