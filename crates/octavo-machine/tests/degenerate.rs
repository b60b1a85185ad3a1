//! Designs that have nothing to do count what the conventional one does, counter for counter.

mod common;

use common::{config, play, tiny};
use octavo_config::MachineConfig;
use octavo_machine::designs::{Hardware, Setup};
use octavo_machine::{Counters, Run, Sim};
use octavo_oracle::strategies::{RandomStream, stream};
use octavo_os::policy::{PolicyConfig, TpsConfig};
use octavo_types::{Instructions, PageSize};
use proptest::prelude::*;

/// A machine, however well its parts fit.
fn machine(config: &MachineConfig, hardware: &str, policy: &PolicyConfig) -> Box<dyn Run> {
    let start = config.memory.start().unwrap();
    let setup = Setup { instructions: Instructions::PORTABLE, is_checked: true, start };
    Hardware::by_name(hardware).unwrap().make(config, &setup, policy).unwrap()
}

/// What machines count of a stream.
fn played(stream: &RandomStream, machines: Vec<Box<dyn Run>>) -> Vec<Counters> {
    let mut sim = Sim::new(&config(tiny(), &[])).unwrap().with_machines(machines);
    play(&mut sim, stream);
    sim.machines().iter().map(|machine| machine.counters()).collect()
}

/// All that is counted by components which all designs have.
fn common_counters(counters: &Counters) -> Vec<(String, &'static str, u64)> {
    let is_common =
        |component: &str| !component.starts_with("tlb.l1d.") && !component.starts_with("range");
    // Page tables count the pages of the sizes that they can say.
    let is_none = |component: &str, value: u64| component.starts_with("os.pages.") && value == 0;
    let all = counters
        .iter()
        .filter(|&(component, _, value)| is_common(component) && !is_none(component, value));
    all.map(|(component, counter, value)| (component.to_owned(), counter, value)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Tailored page sizes where all pages have 4 KiB.
    #[test]
    fn without_large_pages_all_are_the_same(stream in stream(1..150)) {
        let config = tiny();
        let usual = |name| (octavo_os::policy::by_name(name).unwrap().usual)();
        let small = TpsConfig { largest: PageSize::BASE, ..TpsConfig::default() };
        let counted = played(&stream, vec![
            machine(&config, "conventional", &usual("base")),
            machine(&config, "tps", &usual("base")),
            machine(&config, "tps", &PolicyConfig::Tps(small)),
        ]);
        for other in &counted[1..] {
            prop_assert_eq!(common_counters(&counted[0]), common_counters(other));
        }
    }

    /// The bounds fault as the machine does that they bound, and never walk.
    #[test]
    fn bounds_have_the_same_pages(stream in stream(1..150)) {
        let config = tiny();
        let base = PolicyConfig::Base;
        let counted = played(&stream, vec![
            machine(&config, "conventional", &base),
            machine(&config, "perfect_l1", &base),
            machine(&config, "perfect_l2", &base),
        ]);
        let of = |at: usize, component: &str| -> Vec<_> {
            let all = counted[at].iter().filter(|(of, ..)| *of == component);
            all.map(|(_, counter, value)| (counter, value)).collect()
        };
        for (at, bound) in counted.iter().enumerate().skip(1) {
            prop_assert_eq!(of(0, "os"), of(at, "os"));
            prop_assert_eq!(bound.get("walker", "walks"), Some(0));
        }
        prop_assert_eq!(of(0, "tlb.l1i"), of(2, "tlb.l1i"));
        prop_assert_eq!(of(0, "tlb.l1d"), of(2, "tlb.l1d"));
    }
}
