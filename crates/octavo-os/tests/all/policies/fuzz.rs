//! Every policy under random programs, compared with a model of their view, with much memory and with little:
//! contents, references, and cached translations that were not invalidated.

use octavo_os::frames::fragmentation::{Faults, Fragmentation, HoleLayout};
use octavo_os::page_table::Format;
use octavo_os::policy::{Defrag, HugetlbConfig, MthpConfig, POLICIES, PolicyConfig, ThpConfig};
use octavo_os::{CopyOnWrite, SamePages};
use octavo_types::PageSize;
use proptest::prelude::*;

use super::machine::all_sizes;
use crate::machine::{Setup, op, play};

/// Policy number `which`, with settings that make more happen.
fn policy(which: usize, choice: u8) -> PolicyConfig {
    let khugepaged = ThpConfig { scan_every_instructions: 1, ..ThpConfig::default() };
    let defrag = [Defrag::Always, Defrag::Defer, Defrag::Never][usize::from(choice) % 3];
    let entry = POLICIES[which % POLICIES.len()];
    match entry.name {
        "mthp" => {
            let scan_every_instructions = khugepaged.scan_every_instructions;
            MthpConfig { scan_every_instructions, defrag, ..MthpConfig::default() }.into()
        }
        "hugetlb" => PolicyConfig::from(HugetlbConfig {
            nr_hugepages: u64::from(choice % 12),
            all_anonymous: Some(PageSize::HUGE),
            ..HugetlbConfig::default()
        }),
        _ => (entry.usual)(),
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(1000))]

    #[test]
    fn every_policy_preserves_contents(
        ops in prop::collection::vec(op(), 1..60),
        (which, choice) in (any::<usize>(), any::<u8>()),
        frames in prop_oneof![Just(1u64 << 16), 40u64..6000],
        conventional in any::<bool>(),
        whole in any::<bool>(),
        faults in 0u32..5,
        same_pages in prop_oneof![
            3 => Just(SamePages::Never), 1 => Just(SamePages::Base), 1 => Just(SamePages::All),
        ],
    ) {
        let config = policy(which, choice);
        let mut sizes = if conventional { vec![PageSize::HUGE] } else { all_sizes() };
        sizes.extend(config.required_sizes());
        let copy_on_write = if whole { CopyOnWrite::Whole } else { CopyOnWrite::Split };
        let format = Format::default();
        let (portion, layout) = (f64::from(faults) / 100.0, HoleLayout::Dispersed);
        let start = Fragmentation::Faults(Faults { portion, layout });
        let setup = Setup { frames, start, sizes, format, copy_on_write, same_pages };
        let failures = play(&setup, config.build(), &ops);
        prop_assert!(frames < 1 << 16 || failures == 0);
    }
}
