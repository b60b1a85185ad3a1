//! Translators for misses of virtual caches: software, hardware, a TLB in front of the caches, or, as an
//! ideal bound, nothing.

use octavo_hw::{GlobalAddr, VirtualCaches};
use octavo_os::{ProcessId, vmas};
use octavo_types::PhysAddr;

use super::DATA;
use super::events::Events;
use super::handler::Handler;
use super::tlb::{Entry, SoftTlb};
use crate::counters::Counters;

/// The parts of the machine that a translator uses.
pub type Parts<'a> = (&'a mut VirtualCaches, &'a Handler, &'a mut Events);

/// The result of [`super::tables::Tables::loads`].
pub type Loads = Option<Vec<PhysAddr>>;

/// A translator for virtual caches.
pub trait Translator: Send {
    /// Whether each access looks its page up beside the first level.
    const LOOKS_UP: bool = false;
    /// Whether it is hardware: it fetches no instructions, and each step has the hardware's cost.
    const IS_HARDWARE: bool = false;

    /// Whether it reads page tables of any kind; otherwise only the paper's linear table.
    const READS_TABLES: bool = false;

    /// Looks the page of an access up `times` times. Returns whether it is present.
    #[inline(always)]
    fn look_up(&mut self, _side: usize, _addr: GlobalAddr, _times: u32) -> bool {
        true
    }

    /// Refills a page after a miss.
    fn refill(&mut self, _parts: Parts<'_>, _side: usize, _addr: GlobalAddr, _entry: Entry) {}

    /// Translates an address whose line missed both cache levels, by loads of these physical addresses if the
    /// tables are not the paper's.
    fn translate_miss(&mut self, parts: Parts<'_>, side: usize, addr: GlobalAddr, loads: Loads);

    /// Translates the address of a dirty line that is written back; `entry` describes its page.
    fn write_back(&mut self, parts: Parts<'_>, addr: GlobalAddr, _entry: Entry, loads: Loads) {
        self.translate_miss(parts, DATA, addr, loads);
    }

    /// Drops translations of a range of pages of a process.
    fn invalidate(&mut self, _process: ProcessId, _pages: &vmas::Pages) {}

    /// The TLB, if there is one.
    fn tlb(&self) -> Option<&SoftTlb> {
        None
    }

    /// Reports its counters.
    fn report(&self, counters: &mut Counters) {
        if let Some(tlb) = self.tlb() {
            tlb.report(counters);
        }
    }
}

/// The paper's software handler of CACHEMISS.
#[derive(Default)]
pub struct Software;

impl Translator for Software {
    const READS_TABLES: bool = true;

    fn translate_miss(
        &mut self,
        (caches, handler, events): Parts<'_>,
        side: usize,
        addr: GlobalAddr,
        loads: Loads,
    ) {
        *if side == 0 { &mut events.fetch_misses } else { &mut events.data_misses } += 1;
        match loads {
            None => handler.translate(caches, events, addr),
            Some(entries) => handler.load_all(caches, events, entries),
        }
    }
}

/// An ideal bound: misses are translated at no cost, without loads or fetches.
#[derive(Default)]
pub struct Free;

impl Translator for Free {
    fn translate_miss(&mut self, _: Parts<'_>, _: usize, _: GlobalAddr, _: Loads) {}
}

/// SPUR's in-cache translation (section 3.4): "a hardware state machine generates the virtual address for
/// the mapping PTE and searches the cache for that address. If this lookup misses, the state machine
/// continues until the topmost level of the page table is reached, at which point the hardware requests the
/// root PTE (at a known address) from physical memory."
#[derive(Default)]
pub struct InCache;

impl Translator for InCache {
    const IS_HARDWARE: bool = true;

    fn translate_miss(
        &mut self,
        (caches, handler, events): Parts<'_>,
        side: usize,
        addr: GlobalAddr,
        _: Loads,
    ) {
        *if side == 0 { &mut events.fetch_misses } else { &mut events.data_misses } += 1;
        handler.search(caches, events, addr);
    }
}

/// A software-refilled TLB beside the first level.
pub struct Tlb(pub SoftTlb);

impl Translator for Tlb {
    const LOOKS_UP: bool = true;

    #[inline(always)]
    fn look_up(&mut self, side: usize, addr: GlobalAddr, times: u32) -> bool {
        self.0.look_up(side, addr, times).is_some()
    }

    fn refill(&mut self, parts: Parts<'_>, side: usize, addr: GlobalAddr, entry: Entry) {
        self.0.refill(parts, side, addr, entry);
    }

    /// The TLB holds the page.
    fn translate_miss(&mut self, _: Parts<'_>, _: usize, _: GlobalAddr, _: Loads) {}

    fn write_back(&mut self, parts: Parts<'_>, addr: GlobalAddr, entry: Entry, _: Loads) {
        if !self.0.has(addr) {
            self.0.refill(parts, DATA, addr, entry);
        }
    }

    fn invalidate(&mut self, process: ProcessId, pages: &vmas::Pages) {
        self.0.invalidate(process, pages);
    }

    fn tlb(&self) -> Option<&SoftTlb> {
        Some(&self.0)
    }
}
