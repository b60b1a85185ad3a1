//! One set-associative TLB as anybody would write it.

use octavo_curves::Stream;
use octavo_types::{Consumer, Event, ItemKind, PageSize, Segment, VirtAddr};

const NO_PAGE: u64 = u64::MAX;

/// Sets of pages, the most recently used one first, asked for each page of each reference.
pub struct PlainTlb {
    stream: Stream,
    pages: Vec<u64>,
    set_mask: usize,
    ways: usize,
    /// What was not found.
    pub misses: u64,
}

impl PlainTlb {
    /// An empty one of 2^`sets_log2` sets.
    pub fn new(stream: Stream, sets_log2: u8, ways: usize) -> Self {
        let sets = 1 << sets_log2;
        PlainTlb { stream, pages: vec![NO_PAGE; sets * ways], set_mask: sets - 1, ways, misses: 0 }
    }

    #[inline(always)]
    fn reference(&mut self, addr: VirtAddr, size_bytes: u16) {
        let last = addr.wrapping_add(u64::from(size_bytes) - 1);
        let (first, last) = (addr.page(PageSize::BASE).raw(), last.page(PageSize::BASE).raw());
        self.look_up(first);
        if last != first {
            self.look_up(last);
        }
    }

    #[inline(always)]
    fn look_up(&mut self, page: u64) {
        let set = page as usize & self.set_mask;
        let pages = &mut self.pages[set * self.ways..][..self.ways];
        let found = pages.iter().position(|held| *held == page);
        self.misses += u64::from(found.is_none());
        let way = found.unwrap_or(pages.len() - 1);
        pages.copy_within(..way, 1);
        pages[0] = page;
    }
}

impl Consumer for PlainTlb {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let mut data = addresses.iter();
        for item in segment.items() {
            if item.kind == ItemKind::Fetch {
                if self.stream != Stream::Data {
                    self.reference(item.addr, item.size_bytes);
                }
                continue;
            }
            let Some(&addr) = data.next() else { continue };
            if self.stream == Stream::Fetch || (item.guarded && addr == VirtAddr::NULL) {
                continue;
            }
            self.reference(addr, item.size_bytes);
            if item.kind == ItemKind::Modify {
                self.reference(addr, item.size_bytes);
            }
        }
    }

    fn event(&mut self, _: &Event) {}
}
