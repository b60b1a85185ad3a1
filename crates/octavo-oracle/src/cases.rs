//! The number and the seed of random cases in property tests.
//!
//! By default every run tries the same cases, so that a result depends on the code alone. With
//! `OCTAVO_CASES=N` a test tries N times as many cases, each time from another seed; `make test-long`
//! does. Proptest stores a failing case in `proptest-regressions/`, which is checked in, and tries it
//! first from then on.

use proptest::test_runner::{Config, RngSeed};

const VARIABLE: &str = "OCTAVO_CASES";
const SEED: u64 = 0x0c7a_4e50;

/// The factor by which the number of cases is multiplied; `None` for the usual cases.
pub fn factor() -> Option<u32> {
    let text = std::env::var(VARIABLE).ok()?;
    let factor = text.parse().ok().filter(|factor| *factor > 0);
    Some(factor.unwrap_or_else(|| panic!("{VARIABLE}={text}: give a number from 1")))
}

/// A configuration with `usual` cases, times the [`factor`]. `PROPTEST_RNG_SEED` sets the seed.
pub fn cases(usual: u32) -> Config {
    let factor = factor();
    let mut config = Config::with_cases(usual.saturating_mul(factor.unwrap_or(1)));
    // The same ratio of rejected inputs to cases as in a usual run.
    config.max_global_rejects = config.max_global_rejects.saturating_mul(factor.unwrap_or(1));
    if factor.is_none() && config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(SEED);
    }
    config
}
