//! Perforated pages of the guest, the host, or both (Park et al., ISCA 2020, Section V).
//!
//! - If both have a 2 MiB page and at least one of them is perforated, TLBs hold a perforated page: its
//!   region is the host's; its filter and bitmap are the *or* of both tables' filters and bitmaps (Figure 6).
//!   A base page is walked for if it is a hole in either.
//! - The guest's bitmap lies in guest-physical memory. A register of each core holds the translation of the
//!   host page read last; in the paper, of a bitmap that lies in one page. The location of the host's bitmap
//!   line follows from the region, and that of the guest's from the guest's entry: bits that the second-level
//!   TLB misses are therefore always read after a walk.
//! - A walk to a hole reads the guest's entry and, if its filter allows a hole, the entry in the shadow node
//!   and that of the hole, each through the host. An empty hole entry means that the page lies in the guest's
//!   region. The page that backs it may still be a hole of the host.
//! - A perforated guest page backed by base pages of the host is splintered: TLBs hold base pages, or the
//!   guest half. The bits are then the guest's alone.
//! - Until the bits are known, the walk only inspects the host's page behind the guest's region and demands
//!   nothing: the base page may be a hole, and its place in the region may belong to another owner. If the
//!   host has mapped nothing there, the bits are not cached, since a later mapping may have holes without an
//!   invalidation.

use octavo_types::{Access, PageNumber, PageSize, PhysAddr};

use super::super::perforated::{PartAccess, hole_entries};
use super::super::walk::WalkedPage;
use super::host::{Backing, GuestAccess, Port, guest_page};
use super::{Env, compose, guest_half, is_guest_half};
use crate::tlb::Translation;

impl Env {
    /// Whether programs run in a guest.
    pub(crate) fn is_guest(&self) -> bool {
        self.host.is_some()
    }

    /// Whether TLBs cache a perforated page that a walk has found: not if it is splintered, unless they hold
    /// guest halves.
    pub(crate) fn is_cached(&self, translation: &Translation) -> bool {
        self.caches_halves || !is_guest_half(&translation.region())
    }

    /// Composes a perforated guest page, whose filter allows a hole at a base page, with the host page behind
    /// its region.
    pub(super) fn compose_possible_hole(
        &mut self,
        page: PageNumber,
        own: Translation,
        kind: Access,
        latency_cycles: &mut u32,
    ) -> Option<Translation> {
        let frame = own.part_of_region(page).entry.frame();
        let usage = GuestAccess { stores: kind == Access::Store, is_certain: false };
        let (backing, cost) = self.backing_entry(frame, usage)?;
        *latency_cycles += cost;
        Some(match backing {
            Backing::Page(translation) | Backing::Composite(translation)
                if translation.size >= PageSize::HUGE =>
            {
                compose(page, own, translation)
            }
            _ => guest_half(own),
        })
    }

    /// The guest-physical page at a base page's place in the region of its page.
    fn region_page(&self, page: PageNumber) -> Option<PageNumber> {
        let table = &self.os.memory().process(self.process).table;
        let own = table.perforated(page).map(|of| of.region);
        Some(guest_page(own.or_else(|| table.leaf(page))?.frame_of(page)))
    }

    /// [`Env::read_bitmap`] in a guest.
    pub(in crate::env) fn read_bitmaps_nested(&mut self, page: PageNumber) -> Option<bool> {
        if let Some(of) = self.perforated(page) {
            let at = self.os.memory().frames.hole_bitmaps().line_of(of.region.frame);
            let (core, lines) = (self.core, self.lines);
            let (start, cost) = self.with_host(|host, caches| {
                let port = &mut Port { core, caches, lines };
                host.place_of_bitmap(guest_page(at.frame()), port)
            })?;
            let at = PhysAddr::new(start.raw() + (at.raw() - at.frame().start().raw()));
            let Env { walker, caches, .. } = self;
            let latency_cycles = cost + walker.read_bitmap(caches, lines, at);
            self.extend_walk(latency_cycles);
        }
        let backing = self.region_page(page)?;
        let (core, lines) = (self.core, self.lines);
        let cost = self.with_host(|host, caches| {
            let port = &mut Port { core, caches, lines };
            Ok(host.region(backing).map_or(0, |region| host.read_bitmap(region, port)))
        })?;
        self.extend_walk(cost);
        let host = self.host.as_ref().expect("a guest has a host");
        Some(host.region(backing).is_some() || host.backing_frame(backing).is_some())
    }

    /// [`Env::bitmap_word`] in a guest.
    pub(in crate::env) fn composed_bitmap_word(&self, page: PageNumber) -> u32 {
        let Some(backing) = self.region_page(page) else { return 0 };
        let own = self
            .perforated(page)
            .map_or(0, |of| self.os.memory().frames.hole_bitmaps().word(of.region.frame_of(page)));
        let host = self.host.as_ref().expect("a guest has a host");
        own | host.bitmap_word(backing)
    }

    /// [`Env::use_part`] in a guest.
    pub(in crate::env) fn use_part_nested(
        &mut self,
        page: PageNumber,
        kind: Access,
    ) -> Option<PartAccess> {
        if self.perforated(page).is_some_and(|of| of.is_hole) {
            return Some(PartAccess::Faulted);
        }
        let before = self.pending_invalidations.len();
        let walk = self.table_walk(page);
        let Some(WalkedPage { translation: own, is_marked }) = self.finish_walk(&walk, page, kind)
        else {
            return self.faulted(page, kind);
        };
        let entry = walk.steps().last().expect("a walk reads the root's entry").at;
        self.write_guest_entry_if(is_marked, entry);
        let (frame, stores) = (own.frame_of(page), kind == Access::Store);
        let host = self.host.as_ref().expect("a guest has a host");
        let is_in_large_page = host.is_in_large_page(guest_page(frame));
        let backing = if is_in_large_page {
            let (core, lines) = (self.core, self.lines);
            let mut latency_cycles = 0;
            let used = self.with_host(|host, caches| {
                let port = &mut Port { core, caches, lines };
                host.use_part(guest_page(frame), stores, port, &mut latency_cycles)
            })?;
            self.extend_walk(latency_cycles);
            used
        } else {
            let (backing, cost) = self.backing(frame, stores, 1)?;
            self.extend_walk(cost);
            Some(backing)
        };
        let Some(backing) = backing.filter(|_| self.pending_invalidations.len() == before) else {
            return Some(PartAccess::Faulted);
        };
        let part = own.part(page, PageSize::BASE);
        if !is_in_large_page && backing.size < PageSize::HUGE {
            let host = self.host.as_mut().expect("a guest has a host");
            host.splintered += 1;
            if self.caches_halves {
                return Some(PartAccess::Page(guest_half(part)));
            }
        }
        Some(PartAccess::Page(compose(page, part, backing)))
    }

    /// [`Env::walk_hole`] in a guest.
    pub(in crate::env) fn walk_hole_nested(
        &mut self,
        page: PageNumber,
        kind: Access,
        continues_walk: bool,
    ) -> Option<PartAccess> {
        let mut latency_cycles = 0;
        let walk = self.table_walk(page);
        if !continues_walk {
            self.read_nested(&walk, page, &mut latency_cycles)?;
        }
        let mut entry = walk.steps().last().expect("a walk reads the root's entry").at;
        let own = self.perforated(page);
        if let Some(of) = own.filter(|of| Translation::perforated(of, false).may_be_hole(page)) {
            let at = (self.asid, page);
            for step in hole_entries(&walk, of.hole_steps, &mut self.page_walker.caches, at, false)
            {
                self.read_guest_entry(step, &mut latency_cycles)?;
            }
            if of.is_hole {
                entry = of.hole_steps[1].at;
            }
        }
        self.charge_walk_part(latency_cycles, continues_walk);
        let Some(WalkedPage { translation, is_marked }) = self.finish_walk(&walk, page, kind)
        else {
            return self.faulted(page, kind);
        };
        self.write_guest_entry_if(is_marked, entry);
        let (backing, cost) = self.backing(translation.frame_of(page), kind == Access::Store, 1)?;
        self.extend_walk(cost);
        let part = translation.part(page, PageSize::BASE);
        Some(PartAccess::Page(compose(page, part, backing)))
    }

    /// Writes an entry of the guest's table whose accessed or dirty bit was set, after it has been read.
    fn write_guest_entry_if(&mut self, is_marked: bool, entry: PhysAddr) {
        let host = self.host.as_ref().expect("a guest has a host");
        let frame = entry.frame();
        let backing = host.backing_frame(guest_page(frame));
        let start = backing.expect("the walk has read it").start().raw();
        self.write_if(is_marked, PhysAddr::new(start + (entry.raw() - frame.start().raw())));
    }
}
