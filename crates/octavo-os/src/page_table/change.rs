//! Changes of a page table. Each is atomic: it succeeds or changes nothing.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::entry::{Entry, level_of};
use super::holes::EntryIndex;
use super::{
    INDEX_BITS, Leaf, MAX_LEVELS, PageTable, PartsUsed, ROOT, Used, Written, aliases_of, index,
    leaf,
};
use crate::frames::{Frames, OutOfMemory};

impl PageTable {
    /// Maps a page of `size` from base page `page` on at `frame`, in place of the pages in its range. If the
    /// same frames were mapped there, only with other permissions or as smaller pages, accessed and dirty
    /// bits are kept (`pte_modify` in Linux).
    ///
    /// # Errors
    ///
    /// If there are no frames for the missing nodes: nothing has changed.
    ///
    /// # Panics
    ///
    /// If the page or the frame is not aligned to the size, or a larger page is mapped there: the caller must
    /// split it first.
    pub fn map(
        &mut self,
        page: PageNumber,
        size: PageSize,
        frame: FrameNumber,
        rights: Protection,
        frames: &mut Frames,
    ) -> Result<Written, OutOfMemory> {
        let place = self.prepare_path(page, size, frame, frames)?;
        let used = self.used_in_place(place, size, frame);
        let parts = self.parts_in_place(place, size, frame);
        let entry = Entry::page(frame, size, rights, self.format.encoding);
        self.update_ranges(page, size, frame, entry.rights());
        Ok(self.write(place, size, entry, (used, parts), frames))
    }

    /// As [`PageTable::map`], with these accessed and dirty bits, for a page that was moved or copied.
    ///
    /// # Errors
    ///
    /// As [`PageTable::map`].
    ///
    /// # Panics
    ///
    /// As [`PageTable::map`].
    pub fn map_used(
        &mut self,
        page: PageNumber,
        size: PageSize,
        frame: FrameNumber,
        rights: Protection,
        used: Used,
        frames: &mut Frames,
    ) -> Result<Written, OutOfMemory> {
        let parts = self.parts(size).unwrap_or_default();
        let used = (used, PartsUsed::of_whole(parts, used));
        self.map_with_parts(Leaf { page, frame, size, rights }, used, frames)
    }

    /// As [`PageTable::map_used`], with accessed and dirty vectors.
    fn map_with_parts(
        &mut self,
        Leaf { page, frame, size, rights }: Leaf,
        used: (Used, PartsUsed),
        frames: &mut Frames,
    ) -> Result<Written, OutOfMemory> {
        let place = self.prepare_path(page, size, frame, frames)?;
        let entry = Entry::page(frame, size, rights, self.format.encoding);
        self.update_ranges(page, size, frame, entry.rights());
        Ok(self.write(place, size, entry, used, frames))
    }

    /// Replaces the page that holds base page `page` by smaller pages in the same frames, with its
    /// permissions, accessed and dirty bits. `parts` has the smaller pages by address; the rest is unmapped.
    ///
    /// # Errors
    ///
    /// If there are no frames for the nodes of smaller pages: nothing has changed.
    ///
    /// # Panics
    ///
    /// If no page is mapped there.
    pub fn replace(
        &mut self,
        page: PageNumber,
        parts: &[(PageNumber, PageSize)],
        frames: &mut Frames,
    ) -> Result<Written, OutOfMemory> {
        frames.ensure_free(self.nodes_for(parts.iter().copied()))?;
        let used = self.used(page).expect("a page is mapped there");
        let vectors = self.vectors(page);
        let whole = self.clear(page, frames).expect("a page is mapped there");
        let mut written = Written::default();
        for (part, size) in parts {
            let leaf = Leaf {
                page: *part,
                frame: whole.frame_of(*part),
                size: *size,
                rights: whole.rights,
            };
            let used = self.used_of_part(&leaf, used, vectors.as_ref());
            let part_written =
                self.map_with_parts(leaf, used, frames).expect("frames were ensured");
            written.entries += part_written.entries;
            written.aliases += part_written.aliases;
        }
        self.free_empty_nodes(page, frames);
        Ok(written)
    }

    /// Unmaps the page that holds a base page and returns it. Empty nodes are freed.
    pub fn unmap(&mut self, page: PageNumber, frames: &mut Frames) -> Option<Leaf> {
        let leaf = self.clear(page, frames)?;
        self.free_empty_nodes(page, frames);
        Some(leaf)
    }

    /// The number of frames for the nodes needed to map `pages`, in order of address. Ignores larger pages
    /// mapped there.
    pub fn nodes_for(&self, pages: impl IntoIterator<Item = (PageNumber, PageSize)>) -> u64 {
        let mut last = [u64::MAX; MAX_LEVELS as usize];
        let mut count = 0;
        for (page, size) in pages {
            let mut node = Some(ROOT);
            for level in (level_of(size)..self.format.levels).rev() {
                let above = node;
                node = node.and_then(|above| self.child(above, page, level + 1));
                let region = page.raw() >> (level * INDEX_BITS);
                if node.is_none() && last[usize::from(level)] != region {
                    last[usize::from(level)] = region;
                    count += match above {
                        Some(above) => self.frames_below(above, page, std::iter::once(level)),
                        None => self.frames_of_new(page, level),
                    };
                }
            }
        }
        count
    }

    /// The child of node `above` of `level` on the path to a base page.
    fn child(&self, above: u32, page: PageNumber, level: u8) -> Option<u32> {
        let child = self.nodes[above as usize].children[index(page, level)];
        (child != ROOT).then_some(child)
    }

    /// The node and level of the entries that map a page; creates missing nodes.
    pub(super) fn prepare_path(
        &mut self,
        page: PageNumber,
        size: PageSize,
        frame: FrameNumber,
        frames: &mut Frames,
    ) -> Result<Place, OutOfMemory> {
        let base_pages = 1u64 << size.base_shift();
        let aligned = |number: u64| number.is_multiple_of(base_pages);
        assert!(aligned(page.raw()) && aligned(frame.raw()), "not aligned");
        let target = level_of(size);
        let (mut number, mut level) = (ROOT, self.format.levels);
        let mut ensured = false;
        let mut parent_with_holes = None;
        if target == 1 {
            self.split_around(page, frames);
        }
        while level > target {
            let index = index(page, level);
            let entry = self.nodes[number as usize].entries[index];
            if entry.has_holes() {
                parent_with_holes = Some((number, index));
            }
            let is_in_the_way = entry.is_page(level) && !entry.has_holes();
            assert!(!is_in_the_way, "a larger page is in the way");
            if !entry.is_present() {
                if !ensured {
                    frames.ensure_free(self.frames_below(number, page, (target..level).rev()))?;
                    ensured = true;
                }
                let child = self.new_child((number, index), page, level - 1, frames)?;
                let at = self.nodes[child as usize].frame;
                let node = &mut self.nodes[number as usize];
                node.set(index, Entry::node(at));
                node.children[index] = child;
            }
            (number, level) = (self.nodes[number as usize].children[index], level - 1);
        }
        let first = index(page, level);
        let before = self.nodes[number as usize].entries[first];
        let larger = before.is_page(level) && before.size(level) > size;
        assert!(!larger, "a larger page is in the way");
        if level == 1 {
            self.note_change(page, (number, first), true);
        }
        Ok(Place { page, node: number, first, level, parent_with_holes })
    }

    /// Writes the entries of a page; the true entry, the first, holds the accessed and dirty bits.
    fn write(
        &mut self,
        Place { page, node, first, level, parent_with_holes }: Place,
        size: PageSize,
        entry: Entry,
        (used, parts): (Used, PartsUsed),
        frames: &mut Frames,
    ) -> Written {
        let count = aliases_of(size, level);
        self.map_in_hardware(page, size, frames);
        if let Some(parent_with_holes) = parent_with_holes {
            self.punch(parent_with_holes, page, frames);
        }
        let has_vectors = self.parts(size).is_some();
        let (own, alias) = match has_vectors {
            true => (entry.with_vectors(), entry.with_vectors().alias(level)),
            false => (entry, entry),
        };
        for index in first..first + count {
            self.drop_child(node, index, level, frames);
            self.uncount_entry(node, index, level);
            self.nodes[node as usize].set(index, alias);
        }
        self.count_page(size, count as u64);
        let entries = &mut self.nodes[node as usize].entries;
        entries[first] = own.with_used(used);
        if has_vectors {
            entries[first + 1] = alias.with_vector_bits(level, parts.bits());
        }
        let written = count as u64 * self.copies_of_entry(node);
        Written { entries: written, aliases: written - 1 }
    }

    /// The accessed and dirty bits of pages already mapped at the place and frames of a new page.
    fn used_in_place(&self, place: Place, size: PageSize, frame: FrameNumber) -> Used {
        let Place { node, first, level, parent_with_holes, .. } = place;
        let mut used = (false, false);
        if let Some(parent_with_holes) = parent_with_holes
            && let Some(part_used) = self.part_used(parent_with_holes, first, frame)
        {
            return part_used;
        }
        for index in first..first + aliases_of(size, level) {
            let frame = frame.plus(((index - first) as u64) << ((level - 1) * INDEX_BITS));
            self.used_below(node, index, level, frame, &mut used);
        }
        used
    }

    /// Adds the accessed and dirty bits of an entry and all below it, if the entry's first frame is `frame`.
    pub(super) fn used_below(
        &self,
        node: u32,
        index: usize,
        level: u8,
        frame: FrameNumber,
        used: &mut Used,
    ) {
        let node = &self.nodes[node as usize];
        let entry = node.entries[index];
        if entry.is_page(level) {
            // An alias holds no accessed and dirty bits, and its frame does not match.
            if entry.frame(level) == frame {
                let (accessed, dirty) = entry.used();
                *used = (used.0 | accessed, used.1 | dirty);
            }
            if entry.has_holes() {
                self.used_of_holes(node.children[index], frame, used);
            }
        } else if entry.is_present() {
            for below in 0..super::ENTRIES {
                let frame = frame.plus((below as u64) << ((level - 2) * INDEX_BITS));
                self.used_below(node.children[index], below, level - 1, frame, used);
            }
        }
    }

    /// Clears the entries of the page that holds a base page, and keeps their node.
    fn clear(&mut self, page: PageNumber, frames: &mut Frames) -> Option<Leaf> {
        if let Some(parent_with_holes) = self.with_holes_at(page) {
            return self.clear_hole(parent_with_holes, page, frames);
        }
        self.split_around(page, frames);
        let (node, first, level) = self.find(page)?;
        let leaf = leaf(page, self.nodes[node as usize].entries[first], level);
        if level == 1 {
            self.note_change(page, (node, first), false);
        }
        self.unmap_in_hardware(&leaf, frames);
        for index in first..first + aliases_of(leaf.size, level) {
            self.uncount_entry(node, index, level);
            self.nodes[node as usize].set(index, Entry::NONE);
        }
        if let Some(ranges) = &mut self.ranges {
            let first = leaf.page.raw();
            let pages = first..first + (1 << leaf.size.base_shift());
            ranges.clear(pages.clone());
            self.note_anchored(pages);
        }
        Some(leaf)
    }

    /// Updates the ranges, if kept, before a page is mapped.
    fn update_ranges(
        &mut self,
        page: PageNumber,
        size: PageSize,
        frame: FrameNumber,
        rights: Protection,
    ) {
        if let Some(ranges) = &mut self.ranges {
            let pages = page.raw()..page.raw() + (1 << size.base_shift());
            ranges.set(pages.clone(), frame, rights);
            self.note_anchored(pages);
        }
    }
}

/// The location of the first entry of a page.
#[derive(Clone, Copy)]
pub(super) struct Place {
    page: PageNumber,
    pub node: u32,
    pub first: usize,
    level: u8,
    /// If `node` is the node of holes of a page with holes: the entry of that page.
    parent_with_holes: Option<EntryIndex>,
}
