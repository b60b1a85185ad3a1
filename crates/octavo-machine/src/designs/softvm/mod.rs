//! Software-managed address translation (Jacob and Mudge, HPCA 1997): virtual caches without TLB or walker,
//! and a software handler for misses of the last cache level.
//!
//! - A segment maps an address to a global one ([`space`]), which is looked up in virtual caches: two levels,
//!   each split for instructions and data. Cache hits need no translation.
//! - A miss of both levels raises CACHEMISS: the [`handler`] loads the page-table entry through the same
//!   caches, and then the line, which receives the permissions of the entry.
//! - An evicted dirty line is written back to memory. If the machine keeps no translation with cache lines,
//!   the handler translates its address again, from a write-back buffer, before the program goes on. The
//!   handler's loads may evict the program's line, which then misses once more (`restarts`).
//! - A store to a line without store permission asks the operating system, which may copy the page; then the
//!   line is changed or, unless protection is lazy, all lines of the page.
//! - Any other change of a page sweeps the caches for its lines ([`pages`], [`sweeps`]).
//!
//! The memory access of a miss has the same cost on every machine; like second-level hits, it counts as
//! cycles of fetches and data. The handler's own misses, sweeps and write-backs have counters of their own.
//! Accessed and dirty bits of the page table are set by misses and by stores that ask for permission, not by
//! hits. Each core has caches of its own, without coherence. A context switch flushes nothing: segments
//! distinguish processes.
//!
//! In a guest, global addresses belong to the guest's processes, and the handler reads shadow tables: they
//! map to machine memory, composed of the guest's and the host's tables. Maintaining them is free, as all
//! work of operating systems. A change by the host is swept for like a change by the guest, if it changes the
//! translation of a page with cached lines.

mod address_map;
mod build;
mod counters;
mod event_injection;
mod events;
mod handler;
mod pages;
mod physical;
mod settings;
mod space;
mod sweeps;
mod table1;
mod tables;
mod tlb;
mod tlb_access;
mod translator;

use octavo_hw::{GlobalAddr, L1Lookup, L2Lookup, Line, ServedBy, VirtualCaches};
use octavo_os::{ProcessId, vmas};
use octavo_types::{FrameNumber, PageSize};

use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::env::{Charged, Env};
use crate::front::{Filter, LineAccess};
pub use build::FAMILY;
use event_injection::{EventInjector, InjectedEvent};
use events::Events;
use handler::Handler;
use pages::{PageOf, Pages, SynonymRefused};
pub use physical::Physical;
pub use settings::{
    Aliasing, IncreasedRights, KernelConfig, Sharing, SoftTlbConfig, SoftvmConfig, SoftvmCycles,
    SoftvmRates, TableKind, VirtualCacheLevel, WriteBackTranslation,
};
use space::Space;
use table1::Table1;
use tables::Tables;
use tlb::Entry;
use translator::Translator;
pub use translator::{Free, InCache, Software, Tlb};

/// The data side.
const DATA: usize = 1;

/// Virtual caches with a translator for their misses.
pub struct Softvm<T> {
    translator: T,
    caches: VirtualCaches,
    space: Space,
    handler: Handler,
    tables: Tables,
    pages: Pages,
    event_injection: EventInjector,
    /// Invalidations since the last sweep.
    pending_invalidations: Vec<(ProcessId, vmas::Pages)>,
    /// Whether a first-level line holds several lines of the stream's accesses.
    has_wider_lines: bool,
    /// Whether events are injected.
    injects_events: bool,
    config: SoftvmConfig,
    counts: Counts,
    /// The level that served the last line that missed the first level.
    served_by: ServedBy,
}

/// Counters beside those of caches and sweeps.
#[derive(Default)]
struct Counts {
    /// Handler events of misses.
    events: Events,
    /// Handler events of translated write-backs.
    write_backs: Events,
    /// Evicted dirty lines written to memory.
    lines_written: u64,
    /// Program accesses that missed the first level, and the second: by side.
    missed: [[u64; 2]; 2],
    /// Stores to lines without store permission.
    denied: u64,
    /// Accesses whose line was evicted from the first level before the program went on.
    restarts: u64,
    /// Cache outcomes of accesses that missed the TLB.
    table1: Table1,
}

impl<T: Translator> Softvm<T> {
    /// Serves an access that the first level did not.
    #[inline(never)]
    fn serve_l1_miss(
        &mut self,
        env: &mut Env,
        access: LineAccess,
        addr: GlobalAddr,
        mut first: L1Lookup,
    ) -> Option<FrameNumber> {
        let (side, stores, repeats) = (access.side(), access.is_store(), access.repeats());
        self.served_by = ServedBy::L2;
        let mut is_looked_up = access.is_whole();
        loop {
            let second = match first {
                L1Lookup::Hit(frame) => return Some(frame),
                L1Lookup::Denied => L2Lookup::Denied,
                L1Lookup::Miss => self.caches.look_up_l2(side, addr, stores, 0),
            };
            match second {
                L2Lookup::Hit(_) => self.counts.missed[side][0] += 1,
                L2Lookup::Denied => self.serve_denied_store(env, access, addr)?,
                L2Lookup::Miss => {
                    self.counts.missed[side][0] += 1;
                    self.counts.missed[side][1] += 1;
                    self.served_by = ServedBy::Memory;
                    self.cache_miss(env, access, addr)?;
                }
            }
            self.write_back(env);
            if second != L2Lookup::Denied {
                if !std::mem::take(&mut is_looked_up) {
                    self.counts.table1.add_without_lookup(side);
                }
                // The program goes on if the write-back handler has not evicted its line.
                if let Some(line) = self.caches.probe(side, addr) {
                    // Handlers may have used other lines of its set since.
                    if repeats > 0 {
                        self.caches.look_up_l1(side, addr, false, repeats - 1);
                    }
                    return Some(line.frame());
                }
                self.counts.restarts += 1;
            }
            first = self.caches.look_up_l1(side, addr, stores, repeats);
        }
    }

    /// CACHEMISS (section 4.1): loads the line of an access into the caches.
    fn cache_miss(&mut self, env: &mut Env, access: LineAccess, addr: GlobalAddr) -> Option<()> {
        let (side, stores) = (access.side(), access.is_store());
        let (page, frame, may_store) = self.resolve_page(env, access)?;
        let may_store = self.claim(env, page, (frame, may_store), (side, stores))?;
        let loads = self.tables.loads(env, addr, page.0, frame);
        let parts = (&mut self.caches, &self.handler, &mut self.counts.events);
        self.translator.translate_miss(parts, side, addr, loads);
        self.caches.load_and_map(side, addr, (frame, may_store), stores, 0);
        Some(())
    }

    /// Serves a store to a line without store permission.
    fn serve_denied_store(
        &mut self,
        env: &mut Env,
        access: LineAccess,
        addr: GlobalAddr,
    ) -> Option<()> {
        self.counts.denied += 1;
        let (page, frame, may_store) = self.resolve_page(env, access)?;
        self.claim(env, page, (frame, may_store), (access.side(), true))?;
        let is_lazy = self.config.kernel.increase == IncreasedRights::Lazy;
        self.pages.grant_store(&mut self.caches, addr, is_lazy);
        Some(())
    }

    /// Resolves the page of an access by the page table until it permits the access, and sweeps for the
    /// invalidations that this causes.
    fn resolve_page(
        &mut self,
        env: &mut Env,
        access: LineAccess,
    ) -> Option<((PageOf, GlobalAddr), FrameNumber, bool)> {
        let (process, page) = (env.process(), env.page(access));
        if let Some(frame) = access.is_store().then(|| env.source_of_copy(page)).flatten() {
            self.pages.write_back_frame(&mut self.caches, frame);
            self.drain_swept();
        }
        let translation = self.resolve(env, page, access)?;
        // A page fault maps and unmaps pages but changes no VMA, so that regions stay valid.
        self.sweep_invalidated(env);
        let at = self.space.of_page(env.os().memory(), process, page);
        Some((
            (PageOf { process, page }, at),
            translation.frame_of(page),
            translation.entry.is_writable(),
        ))
    }

    /// Calls [`Pages::claim`]; stops the machine if it is refused.
    fn claim(
        &mut self,
        env: &mut Env,
        page: (PageOf, GlobalAddr),
        leaf: (FrameNumber, bool),
        usage: (usize, bool),
    ) -> Option<bool> {
        let aliases = self.config.kernel.aliases;
        let claimed = self.pages.claim(&mut self.caches, page, leaf, usage, aliases);
        self.drain_swept();
        match claimed {
            Ok(may_store) => Some(may_store),
            Err(SynonymRefused) => {
                let addr = page.0.page.raw() << PageSize::BASE.log2();
                env.stop(format!(
                    "the page at {addr:#x} is mapped at another address, too, and is stored to: give \
                     softvm.kernel.aliases=sweep"
                ));
                None
            }
        }
    }

    /// Writes evicted dirty lines to memory. (Instruction lines are never dirty.)
    fn write_back(&mut self, env: &Env) {
        while let Some(line) = self.caches.next_write_back(DATA) {
            self.counts.lines_written += 1;
            if self.config.kernel.write_back == WriteBackTranslation::Again {
                let page = self.pages.user(line.at);
                let entry = Entry::new(page, line.frame, true);
                let loads = self.tables.loads(env, line.at, page, line.frame);
                let parts = (&mut self.caches, &self.handler, &mut self.counts.write_backs);
                self.translator.write_back(parts, line.at, entry, loads);
            }
        }
    }

    /// Discards the write-backs of a sweep: they need no translation, since the sweep knows the frame.
    fn drain_swept(&mut self) {
        while self.caches.next_write_back(DATA).is_some() {}
    }

    /// Counts instructions; injected events due by that count happen before the next data reference.
    #[inline(never)]
    fn count_instructions(&mut self, access: LineAccess) {
        if access.side() != DATA {
            self.event_injection.execute(access.lookups());
            return;
        }
        while let Some((event, chance)) = self.event_injection.next() {
            let Some(line) = self.pages.line_in_use(&self.caches, chance) else { continue };
            match event {
                InjectedEvent::Protection => self.pages.revoke_store(&mut self.caches, line),
                InjectedEvent::Dma => self.pages.flush(&mut self.caches, line),
            }
            self.drain_swept();
        }
    }

    /// Updates the lines of invalidated pages to the current page table.
    fn sweep_invalidated(&mut self, env: &Env) {
        if self.pending_invalidations.is_empty() {
            return;
        }
        let is_lazy = self.config.kernel.increase == IncreasedRights::Lazy;
        for (process, range) in std::mem::take(&mut self.pending_invalidations) {
            let translation = |page: PageOf| env.translation(page.process, page.page);
            self.translator.invalidate(process, &range);
            self.pages.apply_invalidations(
                &mut self.caches,
                (process, &range),
                translation,
                is_lazy,
            );
        }
        self.drain_swept();
    }

    /// Accesses the caches, after the TLB look-up if there is one.
    #[inline(always)]
    fn access_caches(
        &mut self,
        env: &mut Env,
        access: LineAccess,
        addr: GlobalAddr,
    ) -> Option<FrameNumber> {
        let side = access.side();
        if self.has_wider_lines
            && let Some(line) = rest_of_line(&mut self.caches, addr, access)
        {
            return Some(line.frame());
        }
        match self.caches.look_up_l1(side, addr, access.is_store(), access.repeats()) {
            L1Lookup::Hit(frame) => Some(frame),
            first => self.serve_l1_miss(env, access, addr, first),
        }
    }
}

/// Returns the cached line of an access that continues a reference whose first part was in the same line;
/// nothing is looked up for it.
#[inline(never)]
fn rest_of_line(caches: &mut VirtualCaches, addr: GlobalAddr, access: LineAccess) -> Option<Line> {
    let side = access.side();
    let is_rest = access.lookups() == access.repeats();
    let is_first = addr.raw() & ((1 << caches.line_log2(side)) - 1) == 0;
    if !is_rest || is_first {
        return None;
    }
    let line = caches.probe(side, addr)?;
    caches.repeat(side, access.repeats());
    Some(line)
}

impl<T: Translator> Design for Softvm<T> {
    const FILTER: Filter = if T::LOOKS_UP { Filter::Alike } else { Filter::Adjacent };
    const INTERRUPTS: bool = true;
    const TRANSLATES_LINES: bool = true;

    /// The caches come before translation: [`Softvm::access`] does both.
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        self.access(env, access)
    }

    #[inline(always)]
    fn access(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let addr = self.space.of_access(env, access);
        if self.injects_events {
            self.count_instructions(access);
        }
        if T::LOOKS_UP {
            return self.access_with_tlb(env, access, addr);
        }
        self.access_caches(env, access, addr)
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &vmas::Pages) {
        self.pending_invalidations.push((space.process, pages.clone()));
    }

    fn apply_invalidations(&mut self, env: &Env) {
        self.space.clear_regions();
        self.sweep_invalidated(env);
    }

    fn check(&self, env: &Env, access: LineAccess, frame: FrameNumber) {
        self.space.check(env, access, frame);
    }

    /// Segments distinguish processes: lines stay.
    fn flush(&mut self) {}

    fn charged(&self, _: &Env) -> Charged {
        self.charged_cycles()
    }

    fn served_by(&self, _: &Env) -> ServedBy {
        self.served_by
    }

    fn report(&self, counters: &mut Counters) {
        self.report_all(counters);
    }
}
