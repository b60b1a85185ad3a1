//! Every policy under random programs, compared with a model of their view, with much memory and with little:
//! contents, references, and cached translations that were not invalidated.

use octavo_os::policy::{
    Defrag, DefragmentingThpConfig, HugetlbConfig, MthpConfig, POLICIES, PolicyConfig, ThpConfig,
    TridentConfig,
};
use octavo_types::PageSize;
use proptest::prelude::*;

use crate::machine::{op, preserves_contents, setup};

/// Policy number `which`, with settings that make more happen.
fn policy(which: usize, choice: u8) -> PolicyConfig {
    let khugepaged = ThpConfig { scan_every_instructions: 1, ..ThpConfig::default() };
    let defrag = [Defrag::Always, Defrag::Defer, Defrag::Never][usize::from(choice) % 3];
    let entry = POLICIES[which % POLICIES.len()];
    match entry.name {
        "thp" => DefragmentingThpConfig {
            defrag,
            khugepaged_defrag: choice.is_multiple_of(2),
            huge: khugepaged,
        }
        .into(),
        "mthp" => {
            let scan_every_instructions = khugepaged.scan_every_instructions;
            MthpConfig { scan_every_instructions, defrag, ..MthpConfig::default() }.into()
        }
        "trident" => TridentConfig {
            largest: PageSize::from_log2(22).expect("4 MiB"),
            exchange: (choice > 100).then_some(PageSize::BASE),
            clear_every_instructions: 1,
            huge: DefragmentingThpConfig {
                defrag,
                khugepaged_defrag: choice.is_multiple_of(2),
                huge: khugepaged,
            },
            ..TridentConfig::default()
        }
        .into(),
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
        setup in setup(),
    ) {
        preserves_contents(setup, &policy(which, choice), &ops)?;
    }
}
