//! What translates for virtual caches: software behind them, hardware behind them, a TLB before them, or, as
//! a bound, nothing.

use octavo_hw::{GlobalAddr, VirtualCaches};
use octavo_os::{ProcessId, vmas};
use octavo_types::PhysAddr;

use super::DATA;
use super::events::Events;
use super::handler::Handler;
use super::tlb::{Entry, SoftTlb};
use crate::counters::Counters;

/// What a translator works with.
pub type Parts<'a> = (&'a mut VirtualCaches, &'a Handler, &'a mut Events);

/// As [`super::tables::Tables::loads`].
pub type Loads = Option<Vec<PhysAddr>>;

/// What translates for virtual caches.
pub trait Translator: Send {
    /// Whether the page of every access is looked up beside the first level.
    const LOOKS_UP: bool = false;
    /// Whether no instructions are fetched for it, and each step costs what hardware needs.
    const IS_HARDWARE: bool = false;

    /// Whether it reads tables of whatever kind; else the paper's linear one is all that it knows.
    const READS_TABLES: bool = false;

    /// Looks the page of an access up, so many times at once: whether it is known.
    #[inline(always)]
    fn look_up(&mut self, _side: usize, _addr: GlobalAddr, _times: u32) -> bool {
        true
    }

    /// The page that was not known comes in.
    fn refill(&mut self, _parts: Parts<'_>, _side: usize, _addr: GlobalAddr, _entry: Entry) {}

    /// An address is translated whose line both levels have missed, by loads of these physical addresses,
    /// if the tables are not the paper's.
    fn missed(&mut self, parts: Parts<'_>, side: usize, addr: GlobalAddr, loads: Loads);

    /// The address of a dirty line is translated that goes to memory; the page is known to whoever asks.
    fn write_back(&mut self, parts: Parts<'_>, addr: GlobalAddr, _entry: Entry, loads: Loads) {
        self.missed(parts, DATA, addr, loads);
    }

    /// Forgets pages of a process.
    fn invalidate(&mut self, _process: ProcessId, _pages: &vmas::Pages) {}

    /// The TLB, if there is one.
    fn tlb(&self) -> Option<&SoftTlb> {
        None
    }

    /// Adds what it counted.
    fn report(&self, counters: &mut Counters) {
        if let Some(tlb) = self.tlb() {
            tlb.report(counters);
        }
    }
}

/// The paper's: the handler of CACHEMISS.
#[derive(Default)]
pub struct Software;

impl Translator for Software {
    const READS_TABLES: bool = true;

    fn missed(
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

/// A bound: what misses the caches is translated at no cost, and nothing is loaded or fetched for it.
#[derive(Default)]
pub struct Free;

impl Translator for Free {
    fn missed(&mut self, _: Parts<'_>, _: usize, _: GlobalAddr, _: Loads) {}
}

/// SPUR's in-cache translation (section 3.4): "a hardware state machine generates the virtual address for
/// the mapping PTE and searches the cache for that address. If this lookup misses, the state machine
/// continues until the topmost level of the page table is reached, at which point the hardware requests the
/// root PTE (at a known address) from physical memory."
#[derive(Default)]
pub struct InCache;

impl Translator for InCache {
    const IS_HARDWARE: bool = true;

    fn missed(
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

/// A TLB beside the first level, refilled by software.
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

    /// The TLB has the page.
    fn missed(&mut self, _: Parts<'_>, _: usize, _: GlobalAddr, _: Loads) {}

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
