//! Hybrid TLB coalescing with anchors (Park, Heo, Jeong and Huh, "Hybrid TLB Coalescing: Improving TLB Translation
//! Coverage under Diverse Fragmented Memory Allocations", ISCA 2017): the operating system writes into the page-table
//! entry of every d-th page, an *anchor*, how many pages follow it contiguously, and the second-level TLB holds anchors
//! beside pages. The anchor distance d fits the memory of the process, whereas CoLT sees only the eight entries of a
//! line.
//!
//! - A second-level look-up tries the page first and, if that misses, the anchor of the page, at the next multiple of d
//!   below it. The anchor hits if its length reaches the page. Anchors are in the array of 4 KiB pages; the page number
//!   without the bits below d selects the set.
//! - A walk reads the entry of the page, for which the core waits, and that of its anchor, for which it does not wait.
//!   If the anchor covers the page, the anchor is filled into the second level, otherwise the page. The first level
//!   holds pages only.
//! - The pages of an anchor are contiguous and have equal permissions. When one of the d pages of a block is mapped,
//!   unmapped or changed and the length of the anchor differs afterwards, the operating system writes the anchor again
//!   (`anchors_written`).
//! - The operating system chooses the distance of each process from the histogram of its contiguous chunks: the
//!   distance that needs the fewest TLB entries for all chunks. A chunk of c pages takes c / d anchors, and an entry
//!   for each of the remaining pages, or for each 512 of them where there are huge pages. A new distance writes all
//!   anchors again and flushes the TLBs of the process.
//!
//! The formula is from a tool of other authors (`page-collect` of Alverti et al., ISCA 2020), who call it optimistic.
//! Only the abstract of the paper was available. The distances from 2 to 2^16, the additional cycle of an anchor's
//! look-up, its set, and the read of both entries in a walk are from memory and not verified.
//!
//! Assumptions: the operating system chooses the distance at the first occasion and every
//! `anchor.choose_every_instructions` from then on, and changes it only if the new one is better. Before the first
//! choice a process has no anchors, or the distance of the process that it is a copy of. Huge pages count in the
//! formula only if the process has some. An anchor is at most as long as its block, since the next block has an anchor
//! of its own. The entry of a huge page is an anchor for distances above its size. An anchor is filled only if it is
//! larger than the page, and covers more than one page. Every walk reads the anchor, so that an anchor that has grown
//! replaces its shorter copy. An anchor that is not mapped is not read. Anchors have no accessed and dirty bits: an
//! access through an anchor sets the page's bits at no cost, and fills the first level with an entry of the page
//! table's page size. An invalidation drops the anchors of all blocks that it touches. Fully associative arrays for any
//! page size hold no anchors. In a guest, both operating systems write anchors, each with a distance of its own, and
//! chunks of a guest are contiguous in both tables. An entry ends where the guest's anchor ends, or the host's page or
//! anchor that backs its first page. A huge page of the guest needs no anchors inside it. The read of the host's anchor
//! is not counted, and the nested TLB holds pages.

#[cfg(test)]
mod naive;
mod settings;

use octavo_config::{DesignTable, MachineConfig};
use octavo_os::page_table::{Format, PageTable};
use octavo_os::policy::OsConfig;
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, PageNumber, PageSize};

use super::Conventional;
use super::behind_tlbs::BehindTlbs;
use super::build::{self, Tables};
use super::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::LineAccess;
use crate::tlb::{Lookup, TlbEntry, Translation};
pub use settings::AnchorSettings;

/// Anchors in page tables.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<AnchorSettings>()),
    ..Family::new(
        &[TranslationHardware::new("anchor", make)],
        &[NamedDesign { name: "anchor", hardware: "anchor", policy: "base", about: "Hybrid TLB Coalescing: page-table entries at a distance that fits the process say how many pages follow contiguously", figure: "coalescing" }],
    )
};

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let settings = config.designs.get::<AnchorSettings>();
    let format = Format { anchors: Some(settings.format()), ..Format::default() };
    let tables = Tables { format, ..Tables::default() };
    build::machine_with_tables(config, setup, tables, os, |_| {
        Ok(Anchors {
            tlbs: Conventional::new(&config.tlb, setup.instructions)?,
            lookup_cycles: settings.lookup_cycles as u32,
            lookups: Lookups::default(),
            counts: Counts::default(),
        })
    })
}

/// Conventional TLBs whose second level also holds anchors.
struct Anchors {
    tlbs: Conventional,
    lookup_cycles: u32,
    lookups: Lookups,
    counts: Counts,
}

/// Counters of one core beside those of look-ups.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Anchors filled.
    fills: u64,
    /// Pages covered by the filled anchors.
    filled_pages: u64,
    /// Page-table entries read for anchors.
    references: u64,
}

/// An anchor in the second level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Anchor {
    /// The frame of the first page.
    frame: FrameNumber,
    /// Base pages.
    pages: u64,
    is_writable: bool,
}

const LENGTH_BITS: u32 = 16;

impl Anchor {
    /// The word of a TLB entry.
    fn encode(self) -> TlbEntry {
        let length = (self.pages - 1) << 1;
        TlbEntry::from_bits(
            self.frame.raw() << (LENGTH_BITS + 1) | length | u64::from(self.is_writable),
        )
    }

    fn decode(entry: TlbEntry) -> Self {
        let bits = entry.bits();
        let length = bits >> 1 & ((1 << LENGTH_BITS) - 1);
        Anchor {
            frame: FrameNumber::new(bits >> (LENGTH_BITS + 1)),
            pages: length + 1,
            is_writable: bits & 1 != 0,
        }
    }
}

/// The first page of the block of 2^`order` pages around a page, and the position of the page in the block.
fn place(page: PageNumber, order: u8) -> (PageNumber, u64) {
    let first = page.raw() >> order << order;
    (PageNumber::new(first), page.raw() - first)
}

impl BehindTlbs for Anchors {
    fn tlbs(&mut self) -> &mut Conventional {
        &mut self.tlbs
    }

    fn walk_and_fill_l2(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        (held, is_clean): (Lookup, bool),
    ) -> Option<Translation> {
        if let Lookup::Miss = held
            && let Some(anchor) = self.look_up(env, page)
            && (anchor.is_writable || !access.is_store())
        {
            return self.translate_by(env, page, access, anchor);
        }
        let mut translation = self.walk(env, page, access, is_clean)?;
        let order = self.order(env);
        if translation.size.base_shift() < order {
            let (first, at) = place(page, order);
            let (read, has_changed) = env.noting_changes(|env| self.read_anchor(env, page, first));
            read?;
            if has_changed {
                translation = self.resolve(env, page, access)?;
            }
            if let Some(anchor) = anchor_at(env, first).filter(|anchor| at < anchor.pages) {
                let asid = env.asid();
                let l2 = self.tlbs.l2().expect("it holds anchors");
                if !matches!(held, Lookup::Miss) {
                    l2.remove(asid, page);
                }
                let array = l2.array_of_mut(PageSize::BASE).expect("it holds anchors");
                array.fill_kind(asid, page, order, anchor.encode());
                self.counts.fills += 1;
                self.counts.filled_pages += anchor.pages;
                return Some(translation);
            }
        }
        self.tlbs.fill_l2(env.asid(), page, translation, held);
        Some(translation)
    }
}

impl Anchors {
    /// Looks up the anchor of a page that the second level does not hold.
    fn look_up(&mut self, env: &mut Env, page: PageNumber) -> Option<Anchor> {
        let order = self.order(env);
        let l2 = self.tlbs.l2().filter(|_| order > 0)?;
        let (_, at) = place(page, order);
        let covers = |entry: &TlbEntry| at < Anchor::decode(*entry).pages;
        let found = l2.look_up_kind_after_miss(env.asid(), page, order, covers);
        env.extend_l2_lookup(self.lookup_cycles, found.is_some());
        self.lookups.hits += u64::from(found.is_some());
        self.lookups.misses += u64::from(found.is_none());
        found.map(Anchor::decode)
    }

    /// log2 of the anchor distance of the running process; 0 if the second level holds no anchors for it.
    fn order(&mut self, env: &Env) -> u8 {
        let holds_anchors = self.tlbs.l2().is_some_and(|l2| l2.has_sets_of(PageSize::BASE));
        if holds_anchors { env.table().anchor_log2() } else { 0 }
    }

    /// The translation of a page by an anchor that covers it: size and permissions are the page table's, the frame is
    /// the anchor's.
    fn translate_by(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        anchor: Anchor,
    ) -> Option<Translation> {
        let (_, at) = place(page, env.table().anchor_log2());
        let Translation { size, entry } = self.resolve(env, page, access)?;
        let (_, in_page) = place(page, size.base_shift());
        let first = FrameNumber::new(anchor.frame.raw() + at - in_page);
        Some(Translation { size, entry: entry.at(first) })
    }

    /// Reads the entry of a page's anchor after the walk to the page, in a guest in both tables, unless that walk has
    /// read the same entry. `None` when memory has run out.
    fn read_anchor(&mut self, env: &mut Env, page: PageNumber, first: PageNumber) -> Option<()> {
        let is_entry_of_page = || env.table().leaf(page).is_some_and(|leaf| leaf.page == first);
        if page != first && (env.is_guest() || !is_entry_of_page()) {
            match self.walk_in_background(env, first) {
                Some(references) => self.counts.references += references,
                None if env.stopped().is_some() => return None,
                None => {}
            }
        }
        Some(())
    }
}

/// The anchor at `first` as a TLB may hold it, if it covers more than one page. In a guest, it ends where the host's
/// page or anchor that backs `first` ends.
fn anchor_at(env: &Env, first: PageNumber) -> Option<Anchor> {
    let mut tables = env.tables(first);
    let (own, _) = tables.next()?;
    let leaf = own.leaf(first)?;
    // A guest's huge page that the host backs with smaller pages is contiguous, without an anchor inside it.
    let in_page = leaf.page.raw() + (1 << leaf.size.base_shift()) - first.raw();
    let pages = if leaf.page < first {
        in_page.min(1 << own.anchor_log2())
    } else {
        own.anchored_pages(first)
    };
    let (frame, is_writable) = (leaf.frame_of(first), leaf.rights.write);
    let mut anchor = Anchor { frame, pages, is_writable };
    if let Some((host, guest_page)) = tables.next() {
        let backing = host.leaf(guest_page)?;
        anchor.frame = backing.frame_of(guest_page);
        anchor.pages = anchor.pages.min(contiguous_from(host, guest_page));
        anchor.is_writable &= backing.rights.write;
    } else if env.is_guest() {
        return None;
    }
    (anchor.pages > 1).then_some(anchor)
}

/// The number of contiguous pages from a mapped page on, as its own entry and its anchor show.
fn contiguous_from(table: &PageTable, page: PageNumber) -> u64 {
    let leaf = table.leaf(page).expect("it is mapped");
    let end_of_page = leaf.page.raw() + (1 << leaf.size.base_shift());
    let (first, _) = place(page, table.anchor_log2());
    let end_of_anchor = first.raw() + table.anchored_pages(first);
    end_of_page.max(end_of_anchor) - page.raw()
}

impl Design for Anchors {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        self.translate_behind_tlbs(env, access)
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.tlbs.invalidate(space, pages);
    }

    fn flush(&mut self) {
        self.tlbs.flush();
    }

    fn report(&self, counters: &mut Counters) {
        self.tlbs.report(counters);
        self.lookups.report("tlb.anchors", counters);
        counters.add("tlb.anchors", "fills", self.counts.fills);
        counters.add("tlb.anchors", "filled_pages", self.counts.filled_pages);
        counters.add("tlb.anchors", "background_references", self.counts.references);
    }
}
