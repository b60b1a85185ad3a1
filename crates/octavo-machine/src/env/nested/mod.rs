//! Programs in the guest of a virtual machine (Park et al., ISCA 2020, sections V and VII-E): two-dimensional
//! page walks.
//!
//! - The guest has an operating system with guest-physical memory. The host has another one, whose only
//!   process is the virtual machine: its page table translates guest-physical pages, which have the numbers
//!   of the guest's frames.
//! - Each entry of the guest's table that a walk reads lies at a guest-physical address, which is translated
//!   by the *nested TLB* or by a walk of the host's table with walk caches of its own. The requested page is
//!   translated last in the same way. With four levels each and nothing cached, a walk reads (4 + 1) × (4 +
//!   1) - 1 = 24 entries.
//! - The guest's walk caches hold guest-physical addresses of page-table nodes.
//! - Both tables have accessed and dirty bits. An access to the guest's table counts as a store to
//!   guest-physical memory, since it may set such bits (as in the manuals of Intel and AMD).
//! - TLBs hold the translation from the guest's page to the host's frame, at the smaller of both page sizes,
//!   with permissions that both tables allow, and dirty if both pages are. A guest page larger than the host
//!   page that backs it is *splintered*. If the machine [is configured so](octavo_config::TlbsHold), the TLB
//!   holds the guest's half of a splintered translation, and each reference looks up the nested TLB for the
//!   host's half.
//! - Where a design has composite pages and the guest's page or the host page that backs it is one, and neither is
//!   smaller than 2 MiB, TLBs hold a composite page of both, as the design composes them
//!   ([`CompositePages`](super::CompositePages)). The nested TLB holds composite pages of the host, and base pages that
//!   more than such an entry was needed to find. While the base page of a composite guest page is undecided, the walk
//!   only inspects the host page behind it and does not have the host map one, since the base page may be elsewhere.
//! - A change of the host's table causes an INVEPT on all cores: nested TLBs, the host's walk caches and all
//!   TLBs are flushed, since the affected guest-virtual pages are unknown. The guest's walk caches stay. (If
//!   the first line of a two-line reference causes it through the host's half of its translation, the second
//!   line is translated again.)
//!
//! Hardware may find entries of guest tables, such as sorted nodes, by their distance from the first table of a run.
//! The guest then asks the host to back the run with contiguous frames when it reserves the run
//! ([`Host::back_contiguously`]). Hardware knows where such runs begin in the host's memory, at no cost in cycles:
//! neither a prefetch of an entry nor a read with [`probe_in_run`](super::WalkPlan::probe_in_run) needs a walk of the
//! host's table. If the host moves the frames, reads walk its table again. An entry elsewhere can be prefetched if the
//! host's placement lets hardware [assume](octavo_os::Placement::assumed_frame) the frame.
//!
//! Host page faults (EPT violations) are counted and cost the walks that end in them. Like all work of operating
//! systems, the exit to the host itself costs no cycles. The guest's operating system touches no memory on its own: the
//! host allocates a page when a walk or a program first uses it.

mod host;
mod tables;

use octavo_hw::Caches;
use octavo_os::Invalidation;
use octavo_os::frames::OutOfMemory;
use octavo_os::page_table::Walk;
use octavo_types::{Access, FrameNumber, PageNumber, PageSize, PhysAddr};

pub(crate) use host::guest_page;
use host::{Backing, GuestAccess};
pub use host::{Host, Port};

use super::Env;
use super::walk::{WalkedPage, read_entry};
use super::walker::WalkReads;
use crate::front::LineAccess;
use crate::tlb::{TlbEntry, Translation};

/// Added to guest frame numbers in TLB entries, above all host frames: marks guest halves of translations.
const GUEST_FRAMES: u64 = 1 << 40;

/// Whether a translation is a guest half, which ends in a guest frame.
fn is_guest_half(translation: &Translation) -> bool {
    translation.entry.frame().raw() >= GUEST_FRAMES
}

/// Reads of the guest's table, each after a translation by the host.
struct GuestReads<'e> {
    env: &'e mut Env,
    /// The host-physical address of the page's entry, once it is read.
    entry: Option<PhysAddr>,
}

impl WalkReads for GuestReads<'_> {
    #[inline(always)]
    fn read(&mut self, at: PhysAddr, is_entry: bool) -> Option<(u32, PhysAddr)> {
        let mut latency_cycles = 0;
        let place = self.env.read_guest_entry(at, &mut latency_cycles)?;
        self.entry = if is_entry { Some(place) } else { self.entry };
        Some((latency_cycles, place))
    }

    fn read_in_run(&mut self, at: PhysAddr, is_entry: bool) -> Option<(u32, PhysAddr)> {
        let host = self.env.host();
        let is_still_there =
            |place: &PhysAddr| host.backing_frame(guest_page(at.frame())) == Some(place.frame());
        let Some(place) = host.place_in_run(at).filter(is_still_there) else {
            return self.read(at, is_entry);
        };
        self.entry = if is_entry { Some(place) } else { self.entry };
        Some((self.env.read_entry(place), place))
    }

    fn prefetch(&mut self, at: PhysAddr, assumes_frames: bool) -> Option<(u32, PhysAddr)> {
        let Env { host, walker, caches, lines, .. } = &mut *self.env;
        let host = host.as_ref().expect("a guest has a host");
        let assumed = || host.assumed_place(at).filter(|_| assumes_frames);
        let place = host.place_in_run(at).or_else(assumed)?;
        Some((walker.prefetch(caches, *lines, place), place))
    }

    fn use_prefetch(&mut self) {
        self.env.walker.prefetches_used += 1;
    }
}

impl Env {
    /// [`Env::walk`] in a guest.
    pub(super) fn walk_nested(&mut self, page: PageNumber, kind: Access) -> Option<Translation> {
        let mut latency_cycles = 0;
        loop {
            let walk = self.table_walk(page);
            let at = self.read_nested(&walk, page, &mut latency_cycles)?;
            let composite = self.composite.filter(|_| walk.is_composite);
            if let Some(hardware) = composite.filter(|hardware| hardware.ends_walks())
                && let Some(own) = hardware.entry(self.table(), page)
                && hardware.is_undecided(&own, page)
            {
                let translation = self.compose_undecided(page, own, kind, &mut latency_cycles)?;
                self.charge_walk(latency_cycles);
                return Some(translation);
            }
            if let Some(at) = at
                && let Some(WalkedPage { translation, is_marked }) =
                    self.finish_walk(&walk, page, kind)
            {
                let Env { walker, caches, lines, .. } = self;
                latency_cycles += walker.write_if(is_marked, caches, *lines, at);
                let own = composite.and_then(|hardware| hardware.entry(self.table(), page));
                let own = own.unwrap_or(translation);
                let (frame, stores) = (translation.frame_of(page), kind == Access::Store);
                let (backing, cost) = match own.size >= PageSize::HUGE {
                    true => self.backing_entry(frame, GuestAccess { stores, is_certain: true })?,
                    false => {
                        let (backing, cost) = self.backing(frame, stores, 1)?;
                        (Backing::Page(backing), cost)
                    }
                };
                latency_cycles += cost;
                self.charge_walk(latency_cycles);
                let translation = self.compose_for_tlb(page, own, backing);
                return Some(translation);
            }
            self.fault_in_walk(page, kind)?;
        }
    }

    /// Reads the entries of a walk of the guest's table. Returns the host-physical address of the page's
    /// entry, if the walk has found one, or `None` when memory has run out.
    pub(crate) fn read_nested(
        &mut self,
        walk: &Walk,
        page: PageNumber,
        latency_cycles: &mut u32,
    ) -> Option<Option<PhysAddr>> {
        *latency_cycles += self.walk_overhead_cycles;
        self.walker.walks += 1;
        let planned = self.plan_walk(walk, page);
        let mut reads = GuestReads { env: self, entry: None };
        let walked = planned.execute(walk, &mut reads);
        let entry = reads.entry;
        self.page_walker.reuse(planned);
        *latency_cycles += walked?;
        Some(entry)
    }

    /// Reads an entry of the guest's table. Returns its host-physical address.
    pub(crate) fn read_guest_entry(
        &mut self,
        entry: PhysAddr,
        latency_cycles: &mut u32,
    ) -> Option<PhysAddr> {
        let frame = entry.frame();
        let (backing, cost) = self.backing(frame, true, 1)?;
        let start = backing.frame_of(guest_page(frame)).start().raw();
        let at = PhysAddr::new(start + (entry.raw() - frame.start().raw()));
        *latency_cycles += cost;
        *latency_cycles += read_entry(&mut self.caches, self.lines, at, &mut self.walker);
        Some(at)
    }

    /// The part of [`Env::resolve`] after the guest's table: composes a guest translation with the host's.
    pub(super) fn resolve_nested(
        &mut self,
        page: PageNumber,
        translation: Translation,
        kind: Access,
    ) -> Option<Translation> {
        let (frame, stores) = (guest_page(translation.frame_of(page)), kind == Access::Store);
        let backing = self.with_host(|host, _| host.resolve(frame, stores))?;
        Some(self.compose(page, translation, backing))
    }

    /// Translates a guest frame for `references` references. Returns the host's translation and its latency
    /// in cycles.
    pub(crate) fn backing(
        &mut self,
        frame: FrameNumber,
        stores: bool,
        references: u32,
    ) -> Option<(Translation, u32)> {
        self.with_host_port(|host, port| {
            host.translate(guest_page(frame), stores, references, port)
        })
    }

    /// The TLB entry for a guest page and the host page that backs it.
    fn compose_for_tlb(
        &mut self,
        page: PageNumber,
        guest: Translation,
        backing: Backing,
    ) -> Translation {
        let (Backing::Page(backing) | Backing::Composite(backing)) = backing else {
            return self.guest_half(guest);
        };
        if guest.size > backing.size
            && let Some(half) = self.splinter(guest)
        {
            return half;
        }
        self.compose(page, guest, backing)
    }

    /// Translates a guest frame like `backing`, except that for a composite host page it returns the page's
    /// entry.
    fn backing_entry(&mut self, frame: FrameNumber, usage: GuestAccess) -> Option<(Backing, u32)> {
        self.with_host_port(|host, port| host.backing_entry(guest_page(frame), usage, port))
    }

    /// The host frame of the page of an access; for a guest half, the nested TLB or a walk supplies the
    /// host's half. `None` when memory has run out.
    pub(super) fn host_half(
        &mut self,
        access: LineAccess,
        frame: FrameNumber,
    ) -> Option<FrameNumber> {
        let Some(frame) = frame.raw().checked_sub(GUEST_FRAMES).map(FrameNumber::new) else {
            return Some(frame);
        };
        let before = self.host.as_ref().expect("a guest has a host").walker;
        let (backing, cost) = self.backing(frame, access.is_store(), access.lookups())?;
        let host = self.host.as_mut().expect("a guest has a host");
        let tlb = host.cores[self.core].tlb.as_ref().expect("halves need a nested TLB");
        let hit_cycles = u64::from(tlb.hit_latency_cycles());
        if before.walks == host.walker.walks {
            self.cycles.tlb_nested += hit_cycles * u64::from(access.lookups());
            let bitmap_cycles = cost - tlb.hit_latency_cycles();
            if bitmap_cycles > 0 {
                self.charge_walk(bitmap_cycles);
            }
        } else {
            host.lone_walks += 1;
            host.lone_walks_dirty += host.walker.walks_dirty - before.walks_dirty;
            self.charge_walk(cost);
            // Repeats hit the nested TLB.
            self.cycles.tlb_nested += hit_cycles * u64::from(access.repeats());
            self.core_is_current = self.pending_invalidations.is_empty();
        }
        Some(backing.frame_of(guest_page(frame)))
    }

    /// As [`Env::with_host`], with the memory port of the running core's walker.
    pub(crate) fn with_host_port<T>(
        &mut self,
        work: impl FnOnce(&mut Host, &mut Port<'_>) -> Result<T, OutOfMemory>,
    ) -> Option<T> {
        let (core, lines) = (self.core, self.lines);
        self.with_host(|host, caches| work(host, &mut Port { core, caches, lines }))
    }

    /// Composes a composite guest page, whose entry does not decide the base page, with the host page behind it.
    fn compose_undecided(
        &mut self,
        page: PageNumber,
        own: Translation,
        kind: Access,
        latency_cycles: &mut u32,
    ) -> Option<Translation> {
        let frame = self.plain(&own).frame_of(page);
        let usage = GuestAccess { stores: kind == Access::Store, is_certain: false };
        let (backing, cost) = self.backing_entry(frame, usage)?;
        *latency_cycles += cost;
        Some(match backing {
            Backing::Page(translation) | Backing::Composite(translation)
                if translation.size >= PageSize::HUGE =>
            {
                self.compose(page, own, translation)
            }
            _ => self.guest_half(own),
        })
    }

    /// Counts a guest page that is larger than the host page that backs it. Returns the guest half of its translation,
    /// if TLBs hold guest halves.
    pub(crate) fn splinter(&mut self, guest: Translation) -> Option<Translation> {
        self.host.as_mut().expect("a guest has a host").splintered += 1;
        self.caches_halves.then(|| self.guest_half(guest))
    }

    /// Whether TLBs cache a composite page that a walk has found: not if it is splintered, unless they hold guest
    /// halves.
    pub(crate) fn is_cached(&self, translation: &Translation) -> bool {
        self.caches_halves || !is_guest_half(translation)
    }

    /// Writes an entry of the guest's table, which a walk has read, if its accessed or dirty bit was set.
    pub(crate) fn write_guest_entry_if(&mut self, is_marked: bool, entry: PhysAddr) {
        let frame = entry.frame();
        let backing = self.host().backing_frame(guest_page(frame));
        let start = backing.expect("the walk has read it").start().raw();
        self.write_if(is_marked, PhysAddr::new(start + (entry.raw() - frame.start().raw())));
    }

    fn plain(&self, translation: &Translation) -> Translation {
        self.composite.map_or(*translation, |hardware| hardware.plain(translation))
    }

    /// The guest half of a translation, which ends in a guest frame.
    pub(crate) fn guest_half(&self, guest: Translation) -> Translation {
        let Translation { size, entry } = self.plain(&guest);
        let frame = entry.frame().plus(GUEST_FRAMES);
        let entry = TlbEntry::new(frame, size, entry.is_writable(), entry.is_dirty());
        self.as_composite(Translation { size, entry }, &guest, &guest)
    }

    /// Composes a guest page with the host page that backs it: the smaller size, with permissions that both allow. At
    /// 2 MiB, the result is a composite page if either is one.
    pub(crate) fn compose(
        &self,
        page: PageNumber,
        guest: Translation,
        backing: Translation,
    ) -> Translation {
        let (own, host) = (self.plain(&guest), self.plain(&backing));
        let size = own.size.min(host.size);
        let first = own.part(page, size).entry.frame();
        let frame = host.frame_of(guest_page(first));
        let is_writable = own.entry.is_writable() && host.entry.is_writable();
        let is_dirty = own.entry.is_dirty() && host.entry.is_dirty();
        let entry = TlbEntry::new(frame, size, is_writable, is_dirty);
        self.as_composite(Translation { size, entry }, &guest, &backing)
    }

    /// A page composed of a guest and a host page, as a composite page if either is one.
    fn as_composite(
        &self,
        page: Translation,
        guest: &Translation,
        backing: &Translation,
    ) -> Translation {
        match self.composite.filter(|_| page.size == PageSize::HUGE) {
            Some(hardware) => hardware.compose(page, guest, backing),
            None => page,
        }
    }

    /// Runs `work` on the host and delivers the INVEPTs that it causes. `None` when memory has run out.
    pub(super) fn with_host<T>(
        &mut self,
        work: impl FnOnce(&mut Host, &mut Caches) -> Result<T, OutOfMemory>,
    ) -> Option<T> {
        let host = self.host.as_mut().expect("a guest has a host");
        let done = work(host, &mut self.caches);
        let changes = host.take_undelivered();
        if changes > 0 {
            self.invalidate_all(changes);
        }
        done.map_err(|error| self.stop_for_host(error)).ok()
    }

    /// Stops the machine because host memory has run out.
    pub(super) fn stop_for_host(&mut self, error: OutOfMemory) {
        self.stop(format!("the host: {error}"));
    }

    /// Queues `changes` INVEPTs: an invalidation of all translations of all processes.
    fn invalidate_all(&mut self, changes: u64) {
        let others = self.holders.values().flatten().filter(|core| **core != self.core);
        let others = others.collect::<rustc_hash::FxHashSet<_>>().len() as u64;
        self.host.as_mut().expect("a guest has a host").interrupted += changes * others;
        let all =
            self.os.memory().live().map(|process| Invalidation { process, pages: 0..u64::MAX });
        self.pending_invalidations.extend(all);
        self.clear_translation_lines();
    }

    /// Has the host back runs of guest tables with contiguous frames: the first guest frame of each, and its length.
    pub(super) fn back_contiguous_tables(&mut self, runs: Vec<(FrameNumber, u64)>) {
        for (start, frames) in runs {
            self.with_host(|host, _| {
                host.back_contiguously(start, frames);
                Ok(())
            });
        }
    }

    /// Runs the background work of the operating systems; `instructions` is the number executed so far.
    pub(crate) fn background(&mut self, instructions: u64) {
        let chooses_anchors = self.os.memory().chooses_anchor_distances(instructions);
        let host = self.host.as_ref().filter(|_| chooses_anchors);
        let backing = host.and_then(|host| host.table().ranges().cloned());
        self.with_os(|os| {
            if let Some(backing) = backing {
                os.memory_mut().set_anchor_backing(backing);
            }
            os.background(instructions);
            Ok(())
        });
        if self.host.is_some() {
            self.with_host(|host, _| {
                host.background(instructions);
                Ok(())
            });
        }
    }
}
