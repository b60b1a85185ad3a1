//! What virtual caches must be like, and what is beside them.

use super::arrays::{Sized, check_geometry};
use super::{IsLater, check_latency, check_range};
use crate::error::WrongValue;
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

pub fn check(machine: &MachineConfig, is_later: &IsLater<'_>) -> Result<(), WrongValue> {
    let softvm = &machine.softvm;
    let [l1_bytes, l2_bytes] = machine.virtual_lines();
    check_line("softvm.l1", l1_bytes, machine.cache.line_bytes, "cache.line_bytes")?;
    check_line("softvm.l2", l2_bytes, l1_bytes, "those of softvm.l1")?;
    let levels = [("softvm.l1", softvm.l1, l1_bytes), ("softvm.l2", softvm.l2, l2_bytes)];
    for (key, level, line_bytes) in levels {
        let lines = Sized::lines(key, level.bytes, line_bytes, level.ways);
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
    let SoftvmRates { protections_per_billion, dma_pages_per_billion } = softvm.rates;
    check_rate("softvm.rates.protections_per_billion", protections_per_billion)?;
    check_rate("softvm.rates.dma_pages_per_billion", dma_pages_per_billion)?;
    check_tlb(softvm.tlb, is_later)
}

fn check_rate(key: &str, per_billion: u32) -> Result<(), WrongValue> {
    check_range(key, per_billion, 0, 1_000_000_000)
}

fn check_protection(kernel: KernelConfig, l2_line_bytes: u64) -> Result<(), WrongValue> {
    let (bytes, page) = (kernel.protection_bytes, PageSize::BASE.bytes());
    let key = "softvm.kernel.protection_bytes";
    if !bytes.is_power_of_two() || !(l2_line_bytes..=page).contains(&bytes) {
        let advice =
            format!("give a power of two from {l2_line_bytes} (softvm.l2.line_bytes) to {page}");
        return Err(WrongValue::new(key, bytes, advice));
    }
    if bytes < page && kernel.table != TableKind::TwoTier {
        let advice =
            format!("give {page}: only the two-tier table has entries for less than a page");
        return Err(WrongValue::new(key, bytes, advice));
    }
    Ok(())
}

fn check_line(key: &str, bytes: u64, least: u64, whose: &str) -> Result<(), WrongValue> {
    if bytes.is_power_of_two() && (least..=MAX_LINE_BYTES).contains(&bytes) {
        return Ok(());
    }
    let advice = format!("give a power of two from {least} ({whose}) to {MAX_LINE_BYTES}");
    Err(WrongValue::new(format!("{key}.line_bytes"), bytes, advice))
}

fn check_tlb(tlb: SoftTlbConfig, is_later: &IsLater<'_>) -> Result<(), WrongValue> {
    let SoftTlbConfig { entries, reserved } = tlb;
    let (of_entries, of_reserved) = ("softvm.tlb.entries", "softvm.tlb.reserved");
    if !(2..=MAX_TLB_ENTRIES).contains(&entries) {
        let advice = format!("give a whole number from 2 to {MAX_TLB_ENTRIES}");
        return Err(WrongValue::new(of_entries, entries, advice));
    }
    if (1..entries).contains(&reserved) {
        return Ok(());
    }
    if reserved > 0 && is_later(of_entries, of_reserved) {
        let advice = format!("give more than {reserved} (softvm.tlb.reserved)");
        return Err(WrongValue::new(of_entries, entries, advice));
    }
    let advice = format!("give a whole number from 1 to {}, less than all entries", entries - 1);
    Err(WrongValue::new(of_reserved, reserved, advice))
}
