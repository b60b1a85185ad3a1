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
//! - Until the bits are known, the walk only inspects the host's page behind the guest's region and does not have the
//!   host map one: the base page may be a hole, and its place in the region may belong to another owner. If the host
//!   has mapped nothing there, the bits are not cached, since a later mapping may have holes without an invalidation.

use octavo_types::{Access, PageNumber, PageSize, PhysAddr};

use super::host;
use super::walk::{PartAccess, faulted, hole_entries, own_page};
use crate::env::{Env, WalkedPage, guest_page};
use crate::tlb::Translation;

/// The guest-physical page at a base page's place in the region of its page.
fn region_page(env: &Env, page: PageNumber) -> Option<PageNumber> {
    let own = own_page(env, page).map(|perforated| perforated.region);
    Some(guest_page(own.or_else(|| env.table().leaf(page))?.frame_of(page)))
}

/// As [`read_bitmap`](super::walk::read_bitmap).
pub fn read_bitmaps(env: &mut Env, page: PageNumber) -> Option<bool> {
    if let Some(own) = own_page(env, page) {
        let at = env.os().memory().frames.hole_bitmaps().line_of(own.region.frame);
        let (start, cost) =
            env.with_host_port(|host, port| host.place_by_register(guest_page(at.frame()), port))?;
        let at = PhysAddr::new(start.raw() + (at.raw() - at.frame().start().raw()));
        let latency_cycles = cost + env.read_table(at);
        env.extend_walk(latency_cycles);
    }
    let backing = region_page(env, page)?;
    let cost = env.with_host_port(|host, port| {
        let region = host::region(host, backing);
        Ok(region.map_or(0, |region| host::read_bitmap(host, region, port)))
    })?;
    env.extend_walk(cost);
    let host = env.host();
    Some(host::region(host, backing).is_some() || host.backing_frame(backing).is_some())
}

/// As [`bitmap_word`](super::walk::bitmap_word).
pub fn bitmap_word(env: &Env, page: PageNumber) -> u32 {
    let Some(backing) = region_page(env, page) else { return 0 };
    let bitmaps = env.os().memory().frames.hole_bitmaps();
    let own =
        own_page(env, page).map_or(0, |perforated| bitmaps.word(perforated.region.frame_of(page)));
    own | host::bitmap_word(env.host(), backing)
}

/// As [`use_part`](super::walk::use_part).
pub fn use_part(env: &mut Env, page: PageNumber, kind: Access) -> Option<PartAccess> {
    if own_page(env, page).is_some_and(|perforated| perforated.is_hole) {
        return Some(PartAccess::Faulted);
    }
    let walk = env.table_walk(page);
    let Some(WalkedPage { translation: own, is_marked }) = env.finish_walk(&walk, page, kind)
    else {
        return faulted(env, page, kind);
    };
    let entry = walk.steps().last().expect("a walk reads the root's entry").at;
    env.write_guest_entry_if(is_marked, entry);
    let (frame, stores) = (own.frame_of(page), kind == Access::Store);
    let is_in_large_page = host::is_in_large_page(env.host(), guest_page(frame));
    let (backing, has_changed) = env.noting_changes(|env| {
        if !is_in_large_page {
            let (backing, cost) = env.backing(frame, stores, 1)?;
            env.extend_walk(cost);
            return Some(Some(backing));
        }
        let mut latency_cycles = 0;
        let used = env.with_host_port(|host, port| {
            host::use_part(host, guest_page(frame), stores, port, &mut latency_cycles)
        })?;
        env.extend_walk(latency_cycles);
        Some(used)
    });
    let Some(backing) = backing?.filter(|_| !has_changed) else {
        return Some(PartAccess::Faulted);
    };
    let part = own.part(page, PageSize::BASE);
    if !is_in_large_page
        && backing.size < PageSize::HUGE
        && let Some(half) = env.splinter(part)
    {
        return Some(PartAccess::Page(half));
    }
    Some(PartAccess::Page(env.compose(page, part, backing)))
}

/// As [`walk_hole`](super::walk::walk_hole).
pub fn walk_hole(
    env: &mut Env,
    page: PageNumber,
    kind: Access,
    continues_walk: bool,
) -> Option<PartAccess> {
    let mut latency_cycles = 0;
    let walk = env.table_walk(page);
    if !continues_walk {
        env.read_nested(&walk, page, &mut latency_cycles)?;
    }
    let mut entry = walk.steps().last().expect("a walk reads the root's entry").at;
    let own = own_page(env, page);
    if let Some(own) = own.filter(|own| Translation::perforated(own, false).may_be_hole(page)) {
        let at = (env.asid(), page);
        for step in hole_entries(&walk, own.hole_steps, env.walk_caches(), at, false) {
            env.read_guest_entry(step, &mut latency_cycles)?;
        }
        if own.is_hole {
            entry = own.hole_steps[1].at;
        }
    }
    env.charge_walk_part(latency_cycles, continues_walk);
    let Some(WalkedPage { translation, is_marked }) = env.finish_walk(&walk, page, kind) else {
        return faulted(env, page, kind);
    };
    env.write_guest_entry_if(is_marked, entry);
    let (backing, cost) = env.backing(translation.frame_of(page), kind == Access::Store, 1)?;
    env.extend_walk(cost);
    let part = translation.part(page, PageSize::BASE);
    Some(PartAccess::Page(env.compose(page, part, backing)))
}
