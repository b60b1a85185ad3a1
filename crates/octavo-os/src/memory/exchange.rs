//! Exchange of memory by the host in place of copies in a guest (Ram, Panwar and Basu, MICRO 2021): where the contents
//! of a frame move to another one, the guest asks the host to exchange the memory behind both by a hypercall. Contents
//! that stay, as at a copy on write, are always copied.

use octavo_types::{FrameNumber, PageNumber, PageSize};

use super::invalidations::GatheredInvalidation;
use super::{Memory, ProcessId, around, base_pages};
use crate::page_table::{Leaf, Used};
use crate::vmas::Pages;

/// A guest's request to exchange the memory behind two ranges of its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// The first frame with the contents.
    pub from: FrameNumber,
    /// The first frame that gets them.
    pub to: FrameNumber,
    /// The number of frames.
    pub frames: u64,
}

/// Exchanges of one hypercall: as many as addresses fit into a page.
const EXCHANGES_OF_HYPERCALL: usize = 512;

impl Memory {
    /// Counts `frames` frames whose contents move to others and are not needed where they were: a copy, or a request to
    /// the host, if [`Memory::exchange_from`] says so.
    pub(super) fn moved(&mut self, from: FrameNumber, to: FrameNumber, frames: u64) {
        match self.exchange_from {
            Some(smallest) if frames >= base_pages(smallest) => {
                self.record_copy(from, to, frames);
                self.exchanges.push(Exchange { from, to, frames });
            }
            _ => self.copied(from, to, frames),
        }
    }

    /// The requests to the host since the last call.
    pub fn take_exchanges(&mut self) -> Vec<Exchange> {
        std::mem::take(&mut self.exchanges)
    }

    /// Counts requests to the host, which were `made` or not; `None` if there is no host. What was not exchanged is
    /// copied.
    pub fn count_exchanges(&mut self, exchanges: &[Exchange], made: Option<&[bool]>) {
        if made.is_some() {
            self.counters.hypercalls += exchanges.len().div_ceil(EXCHANGES_OF_HYPERCALL) as u64;
        }
        for (number, exchange) in exchanges.iter().enumerate() {
            let bytes = exchange.frames * PageSize::BASE.bytes();
            match made.is_some_and(|made| made[number]) {
                true => self.counters.bytes_exchanged += bytes,
                false => self.counters.bytes_copied += bytes,
            }
        }
    }

    /// Exchanges the memory behind ranges of pages of a process, in one shootdown: of its guest, if the process is a
    /// virtual machine. Where only one range is mapped, its pages move. Returns for each exchange whether it was made:
    /// not if a page reaches out of its range, is shared or composite, or if there are no frames for the page table,
    /// and never where a placement chooses frames.
    pub fn exchange_pages(&mut self, process: ProcessId, exchanges: &[Exchange]) -> Vec<bool> {
        let mut changed = GatheredInvalidation::default();
        let mut exchange = |exchange: &Exchange| {
            let pages = |first: FrameNumber| first.raw()..first.raw() + exchange.frames;
            let ranges = [pages(exchange.from), pages(exchange.to)];
            let is_made = self.exchange(process, &ranges);
            if is_made {
                ranges.into_iter().for_each(|pages| changed.add(pages));
            }
            is_made
        };
        let made = exchanges.iter().map(&mut exchange).collect();
        self.invalidate_gathered(process, changed);
        made
    }

    fn exchange(&mut self, process: ProcessId, ranges: &[Pages; 2]) -> bool {
        let table = &self.process(process).table;
        let leaves = ranges.each_ref().map(|pages| self.leaves(process, pages));
        let is_movable = |leaf: &Leaf, pages: &Pages| {
            let own = around(leaf.page, leaf.size);
            let is_inside = pages.start <= own.start && own.end <= pages.end;
            is_inside && !table.is_part(leaf.page) && !self.is_shared(leaf)
        };
        let are_movable = |(leaves, pages): (&Vec<Leaf>, &Pages)| {
            leaves.iter().all(|leaf| is_movable(leaf, pages))
        };
        if self.placement.is_some() || !leaves.iter().zip(ranges).all(are_movable) {
            return false;
        }
        let moved: Vec<(Leaf, Leaf, Used)> = [(0, 1), (1, 0)]
            .into_iter()
            .flat_map(|(from, to)| leaves[from].iter().map(move |leaf| (leaf, from, to)))
            .map(|(leaf, from, to)| {
                let place = leaf.page.raw() - ranges[from].start;
                let page = PageNumber::new(ranges[to].start + place);
                (*leaf, Leaf { page, ..*leaf }, table.used(leaf.page).unwrap_or_default())
            })
            .collect();
        let nodes = table.nodes_for(moved.iter().map(|(_, to, _)| (to.page, to.size)));
        if self.frames.ensure_free(nodes).is_err() {
            return false;
        }
        for (from, to, _) in &moved {
            // The page that takes its place replaces its entry.
            let replacing = self.process(process).table.leaf(to.page);
            if replacing.is_none_or(|other| (other.page, other.size) != (to.page, to.size)) {
                self.unmap(process, from.page);
            }
        }
        for (_, to, used) in &moved {
            self.map_used(process, to, to.rights, *used).expect("frames were ensured");
        }
        true
    }
}
