//! Validation of virtual caches and their settings.

use super::arrays::{SizedArray, check_geometry};
use super::{IsLater, check_latency, check_range};
use crate::error::InvalidValue;
use crate::types::{
    KernelConfig, MachineConfig, SoftTlbConfig, SoftvmCycles, SoftvmRates, TableKind,
};
use octavo_types::PageSize;

/// The most instructions of a handler: four KiB of them.
const MAX_HANDLER_INSTRUCTIONS: u32 = 1024;
/// The most bytes of a line: a line lies in one page.
const MAX_LINE_BYTES: u64 = 4096;
/// The most entries of a TLB that is fully associative.
const MAX_TLB_ENTRIES: u64 = 65_536;

pub fn check(machine: &MachineConfig, is_later: &IsLater<'_>) -> Result<(), InvalidValue> {
    let softvm = &machine.softvm;
    let [l1_bytes, l2_bytes] = machine.virtual_lines();
    let physical = Lines { key: "cache.line_bytes", bytes: machine.cache.line_bytes, least: 8 };
    let l1 = Lines { key: "softvm.l1.line_bytes", bytes: l1_bytes, least: physical.bytes };
    let l2 = Lines { key: "softvm.l2.line_bytes", bytes: l2_bytes, least: l1_bytes };
    check_lines(&l1, &physical, is_later)?;
    // Where the first level's lines are not said, they are the machine's.
    let before = if softvm.l1.line_bytes.is_some() { &l1 } else { &physical };
    check_lines(&l2, before, is_later)?;
    let levels = [("softvm.l1", softvm.l1, l1_bytes), ("softvm.l2", softvm.l2, l2_bytes)];
    for (key, level, line_bytes) in levels {
        let lines = SizedArray::lines(key, level.bytes, line_bytes, level.ways);
        check_geometry(&lines.of_own_lines(), is_later)?;
    }
    let instructions = softvm.kernel.handler_instructions;
    check_range("softvm.kernel.handler_instructions", instructions, 1, MAX_HANDLER_INSTRUCTIONS)?;
    let SoftvmCycles {
        l2_cycles,
        memory_cycles,
        handler_cycles,
        step_cycles,
        check_l1_cycles,
        change_l1_cycles,
        check_l2_cycles,
        change_l2_cycles,
    } = softvm.cycles;
    for (name, cycles) in [
        ("l2_cycles", l2_cycles),
        ("memory_cycles", memory_cycles),
        ("handler_cycles", handler_cycles),
        ("step_cycles", step_cycles),
        ("check_l1_cycles", check_l1_cycles),
        ("change_l1_cycles", change_l1_cycles),
        ("check_l2_cycles", check_l2_cycles),
        ("change_l2_cycles", change_l2_cycles),
    ] {
        check_latency(&format!("softvm.cycles.{name}"), cycles)?;
    }
    check_protection(softvm.kernel, l2_bytes)?;
    if machine.host.is_some() && softvm.kernel.table == TableKind::Hierarchical {
        let advice = "give \"two-tier\", \"inverted\" or \"guarded\": what the operating system of a guest \
                      has in its own tables are frames of the guest";
        return Err(InvalidValue::new("softvm.kernel.table", "\"hierarchical\"", advice));
    }
    let SoftvmRates { protections_per_billion, dma_pages_per_billion } = softvm.rates;
    check_rate("softvm.rates.protections_per_billion", protections_per_billion)?;
    check_rate("softvm.rates.dma_pages_per_billion", dma_pages_per_billion)?;
    check_tlb(softvm.tlb, is_later)
}

fn check_rate(key: &str, per_billion: u32) -> Result<(), InvalidValue> {
    check_range(key, per_billion, 0, 1_000_000_000)
}

fn check_protection(kernel: KernelConfig, l2_line_bytes: u64) -> Result<(), InvalidValue> {
    let (bytes, page) = (kernel.protection_bytes, PageSize::BASE.bytes());
    let key = "softvm.kernel.protection_bytes";
    if !bytes.is_power_of_two() || !(l2_line_bytes..=page).contains(&bytes) {
        let advice =
            format!("give a power of two from {l2_line_bytes} (softvm.l2.line_bytes) to {page}");
        return Err(InvalidValue::new(key, bytes, advice));
    }
    if bytes < page && kernel.table != TableKind::TwoTier {
        let advice =
            format!("give {page}: only the two-tier table has entries for less than a page");
        return Err(InvalidValue::new(key, bytes, advice));
    }
    Ok(())
}

/// The bytes of a cache's lines.
struct Lines {
    /// Where they are written.
    key: &'static str,
    bytes: u64,
    /// The fewest that they may be.
    least: u64,
}

/// Whether a level's lines hold whole ones of the level before it.
fn check_lines(of: &Lines, before: &Lines, is_later: &IsLater<'_>) -> Result<(), InvalidValue> {
    let may_be =
        |least: u64| of.bytes.is_power_of_two() && (least..=MAX_LINE_BYTES).contains(&of.bytes);
    if may_be(before.bytes) {
        return Ok(());
    }
    if may_be(before.least) && is_later(before.key, of.key) {
        let advice =
            format!("give a power of two from {} to {} ({})", before.least, of.bytes, of.key);
        return Err(InvalidValue::new(before.key, before.bytes, advice));
    }
    let (least, whose) = (before.bytes, before.key);
    let advice = format!("give a power of two from {least} ({whose}) to {MAX_LINE_BYTES}");
    Err(InvalidValue::new(of.key, of.bytes, advice))
}

fn check_tlb(tlb: SoftTlbConfig, is_later: &IsLater<'_>) -> Result<(), InvalidValue> {
    let SoftTlbConfig { entries, reserved } = tlb;
    let (of_entries, of_reserved) = ("softvm.tlb.entries", "softvm.tlb.reserved");
    check_range(of_entries, entries, 2, MAX_TLB_ENTRIES)?;
    if (1..entries).contains(&reserved) {
        return Ok(());
    }
    if reserved > 0 && is_later(of_entries, of_reserved) {
        let advice = format!("give more than {reserved} (softvm.tlb.reserved)");
        return Err(InvalidValue::new(of_entries, entries, advice));
    }
    let advice = format!("give a whole number from 1 to {}, less than all entries", entries - 1);
    Err(InvalidValue::new(of_reserved, reserved, advice))
}
