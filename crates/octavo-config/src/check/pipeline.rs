//! Validation of the out-of-order core and of DRAM.

use std::ops::RangeInclusive;

use octavo_types::values::size_text;

use super::{check_decimal, check_latency, check_range};
use crate::error::InvalidValue;
use crate::types::{ArithmeticLatencies, DramConfig, MachineConfig, PipelineConfig};

const MAX_WIDTH: u32 = 64;
/// The most entries of a queue, and instructions that dependences reach over.
const MAX_QUEUE: u32 = PipelineConfig::MAX_REORDER_BUFFER;
/// Core clocks, in GHz: far slower than any, and far faster.
pub const FREQUENCY_GHZ: RangeInclusive<f64> = 0.001..=100.0;
const MAX_CHANNELS: u32 = 64;
/// Write-backs that a channel writes together, at most.
const MAX_WRITE_BATCH: u32 = 256;
const MAX_BANKS: u32 = 1024;

/// Checks the out-of-order core, and the DRAM of the memory and of its tiers.
pub fn check(machine: &MachineConfig) -> Result<(), InvalidValue> {
    machine.core.pipeline.as_ref().map_or(Ok(()), check_pipeline)?;
    let line_bytes = machine.cache.line_bytes;
    machine.dram.as_ref().map_or(Ok(()), |dram| check_dram("dram", dram, line_bytes))?;
    let of_host = machine.host.as_ref().map(|host| ("host.memory", &host.memory));
    for (table, memory) in [("memory", &machine.memory)].into_iter().chain(of_host) {
        for (name, tier) in &memory.tiers {
            let check = |dram| check_dram(&format!("{table}.tiers.{name}.dram"), dram, line_bytes);
            tier.dram.as_ref().map_or(Ok(()), check)?;
        }
    }
    if machine.host.is_some() && !machine.memory.tiers.is_empty() {
        let advice = "give host.memory.tiers: the memory of a guest lies in that of its host";
        return Err(InvalidValue::of_table("memory.tiers", advice));
    }
    Ok(())
}

fn check_pipeline(pipeline: &PipelineConfig) -> Result<(), InvalidValue> {
    check_decimal("core.pipeline.frequency_ghz", pipeline.frequency_ghz, FREQUENCY_GHZ)?;
    let widths = [
        ("width", pipeline.width),
        ("fetch_width", pipeline.fetch_width()),
        ("issue_width", pipeline.issue_width),
        ("commit_width", pipeline.commit_width),
        ("load_ports", pipeline.load_ports),
        ("store_ports", pipeline.store_ports),
    ];
    for (name, width) in widths {
        check_range(&format!("core.pipeline.{name}"), width, 1, MAX_WIDTH)?;
    }
    let queues = [
        ("reorder_buffer", pipeline.reorder_buffer),
        ("rename_registers", pipeline.rename_registers),
        ("load_queue", pipeline.load_queue),
        ("store_queue", pipeline.store_queue),
        ("fetch_buffer", pipeline.fetch_buffer),
        ("outstanding.l1d", pipeline.outstanding.l1d),
        ("outstanding.l2", pipeline.outstanding.l2),
        ("outstanding.llc", pipeline.outstanding.llc),
    ];
    for (name, entries) in queues {
        check_range(&format!("core.pipeline.{name}"), entries, 1, MAX_QUEUE)?;
    }
    let latencies = [
        ("multiply", pipeline.latencies.multiply),
        ("divide", pipeline.latencies.divide),
        ("float", pipeline.latencies.float),
        ("float_divide", pipeline.latencies.float_divide),
    ];
    for (name, cycles) in latencies {
        let key = format!("core.pipeline.latencies.{name}");
        check_range(&key, cycles, 1, ArithmeticLatencies::MAX)?;
    }
    check_latency("core.pipeline.forward_cycles", pipeline.forward_cycles)?;
    check_latency("core.pipeline.front_end_cycles", pipeline.front_end_cycles)?;
    check_latency("core.pipeline.mispredict_cycles", pipeline.mispredict_cycles)
}

fn check_dram(key: &str, dram: &DramConfig, line_bytes: u64) -> Result<(), InvalidValue> {
    for (name, count, most) in
        [("channels", dram.channels, MAX_CHANNELS), ("banks", dram.banks, MAX_BANKS)]
    {
        if !count.is_power_of_two() || count > most {
            let advice = format!("give a power of two, and at most {most}");
            return Err(InvalidValue::new(format!("{key}.{name}"), count, advice));
        }
    }
    let row = dram.row_bytes;
    if !row.is_power_of_two() || !(line_bytes..=1 << 30).contains(&row) {
        let line = size_text(line_bytes);
        let advice = format!("give a power of two from the line's {line} to 1GiB, such as 8192");
        return Err(InvalidValue::new(format!("{key}.row_bytes"), row, advice));
    }
    check_latency(&format!("{key}.activate_cycles"), dram.activate_cycles)?;
    check_latency(&format!("{key}.precharge_cycles"), dram.precharge_cycles)?;
    check_latency(&format!("{key}.transfer_cycles"), dram.transfer_cycles)?;
    check_range(&format!("{key}.write_batch"), dram.write_batch, 1, MAX_WRITE_BATCH)?;
    check_latency(&format!("{key}.turn_cycles"), dram.turn_cycles)?;
    check_latency(&format!("{key}.refresh_cycles"), dram.refresh_cycles)?;
    if dram.refresh_cycles > 0 && dram.refresh_every_cycles <= dram.refresh_cycles {
        let advice = format!("give more than {key}.refresh_cycles, {}", dram.refresh_cycles);
        let every = dram.refresh_every_cycles;
        return Err(InvalidValue::new(format!("{key}.refresh_every_cycles"), every, advice));
    }
    Ok(())
}
