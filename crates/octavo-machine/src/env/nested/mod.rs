//! Programs in the guest of a virtual machine (Perforated Page, sections V and VII-E): walks in two
//! dimensions.
//!
//! - The guest has an operating system with guest-physical memory. The host has another one, whose one
//!   process is the virtual machine: its page table translates guest-physical pages, which are numbered
//!   as the guest's frames.
//! - Each entry of the guest's table that a walk reads lies at a guest-physical address. It is
//!   translated by the *nested TLB*, or else by a walk of the host's table with walk caches of its own; and
//!   so is, at last, the page that was asked for. With four levels each and nothing cached that is
//!   (4 + 1) × (4 + 1) - 1 = 24 references.
//! - The guest's walk caches hold guest-physical addresses of its nodes.
//! - Both tables have accessed and dirty bits. An access of the guest's table counts as a store to
//!   guest-physical memory, since it may set such bits (so in the manuals of Intel and AMD).
//! - What TLBs hold is the translation to the host's frame, of the smaller page of the two; with rights
//!   that both allow, dirty if both are. A page of the guest that is larger than the host's behind it is
//!   *splintered*; if the machine [says so](octavo_config::TlbsHold) the TLB holds the guest's half of
//!   it, and each reference looks up the nested TLB for the other.
//! - Where the guest's page is perforated, or the host's behind it, and neither has less than 2 MiB there,
//!   what TLBs hold is a perforated page of both: [`perforated`].
//! - Only the host's pages may have gaps (section VII-D), since faults of memory are the machine's. What TLBs
//!   hold of 2 MiB of the guest behind which the host has such a page is a page with gaps, in the host's chunk,
//!   whose bitmap tells its parts. A base page of the guest behind which there is one is a base page: so are
//!   the nodes of the guest's page table. The host's walker reads the bitmap for it, whenever the nested TLB
//!   has the page with gaps and not the base page, which it has from then on. (As for perforated pages: while
//!   it has one, a page of 2 MiB of the guest's that has come to lie there is splintered for it.)
//! - Whatever changes a translation of the host's table ends in an INVEPT on all cores: nested TLBs, the
//!   host's walk caches and all TLBs are emptied, since nobody knows which guest-virtual pages lie in
//!   what has changed. The guest's walk caches stay. (A reference of two lines whose first one has done so
//!   by the other half of its translation is translated again.)
//!
//! Faults of the host (EPT violations) are counted, and cost what the walks cost that end in them: as all
//! work of operating systems, the exit to the host costs no cycles. The guest's operating system touches
//! no memory of its own accord: the host gives a page when a walk or a program first needs it.

mod host;
mod perforated;
mod tables;

use octavo_hw::Caches;
use octavo_os::Invalidation;
use octavo_os::frames::OutOfMemory;
use octavo_os::page_table::Walk;
use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr};

pub(crate) use host::Host;
use host::{Backing, GuestAccess, Port, guest_page};

use super::Env;
use super::walk::{Found, read_entry, to_read};
use crate::front::{Kind, LineAccess};
use crate::tlb::{TlbEntry, Translation};

/// A frame of the guest in a TLB's entry stands above all frames of the host: there the half of a
/// translation ends.
const GUEST_FRAMES: u64 = 1 << 40;

/// Whether TLBs keep the half of a translation that ends in a frame of the guest.
fn is_half(translation: &Translation) -> bool {
    translation.entry.frame().raw() >= GUEST_FRAMES
}

impl Env {
    /// [`Env::walk`] in a guest.
    pub(super) fn walk_nested(&mut self, page: PageNumber, kind: Kind) -> Option<Translation> {
        let mut latency_cycles = 0;
        loop {
            let walk = self.table_walk(page);
            let at = self.read_nested(&walk, page, &mut latency_cycles)?;
            let perforated = walk.is_perforated.then(|| self.perforated(page)).flatten();
            let perforated = perforated.map(|of| Translation::perforated(&of, of.used.1));
            if let Some(own) = perforated.filter(|own| own.may_be_hole(page)) {
                let translation =
                    self.compose_possible_hole(page, own, kind, &mut latency_cycles)?;
                self.add_walk_cycles(latency_cycles);
                return Some(translation);
            }
            if let Some(Found { translation, is_marked }) = self.found(&walk, page, kind) {
                let Env { walker, caches, lines, .. } = self;
                latency_cycles += walker.write_if(is_marked, caches, *lines, at);
                let own = match perforated {
                    Some(own) if translation.entry.is_dirty() => own.dirtied(),
                    Some(own) => own,
                    None => translation,
                };
                let (frame, stores) = (translation.frame_of(page), kind == Kind::Store);
                let (backing, cost) = match own.size >= PageSize::HUGE {
                    true => self.backing_entry(frame, GuestAccess { stores, is_certain: true })?,
                    false => {
                        let (backing, cost) = self.backing(frame, stores, 1)?;
                        (Backing::Page(backing), cost)
                    }
                };
                latency_cycles += cost;
                self.add_walk_cycles(latency_cycles);
                let translation = self.compose_for_tlb(page, own, backing);
                return Some(translation);
            }
            self.walker.faulted += 1;
            self.fault(page, kind)?;
        }
    }

    /// Reads what a walk of the guest's table reads; returns where in the host's memory the last entry
    /// lies.
    fn read_nested(
        &mut self,
        walk: &Walk,
        page: PageNumber,
        latency_cycles: &mut u32,
    ) -> Option<PhysAddr> {
        *latency_cycles += self.walk_overhead_cycles;
        self.walker.walks += 1;
        let (asid, addr, known) = self.known_of(page);
        let mut last = None;
        for (step, leads_on) in to_read(walk, known) {
            last = Some(self.read_guest_entry(step.at, latency_cycles)?);
            if leads_on {
                self.walk_caches.fill(asid, addr, step.level, ());
            }
        }
        Some(last.expect("a walk reads an entry"))
    }

    /// Reads an entry of the guest's table; returns where in the host's memory it lies.
    fn read_guest_entry(&mut self, entry: PhysAddr, latency_cycles: &mut u32) -> Option<PhysAddr> {
        let frame = entry.frame();
        let (backing, cost) = self.backing(frame, true, 1)?;
        let start = backing.frame_of(guest_page(frame)).start().raw();
        let at = PhysAddr::new(start + (entry.raw() - frame.start().raw()));
        *latency_cycles += cost;
        *latency_cycles += read_entry(&mut self.caches, self.lines, at, &mut self.walker);
        Some(at)
    }

    /// [`Env::resolve`] of what the guest's table holds.
    pub(super) fn resolve_nested(
        &mut self,
        page: PageNumber,
        translation: Translation,
        kind: Kind,
    ) -> Option<Translation> {
        let (frame, stores) = (guest_page(translation.frame_of(page)), kind == Kind::Store);
        let backing = self.with_host(|host, _| host.resolve(frame, stores))?;
        Some(composed(page, translation, backing))
    }

    /// What holds a frame of the guest, for so many references, and what that cost in cycles.
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

    /// What a TLB keeps of a page of the guest and of the host's behind it.
    fn compose_for_tlb(
        &mut self,
        page: PageNumber,
        guest: Translation,
        backing: Backing,
    ) -> Translation {
        let host = self.host.as_mut().expect("a guest has a host");
        let (Backing::Page(backing) | Backing::Composite(backing)) = backing else {
            return half(guest);
        };
        if guest.size > backing.size {
            host.splintered += 1;
            if host.caches_halves() {
                return half(guest);
            }
        }
        composed(page, guest, backing)
    }

    /// As [`Env::backing`], but of a page of the host whose parts lie elsewhere its entry alone.
    fn backing_entry(&mut self, frame: FrameNumber, usage: GuestAccess) -> Option<(Backing, u32)> {
        let (core, lines) = (self.core, self.lines);
        self.with_host(|host, caches| {
            host.backing_entry(guest_page(frame), usage, &mut Port { core, caches, lines })
        })
    }

    /// The frame of the host in which the page of an access lies: of half a translation the nested TLB
    /// gives the rest. None where memory has run out.
    pub(super) fn other_half(
        &mut self,
        access: LineAccess,
        frame: FrameNumber,
    ) -> Option<FrameNumber> {
        let Some(frame) = frame.raw().checked_sub(GUEST_FRAMES).map(FrameNumber::new) else {
            return Some(frame);
        };
        let walks = self.host.as_ref().map(|host| host.walker.walks);
        let (backing, cost) = self.backing(frame, access.is_store(), access.lookups())?;
        let host = self.host.as_mut().expect("a guest has a host");
        let tlb = host.cores[self.core].tlb.as_ref().expect("halves need a nested TLB");
        let hit_cycles = u64::from(tlb.hit_latency_cycles());
        if walks == Some(host.walker.walks) {
            self.cycles.tlb_nested += hit_cycles * u64::from(access.lookups());
            let of_bitmap = cost - tlb.hit_latency_cycles();
            if of_bitmap > 0 {
                self.add_walk_cycles(of_bitmap);
            }
        } else {
            host.lone_walks += 1;
            self.add_walk_cycles(cost);
            // Those that repeat it hit.
            self.cycles.tlb_nested += hit_cycles * u64::from(access.repeats());
            self.core_is_current = self.pending_invalidations.is_empty();
        }
        Some(backing.frame_of(guest_page(frame)))
    }

    /// Does something with the host; what has changed in its table is told.
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

    /// The host has no memory left.
    pub(super) fn stop_for_host(&mut self, error: OutOfMemory) {
        self.stop(format!("the host: {error}"));
    }

    /// So many INVEPTs: all translations of all processes may be wrong.
    fn invalidate_all(&mut self, changes: u64) {
        let others = self.holders.values().flatten().filter(|core| **core != self.core);
        let others = others.collect::<rustc_hash::FxHashSet<_>>().len() as u64;
        self.host.as_mut().expect("a guest has a host").interrupted += changes * others;
        let all =
            self.os.memory().live().map(|process| Invalidation { process, pages: 0..u64::MAX });
        self.pending_invalidations.extend(all);
    }

    /// What operating systems do beside the programs, after so many instructions in all.
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

/// The half of a translation that ends in the guest's frames.
fn half(guest: Translation) -> Translation {
    let Translation { size, entry } = guest.region();
    let frame = entry.frame().plus(GUEST_FRAMES);
    let entry = TlbEntry::new(frame, size, entry.is_writable(), entry.is_dirty());
    let half = Translation { size, entry };
    if guest.is_perforated() { half.with_holes(guest.filter()) } else { half }
}

/// A page of the guest in the frames of the host: as large as the smaller of both, to be used as both
/// allow. If that is no smaller than perforated pages are, and any of both is one, so is it, with the
/// holes of both; and so it is a page with gaps, of the host's chunk, if the host's is.
fn composed(page: PageNumber, guest: Translation, backing: Translation) -> Translation {
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
        true if is_perforated => translation.with_holes(guest.filter() | backing.filter()),
        true if backing.is_gapped() => translation.with_gaps(),
        _ => translation,
    }
}
