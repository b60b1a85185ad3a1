//! The out-of-order core that gives a simulation its time, and the DRAM behind its caches.

use octavo_types::Arithmetic;
use serde::{Deserialize, Serialize};

use crate::written;

/// An out-of-order core: `[core.pipeline]`. Widths are instructions per cycle.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineConfig {
    /// Core clock, in GHz, 0.001 to 100: turns cycles into nanoseconds.
    pub frequency_ghz: f64,
    /// Instructions dispatched into the reorder buffer in a cycle: 1 to 64.
    pub width: u32,
    /// Instructions fetched in a cycle: 1 to 64; by default [`PipelineConfig::width`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch_width: Option<u32>,
    /// Instructions that begin execution in a cycle: 1 to 64.
    pub issue_width: u32,
    /// Instructions that leave the reorder buffer in a cycle: 1 to 64.
    pub commit_width: u32,
    /// Entries of the reorder buffer: 1 to [`PipelineConfig::MAX_REORDER_BUFFER`].
    pub reorder_buffer: u32,
    /// Integer registers that instructions between dispatch and commit may write: 1 to 1023.
    pub rename_registers: u32,
    /// Loads from dispatch to commit: 1 to 1023.
    pub load_queue: u32,
    /// Stores from dispatch until the data cache has them: 1 to 1023.
    pub store_queue: u32,
    /// Loads that begin in a cycle: 1 to 64.
    pub load_ports: u32,
    /// Stores that begin in a cycle, and the stores that a data cache takes in one: 1 to 64.
    pub store_ports: u32,
    /// Cycles of a load whose bytes an earlier store forwards.
    pub forward_cycles: u32,
    /// Instructions fetched ahead of dispatch: 1 to 1023.
    pub fetch_buffer: u32,
    /// Cycles from fetch to dispatch.
    pub front_end_cycles: u32,
    /// Cycles from the execution of a mispredicted branch until the right path is fetched.
    pub mispredict_cycles: u32,
    /// How branches are predicted.
    pub branches: BranchPrediction,
    /// Whether instructions that the wrong path behind a mispredicted branch shares with the right
    /// one begin on the wrong path. True by default.
    #[serde(default = "enabled")]
    pub wrong_paths: bool,
    /// Whether a store requests its line when its page is translated, and not only when it commits.
    /// False by default.
    #[serde(default)]
    pub store_prefetch: bool,
    /// Misses of each cache that may be under way at once.
    pub outstanding: OutstandingMisses,
    /// Cycles of arithmetic: one, where there is no such table.
    #[serde(default)]
    pub latencies: ArithmeticLatencies,
}

fn enabled() -> bool {
    true
}

impl PipelineConfig {
    /// The largest reorder buffer: dependences over more instructions are not followed.
    pub const MAX_REORDER_BUFFER: u32 = 1023;

    /// Instructions fetched in a cycle.
    pub fn fetch_width(&self) -> u32 {
        self.fetch_width.unwrap_or(self.width)
    }
}

/// How branches are predicted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BranchPrediction {
    /// A TAGE predictor of 5 tables, a table of targets, and a stack of return addresses.
    Tage,
    /// All branches are predicted correctly.
    Perfect,
}

/// Misses of data caches that may be under way at once, by the level that misses: 1 to 1023.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutstandingMisses {
    /// Of the first level for data: its fill buffers.
    pub l1d: u32,
    /// Of the second level.
    pub l2: u32,
    /// Of the last level, by this core.
    pub llc: u32,
}

/// Cycles of arithmetic from its operands to its result: 1 to [`ArithmeticLatencies::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArithmeticLatencies {
    /// Of a multiplication of integers.
    pub multiply: u32,
    /// Of a division of integers.
    pub divide: u32,
    /// Of other floating-point arithmetic than division.
    pub float: u32,
    /// Of a division or square root of floating-point numbers.
    pub float_divide: u32,
}

impl Default for ArithmeticLatencies {
    fn default() -> Self {
        ArithmeticLatencies { multiply: 1, divide: 1, float: 1, float_divide: 1 }
    }
}

impl ArithmeticLatencies {
    /// The most cycles.
    pub const MAX: u32 = 1000;

    /// The cycles of one kind.
    pub const fn of(&self, arithmetic: Arithmetic) -> u32 {
        match arithmetic {
            Arithmetic::Multiply => self.multiply,
            Arithmetic::Divide => self.divide,
            Arithmetic::Float => self.float,
            Arithmetic::FloatDivide => self.float_divide,
        }
    }
}

/// Memory behind the last cache: `[dram]`, all times in cycles of the core.
///
/// `cache.memory_latency_cycles` is the latency of a read of a closed row from an idle channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DramConfig {
    /// Channels, a power of two: 1 to 64. Neighbouring lines lie in different channels.
    pub channels: u32,
    /// Banks of a channel, a power of two: 1 to 1024.
    pub banks: u32,
    /// Bytes of a bank's row, a power of two.
    #[serde(deserialize_with = "written::bytes::deserialize")]
    pub row_bytes: u64,
    /// Time to open a row: saved where it is open.
    pub activate_cycles: u32,
    /// Time to close another row: added where one is open.
    pub precharge_cycles: u32,
    /// Time that a line occupies its channel.
    pub transfer_cycles: u32,
    /// Write-backs that a channel collects and then writes together: 1 to 256. It reads nothing meanwhile.
    pub write_batch: u32,
    /// Time to turn a channel from reads to writes and back, once for each batch.
    pub turn_cycles: u32,
    /// Time for which a refresh closes a channel; 0 for a memory without refresh.
    pub refresh_cycles: u32,
    /// Time from one refresh of a channel to the next: more than a refresh takes.
    pub refresh_every_cycles: u32,
}
