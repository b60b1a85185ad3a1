//! Blocks and chunks: their numbers, the chunk of each block, and the blocks that may be in a TLB.

use octavo_types::PageSize;

use super::TwoSizesConfig;
use super::group::Group;
use super::page::Page;

/// The next block of a block that is in no list.
const UNLISTED: u32 = u32::MAX;
/// The end of a list.
const END: u32 = u32::MAX - 1;

/// All blocks and chunks, by dense numbers.
pub struct Chunks {
    small_shift: u8,
    blocks_log2: u8,
    /// The chunk of each block.
    of_blocks: Vec<u32>,
    /// The page number of each block.
    numbers: Vec<u64>,
    /// The number of blocks ever touched, by chunk.
    touched: Vec<u32>,
    /// A list for each chunk of the blocks looked up since the chunk last changed, so that a change costs no
    /// more than the look-ups since the last one: the first block by chunk.
    first_in_use: Vec<u32>,
    /// The next block in the list, by block.
    next_in_use: Vec<u32>,
}

impl Chunks {
    /// No blocks and no chunks.
    pub fn new(config: &TwoSizesConfig) -> Self {
        Chunks {
            small_shift: config.small.log2() - PageSize::BASE.log2(),
            blocks_log2: config.large.log2().saturating_sub(config.small.log2()),
            of_blocks: Vec::new(),
            numbers: Vec::new(),
            touched: Vec::new(),
            first_in_use: Vec::new(),
            next_in_use: Vec::new(),
        }
    }

    /// Makes room for this number of blocks and chunks.
    pub fn make_room(&mut self, blocks: usize, chunks: usize) {
        self.of_blocks.resize(blocks, 0);
        self.numbers.resize(blocks, 0);
        self.next_in_use.resize(blocks, UNLISTED);
        self.touched.resize(chunks, 0);
        self.first_in_use.resize(chunks, END);
    }

    /// Adds a block, at its first touch, in base page `page`.
    pub fn add(&mut self, block: u32, chunk: u32, page: u64) {
        self.of_blocks[block as usize] = chunk;
        self.numbers[block as usize] = page >> self.small_shift;
        self.touched[chunk as usize] += 1;
    }

    /// The chunk of each block.
    pub fn of_blocks(&self) -> &[u32] {
        &self.of_blocks
    }

    /// The number of blocks in a chunk.
    pub fn blocks(&self) -> u64 {
        1 << self.blocks_log2
    }

    /// The number of blocks of a chunk that were ever touched.
    pub fn touched(&self, chunk: u32) -> u32 {
        self.touched[chunk as usize]
    }

    /// The page of a block, which the caller looks up.
    #[inline(always)]
    pub fn page(&mut self, block: u32, chunk: u32, is_large: bool) -> Page {
        if self.next_in_use[block as usize] == UNLISTED {
            let first = &mut self.first_in_use[chunk as usize];
            self.next_in_use[block as usize] = std::mem::replace(first, block);
        }
        let id = if is_large { 2 * chunk + 1 } else { 2 * block };
        Page { id, block, number: self.numbers[block as usize] }
    }

    /// Invalidates the entries of a chunk that was promoted or demoted, which have the other size, in all TLBs.
    pub fn changed(&mut self, chunk: u32, is_large: bool, groups: &mut [Group]) {
        groups.iter_mut().for_each(|group| group.cores.process_steps());
        let mut block = std::mem::replace(&mut self.first_in_use[chunk as usize], END);
        let mut last = None;
        while block != END {
            let number = self.numbers[block as usize];
            if is_large {
                let page = Page { id: 2 * block, block, number };
                groups.iter_mut().for_each(|group| group.cores.invalidate_small(page));
            } else {
                let page = Page { id: 2 * chunk + 1, block, number };
                groups.iter_mut().for_each(|group| group.cores.invalidate_block(page));
                last = Some(page);
            }
            block = std::mem::replace(&mut self.next_in_use[block as usize], UNLISTED);
        }
        if let Some(page) = last {
            groups.iter_mut().for_each(|group| group.cores.invalidate_large(page));
        }
    }
}
