//! First-level TLBs of tailored pages, on every machine that ships.

use crate::common::{config, play};
use octavo_config::{FirstLevel, MachineConfig, PageSizes, TlbArray, preset_names};
use octavo_hw::Replacement;
use octavo_machine::{Sim, resolve};
use octavo_oracle::strategies::{RandomStream, few_pages, loads};
use proptest::prelude::*;

/// Presets with less memory, which is made sooner.
fn presets() -> impl Iterator<Item = MachineConfig> {
    preset_names().map(|name| resolve(name, &["memory.bytes=64MiB"]).unwrap().into_config())
}

/// First-level misses of data under 4 KiB pages, and under tailored ones.
fn misses(machine: &MachineConfig, stream: &RandomStream) -> [u64; 2] {
    let mut sim = Sim::new(&config(machine.clone(), &["base4k", "tps"])).unwrap();
    play(&mut sim, stream);
    let level = match machine.tlb.first {
        FirstLevel::Split { .. } => "tlb.l1d",
        FirstLevel::Unified { .. } => "tlb.l1",
    };
    [0, 1].map(|at| sim.machines()[at].counters().get(level, "misses").unwrap())
}

/// The array for data that compares whole page numbers of several sizes, if there is one.
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
        // Other pages of 8 KiB, as many as there are entries, three times.
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

    /// Premise: no page grows, since of two that lie in the same 8 KiB one alone is used.
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

    /// Where an array has masks, pages that grow never miss more, either. Premises: it replaces the
    /// entry used least recently, and nothing is shot down. (Then each entry that was used since a
    /// page was used last stands for a page that was, and no two of them for the same one.)
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
