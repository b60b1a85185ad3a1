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
    /// A list for each chunk of the blocks looked up since the chunk last changed, so that a change invalidates no more
    /// pages than there were look-ups since the last one: the first block by chunk.
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

    /// The page number of each block.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Puts a block into the list of its chunk, because it is looked up.
    #[inline(always)]
    pub fn list(&mut self, block: u32) {
        if self.next_in_use[block as usize] == UNLISTED {
            let first = &mut self.first_in_use[self.of_blocks[block as usize] as usize];
            self.next_in_use[block as usize] = std::mem::replace(first, block);
        }
    }

    /// Invalidates the entries of a chunk that was promoted or demoted, which have the other size, in all TLBs. There
    /// must be no pending steps.
    pub fn changed(&mut self, chunk: u32, is_large: bool, groups: &mut [Group]) {
        let mut invalidate = |page: Page| {
            let number = self.numbers[page.block as usize];
            groups.iter_mut().for_each(|group| group.cores.invalidate(page, number));
        };
        let first = std::mem::replace(&mut self.first_in_use[chunk as usize], END);
        if !is_large && first != END {
            invalidate(Page::new(first, chunk, true));
        }
        let mut block = first;
        while block != END {
            if is_large {
                invalidate(Page::new(block, chunk, false));
            }
            block = std::mem::replace(&mut self.next_in_use[block as usize], UNLISTED);
        }
    }
}
