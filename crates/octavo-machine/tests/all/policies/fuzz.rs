//! Policies of designs under random programs, with much or little memory, compared with a model of what a program can
//! observe: contents, references, and cached translations that were not invalidated.

use octavo_machine::designs::perforated::{PERFORATED_PAGES, PerforatedConfig, hole_filter};
use octavo_machine::designs::tps::{Span, TpsConfig};
use octavo_os::page_table::{Format, HoleFilter};
use octavo_os::policy::{Defrag, PolicyConfig, ReserveWhen, ThpConfig};
use proptest::prelude::*;

use super::contents::{Setup, op, preserves_contents, setup};

/// A policy with settings under which events are frequent.
fn policy(is_tailored: bool, choice: u8) -> PolicyConfig {
    if is_tailored {
        return PolicyConfig::from(TpsConfig {
            promotion_threshold_percent: [100, 75, 50][usize::from(choice) / 3 % 3],
            span: [Span::Exact, Span::RoundUp][usize::from(choice) / 9 % 2],
            reserve: [ReserveWhen::Mapped, ReserveWhen::Touched][usize::from(choice) / 18 % 2],
            merge_every_instructions: u64::from(choice) / 36 % 2,
            defrag: [Defrag::Always, Defrag::Defer, Defrag::Never][usize::from(choice) % 3],
            ..TpsConfig::default()
        });
    }
    let khugepaged = ThpConfig { scan_every_instructions: 1, ..ThpConfig::default() };
    PolicyConfig::from(PerforatedConfig {
        max_immovable_percent: [25, 60, 100][usize::from(choice) % 3],
        max_filter_bits: 8,
        hole_pages: [ReserveWhen::Mapped, ReserveWhen::Touched][usize::from(choice) / 3 % 2],
        unused_are_holes: (choice / 6).is_multiple_of(2),
        min_parts: u32::from(choice / 12 % 2) * 40,
        huge: khugepaged,
    })
}

proptest! {
    #![proptest_config(octavo_oracle::cases(500))]

    #[test]
    fn every_policy_of_a_design_preserves_contents(
        ops in prop::collection::vec(op(), 1..60),
        (is_tailored, choice) in (any::<bool>(), any::<u8>()),
        setup in setup(),
    ) {
        let config = policy(is_tailored, choice);
        let has_holes = config.capabilities().contains(&PERFORATED_PAGES);
        let holes = has_holes.then_some(hole_filter as HoleFilter);
        let setup = Setup { format: Format { holes, ..setup.format }, ..setup };
        preserves_contents(setup, &config, &ops)?;
    }
}
