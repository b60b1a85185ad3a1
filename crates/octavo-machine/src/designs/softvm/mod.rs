//! Software-managed address translation (Jacob and Mudge, HPCA 1997): no TLB and no walker, but virtual
//! caches, and a handler in software for what misses the last of them.
//!
//! - An address is made global by its segment ([`space`]), and looked up in virtual caches: a first and a
//!   second level, each split. What is found there needs no translation.
//! - What both levels miss raises CACHEMISS: the [`handler`] loads the page-table entry through the same
//!   caches, and then the line, which gets the rights of the entry.
//! - A dirty line that leaves the caches is written back to memory. Where the machine keeps no translation
//!   with it, the handler translates its address again, from a buffer of such lines, before the program
//!   goes on. That may take the program's line out of the caches: then it misses once more (`restarts`).
//! - A store to a line that does not have that right asks the operating system, which may copy the page;
//!   then the line is changed, or, where protection is not lazy, all lines of the page.
//! - Whatever else changes pages sweeps the caches for their lines ([`pages`], [`sweeps`]).
//!
//! The data of a miss come from memory at a cost that every machine has; it is counted as cycles of
//! fetches and of data, as the second level's hits are. The handler's own misses, sweeps and write-backs
//! have counters of their own. Bits of the page table's entries (accessed, dirty) are set by misses and by
//! stores that ask, not by hits. A machine with several cores has caches for each, which do not see each
//! other. A switch of processes empties nothing: segments tell them apart.
//!
//! In a guest, global addresses are those of the guest's processes, and the tables that are read are the
//! host's software's: they say where pages lie in the machine's memory, as shadows of the guest's tables and of
//! the host's. Keeping them costs nothing, as all work of operating systems. What the host changes is swept for
//! as what the guest changes is, once its tables say something else of a page that has lines.

mod address_map;
mod build;
mod counters;
mod event_injection;
mod events;
mod handler;
mod pages;
mod physical;
mod space;
mod sweeps;
mod table1;
mod tables;
mod tlb;
mod tlb_access;
mod translator;

use octavo_config::{IncreasedRights, SoftvmConfig, WriteBackTranslation};
use octavo_hw::{GlobalAddr, L1Lookup, L2Lookup, Line, VirtualCaches};
use octavo_os::{ProcessId, vmas};
use octavo_types::{FrameNumber, PageSize};

use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::{Filter, LineAccess};
use event_injection::{EventInjector, InjectedEvent};
use events::Events;
use handler::Handler;
use pages::{PageOf, Pages, SynonymRefused};
pub use physical::Physical;
use space::Space;
use table1::Table1;
use tables::Tables;
use tlb::Entry;
use translator::Translator;
pub use translator::{Free, InCache, Software, Tlb};

/// The side of data.
const DATA: usize = 1;

/// Virtual caches, and what translates for them.
pub struct Softvm<T> {
    translator: T,
    caches: VirtualCaches,
    space: Space,
    handler: Handler,
    tables: Tables,
    pages: Pages,
    event_injection: EventInjector,
    /// What has become stale since the caches were swept last.
    pending_invalidations: Vec<(ProcessId, vmas::Pages)>,
    /// Whether a line of the first level holds several of those that accesses are to.
    has_wider_lines: bool,
    /// Whether anything happens at a rate.
    injects_events: bool,
    config: SoftvmConfig,
    counts: Counts,
}

/// What is counted beside the caches and the sweeps.
#[derive(Default)]
struct Counts {
    /// Of misses.
    events: Events,
    /// Of write-backs that are translated.
    write_backs: Events,
    /// Lines written to memory that gave way in the caches.
    lines_written: u64,
    /// Accesses of programs that missed the first level, and the second: by side.
    missed: [[u64; 2]; 2],
    /// Stores that a line did not allow.
    denied: u64,
    /// Accesses whose line had left the first level again before the program went on.
    restarts: u64,
    /// What an access found at each level whose page the TLB had not.
    table1: Table1,
}

impl<T: Translator> Softvm<T> {
    /// The first level does not serve an access.
    #[inline(never)]
    fn beyond_first(
        &mut self,
        env: &mut Env,
        access: LineAccess,
        addr: GlobalAddr,
        mut first: L1Lookup,
    ) -> Option<FrameNumber> {
        let (side, stores, repeats) = (access.side(), access.is_store(), access.repeats());
        loop {
            let second = match first {
                L1Lookup::Hit(frame) => return Some(frame),
                L1Lookup::Denied => L2Lookup::Denied,
                L1Lookup::Miss => self.caches.second(side, addr, stores, 0),
            };
            match second {
                L2Lookup::Hit(_) => self.counts.missed[side][0] += 1,
                L2Lookup::Denied => self.denied(env, access, addr)?,
                L2Lookup::Miss => {
                    self.counts.missed[side][0] += 1;
                    self.counts.missed[side][1] += 1;
                    self.cache_miss(env, access, addr)?;
                }
            }
            self.write_back(env);
            if second != L2Lookup::Denied {
                // The program goes on, where the handler of write-backs has left its line.
                if let Some(line) = self.caches.probe(side, addr) {
                    // Handlers may have used other lines of its set since.
                    if repeats > 0 {
                        self.caches.first(side, addr, false, repeats - 1);
                    }
                    return Some(line.frame());
                }
                self.counts.restarts += 1;
            }
            first = self.caches.first(side, addr, stores, repeats);
        }
    }

    /// CACHEMISS (section 4.1): the line of an access comes into the caches.
    fn cache_miss(&mut self, env: &mut Env, access: LineAccess, addr: GlobalAddr) -> Option<()> {
        let (side, stores) = (access.side(), access.is_store());
        let (page, frame, may_store) = self.resolve_page(env, access)?;
        let may_store = self.claim(env, page, (frame, may_store), (side, stores))?;
        let loads = self.tables.loads(env, addr, page.0, frame);
        let parts = (&mut self.caches, &self.handler, &mut self.counts.events);
        self.translator.missed(parts, side, addr, loads);
        self.caches.load_and_map(side, addr, (frame, may_store), stores, 0);
        Some(())
    }

    /// A store to a line without that right.
    fn denied(&mut self, env: &mut Env, access: LineAccess, addr: GlobalAddr) -> Option<()> {
        self.counts.denied += 1;
        let (page, frame, may_store) = self.resolve_page(env, access)?;
        self.claim(env, page, (frame, may_store), (access.side(), true))?;
        let is_lazy = self.config.kernel.increase == IncreasedRights::Lazy;
        self.pages.grant_store(&mut self.caches, addr, is_lazy);
        Some(())
    }

    /// The page of an access as the page table has it, once it may be used so; what becomes stale by that
    /// is swept.
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
        // A fault maps and unmaps pages, and changes no mapping: regions are what they were.
        self.sweep_invalidated(env);
        let at = self.space.of_page(env.os().memory(), process, page);
        Some((
            (PageOf { process, page }, at),
            translation.frame_of(page),
            translation.entry.is_writable(),
        ))
    }

    /// As [`Pages::claim`]; where that is refused, the machine stops.
    fn claim(
        &mut self,
        env: &mut Env,
        page: (PageOf, GlobalAddr),
        leaf: (FrameNumber, bool),
        how: (usize, bool),
    ) -> Option<bool> {
        let aliases = self.config.kernel.aliases;
        let claimed = self.pages.claim(&mut self.caches, page, leaf, how, aliases);
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

    /// Dirty lines that gave way go to memory. (Instructions are never dirty.)
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

    /// What a sweep writes back needs no translation: whoever sweeps for a page knows where it lies.
    fn drain_swept(&mut self) {
        while self.caches.next_write_back(DATA).is_some() {}
    }

    /// Instructions are executed; what is due by their number happens before the next reference of data.
    #[inline(never)]
    fn count_instructions(&mut self, access: LineAccess) {
        if access.side() != DATA {
            self.event_injection.execute(access.lookups());
            return;
        }
        while let Some((what, chance)) = self.event_injection.next() {
            let Some(line) = self.pages.line_in_use(&self.caches, chance) else { continue };
            match what {
                InjectedEvent::Protection => self.pages.revoke_store(&mut self.caches, line),
                InjectedEvent::Dma => self.pages.flush(&mut self.caches, line),
            }
            self.drain_swept();
        }
    }

    /// The lines of pages that have changed are made what the page table says now.
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

    /// An access whose page needs no look-up, or has had it.
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
        match self.caches.first(side, addr, access.is_store(), access.repeats()) {
            L1Lookup::Hit(frame) => Some(frame),
            first => self.beyond_first(env, access, addr, first),
        }
    }
}

/// The line of an access that is the rest of a reference whose first part was in the same one: nothing
/// is looked up for it.
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

    /// Nothing is translated before the caches are asked: [`Softvm::access`] does it all.
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

    fn invalidate(&mut self, of: AddressSpace, pages: &vmas::Pages) {
        self.pending_invalidations.push((of.process, pages.clone()));
    }

    fn apply_invalidations(&mut self, env: &Env) {
        self.space.clear_regions();
        self.sweep_invalidated(env);
    }

    fn check(&self, env: &Env, access: LineAccess, frame: FrameNumber) {
        self.space.check(env, access, frame);
    }

    /// Segments tell processes apart: lines stay.
    fn flush(&mut self) {}

    fn report(&self, counters: &mut Counters) {
        self.report_all(counters);
    }
}
