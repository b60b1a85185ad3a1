//! Perforated pages of the host (Park et al., ISCA 2020, Section V).
//!
//! Decisions that the paper leaves open: the nested TLB holds perforated pages as the second-level TLB does, but no
//! bitmap words. For a base page that a perforated page's filter does not rule out as a hole, the bitmap is read
//! through the data caches and the base page is filled. An empty hole entry means that the hole belongs to
//! another table that maps the same region.

use octavo_hw::Asid;
use octavo_os::frames::OutOfMemory;
use octavo_os::page_table::PageWithHoles;
use octavo_types::{PageNumber, PageSize, PhysAddr};

use super::walk::hole_entries;
use crate::env::{Host, HostAccess, Port, WalkedPage};
use crate::tlb::Translation;

/// The perforated page that holds a guest-physical page, if any.
fn page_of(host: &Host, page: PageNumber) -> Option<PageWithHoles> {
    host.table().page_with_holes(page)
}

/// Translates a guest-physical page inside a perforated page: the base page, and whether the bitmap was read
/// for it. `None` after a page fault: the host's table must be walked again.
pub fn find_part(
    host: &mut Host,
    access: &HostAccess<'_>,
    port: &mut Port<'_>,
    latency_cycles: &mut u32,
) -> Result<Option<(Translation, bool)>, OutOfMemory> {
    let HostAccess { page, translation, stores, is_new } = *access;
    if !translation.may_be_hole(page) {
        return Ok(Some((translation.part_of_region(page), false)));
    }
    *latency_cycles += read_bitmap(host, translation.region().entry.frame().start(), port);
    let frame = translation.part_of_region(page).entry.frame();
    let part = match host.frames().hole_bitmaps().is_hole(frame) {
        true => walk_hole(host, access, port, latency_cycles)?,
        false if is_new => Some(translation.part_of_region(page)),
        false => use_part(host, page, stores, port, latency_cycles)?,
    };
    Ok(part.map(|part| (part, true)))
}

/// Reads the line of the host's hole bitmap with the bits of a region. Returns the latency in cycles.
pub fn read_bitmap(host: &mut Host, region: PhysAddr, port: &mut Port<'_>) -> u32 {
    let at = host.frames().hole_bitmaps().line_of(region.frame());
    host.read_table(at, port)
}

/// Walks to a hole of a perforated page.
fn walk_hole(
    host: &mut Host,
    access: &HostAccess<'_>,
    port: &mut Port<'_>,
    latency_cycles: &mut u32,
) -> Result<Option<Translation>, OutOfMemory> {
    let HostAccess { page, stores, is_new, .. } = *access;
    host.begin_part_walk(is_new);
    let walk = host.table().walk(page);
    let Some(perforated) = page_of(host, page) else { return Ok(None) };
    let caches = host.walk_caches(port);
    for at in hole_entries(&walk, perforated.hole_steps, caches, (Asid::ONLY, page), is_new) {
        *latency_cycles += host.read_entry(at, port);
    }
    use_part(host, page, stores, port, latency_cycles)
}

/// Uses a page whose entry has been read: a hole, a base page of a perforated page, or any other page.
/// `None` after a page fault.
pub fn use_part(
    host: &mut Host,
    page: PageNumber,
    stores: bool,
    port: &mut Port<'_>,
    latency_cycles: &mut u32,
) -> Result<Option<Translation>, OutOfMemory> {
    let walk = host.table().walk(page);
    let hole = page_of(host, page).filter(|perforated| perforated.is_hole);
    let Some(WalkedPage { translation, is_marked }) = host.finish_walk(&walk, page, stores) else {
        host.fault_in_walk(page, stores)?;
        return Ok(None);
    };
    let entry = walk.steps().last().expect("a walk reads the root's entry");
    let at = hole.map_or(entry.at, |perforated| perforated.hole_steps[1].at);
    *latency_cycles += host.write_if(is_marked, at, port);
    Ok(Some(translation))
}

/// Whether a guest-physical page lies in a host page of 2 MiB or more, whole or perforated, and is not a
/// hole of it.
pub fn is_in_large_page(host: &Host, page: PageNumber) -> bool {
    match page_of(host, page) {
        Some(perforated) => !perforated.is_hole,
        None => host.table().leaf(page).is_some_and(|leaf| leaf.size >= PageSize::HUGE),
    }
}

/// The first address of the host's perforated page that holds a guest-physical page, if any.
pub fn region(host: &Host, page: PageNumber) -> Option<PhysAddr> {
    page_of(host, page).map(|perforated| perforated.region.frame.start())
}

/// The bitmap word of the host around a guest-physical page; 0 outside perforated pages.
pub fn bitmap_word(host: &Host, page: PageNumber) -> u32 {
    let frame = page_of(host, page).map(|perforated| perforated.region.frame_of(page));
    frame.map_or(0, |frame| host.frames().hole_bitmaps().word(frame))
}
