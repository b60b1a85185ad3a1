//! Physical caches behind a software-refilled MIPS TLB: the baseline of virtual caches.
//!
//! Equal to the machine with virtual caches (sizes, split at both levels, TLB and handler), except that lines
//! have physical addresses. So there are no sweeps and no synonyms, and write-backs need no translation.
//! Pages of page tables are cached by addresses of their own.

use super::build::invalid_cache;
use super::settings::SoftvmConfig;
use octavo_config::MachineConfig;
use octavo_hw::{GlobalAddr, L1Lookup, L2Lookup, ServedBy, VirtualCaches};
use octavo_os::{ProcessId, vmas};
use octavo_types::{FrameNumber, Instructions, PageSize, PhysAddr};

use super::address_map;
use super::counters::{missed_cycles, report_caches};
use super::events::Events;
use super::handler::Handler;
use super::pages::PageOf;
use super::space::Space;
use super::table1::Table1;
use super::tlb::{Entry, SoftTlb};
use super::{DATA, rest_of_line};
use crate::config::ConfigError;
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::env::{Charged, Env};
use crate::front::{Filter, LineAccess};

/// Physical caches behind a TLB that software refills.
pub struct Physical {
    tlb: SoftTlb,
    caches: VirtualCaches,
    space: Space,
    handler: Handler,
    pending_invalidations: Vec<(ProcessId, vmas::Pages)>,
    line_log2: u32,
    config: SoftvmConfig,
    events: Events,
    missed: [[u64; 2]; 2],
    lines_written: u64,
    table1: Table1,
    /// The level that served the last line that missed the first level.
    served_by: ServedBy,
}

impl Physical {
    /// A machine with empty TLB and caches.
    pub fn new(machine: &MachineConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        let config = *machine.designs.get::<SoftvmConfig>();
        let caches =
            VirtualCaches::new(&config.caches(machine), instructions).map_err(invalid_cache)?;
        let line_bytes = machine.cache.line_bytes;
        Ok(Physical {
            tlb: SoftTlb::new(config.tlb, instructions),
            space: Space::new(line_bytes, config.kernel.sharing),
            handler: Handler::new(
                config.kernel.handler_instructions,
                caches.line_log2(0),
                u32::from(PageSize::BASE.log2()),
            ),
            caches,
            pending_invalidations: Vec::new(),
            line_log2: line_bytes.trailing_zeros(),
            config,
            events: Events::default(),
            missed: [[0; 2]; 2],
            lines_written: 0,
            table1: Table1::default(),
            served_by: ServedBy::L1,
        })
    }

    /// Refills the page of an access that the TLB misses or does not permit to be stored to.
    #[inline(never)]
    fn refill(&mut self, env: &mut Env, access: LineAccess, addr: GlobalAddr) -> Option<Entry> {
        let page = env.page(access);
        let translation = self.resolve(env, page, access)?;
        // A page fault changes no VMA, so that regions stay valid.
        self.apply_pending();
        let user = PageOf { process: env.process(), page };
        let entry = Entry::new(user, translation.frame_of(page), translation.entry.is_writable());
        let parts = (&mut self.caches, &self.handler, &mut self.events);
        self.tlb.refill(parts, access.side(), addr, entry);
        self.write_back();
        Some(entry)
    }

    fn apply_pending(&mut self) {
        for (process, range) in std::mem::take(&mut self.pending_invalidations) {
            self.tlb.invalidate(process, &range);
        }
    }

    /// Accesses the caches.
    #[inline(always)]
    fn access_caches(&mut self, access: LineAccess, addr: GlobalAddr, frame: FrameNumber) {
        let (side, stores, repeats) = (access.side(), access.is_store(), access.repeats());
        let offset = addr.raw() & (PageSize::BASE.bytes() - 1);
        let line = address_map::physical(PhysAddr::new(frame.start().raw() | offset));
        let has_wider_lines = self.caches.line_log2(side) > self.line_log2;
        if has_wider_lines && rest_of_line(&mut self.caches, line, access).is_some() {
            return;
        }
        if self.caches.look_up_l1(side, line, stores, repeats) == L1Lookup::Miss {
            self.serve_l1_miss(access, line, frame);
        }
    }

    #[inline(never)]
    fn serve_l1_miss(&mut self, access: LineAccess, line: GlobalAddr, frame: FrameNumber) {
        let (side, stores, repeats) = (access.side(), access.is_store(), access.repeats());
        self.missed[side][0] += 1;
        if !access.is_whole() {
            self.table1.add_without_lookup(side);
        }
        self.served_by = ServedBy::L2;
        if self.caches.look_up_l2(side, line, stores, repeats) == L2Lookup::Miss {
            self.missed[side][1] += 1;
            self.served_by = ServedBy::Memory;
            self.caches.load_and_map(side, line, (frame, true), stores, repeats);
        }
        self.write_back();
    }

    fn write_back(&mut self) {
        while self.caches.next_write_back(DATA).is_some() {
            self.lines_written += 1;
        }
    }
}

impl Design for Physical {
    const FILTER: Filter = Filter::Adjacent;
    const INTERRUPTS: bool = true;

    /// The caches are part of the design: [`Physical::access`] does both.
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        self.access(env, access)
    }

    #[inline(always)]
    fn access(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let addr = self.space.of_access(env, access);
        let side = access.side();
        match self.tlb.look_up(side, addr, access.lookups()) {
            Some(entry) if entry.may_store || !access.is_store() => {
                self.access_caches(access, addr, entry.frame);
                Some(entry.frame)
            }
            translation => {
                let entry = self.refill(env, access, addr)?;
                let before = self.missed[side];
                self.access_caches(access, addr, entry.frame);
                if translation.is_none() {
                    self.table1.add(side, before, self.missed[side]);
                }
                Some(entry.frame)
            }
        }
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &vmas::Pages) {
        self.pending_invalidations.push((space.process, pages.clone()));
    }

    fn apply_invalidations(&mut self, _env: &Env) {
        self.space.clear_regions();
        self.apply_pending();
    }

    fn check(&self, env: &Env, access: LineAccess, frame: FrameNumber) {
        self.space.check(env, access, frame);
    }

    /// Segments distinguish processes: entries stay.
    fn flush(&mut self) {}

    fn charged(&self, _: &Env) -> Charged {
        let cycles = &self.config.cycles;
        Charged {
            lookups: 0,
            walks: 0,
            caches: missed_cycles(self.missed, cycles).iter().sum(),
            handlers: self.events.cycles(cycles, false),
        }
    }

    fn served_by(&self, _: &Env) -> ServedBy {
        self.served_by
    }

    fn report(&self, counters: &mut Counters) {
        let cycles = &self.config.cycles;
        self.events.report("softvm", counters);
        counters.add("softvm.write_back", "lines", self.lines_written);
        self.tlb.report(counters);
        let lookups = [0, 1].map(|side| self.tlb.lookups(side));
        self.table1.report(self.missed, lookups, counters);
        counters.add("core", "cycles_handler", self.events.cycles(cycles, false));
        report_caches(&self.caches, self.missed, cycles, counters);
    }
}
