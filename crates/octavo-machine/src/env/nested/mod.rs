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
//! - If the guest's page or the host page that backs it is perforated, and neither is smaller than 2 MiB,
//!   TLBs hold a perforated page composed of both: [`perforated`].
//! - Only host pages may have gaps (section VII-D), since faulty frames belong to the machine's memory. For 2
//!   MiB of the guest backed by a gapped page, TLBs hold a gapped page in the host's chunk. A base page of
//!   the guest backed by a gapped page stays a base page; so do the nodes of the guest's page table. The
//!   host's walker reads the bitmap of the chunk for such a page when the nested TLB holds the gapped page
//!   but not the base page, and then fills the base page. As for perforated pages, a guest page of 2 MiB
//!   mapped there later is splintered while the nested TLB holds that base page.
//! - A change of the host's table causes an INVEPT on all cores: nested TLBs, the host's walk caches and all
//!   TLBs are flushed, since the affected guest-virtual pages are unknown. The guest's walk caches stay. (If
//!   the first line of a two-line reference causes it through the host's half of its translation, the second
//!   line is translated again.)
//!
//! Host page faults (EPT violations) are counted and cost the walks that end in them. As all work of
//! operating systems, the exit to the host itself costs no cycles. The guest's operating system touches no
//! memory on its own: the host allocates a page when a walk or a program first uses it.

mod host;
mod perforated;
mod tables;

use octavo_hw::Caches;
use octavo_os::Invalidation;
use octavo_os::frames::OutOfMemory;
use octavo_os::page_table::Walk;
use octavo_types::{Access, FrameNumber, PageNumber, PageSize, PhysAddr};

pub(crate) use host::Host;
use host::{Backing, GuestAccess, Port, guest_page};

use super::Env;
use super::walk::{WalkedPage, read_entry};
use crate::front::LineAccess;
use crate::tlb::{TlbEntry, Translation};

/// Added to guest frame numbers in TLB entries, above all host frames: marks guest halves of translations.
const GUEST_FRAMES: u64 = 1 << 40;

/// Whether a translation is a guest half, which ends in a guest frame.
fn is_guest_half(translation: &Translation) -> bool {
    translation.entry.frame().raw() >= GUEST_FRAMES
}

impl Env {
    /// [`Env::walk`] in a guest.
    pub(super) fn walk_nested(&mut self, page: PageNumber, kind: Access) -> Option<Translation> {
        let mut latency_cycles = 0;
        loop {
            let walk = self.table_walk(page);
            let at = self.read_nested(&walk, page, &mut latency_cycles)?;
            let perforated = walk.is_perforated.then(|| self.perforated(page)).flatten();
            let perforated = perforated.map(|of| Translation::perforated(&of, of.used.1));
            if let Some(own) = perforated.filter(|own| own.may_be_hole(page)) {
                let translation =
                    self.compose_possible_hole(page, own, kind, &mut latency_cycles)?;
                self.charge_walk(latency_cycles);
                return Some(translation);
            }
            if let Some(at) = at
                && let Some(WalkedPage { translation, is_marked }) =
                    self.finish_walk(&walk, page, kind)
            {
                let Env { walker, caches, lines, .. } = self;
                latency_cycles += walker.write_if(is_marked, caches, *lines, at);
                let own = match perforated {
                    Some(own) if translation.entry.is_dirty() => own.with_dirty(),
                    Some(own) => own,
                    None => translation,
                };
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
            self.walker.faulted += 1;
            self.fault(page, kind)?;
        }
    }

    /// Reads the entries of a walk of the guest's table. Returns the host-physical address of the page's
    /// entry, if the walk has found one, or `None` when memory has run out.
    fn read_nested(
        &mut self,
        walk: &Walk,
        page: PageNumber,
        latency_cycles: &mut u32,
    ) -> Option<Option<PhysAddr>> {
        *latency_cycles += self.walk_overhead_cycles;
        self.walker.walks += 1;
        let mut entry = None;
        let planned = self.plan_walk(walk, page);
        let walked = planned.execute(walk, |at, is_entry| {
            let mut cost = 0;
            let place = self.read_guest_entry(at, &mut cost)?;
            entry = if is_entry { Some(place) } else { entry };
            Some(cost)
        });
        self.page_walker.reuse(planned);
        *latency_cycles += walked?;
        Some(entry)
    }

    /// Reads an entry of the guest's table. Returns its host-physical address.
    fn read_guest_entry(&mut self, entry: PhysAddr, latency_cycles: &mut u32) -> Option<PhysAddr> {
        let frame = entry.frame();
        let (backing, cost) = self.backing(frame, true, 1)?;
        let start = backing.frame_of(guest_page(frame)).start().raw();
        let at = PhysAddr::new(start + (entry.raw() - frame.start().raw()));
        *latency_cycles += cost;
        *latency_cycles += read_entry(&mut self.caches, self.lines, at, &mut self.walker);
        Some(at)
    }

    /// The part of [`Env::resolve`] behind the guest's table: composes a guest translation with the host's.
    pub(super) fn resolve_nested(
        &mut self,
        page: PageNumber,
        translation: Translation,
        kind: Access,
    ) -> Option<Translation> {
        let (frame, stores) = (guest_page(translation.frame_of(page)), kind == Access::Store);
        let backing = self.with_host(|host, _| host.resolve(frame, stores))?;
        Some(compose(page, translation, backing))
    }

    /// Translates a guest frame for `references` references. Returns the host's translation and its latency
    /// in cycles.
    fn backing(
        &mut self,
        frame: FrameNumber,
        stores: bool,
        references: u32,
    ) -> Option<(Translation, u32)> {
        let (core, lines) = (self.core, self.lines);
        self.with_host(|host, caches| {
            let mut port = Port { core, caches, lines };
            host.translate(guest_page(frame), stores, references, &mut port)
        })
    }

    /// The TLB entry for a guest page and the host page that backs it.
    fn compose_for_tlb(
        &mut self,
        page: PageNumber,
        guest: Translation,
        backing: Backing,
    ) -> Translation {
        let host = self.host.as_mut().expect("a guest has a host");
        let (Backing::Page(backing) | Backing::Composite(backing)) = backing else {
            return guest_half(guest);
        };
        if guest.size > backing.size {
            host.splintered += 1;
            if host.caches_halves() {
                return guest_half(guest);
            }
        }
        compose(page, guest, backing)
    }

    /// Translates a guest frame like `backing`, except that for a composite host page it returns the page's
    /// entry.
    fn backing_entry(&mut self, frame: FrameNumber, usage: GuestAccess) -> Option<(Backing, u32)> {
        let (core, lines) = (self.core, self.lines);
        self.with_host(|host, caches| {
            host.backing_entry(guest_page(frame), usage, &mut Port { core, caches, lines })
        })
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
            let of_bitmap = cost - tlb.hit_latency_cycles();
            if of_bitmap > 0 {
                self.charge_walk(of_bitmap);
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

    /// Runs `work` on the host and delivers the INVEPTs that it causes. `None` when memory has run out.
    fn with_host<T>(
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
    }

    /// Runs the background work of the operating systems; `instructions` is the number executed so far.
    pub(crate) fn background(&mut self, instructions: u64) {
        self.with_os(|os| {
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

/// The guest half of a translation, which ends in a guest frame.
fn guest_half(guest: Translation) -> Translation {
    let Translation { size, entry } = guest.region();
    let frame = entry.frame().plus(GUEST_FRAMES);
    let entry = TlbEntry::new(frame, size, entry.is_writable(), entry.is_dirty());
    let guest_half = Translation { size, entry };
    if guest.is_perforated() { guest_half.as_perforated(guest.filter()) } else { guest_half }
}

/// Composes a guest page with the host page that backs it: the smaller size, with permissions that both
/// allow. At 2 MiB, the result is perforated, with the holes of both, if either page is; it is gapped, in the
/// host's chunk, if the host's page is.
fn compose(page: PageNumber, guest: Translation, backing: Translation) -> Translation {
    let (own, host) = (guest.region(), backing.region());
    let size = own.size.min(host.size);
    let first = own.part(page, size).entry.frame();
    let frame = host.frame_of(guest_page(first));
    let is_writable = own.entry.is_writable() && host.entry.is_writable();
    let is_dirty = own.entry.is_dirty() && host.entry.is_dirty();
    let translation =
        Translation { size, entry: TlbEntry::new(frame, size, is_writable, is_dirty) };
    let is_perforated = guest.is_perforated() || backing.is_perforated();
    match size == PageSize::HUGE {
        true if is_perforated => translation.as_perforated(guest.filter() | backing.filter()),
        true if backing.is_gapped() => translation.as_gapped(),
        _ => translation,
    }
}
