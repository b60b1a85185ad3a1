//! First-level TLBs of tailored pages, on every machine that ships.

use crate::common::{config, play};
use octavo_config::{FirstLevel, MachineConfig, PageSizes, TlbArray, preset_names};
use octavo_hw::Replacement;
use octavo_machine::{Sim, resolve};
use octavo_oracle::strategies::{RandomStream, few_pages, loads};
use proptest::prelude::*;

/// The presets with less memory, so that machines are built faster.
fn presets() -> impl Iterator<Item = MachineConfig> {
    preset_names().map(|name| resolve(name, &["memory.bytes=64MiB"]).unwrap().into_config())
}

/// First-level data misses with 4 KiB pages, and with tailored pages.
fn misses(machine: &MachineConfig, stream: &RandomStream) -> [u64; 2] {
    let mut sim = Sim::new(&config(machine.clone(), &["base4k", "tps"])).unwrap();
    play(&mut sim, stream);
    let level = match machine.tlb.first {
        FirstLevel::Split { .. } => "tlb.l1d",
        FirstLevel::Unified { .. } => "tlb.l1",
    };
    [0, 1].map(|at| sim.machines()[at].counters().get(level, "misses").unwrap())
}

/// The fully associative first-level data array for several page sizes, if there is one.
fn array_of_all_sizes(machine: &MachineConfig) -> Option<&TlbArray> {
    let mut arrays = machine.tlb.data().arrays.values();
    arrays.find(|array| {
        let PageSizes::List(sizes) = &array.page_sizes else { panic!("no preset has masks") };
        sizes.len() > 1 && array.geometry().unwrap().sets() == 1
    })
}

#[test]
fn any_size_arrays_keep_all_entries() {
    let mut seen = 0;
    for machine in presets() {
        let Some(array) = array_of_all_sizes(&machine) else { continue };
        // Three rounds over one page in each of as many 8 KiB as the array has entries.
        let round: Vec<_> = (0..array.entries).map(|page| (2 * page, 1, false)).collect();
        let stream = loads(&[&round[..], &round, &round].concat());
        let cold = array.entries;
        assert_eq!(misses(&machine, &stream), [cold, cold], "{}", machine.name);
        seen += 1;
    }
    assert_eq!(seen, 8, "Zen 2 to 5, Neoverse N1 and V2, M1, P550");
}

proptest! {
    #![proptest_config(octavo_oracle::cases(12))]

    /// Premise: no page grows, since only one of the two pages of each 8 KiB is touched.
    #[test]
    fn tailored_4kib_pages_miss_like_base_pages(
        pages in prop::collection::vec(0u64..200, 1..400),
    ) {
        let steps: Vec<_> = pages.iter().map(|page| (2 * page, 1, false)).collect();
        for machine in presets() {
            let [base, tailored] = misses(&machine, &loads(&steps));
            prop_assert!(tailored <= base, "{}: {} of {}", machine.name, tailored, base);
        }
    }

    /// In an array with masks, growing pages add no misses. Premises: LRU replacement, and no shootdowns. (Each entry
    /// that was used since the last use of a page then stands for a page that was used since, and no two entries for
    /// the same page.)
    #[test]
    fn growing_tailored_pages_do_not_add_misses(
        stream in few_pages(300, 1..400),
    ) {
        for machine in presets() {
            let is_lru = |array: &TlbArray| array.replacement == Replacement::Lru;
            if array_of_all_sizes(&machine).is_some_and(is_lru) {
                let [base, tailored] = misses(&machine, &stream);
                prop_assert!(tailored <= base, "{}: {} of {}", machine.name, tailored, base);
            }
        }
    }
}
