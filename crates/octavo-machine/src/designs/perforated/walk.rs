//! Walks to perforated pages: work of the walker after the page's entry (Park et al., ISCA 2020, Sections
//! IV-B and IV-D). In a guest, see [`super::guest`].

use octavo_hw::{Asid, WalkCaches};
use octavo_os::Memory;
use octavo_os::frames::{OutOfMemory, Owner};
use octavo_os::page_table::{PageTable, PageWithHoles, Step, Walk};
use octavo_types::{Access, AddrRange, PageNumber, PageSize, PhysAddr, VirtAddr};

use super::{guest, host};
use crate::counters::Counters;
use crate::env::{CompositePages, Env, Host, HostAccess, Port, WalkedPage, page_start};
use crate::tlb::Translation;

/// The page-table level of perforated pages.
const LEVEL: u8 = 2;
/// Walk caches tag shadow nodes with addresses that no program uses.
const SHADOW: u64 = 1 << 60;

/// The outcome of an access to a base page of a perforated page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartAccess {
    /// The access is permitted.
    Page(Translation),
    /// A page fault was served, or the mapping changed: the walk must be repeated.
    Faulted,
}

/// Perforated pages, of a process and of a host.
pub struct Pages;

impl CompositePages for Pages {
    fn entry(&self, table: &PageTable, page: PageNumber) -> Option<Translation> {
        table.page_with_holes(page).map(|own| Translation::perforated(&own, own.used.1))
    }

    fn is_composite(&self, translation: &Translation) -> bool {
        translation.is_perforated()
    }

    fn is_undecided(&self, translation: &Translation, page: PageNumber) -> bool {
        translation.may_be_hole(page)
    }

    /// A base page may be a hole with permissions of its own.
    fn ends_walks(&self) -> bool {
        true
    }

    fn plain(&self, translation: &Translation) -> Translation {
        translation.region()
    }

    /// A perforated page with the holes of both.
    fn compose(
        &self,
        page: Translation,
        guest: &Translation,
        backing: &Translation,
    ) -> Translation {
        match guest.is_perforated() || backing.is_perforated() {
            true => page.as_perforated(guest.filter() | backing.filter()),
            false => page,
        }
    }

    fn find_in_host(
        &self,
        host: &mut Host,
        access: &HostAccess<'_>,
        port: &mut Port<'_>,
        latency_cycles: &mut u32,
    ) -> Result<Option<(Translation, bool)>, OutOfMemory> {
        host::find_part(host, access, port, latency_cycles)
    }

    fn further_tags(&self, range: AddrRange) -> Option<AddrRange> {
        let start = VirtAddr::new(range.start().raw() | SHADOW);
        Some(AddrRange::new(start, range.bytes()))
    }

    fn report_walks(&self, env: &Env, counters: &mut Counters) {
        env.report_table_reads("bitmap_references", counters);
        if env.is_guest() {
            let counts = env.host().counts;
            counters.add("walker.host", "hole_walks", counts.part_walks);
            counts.register.report("walker.bitmap_register", counters);
        }
    }

    fn report_memory(&self, component: &str, memory: &Memory, counters: &mut Counters) {
        let counts = &memory.counters;
        for (name, value) in [
            ("perforations", counts.pages_with_holes),
            ("punches", counts.punches),
            ("patches", counts.patches),
            ("hole_shootdowns", counts.hole_shootdowns),
        ] {
            counters.add(component, name, value);
        }
        let bitmaps = memory.frames.used_frames(Owner::HoleBitmap) * PageSize::BASE.bytes();
        counters.level(component, "bitmap_bytes", bitmaps);
        let pages = format!("{component}.pages.perforated");
        counters.level(&pages, "mapped", memory.pages_with_holes());
    }
}

/// The entries that a walk to a hole reads; also fills the walk caches. `is_new` marks a walk of its own,
/// which does not read the page's entry; otherwise the walk continues after that entry.
pub fn hole_entries<'w>(
    walk: &'w Walk,
    [shadow, last]: [Step; 2],
    caches: &mut WalkCaches<()>,
    (asid, page): (Asid, PageNumber),
    is_new: bool,
) -> impl Iterator<Item = PhysAddr> + use<'w> {
    let addr = page_start(page);
    let by_shadow = VirtAddr::new(addr.raw() | SHADOW);
    let is_cached = caches.at(asid, by_shadow, LEVEL).is_some();
    let from = match is_new && !is_cached {
        true => caches.deepest_from(asid, addr, LEVEL + 1).map_or(u8::MAX, |(level, ())| level),
        false => 0,
    };
    let above = walk.steps().iter().filter(move |step| LEVEL < step.level && step.level < from);
    above.clone().for_each(|step| caches.fill(asid, addr, step.level, ()));
    if !is_cached {
        caches.fill(asid, by_shadow, LEVEL, ());
    }
    above.map(|step| step.at).chain((!is_cached).then_some(shadow.at)).chain([last.at])
}

/// Reads the line of the hole bitmap with the bits of the perforated page around a base page through the
/// data caches. In a guest this follows a [walk](Env::walk) and reads the line of each table whose page
/// is perforated. With `continues_walk` the read is part of a walk that has found the page (always, in a
/// guest). Returns whether the bits may be cached; `None` when memory has run out.
pub fn read_bitmap(
    env: &mut Env,
    page: PageNumber,
    translation: &Translation,
    continues_walk: bool,
) -> Option<bool> {
    if env.is_guest() {
        return guest::read_bitmaps(env, page);
    }
    let frame = translation.region().entry.frame();
    let at = env.os().memory().frames.hole_bitmaps().line_of(frame);
    let latency_cycles = env.read_table(at);
    env.charge_walk_part(latency_cycles, continues_walk);
    Some(true)
}

/// The bitmap word of the 32 aligned base pages around `page`, after its line has been read; in a guest,
/// the *or* of both tables' words.
pub fn bitmap_word(env: &Env, page: PageNumber, translation: &Translation) -> u32 {
    if env.is_guest() {
        return guest::bitmap_word(env, page);
    }
    let frame = translation.part_of_region(page).entry.frame();
    env.os().memory().frames.hole_bitmaps().word(frame)
}

/// The perforated page of the running process that holds a base page, if any.
pub fn own_page(env: &Env, page: PageNumber) -> Option<PageWithHoles> {
    env.table().page_with_holes(page)
}

/// Uses a base page of a perforated page that is not a hole, after a [walk](Env::walk) has found the
/// page. `None` when memory has run out.
pub fn use_part(env: &mut Env, page: PageNumber, kind: Access) -> Option<PartAccess> {
    if env.is_guest() {
        return guest::use_part(env, page, kind);
    }
    let walk = env.table_walk(page);
    if own_page(env, page).is_some_and(|own| !own.is_hole)
        && let Some(WalkedPage { translation, is_marked }) = env.finish_walk(&walk, page, kind)
    {
        let entry = walk.steps().last().expect("a walk reads the root's entry");
        env.write_if(is_marked, entry.at);
        return Some(PartAccess::Page(translation));
    }
    faulted(env, page, kind)
}

/// Walks to a hole through its entry in the shadow node. With `continues_walk`, a [walk](Env::walk) has
/// read the page's entry and so knows the node; otherwise this is a walk of its own, which does not read
/// that entry (except in a guest, where the entry shows whose hole it may be). `None` when memory has run
/// out.
pub fn walk_hole(
    env: &mut Env,
    page: PageNumber,
    kind: Access,
    continues_walk: bool,
) -> Option<PartAccess> {
    if env.is_guest() {
        return guest::walk_hole(env, page, kind, continues_walk);
    }
    let walk = env.table_walk(page);
    let Some(PageWithHoles { hole_steps, is_hole, .. }) = own_page(env, page) else {
        return Some(PartAccess::Faulted);
    };
    let is_new = !continues_walk;
    let mut latency_cycles = if is_new { env.begin_walk() } else { 0 };
    let at = (env.asid(), page);
    for entry in hole_entries(&walk, hole_steps, env.walk_caches(), at, is_new) {
        latency_cycles += env.read_entry(entry);
    }
    env.charge_walk_part(latency_cycles, continues_walk);
    if is_hole
        && let Some(WalkedPage { translation, is_marked }) = env.finish_walk(&walk, page, kind)
    {
        env.write_if(is_marked, hole_steps[1].at);
        return Some(PartAccess::Page(translation));
    }
    faulted(env, page, kind)
}

/// Serves the page fault that a walk has ended in. `None` when memory has run out.
pub fn faulted(env: &mut Env, page: PageNumber, kind: Access) -> Option<PartAccess> {
    env.fault_in_walk(page, kind)?;
    Some(PartAccess::Faulted)
}
