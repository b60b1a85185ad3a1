//! The blocks used last, in order, from which their positions in the TLBs of every index follow.
//!
//! All TLBs of a stream see the same uses, and differ only in which of the pages used since a page belong to the
//! same set. So one order of the last [`PAGES`] blocks, each with its page and the index bits of every index, serves
//! all of them. A large page may be in the order several times, by different blocks. Its most recent use counts, or,
//! where the small page number is the index, the most recent one of the blocks that share a set.

use super::page::Page;
use super::positions::{SPLIT, TLBS};
use crate::lanes::{Bits, LEVELS, Lanes, MAX_WAYS, Machine, PAGES, TOP, in_common, up_to_first};
use crate::sets::NOT_BEFORE;

/// The indexes that have bits of their own.
pub const INDEXES: usize = 3;
/// The small page number, also of a block of a large page.
pub const SMALL: usize = 0;
/// The large page number.
pub const LARGE: usize = 1;
/// The number of a page at its own size.
pub const EXACT: usize = 2;

/// A use of a page by one of its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// As [`Page::id`].
    pub id: u32,
    /// The index bits of each index.
    pub bits: [u16; INDEXES],
}

impl Use {
    /// No use.
    pub const NONE: Use = Use { id: Page::NONE.id, bits: [0; INDEXES] };

    /// The use of a page, of 2^`blocks_log2` blocks if it is large, by the block with this number.
    #[inline(always)]
    pub fn new(page: Page, number: u64, blocks_log2: u8) -> Self {
        let (small, large) = (number, number >> blocks_log2);
        let exact = if page.is_large() { large } else { small };
        let bits = [small, large, exact].map(|number| number as u16 % (1 << (LEVELS - 1)));
        Use { id: page.id, bits }
    }

    /// The kind of its page: 1 is large.
    #[inline(always)]
    pub fn kind(self) -> usize {
        self.id as usize % 2
    }
}

/// The order. Sets of uses are masks: bit 0 is the last use.
pub struct Recent {
    ids: [Lanes; 2],
    bits: [Bits; INDEXES],
    /// The uses of large pages.
    large: u32,
    /// By level, the most recent use of each entry where the small page number is the index. At level 0 a page has one
    /// entry. At the last level all uses have entries of their own, since blocks of a page that agree in all index bits
    /// are the same block here. The elements behind the last level make a vector, and are meaningless.
    newest: [u32; MAX_WAYS],
}

/// The uses of a page in the order.
#[derive(Clone, Copy)]
pub struct Found {
    /// All of them.
    pub page: u32,
    /// The one by the same block, or by a block with the same index bits; 0 if there is none.
    pub block: u32,
    /// The number of uses before that of the block, or of all uses if there is none.
    before: usize,
}

impl Recent {
    /// An empty order.
    pub fn new() -> Self {
        Recent {
            ids: [Lanes::EMPTY; 2],
            bits: [Bits([0; PAGES]); INDEXES],
            large: 0,
            newest: [0; MAX_WAYS],
        }
    }

    /// Removes all uses.
    pub fn clear(&mut self) {
        self.newest = [0; MAX_WAYS];
    }

    /// The most recent use of each page.
    #[inline(always)]
    pub fn newest(&self) -> u32 {
        self.newest[0]
    }

    /// The most recent use of each entry with 2^`level` sets that the small page number indexes.
    #[inline(always)]
    pub fn newest_at(&self, level: usize) -> u32 {
        self.newest[level]
    }

    /// The uses of small pages, or of large ones. Bits behind the last use are meaningless.
    #[inline(always)]
    pub fn of_kind(&self, kind: usize) -> u32 {
        if kind == 1 { self.large } else { !self.large }
    }

    /// All uses.
    #[inline(always)]
    pub fn all(&self) -> u32 {
        self.newest[LEVELS - 1]
    }

    /// Finds the uses of the page of `used`.
    #[inline(always)]
    pub fn find<M: Machine>(&self, machine: M, used: Use) -> Found {
        let [near, far] = &self.ids;
        let page = machine.equal(near, used.id) | machine.equal(far, used.id) << MAX_WAYS;
        let page = page & self.all();
        let block = page & machine.equal_bits(&self.bits[SMALL], used.bits[SMALL]);
        let before = (block | !self.all()).trailing_zeros() as usize;
        Found { page, block, before }
    }

    /// Compares the index bits of one index with those of `used`, for [`Machine::sharing_at`]. Uses behind that of the
    /// same block are meaningless.
    #[inline(always)]
    pub fn compare<M: Machine>(
        &self,
        machine: M,
        index: usize,
        used: Use,
        found: Found,
    ) -> M::Compared {
        machine.compare(&self.bits[index], used.bits[index], found.before + 1)
    }

    /// The number of index bits that a use among the first four has in common with each of those before it, in each TLB:
    /// see [`AtTop`](crate::sets::AtTop). Each of these must be of a page of its own.
    #[inline(always)]
    pub fn in_common_at_top(&self, used: Use, found: Found) -> [usize; TLBS] {
        let at = NOT_BEFORE[found.block.trailing_zeros() as usize % TOP];
        let mut common = [0; TLBS];
        for (common, (bits, value)) in common.iter_mut().zip(self.bits.iter().zip(used.bits)) {
            let [a, b, c] = [0, 1, 2].map(|lane: usize| in_common(bits.0[lane], value));
            *common = (a | b << 4 | c << 8 | at) as usize;
        }
        let other_kind = !self.of_kind(used.kind());
        let others = (other_kind & 1 | (other_kind & 2) << 3 | (other_kind & 4) << 6) * 0xf;
        common[SPLIT] = common[EXACT] | others as usize;
        common
    }

    /// Makes a use the last one. `compared` is by the small page number. If another use leaves the order, returns it
    /// with the levels at which it was the most recent one of its entry.
    #[inline(always)]
    pub fn push<M: Machine>(
        &mut self,
        machine: M,
        used: Use,
        found: Found,
        compared: &M::Compared,
    ) -> Option<(Use, u32)> {
        let moving = up_to_first(found.block);
        let mut leaving = None;
        if found.page == found.block && moving >> (PAGES - 1) == 0 {
            // The usual case: no other use of the page, and none that leaves.
            for newest in &mut self.newest {
                let others = *newest & !found.block;
                *newest = others & !moving | others << 1 & moving | 1;
            }
        } else {
            let mut levels = 0;
            for (level, newest) in self.newest.iter_mut().enumerate().take(LEVELS) {
                let others = *newest & !(found.page & machine.sharing_at(compared, level));
                levels |= (others & moving) >> (PAGES - 1) << level;
                *newest = others & !moving | others << 1 & moving | 1;
            }
            if levels != 0 {
                leaving = Some((self.use_at(PAGES - 1), levels));
            }
        }
        let kind = used.kind() as u32;
        self.large = self.large & !moving | (self.large << 1 | kind) & moving;
        let [near, far] = &mut self.ids;
        let middle = machine.last(near);
        machine.push(near, used.id, moving);
        machine.push(far, middle, moving >> MAX_WAYS);
        for (bits, value) in self.bits.iter_mut().zip(used.bits) {
            machine.push_bits(bits, value, moving);
        }
        leaving
    }

    /// Exchanges the last two uses if `exchanged`. If they share an entry anywhere, it is of the same page, and the last
    /// one stays the most recent.
    #[inline(always)]
    pub fn exchange<M: Machine>(&mut self, machine: M, exchanged: bool) {
        let differ = (self.large ^ self.large >> 1) & u32::from(exchanged);
        self.large ^= differ | differ << 1;
        machine.exchange(&mut self.ids[0], exchanged);
        self.bits.iter_mut().for_each(|bits| machine.exchange_bits(bits, exchanged));
    }

    /// The uses from the last use of a page on, the last one first, each with the levels at which it is the most recent
    /// one of its entry. They are removed. None if the order does not have the page.
    pub fn take_from(&mut self, id: u32) -> Vec<(Use, u32)> {
        let uses = self.all().count_ones() as usize;
        let place = (0..uses).find(|place| self.use_at(*place).id == id).unwrap_or(uses);
        let taken = (place..uses).map(|place| {
            let levels = self.newest[..LEVELS].iter().enumerate();
            let levels = levels.map(|(level, newest)| (newest >> place & 1) << level).sum();
            (self.use_at(place), levels)
        });
        let taken = taken.collect();
        let kept = ((1u64 << place) - 1) as u32;
        self.newest.iter_mut().for_each(|newest| *newest &= kept);
        taken
    }

    /// The uses in the set of these index bits at a level. Bits behind the last use are meaningless.
    pub fn in_set(&self, index: usize, level: usize, bits: u16) -> u32 {
        let places = self.bits[index].0.iter().enumerate();
        let is_in = |other: u16| u32::from((other ^ bits).is_multiple_of(1 << level));
        places.map(|(place, other)| is_in(*other) << place).sum()
    }

    fn use_at(&self, place: usize) -> Use {
        let id = self.ids[place / MAX_WAYS].0[place % MAX_WAYS];
        Use { id, bits: [0, 1, 2].map(|index: usize| self.bits[index].0[place]) }
    }
}
