//! Demand paging with frame reservation (Guvenilir and Patt, ISCA 2020, section III-B.1; for huge pages alone
//! Navarro et al., OSDI 2002).

use std::collections::BTreeSet;
use std::ops::Range;

use super::mappings::{Mapping, Source};
use super::{NaiveOs, NaivePage};

/// The sizes that a reservation policy reserves, and the condition for promotion.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The share of utilised base pages at which a page is promoted.
    pub percent: u64,
    /// The orders of the smallest and of the largest reservation.
    pub smallest: u8,
    pub largest: u8,
    /// The order of the largest reservation that may reach past the end of the heap.
    pub heap: u8,
    /// Whether memory is reserved when it is mapped rather than at the first touch.
    pub when_mapped: bool,
}

/// A block of frames set aside for an aligned range of pages.
#[derive(Clone, Debug)]
pub struct Reservation {
    process: u16,
    start: u64,
    order: u8,
    frame: u64,
    /// The part of its pages that is mapped: the heap may end inside the block and grow later.
    mapped: Range<u64>,
    /// The identifier in the list of reserved frames, which records the unclaimed frames.
    id: u64,
    /// Pages that were mapped from it by a fault on them.
    utilised: BTreeSet<u64>,
}

impl Reservation {
    fn pages(&self) -> Range<u64> {
        self.start..self.start + (1 << self.order)
    }

    fn frames(&self, pages: &Range<u64>) -> Range<u64> {
        self.frame + pages.start - self.start..self.frame + pages.end - self.start
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The fewest aligned blocks of at most `2^largest` pages that span a range, by first page and order.
fn blocks_of(range: &Range<u64>, largest: u8) -> Vec<(u64, u8)> {
    let mut blocks = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let fits =
            |order: &u8| start.is_multiple_of(1 << order) && start + (1 << order) <= range.end;
        let order = (0..=largest).rev().find(fits).unwrap();
        blocks.push((start, order));
        start += 1 << order;
    }
    blocks
}

impl NaiveOs {
    /// Serves a fault from a reservation, reserving memory first if needed. Returns whether a reservation had the
    /// frame.
    pub(super) fn fault_by_reservation(
        &mut self,
        rules: Rules,
        process: u16,
        page: u64,
        range: &Range<u64>,
        mapping: &Mapping,
    ) -> bool {
        if !self.is_reserved(process, &(page..page + 1)) {
            self.reserve_around(rules, process, page, range, mapping);
        }
        // Several reservations may cover the page, but at most one has its frame left: the others were used up or
        // broken.
        let frames = &self.frames;
        let has_frame = |reservation: &&mut Reservation| {
            let frame = (reservation.frame + page).wrapping_sub(reservation.start);
            reservation.process == process
                && reservation.mapped.contains(&page)
                && frames.left(reservation.id).is_some_and(|left| left.contains(&frame))
        };
        let Some(found) = self.reservations.iter_mut().find(has_frame) else { return false };
        found.utilised.insert(page);
        let found = found.clone();
        self.frames.record_use(found.id);
        let sizes = self.orders().filter(|order| *order <= found.order);
        let grown = sizes.map(|order| (page >> order << order, order));
        let grown = grown.rev().find(|&(start, order)| {
            let pages = start..start + (1 << order);
            let utilised = found.utilised.range(pages.clone()).count() as u64;
            let may_grow = || self.may_grow(&found, &pages, range, mapping);
            utilised * 100 >= rules.percent * (1 << order) && (order == 0 || may_grow())
        });
        let (start, order) = grown.unwrap();
        self.grow(&found, start, order, mapping);
        true
    }

    /// Whether the pages of a range may be promoted to one page: all lie in the mapping, are mapped from the block,
    /// private, and have the permissions of the mapping.
    fn may_grow(
        &self,
        reservation: &Reservation,
        pages: &Range<u64>,
        range: &Range<u64>,
        mapping: &Mapping,
    ) -> bool {
        let is_equal = |(first, page): &(u64, NaivePage)| {
            let frame = reservation.frames(&(*first..first + 1)).start;
            page.frame == frame && page.rights == mapping.rights && self.is_sole_user(page)
        };
        range.start <= pages.start
            && pages.end <= range.end
            && self.table(reservation.process).overlapping(pages).iter().all(is_equal)
    }

    /// Maps an aligned range as one page at its place in the block.
    fn grow(&mut self, reservation: &Reservation, start: u64, order: u8, mapping: &Mapping) {
        let pages = start..start + (1 << order);
        let parts = self.table(reservation.process).overlapping(&pages);
        let claimed = self.frames.take(reservation.id, reservation.frames(&pages));
        self.counters.bytes_zeroed += claimed.len() as u64 * 4096;
        self.counters.bytes_mapped_untouched += (claimed.len() as u64 - 1) * 4096;
        self.counters.promotions += u64::from(!parts.is_empty());
        self.references.extend(claimed.iter().map(|frame| (*frame, 1)));
        let new = NaivePage {
            order,
            frame: reservation.frames(&pages).start,
            rights: mapping.rights,
            accessed: parts.iter().any(|(_, part)| part.accessed),
            dirty: parts.iter().any(|(_, part)| part.dirty),
        };
        for (first, _) in &parts {
            self.table_mut(reservation.process).pages.remove(first);
        }
        self.insert(reservation.process, start, new);
        // A page of 2 MiB or more has no table below it, which walk caches must drop; other growth leaves every
        // translation right (section III-C.2).
        if self.free_empty_nodes(reservation.process, &pages) {
            self.invalidate(reservation.process, pages);
        }
    }

    /// Whether a reservation with frames left overlaps a range.
    fn is_reserved(&self, process: u16, pages: &Range<u64>) -> bool {
        let overlaps = |reservation: &&Reservation| {
            reservation.process == process && overlap(&reservation.pages(), pages)
        };
        let mut reservations = self.reservations.iter().filter(overlaps);
        reservations.any(|reservation| self.frames.left(reservation.id).is_some())
    }

    /// The number of frames that are reserved and not in use.
    pub fn reserved_frames(&self) -> u64 {
        let left =
            self.reservations.iter().filter_map(|reservation| self.frames.left(reservation.id));
        left.map(|left| left.len() as u64).sum()
    }

    pub fn broken_reservations(&self) -> u64 {
        self.frames.broken
    }

    /// Reserves the largest free block around a page that lies in its mapping and is untouched.
    fn reserve_around(
        &mut self,
        rules: Rules,
        process: u16,
        page: u64,
        range: &Range<u64>,
        mapping: &Mapping,
    ) {
        if self.reserve_heap(rules, process, page, mapping) {
            return;
        }
        let mut is_smaller = false;
        for order in (rules.smallest..=rules.largest).rev() {
            let start = page >> order << order;
            let pages = start..start + (1 << order);
            if range.start <= pages.start && pages.end <= range.end && self.is_open(process, &pages)
            {
                if self.reserve(process, start, order, pages) {
                    self.counters.fallbacks += u64::from(is_smaller);
                    return;
                }
                is_smaller = true;
            }
        }
        self.counters.fallbacks += u64::from(is_smaller);
    }

    /// Reserves the largest free block around a page of the heap that holds no other mapping, so that the heap may grow
    /// into it.
    fn reserve_heap(&mut self, rules: Rules, process: u16, page: u64, mapping: &Mapping) -> bool {
        if mapping.source != Source::Heap {
            return false;
        }
        (rules.smallest..=rules.heap).rev().any(|order| {
            let start = page >> order << order;
            let pages = start..start + (1 << order);
            let mapped = self.processes[&process].mappings.within(&pages);
            mapped.len() == 1
                && mapped[0].1 == *mapping
                && self.is_open(process, &pages)
                && self.reserve(process, start, order, mapped[0].0.clone())
        })
    }

    /// Handles a new mapping in a range: if the heap has grown, its reservation covers the new part; other reservations
    /// that reach into the range end there.
    pub(super) fn claim(&mut self, process: u16, pages: &Range<u64>, mapping: &Mapping) {
        let mut ended = Vec::new();
        let reaches = |reservation: &&mut Reservation| {
            reservation.process == process && overlap(&reservation.pages(), pages)
        };
        for reservation in self.reservations.iter_mut().filter(reaches) {
            if mapping.source == Source::Heap && reservation.mapped.end == pages.start {
                reservation.mapped.end = pages.end.min(reservation.pages().end);
            } else if !overlap(&reservation.mapped, pages) {
                ended.push(
                    pages.start.max(reservation.start)..pages.end.min(reservation.pages().end),
                );
            }
        }
        ended.iter().for_each(|range| self.end_reservations(process, range));
    }

    /// Reserves a new mapping's memory: "an aligned 28kB request results in 16kB+8kB+4kB".
    pub(super) fn reserve_range(
        &mut self,
        rules: Rules,
        process: u16,
        pages: &Range<u64>,
        mapping: &Mapping,
    ) {
        // A mapping larger than memory is reserved in parts, at their first touch.
        if pages.end - pages.start > self.shape.frames {
            return;
        }
        self.reserve_heap(rules, process, pages.start, mapping);
        for (start, order) in blocks_of(pages, rules.largest) {
            self.reserve_or_halves(rules, process, start, order, true);
        }
    }

    fn reserve_or_halves(
        &mut self,
        rules: Rules,
        process: u16,
        start: u64,
        order: u8,
        is_wanted: bool,
    ) {
        if order < rules.smallest {
            return;
        }
        let pages = start..start + (1 << order);
        let is_open = self.is_open(process, &pages);
        if !is_open || !self.reserve(process, start, order, pages) {
            self.counters.fallbacks += u64::from(is_open && is_wanted);
            self.reserve_or_halves(rules, process, start, order - 1, false);
            self.reserve_or_halves(rules, process, start + (1 << (order - 1)), order - 1, false);
        }
    }

    /// Whether nothing in a range has been touched or reserved.
    fn is_open(&self, process: u16, pages: &Range<u64>) -> bool {
        self.processes[&process].is_untouched(pages) && !self.is_reserved(process, pages)
    }

    /// Reserves a free block; `false` if there is none.
    fn reserve(&mut self, process: u16, start: u64, order: u8, mapped: Range<u64>) -> bool {
        self.last_id += 1;
        let id = self.last_id;
        let Some(frame) = self.frames.reserve(id, order) else { return false };
        let utilised = BTreeSet::new();
        let frame = frame.raw();
        let reservation = Reservation { process, start, order, frame, mapped, id, utilised };
        self.reservations.push(reservation);
        true
    }

    /// Ends reservations in a range. The parts outside of the range become smaller reservations, of at least two
    /// frames.
    pub(super) fn end_reservations(&mut self, process: u16, range: &Range<u64>) {
        let ends = |reservation: &Reservation| {
            reservation.process == process && overlap(&reservation.pages(), range)
        };
        let ended: Vec<_> =
            self.reservations.iter().filter(|reservation| ends(reservation)).cloned().collect();
        self.reservations.retain(|reservation| !ends(reservation));
        for reservation in ended {
            let pages = reservation.pages();
            let outside = [pages.start..range.start, range.end..pages.end];
            for (start, order) in outside.iter().flat_map(|part| blocks_of(part, reservation.order))
            {
                let part = start..start + (1 << order);
                let mapped =
                    part.start.max(reservation.mapped.start)..part.end.min(reservation.mapped.end);
                if order > 0 && !mapped.is_empty() && self.frames.left(reservation.id).is_some() {
                    self.last_id += 1;
                    let id = self.last_id;
                    self.frames.part(reservation.id, reservation.frames(&part), id);
                    let utilised = reservation.utilised.range(part.clone()).copied().collect();
                    let frame = reservation.frames(&part).start;
                    self.reservations.push(Reservation {
                        process,
                        start,
                        order,
                        frame,
                        mapped,
                        id,
                        utilised,
                    });
                }
            }
            self.frames.give_back(reservation.id, reservation.frames(&pages));
        }
    }
}
