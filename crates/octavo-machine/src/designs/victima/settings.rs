//! `[victima]`: which walks fill TLB blocks.

use octavo_config::check::{IsLater, check_range};
use octavo_config::{DesignSettings, InvalidValue, MachineConfig};
use serde::{Deserialize, Serialize};

/// The predictor of costly walks, and what fills blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VictimaSettings {
    /// Which pages are worth a block.
    pub predictor: Predictor,
    /// The bits of the counter of a page's walks.
    pub frequency_bits: u64,
    /// The bits of the counter of a page's walks that read memory.
    pub cost_bits: u64,
    /// The least walks of a costly page.
    pub frequency_min: u64,
    /// The most walks of a costly page.
    pub frequency_max: u64,
    /// The least walks that read memory of a costly page.
    pub cost_min: u64,
    /// The most walks that read memory of a costly page.
    pub cost_max: u64,
    /// With more misses of the second-level cache than this in 1000 instructions, all pages are worth a block.
    pub bypass_misses: u64,
    /// Instructions over which these misses are counted.
    pub window_instructions: u64,
    /// Whether pages that the second level evicts are walked to in the background.
    pub fill_on_eviction: bool,
}

/// The predictor of pages that are costly to translate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Predictor {
    /// Both counters of the page lie between their bounds, or the second-level cache misses often.
    Bounds,
    /// All pages.
    Always,
    /// None.
    Never,
}

impl Default for VictimaSettings {
    /// Counters of 3 and 4 bits, walks from 1 to 12 and those that read memory from 1 to 7, and more than 5 misses in
    /// 1000 instructions, as summaries of the paper and the authors' later code have them. The window is that code's.
    fn default() -> Self {
        VictimaSettings {
            predictor: Predictor::Bounds,
            frequency_bits: 3,
            cost_bits: 4,
            frequency_min: 1,
            frequency_max: 12,
            cost_min: 1,
            cost_max: 7,
            bypass_misses: 5,
            window_instructions: 1000,
            fill_on_eviction: true,
        }
    }
}

/// The most bits of a counter.
const MAX_BITS: u64 = 8;
/// The largest bound: that of a counter with the most bits.
const MAX_COUNT: u64 = (1 << MAX_BITS) - 1;

impl DesignSettings for VictimaSettings {
    const TABLE: &'static str = "victima";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        let check = |name: &str, value, least, most| {
            check_range(&format!("victima.{name}"), value, least, most)
        };
        check("frequency_bits", self.frequency_bits, 1, MAX_BITS)?;
        check("cost_bits", self.cost_bits, 1, MAX_BITS)?;
        check("frequency_max", self.frequency_max, 0, MAX_COUNT)?;
        check("frequency_min", self.frequency_min, 0, self.frequency_max)?;
        check("cost_max", self.cost_max, 0, MAX_COUNT)?;
        check("cost_min", self.cost_min, 0, self.cost_max)?;
        check("bypass_misses", self.bypass_misses, 0, 1000)?;
        check("window_instructions", self.window_instructions, 1, 1_000_000_000)
    }
}

#[test]
fn invalid_settings_are_rejected_with_one_sentence() {
    let invalid = [
        ("predictor=sometimes", "always"),
        ("frequency_bits=0", "give a whole number from 1 to 8"),
        ("cost_bits=9", "give a whole number from 1 to 8"),
        ("frequency_min=13", "give a whole number from 0 to 12"),
        ("cost_max=256", "give a whole number from 0 to 255"),
        ("bypass_misses=1001", "give a whole number from 0 to 1000"),
        ("window_instructions=0", "give a whole number from 1 to"),
    ];
    crate::designs::twins::assert_rejected("victima", &invalid);
}
