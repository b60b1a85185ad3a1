//! A naive operating system with its own page tables: every rule in its plainest form, one page at a time.
//!
//! It shares no code with `octavo-os`. Page tables follow the format of x86-64, mappings the manual pages of `mmap`,
//! `mremap`, `madvise` and `fork`, page-size policies Guvenilir and Patt (ISCA 2020) and the documentation of Linux and
//! FreeBSD. Frames come from the naive buddy allocator.
//!
//! Taken over from the system under test, and therefore not checked independently: the order in which an operation
//! allocates and frees several frames (data before nodes, nodes from the root down); the range of a shootdown; the
//! definition of each counter; and the choices in the module documentation of the reservation policies where the paper
//! leaves something open. Memory must not run out.

mod mappings;
mod policy;
mod reserving;
mod table;

use std::collections::BTreeMap;
use std::ops::Range;

use octavo_oracle::NaiveReservations;
use octavo_types::{Access, AddrRange, Event, FrameNumber, MapSource, Protection};

use mappings::{Mapping, Mappings, Source};
pub use policy::NaivePolicy;
use reserving::Reservation;
use table::NodeKey;
pub use table::{NaivePage, NaiveStep, NaiveTable};

const MAP_SHARED: u64 = 1;

/// The machine of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct NaiveShape {
    pub frames: u64,
    /// The order of the largest block of free memory.
    pub largest: u8,
    pub levels: u8,
    /// Whether page sizes are all powers of two, rather than those of x86-64 only.
    pub is_tailored: bool,
    /// Whether alias entries are copies of the true entry.
    pub has_copies: bool,
    /// Whether nodes of levels 4 and 3, and of levels 2 and 1, are merged if a block is free.
    pub merges_levels: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NaiveCounters {
    pub faults: u64,
    pub faults_unmapped: u64,
    pub copy_on_write_faults: u64,
    pub bytes_zeroed: u64,
    pub bytes_copied: u64,
    pub bytes_read: u64,
    pub promotions: u64,
    pub splits: u64,
    pub shootdowns: u64,
    pub bytes_mapped_untouched: u64,
    pub bytes_present: u64,
    pub fallbacks: u64,
}

struct Process {
    mappings: Mappings,
    table: NaiveTable,
}

/// A file or shared memory: its path, and the frames of its pages in memory.
struct Object {
    path: Option<String>,
    frames: BTreeMap<u64, u64>,
}

pub struct NaiveOs {
    shape: NaiveShape,
    policy: NaivePolicy,
    frames: NaiveReservations,
    reservations: Vec<Reservation>,
    last_id: u64,
    /// The number of pages and objects that use a frame.
    references: BTreeMap<u64, u64>,
    processes: BTreeMap<u16, Process>,
    objects: Vec<Object>,
    invalidations: Vec<(u16, Range<u64>)>,
    pub counters: NaiveCounters,
}

fn pages_of(range: &AddrRange) -> Range<u64> {
    let (start, end) = (range.start().raw(), range.start().raw() + range.bytes());
    start >> 12..end.div_ceil(4096)
}

impl NaiveOs {
    /// A system without processes; all memory is free.
    pub fn new(shape: NaiveShape, policy: NaivePolicy) -> Self {
        let mut frames = NaiveReservations::new(0, shape.largest);
        let order = shape.largest.min(shape.frames.trailing_zeros() as u8);
        for frame in (0..shape.frames).step_by(1 << order) {
            frames.buddy.free(FrameNumber::new(frame), order);
        }
        NaiveOs {
            shape,
            policy,
            frames,
            reservations: Vec::new(),
            last_id: 0,
            references: BTreeMap::new(),
            processes: BTreeMap::new(),
            objects: Vec::new(),
            invalidations: Vec::new(),
            counters: NaiveCounters::default(),
        }
    }

    /// Allocates a free frame to background memory.
    pub fn hold(&mut self, frame: u64) {
        assert!(self.frames.buddy.allocate_at(FrameNumber::new(frame), 0));
    }

    pub fn table(&self, process: u16) -> &NaiveTable {
        &self.processes[&process].table
    }

    pub fn table_mut(&mut self, process: u16) -> &mut NaiveTable {
        &mut self.processes.get_mut(&process).unwrap().table
    }

    pub fn live(&self) -> Vec<u16> {
        self.processes.keys().copied().collect()
    }

    /// Whether a program that obeys its mappings may store to a page.
    pub fn allows_store(&self, process: u16, page: u64) -> bool {
        self.processes[&process].mappings.find(page).is_none_or(|(_, mapping)| mapping.rights.write)
    }

    /// The invalidated ranges since the last call, with their processes.
    pub fn take_invalidations(&mut self) -> Vec<(u16, Range<u64>)> {
        std::mem::take(&mut self.invalidations)
    }

    fn invalidate(&mut self, process: u16, range: Range<u64>) {
        if !range.is_empty() {
            self.counters.shootdowns += 1;
            self.invalidations.push((process, range));
        }
    }

    /// Invalidates the range from the first of these pages to the last by one shootdown.
    fn invalidate_all(&mut self, process: u16, changed: &[(u64, NaivePage)]) {
        if let (Some((first, _)), Some((last, page))) = (changed.first(), changed.last()) {
            self.invalidate(process, *first..last + page.base_pages());
        }
    }

    /// Creates a process without mappings; its number is the lowest free one.
    pub fn spawn(&mut self) -> u16 {
        let process = (0..).find(|number| !self.processes.contains_key(number)).unwrap();
        let table = NaiveTable::new(self.shape.levels, self.shape.has_copies);
        self.processes.insert(process, Process { mappings: Mappings::default(), table });
        self.add_node(process, (self.shape.levels, 0));
        process
    }

    /// `fork(2)`: private pages lose their store permission in both processes.
    pub fn fork(&mut self, parent: u16) -> u16 {
        let child = self.spawn();
        let mappings = self.processes[&parent].mappings.clone();
        let pages = self.table(parent).pages.clone();
        let mut changed = Vec::new();
        for (first, page) in pages {
            let is_shared = mappings.find(first).is_some_and(|(_, mapping)| mapping.is_shared());
            let write = page.rights.write && is_shared;
            let rights = Protection { write, ..page.rights };
            if page.rights.write && !is_shared {
                changed.push((first, page));
                self.table_mut(parent).pages.insert(first, NaivePage { rights, ..page });
            }
            // Linux, `copy_present_pte`: the child's entry is not accessed, and an entry of shared memory is not dirty.
            let copy =
                NaivePage { rights, accessed: false, dirty: page.dirty && !is_shared, ..page };
            self.add_references(&copy);
            self.insert(child, first, copy);
        }
        self.processes.get_mut(&child).unwrap().mappings = mappings;
        self.invalidate_all(parent, &changed);
        child
    }

    /// Ends a process.
    pub fn end(&mut self, process: u16) {
        self.policy_ended(process);
        self.release(process, &(0..u64::MAX));
        let table = self.processes.remove(&process).unwrap().table;
        for (key, frame) in &table.nodes {
            self.frames.buddy.free(FrameNumber::new(*frame), table.order_of_node(key));
        }
        self.drop_unused_objects();
    }

    /// Handles an event of a process.
    pub fn event(&mut self, process: u16, event: &Event) {
        match event {
            Event::Map { range, protection, source, flags } => {
                let pages = pages_of(range);
                let source = self.source_of(source, *flags, pages.start);
                let mapping = Mapping { rights: *protection, source, wants_huge: None };
                self.unmap(process, &pages);
                self.mappings(process).place(pages.clone(), mapping);
                self.policy_mapped(process, &pages, &mapping);
            }
            Event::Unmap { range } => self.unmap(process, &pages_of(range)),
            Event::Remap { from, to } => self.remap(process, pages_of(from), pages_of(to)),
            Event::Protect { range, protection } => {
                self.protect(process, &pages_of(range), *protection);
            }
            // MADV_DONTNEED, MADV_FREE and MADV_REMOVE.
            Event::Advise { range, advice: 4 | 8 | 9 } => {
                let pages = pages_of(range);
                self.policy_unmapped(process, &pages);
                self.release(process, &pages);
            }
            // MADV_HUGEPAGE and MADV_NOHUGEPAGE.
            Event::Advise { range, advice: advice @ (14 | 15) } => {
                let wants_huge = Some(*advice == 14);
                for (part, mapping) in self.processes[&process].mappings.within(&pages_of(range)) {
                    // Parts with this advice are left as they are.
                    if mapping.wants_huge != wants_huge {
                        self.cut(process, &part);
                        self.mappings(process).place(part, Mapping { wants_huge, ..mapping });
                    }
                }
            }
            Event::Present { range, known: true, .. } => {
                let mut counters = self.counters;
                for page in pages_of(range) {
                    counters.bytes_present += self.present(process, page);
                }
                self.counters = counters;
            }
            _ => {}
        }
        self.drop_unused_objects();
    }

    /// Makes a page present that the process has had since before its first instruction: a private page that was stored
    /// to, with the present permissions of its mapping. Returns its bytes.
    fn present(&mut self, process: u16, page: u64) -> u64 {
        let Some((range, mapping)) = self.processes[&process].mappings.find(page) else { return 0 };
        if mapping.is_shared() {
            return 0;
        }
        match self.table(process).find(page) {
            None => {
                let rights = Protection { read: true, ..mapping.rights };
                self.first_touch(process, page, (range, Mapping { rights, ..mapping }), true);
            }
            Some((first, held)) if mapping.rights.write && !held.rights.write => {
                self.store_to(process, page, first, held);
            }
            Some(_) => {}
        }
        self.table_mut(process).mark(page, true);
        4096
    }

    /// Handles a page fault.
    pub fn fault(&mut self, process: u16, page: u64, access: Access) {
        let stores = access == Access::Store;
        if let Some((first, held)) = self.table(process).find(page) {
            assert!(stores && !held.rights.write, "page {page} needs no fault");
            return self.store_to(process, page, first, held);
        }
        self.counters.faults += 1;
        let Some((range, mapping)) = self.processes[&process].mappings.find(page) else {
            self.counters.faults_unmapped += 1;
            let rights = Protection::from_bits(7);
            return assert!(self.map_new(process, page, 0, rights));
        };
        // The traced access succeeded, so that its permission is granted even if the mapping lacks it.
        let rights = Protection {
            read: true,
            write: mapping.rights.write || stores,
            execute: mapping.rights.execute || access == Access::Fetch,
        };
        self.first_touch(process, page, (range, Mapping { rights, ..mapping }), stores);
    }

    /// Maps at least one page that has no entry but lies in a mapping.
    fn first_touch(
        &mut self,
        process: u16,
        page: u64,
        (range, mapping): (Range<u64>, Mapping),
        stores: bool,
    ) {
        match mapping.source {
            Source::Object { object, origin, is_shared } => {
                let mut frame = self.frame_of_object(object, page.wrapping_sub(origin));
                let mut rights = mapping.rights;
                if stores && !is_shared {
                    frame = self.take_frame();
                    self.counters.copy_on_write_faults += 1;
                    self.counters.bytes_copied += 4096;
                } else {
                    rights.write &= is_shared;
                }
                let new = NaivePage { order: 0, frame, rights, accessed: false, dirty: false };
                self.add_references(&new);
                self.insert(process, page, new);
            }
            _ => self.policy_fault(process, page, range, mapping),
        }
    }

    /// A store to a page without store permission: copy-on-write.
    fn store_to(&mut self, process: u16, page: u64, first: u64, held: NaivePage) {
        let mapping = self.processes[&process].mappings.find(page).map(|(_, mapping)| mapping);
        let rights = mapping.map_or(Protection::from_bits(7), |mapping| mapping.rights);
        let rights = Protection { write: true, ..rights };
        if mapping.is_some_and(|mapping| mapping.is_shared()) || self.is_sole_user(&held) {
            self.table_mut(process).pages.insert(first, NaivePage { rights, ..held });
            return;
        }
        self.counters.copy_on_write_faults += 1;
        if held.order > 0 {
            self.split(process, first, &(page..page + 1), true);
            let (first, held) = self.table(process).find(page).unwrap();
            if self.is_sole_user(&held) {
                self.table_mut(process).pages.insert(first, NaivePage { rights, ..held });
                return;
            }
        }
        let (first, held) = self.table(process).find(page).unwrap();
        let frame = self.take_frame();
        self.counters.bytes_copied += 4096;
        let copy = NaivePage { order: 0, frame, rights, accessed: false, dirty: false };
        self.add_references(&copy);
        self.table_mut(process).pages.insert(first, copy);
        self.drop_references(&held);
        self.invalidate(process, first..first + 1);
    }

    fn is_sole_user(&self, page: &NaivePage) -> bool {
        (page.frame..page.frame + page.base_pages()).all(|frame| self.references[&frame] == 1)
    }

    fn mappings(&mut self, process: u16) -> &mut Mappings {
        &mut self.processes.get_mut(&process).unwrap().mappings
    }

    fn unmap(&mut self, process: u16, pages: &Range<u64>) {
        self.policy_unmapped(process, pages);
        self.release(process, pages);
        self.mappings(process).remove(pages);
    }

    fn protect(&mut self, process: u16, pages: &Range<u64>, rights: Protection) {
        // Parts with these permissions are left as they are.
        let mut parts = self.processes[&process].mappings.within(pages);
        parts.retain(|(_, mapping)| mapping.rights != rights);
        let mut changed = Vec::new();
        for (part, mapping) in &parts {
            self.cut(process, part);
            self.mappings(process).place(part.clone(), Mapping { rights, ..*mapping });
            for (first, page) in self.table(process).overlapping(part) {
                let may_store = mapping.is_shared() || self.is_sole_user(&page);
                let rights = Protection { write: rights.write && may_store, ..rights };
                if rights != page.rights {
                    self.table_mut(process).pages.insert(first, NaivePage { rights, ..page });
                    changed.push((first, page));
                }
            }
        }
        self.invalidate_all(process, &changed);
    }

    /// `mremap(2)`: pages and mappings move; the part by which a range grows extends its last mapping.
    fn remap(&mut self, process: u16, from: Range<u64>, to: Range<u64>) {
        let (length, from_length) = (to.end - to.start, from.end - from.start);
        let kept = from.start..from.start + length.min(from_length);
        if from.start == to.start {
            self.unmap(process, &(from.end..to.end));
        } else {
            self.cut(process, &kept);
            self.cut(process, &to);
            self.unmap(process, &to);
            self.policy_moving(process, &from);
            self.move_pages(process, &kept, to.start);
        }
        self.unmap(process, &(kept.end..from.end));
        let mut moved = self.processes[&process].mappings.within(&kept);
        if let Some((last, _)) = moved.last_mut()
            && (last.end, length > from_length) == (from.end, true)
        {
            last.end = from.start + length;
        }
        self.mappings(process).remove(&kept);
        for (part, mapping) in moved {
            let offset = to.start.wrapping_sub(from.start);
            let source = match mapping.source {
                Source::Object { object, origin, is_shared } => {
                    Source::Object { object, origin: origin.wrapping_add(offset), is_shared }
                }
                source => source,
            };
            let part = part.start.wrapping_add(offset)..part.end.wrapping_add(offset);
            self.mappings(process).place(part, Mapping { source, ..mapping });
        }
        let new = if from.start == to.start { from.end..to.end } else { to };
        for (part, mapping) in self.processes[&process].mappings.within(&new) {
            self.policy_mapped(process, &part, &mapping);
        }
    }

    /// Moves the pages of a range, keeping their frames, in the largest page sizes that the alignment of addresses and
    /// frames allows.
    fn move_pages(&mut self, process: u16, from: &Range<u64>, to: u64) {
        let pages = self.table(process).overlapping(from);
        for (first, page) in &pages {
            let mut place = to + (first - from.start);
            let mut frame = page.frame;
            let end = place + page.base_pages();
            self.counters.splits += u64::from(!place.is_multiple_of(page.base_pages()));
            while place < end {
                let order = self.orders().rev().find(|order| {
                    let pages = 1 << order;
                    [place, frame].iter().all(|at| at.is_multiple_of(pages)) && place + pages <= end
                });
                let part = NaivePage { order: order.unwrap(), frame, ..*page };
                self.insert(process, place, part);
                (place, frame) = (place + part.base_pages(), frame + part.base_pages());
            }
            self.table_mut(process).pages.remove(first);
            self.free_empty_nodes(process, &(*first..first + page.base_pages()));
        }
        self.invalidate_all(process, &pages);
    }

    /// Splits the pages that a boundary of a range divides.
    fn cut(&mut self, process: u16, range: &Range<u64>) {
        for (first, page) in self.table(process).overlapping(range) {
            if first < range.start || first + page.base_pages() > range.end {
                self.split(process, first, range, true);
            }
        }
    }

    /// Splits a page into the largest parts that lie inside or outside of a range, by one shootdown. Without
    /// `keeps_inside`, unmaps the parts inside.
    fn split(&mut self, process: u16, first: u64, range: &Range<u64>, keeps_inside: bool) {
        let whole = self.table_mut(process).pages.remove(&first).unwrap();
        self.counters.splits += 1;
        let mut parts = vec![(first, whole)];
        while let Some(at) = parts.iter().position(|(start, page)| {
            let end = start + page.base_pages();
            let is_inside = range.start <= *start && end <= range.end;
            let is_outside = end <= range.start || range.end <= *start;
            !is_inside && !is_outside
        }) {
            let (start, page) = parts.remove(at);
            let order = self.orders().rev().find(|order| *order < page.order).unwrap();
            let places = (0..page.base_pages()).step_by(1 << order);
            parts.extend(places.map(|place| {
                (start + place, NaivePage { order, frame: page.frame + place, ..page })
            }));
        }
        parts.sort_by_key(|(start, _)| *start);
        let is_kept = |start: &u64| keeps_inside || !range.contains(start);
        let (kept, released): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|(start, _)| is_kept(start));
        released.iter().for_each(|(_, part)| self.drop_references(part));
        kept.into_iter().for_each(|(start, part)| self.insert(process, start, part));
        self.invalidate(process, first..first + whole.base_pages());
    }

    /// Unmaps the pages of a range and frees their frames.
    fn release(&mut self, process: u16, range: &Range<u64>) {
        let is_inside = |(first, page): &(u64, NaivePage)| {
            range.start <= *first && first + page.base_pages() <= range.end
        };
        let pages = self.table(process).overlapping(range);
        let (whole, cut): (Vec<_>, Vec<_>) = pages.into_iter().partition(is_inside);
        for (first, page) in &whole {
            self.table_mut(process).pages.remove(first);
            self.free_empty_nodes(process, &(*first..first + page.base_pages()));
            self.drop_references(page);
        }
        cut.iter().for_each(|(first, _)| self.split(process, *first, range, false));
        self.invalidate_all(process, &whole);
    }

    /// The page orders of the machine, smallest first.
    fn orders(&self) -> std::vec::IntoIter<u8> {
        let orders = match self.policy {
            NaivePolicy::Trident { largest } => vec![0, 9, largest],
            _ if self.shape.is_tailored => (0..=18).collect(),
            _ => vec![0, 9, 18],
        };
        orders.into_iter()
    }

    fn take_frame(&mut self) -> u64 {
        self.frames.allocate(0).expect("memory does not run out").raw()
    }

    /// Maps new, zeroed memory; `false` if no block of the size is free.
    fn map_new(&mut self, process: u16, first: u64, order: u8, rights: Protection) -> bool {
        let Some(frame) = self.frames.allocate(order) else { return false };
        let page = NaivePage { order, frame: frame.raw(), rights, accessed: false, dirty: false };
        self.counters.bytes_zeroed += page.base_pages() << 12;
        self.add_references(&page);
        self.insert(process, first, page);
        true
    }

    /// Writes the entries of a page and adds the nodes above them.
    fn insert(&mut self, process: u16, first: u64, page: NaivePage) {
        for key in self.table(process).path_to(first, &page) {
            if !self.table(process).has_node(&key) {
                self.add_node(process, key);
            }
        }
        let before = self.table_mut(process).pages.insert(first, page);
        assert!(before.is_none_or(|before| before.order == page.order), "replaced with its parts");
    }

    fn add_node(&mut self, process: u16, key: NodeKey) {
        let merges = self.shape.merges_levels && key.0.is_multiple_of(2);
        let block = if merges { self.frames.buddy.allocate(9) } else { None };
        let frame = block.map_or_else(|| self.take_frame(), FrameNumber::raw);
        let table = self.table_mut(process);
        table.nodes.insert(key, frame);
        table.merged.extend(block.map(|_| key));
    }

    fn free_empty_nodes(&mut self, process: u16, range: &Range<u64>) -> bool {
        let empty = self.table(process).empty_nodes(range);
        for key in &empty {
            let order = self.table(process).order_of_node(key);
            let frame = self.table_mut(process).nodes.remove(key).unwrap();
            self.table_mut(process).merged.remove(key);
            self.frames.buddy.free(FrameNumber::new(frame), order);
        }
        !empty.is_empty()
    }

    fn add_references(&mut self, page: &NaivePage) {
        for frame in page.frame..page.frame + page.base_pages() {
            *self.references.entry(frame).or_insert(0) += 1;
        }
    }

    fn drop_references(&mut self, page: &NaivePage) {
        for frame in page.frame..page.frame + page.base_pages() {
            let left = self.references.get_mut(&frame).unwrap();
            *left -= 1;
            if *left == 0 {
                self.references.remove(&frame);
                self.frames.buddy.free(FrameNumber::new(frame), 0);
            }
        }
    }

    fn source_of(&mut self, source: &MapSource, flags: u64, start: u64) -> Source {
        let is_shared = flags & MAP_SHARED != 0;
        let mut object = |path: Option<&str>, first: u64, is_shared| {
            let is_known = |object: &Object| path.is_some() && object.path.as_deref() == path;
            let known = self.objects.iter().position(is_known);
            let object = known.unwrap_or(self.objects.len());
            if known.is_none() {
                let path = path.map(str::to_owned);
                self.objects.push(Object { path, frames: BTreeMap::new() });
            }
            Source::Object { object, origin: start.wrapping_sub(first), is_shared }
        };
        match source {
            MapSource::Anonymous if is_shared => object(None, 0, true),
            MapSource::Shared => object(None, 0, true),
            MapSource::File { path, offset_bytes } => {
                object(Some(path), offset_bytes >> 12, is_shared)
            }
            MapSource::Anonymous => Source::Anonymous,
            MapSource::Heap => Source::Heap,
            MapSource::Stack => Source::Stack,
        }
    }

    /// The frame of a page of an object; at its first use the page is read from the file, or zeroed.
    fn frame_of_object(&mut self, object: usize, index: u64) -> u64 {
        if let Some(frame) = self.objects[object].frames.get(&index) {
            return *frame;
        }
        let frame = self.take_frame();
        self.references.insert(frame, 1);
        self.objects[object].frames.insert(index, frame);
        match self.objects[object].path {
            Some(_) => self.counters.bytes_read += 4096,
            None => self.counters.bytes_zeroed += 4096,
        }
        frame
    }

    /// Frees shared memory without a mapping; files stay in memory.
    fn drop_unused_objects(&mut self) {
        for object in 0..self.objects.len() {
            let uses = |mapping: &Mapping| matches!(mapping.source, Source::Object { object: used, .. } if used == object);
            let is_used = self.processes.values().any(|process| {
                process.mappings.within(&(0..u64::MAX)).iter().any(|(_, mapping)| uses(mapping))
            });
            if self.objects[object].path.is_none() && !is_used {
                for frame in std::mem::take(&mut self.objects[object].frames).into_values() {
                    let rights = Protection::default();
                    let page = NaivePage { order: 0, frame, rights, accessed: false, dirty: false };
                    self.drop_references(&page);
                }
            }
        }
    }
}
