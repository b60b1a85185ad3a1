//! LRU sets of a cache as rows: the tags of a set in order of last use, most recent first. Most accesses hit
//! the first tag; others rotate the row by one vector instruction.
//!
//! A row is all or part of one cache line of the host: a simulated cache of 2 MiB with 64-byte lines and 16 ways
//! takes 128 KiB of rows, so that several simulated machines fit into the second-level cache of the host.

use bytemuck::{Pod, Zeroable};
use octavo_types::{InstructionSet, Instructions};

use crate::{Geometry, Replacement, SetArray};

/// The tag of a free way. No tag that [fits](Rows::fits) equals it.
const FREE: u32 = u32::MAX;

/// Tags, each above its dirty bit: a cache line of the host, with one row or several.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
struct Tags([u32; 16]);

/// The rows of a cache of up to `LENGTH` ways: 4, 8 or 16. Tags behind the ways of a row are [`FREE`].
#[derive(Clone, Debug)]
pub(super) struct Rows<const LENGTH: usize> {
    tags: Box<[Tags]>,
    last_way: usize,
    sets_log2: u32,
    instructions: Instructions,
}

impl<const LENGTH: usize> Rows<LENGTH> {
    /// Empty rows; the number of sets is a power of two.
    pub fn new(geometry: Geometry, instructions: Instructions) -> Self {
        debug_assert!(geometry.sets().is_power_of_two() && geometry.ways() <= LENGTH);
        Rows {
            tags: vec![Tags([FREE; 16]); (geometry.sets() * LENGTH).div_ceil(16)].into(),
            last_way: geometry.ways() - 1,
            sets_log2: geometry.sets().trailing_zeros(),
            instructions,
        }
    }

    /// Whether the tag of a line fits into a row. Look-ups of other lines are a caller error.
    #[inline(always)]
    pub fn fits(&self, line: u64) -> bool {
        line >> self.sets_log2 < u64::from(FREE >> 1)
    }

    /// The row of a line, and its clean tag.
    #[inline(always)]
    fn row(&mut self, line: u64) -> (&mut [u32; LENGTH], u32) {
        debug_assert!(self.fits(line));
        let (set, tag) = (self.set(line), (line >> self.sets_log2 << 1) as u32);
        let tags: &mut [u32] = bytemuck::cast_slice_mut(&mut self.tags);
        (&mut tags.as_chunks_mut::<LENGTH>().0[set], tag)
    }

    /// The set of a line.
    #[inline(always)]
    fn set(&self, line: u64) -> usize {
        line as usize & ((1 << self.sets_log2) - 1)
    }

    /// Looks a line up. A hit makes it the most recent and, for a write, dirty.
    #[inline(always)]
    pub fn look_up(&mut self, line: u64, is_write: bool) -> bool {
        let instructions = self.instructions;
        let (row, tag) = self.row(line);
        if row[0] | 1 == tag | 1 {
            // No store if nothing changes: the next look-up would wait for it.
            if row[0] & 1 < u32::from(is_write) {
                row[0] = tag | 1;
            }
            return true;
        }
        let Some(way) = find(instructions, row, tag) else { return false };
        rotate(instructions, row, way, u32::from(is_write));
        true
    }

    /// Whether a line is present. This does not count as a use.
    pub fn contains(&mut self, line: u64) -> bool {
        let instructions = self.instructions;
        let (row, tag) = self.row(line);
        find(instructions, row, tag).is_some()
    }

    /// Makes a present line dirty without a use. Returns whether it is present.
    pub fn mark_dirty(&mut self, line: u64) -> bool {
        let instructions = self.instructions;
        let (row, tag) = self.row(line);
        let way = find(instructions, row, tag);
        way.inspect(|way| row[*way] |= 1).is_some()
    }

    /// Fills a missing line. Returns the evicted least recently used line, and whether it is dirty.
    #[inline(always)]
    pub fn insert(&mut self, line: u64, is_dirty: bool) -> Option<(u64, bool)> {
        let (last, instructions) = (self.last_way, self.instructions);
        let (row, tag) = self.row(line);
        let evicted = std::mem::replace(&mut row[last], tag);
        rotate(instructions, row, last, u32::from(is_dirty));
        (evicted != FREE).then(|| self.line(evicted, line))
    }

    /// The line of a tag in the set of another line, and whether it is dirty.
    #[inline(always)]
    fn line(&self, tag: u32, of_set: u64) -> (u64, bool) {
        (u64::from(tag >> 1) << self.sets_log2 | self.set(of_set) as u64, tag & 1 != 0)
    }

    /// Converts the rows to sets that any line fits into.
    pub fn to_sets(&self) -> SetArray<bool> {
        let geometry = Geometry::new(1 << self.sets_log2, self.last_way as u64 + 1);
        let geometry = geometry.expect("that of the rows");
        let mut sets = SetArray::new(geometry, Replacement::Lru, self.instructions);
        let rows = self.tags.iter().flat_map(|tags| tags.0.as_chunks::<LENGTH>().0);
        for (set, row) in rows.enumerate() {
            // Least recently used first.
            for tag in row.iter().rev().filter(|tag| **tag != FREE) {
                let (line, is_dirty) = self.line(*tag, set as u64);
                sets.insert_missed(set, line, is_dirty);
            }
        }
        sets
    }
}

/// The position of a tag, clean or dirty, in a row of 4, 8 or 16.
#[inline(always)]
fn find<const LENGTH: usize>(
    instructions: Instructions,
    row: &[u32; LENGTH],
    tag: u32,
) -> Option<usize> {
    let found = match instructions.set() {
        InstructionSet::Portable => portable::find(row, tag),
        // SAFETY: `Instructions` values exist only for instruction sets of this processor.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => unsafe { x86::find(row, tag) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => unsafe { x86::find_512(row, tag) },
    };
    (found != 0).then(|| found.trailing_zeros() as usize)
}

/// Moves the tag at `way` to the front of its row and sets `bits` in it; the tags before it move back by one.
#[inline(always)]
fn rotate<const LENGTH: usize>(
    instructions: Instructions,
    row: &mut [u32; LENGTH],
    way: usize,
    bits: u32,
) {
    match instructions.set() {
        InstructionSet::Portable => portable::rotate(row, way, bits),
        // SAFETY: `Instructions` values exist only for instruction sets of this processor.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => unsafe { x86::rotate(row, way, bits) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => unsafe { x86::rotate_512(row, way, bits) },
    }
}

mod portable {
    /// A mask with bit *n* set if the tag is at position *n*.
    #[inline]
    pub fn find(row: &[u32], tag: u32) -> u32 {
        let at = row.iter().position(|held| held | 1 == tag | 1);
        at.map_or(0, |at| 1 << at)
    }

    #[inline]
    pub fn rotate(row: &mut [u32], way: usize, bits: u32) {
        row[..=way].rotate_right(1);
        row[0] |= bits;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::portable;

    const MAX_WAYS: usize = 16;

    /// By way: the source of each tag of the rotated row.
    static SOURCES: [[u32; MAX_WAYS]; MAX_WAYS] = sources();

    const fn sources() -> [[u32; MAX_WAYS]; MAX_WAYS] {
        let mut sources = [[0; MAX_WAYS]; MAX_WAYS];
        let mut way = 0;
        while way < MAX_WAYS {
            let mut to = 0;
            while to < MAX_WAYS {
                sources[way][to] = match to {
                    0 => way as u32,
                    to if to <= way => to as u32 - 1,
                    to => to as u32,
                };
                to += 1;
            }
            way += 1;
        }
        sources
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    #[inline]
    fn four(row: &[u32; 4], tag: u32) -> u32 {
        // SAFETY: the load reads 16 bytes, the size of `row`, and needs no alignment.
        let row = unsafe { _mm_loadu_si128(row.as_ptr().cast()) };
        let clean = _mm_or_si128(row, _mm_set1_epi32(1));
        let equal = _mm_cmpeq_epi32(clean, _mm_set1_epi32((tag | 1) as i32));
        _mm_movemask_ps(_mm_castsi128_ps(equal)) as u32
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    #[inline]
    fn eight(row: &[u32; 8], tag: u32) -> u32 {
        // SAFETY: the load reads 32 bytes, the size of `row`, and needs no alignment.
        let row = unsafe { _mm256_loadu_si256(row.as_ptr().cast()) };
        let clean = _mm256_or_si256(row, _mm256_set1_epi32(1));
        let equal = _mm256_cmpeq_epi32(clean, _mm256_set1_epi32((tag | 1) as i32));
        _mm256_movemask_ps(_mm256_castsi256_ps(equal)) as u32
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    #[inline]
    pub fn find(row: &[u32], tag: u32) -> u32 {
        match row.as_chunks::<8>() {
            ([one], []) => eight(one, tag),
            ([low, high], []) => eight(low, tag) | eight(high, tag) << 8,
            (_, rest) => match rest.as_chunks::<4>() {
                ([one], []) => four(one, tag),
                _ => portable::find(row, tag),
            },
        }
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    #[inline]
    pub fn rotate(row: &mut [u32], way: usize, bits: u32) {
        let sources = &SOURCES[way % MAX_WAYS];
        if let ([one], []) = row.as_chunks_mut::<8>() {
            // SAFETY: loads and stores have 32 bytes, the size of `one` and half of `sources`, and need no
            // alignment.
            unsafe {
                let tags = _mm256_loadu_si256(one.as_ptr().cast());
                let sources = _mm256_loadu_si256(sources.as_ptr().cast());
                let rotated = _mm256_permutevar8x32_epi32(tags, sources);
                let bits = _mm256_zextsi128_si256(_mm_cvtsi32_si128(bits as i32));
                _mm256_storeu_si256(one.as_mut_ptr().cast(), _mm256_or_si256(rotated, bits));
            }
        } else if let ([one], []) = row.as_chunks_mut::<4>() {
            // SAFETY: loads and stores have 16 bytes, the size of `one` and a quarter of `sources`, and need no
            // alignment.
            unsafe {
                let tags = _mm_loadu_ps(one.as_ptr().cast());
                let sources = _mm_loadu_si128(sources.as_ptr().cast());
                let rotated = _mm_permutevar_ps(tags, sources);
                let bits = _mm_castsi128_ps(_mm_cvtsi32_si128(bits as i32));
                _mm_storeu_ps(one.as_mut_ptr().cast(), _mm_or_ps(rotated, bits));
            }
        } else {
            portable::rotate(row, way, bits);
        }
    }

    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,bmi1,bmi2,popcnt"
    )]
    #[inline]
    pub fn find_512(row: &[u32], tag: u32) -> u32 {
        let ([sixteen], []) = row.as_chunks::<16>() else { return find(row, tag) };
        // SAFETY: the load reads 64 bytes, the size of `sixteen`, and needs no alignment.
        let row = unsafe { _mm512_loadu_si512(sixteen.as_ptr().cast()) };
        let clean = _mm512_or_si512(row, _mm512_set1_epi32(1));
        u32::from(_mm512_cmpeq_epi32_mask(clean, _mm512_set1_epi32((tag | 1) as i32)))
    }

    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,bmi1,bmi2,popcnt"
    )]
    #[inline]
    pub fn rotate_512(row: &mut [u32], way: usize, bits: u32) {
        let ([sixteen], []) = row.as_chunks_mut::<16>() else { return rotate(row, way, bits) };
        let sources = &SOURCES[way % MAX_WAYS];
        // SAFETY: loads and stores have 64 bytes, the size of `sixteen` and of `sources`, and need no alignment.
        unsafe {
            let tags = _mm512_loadu_si512(sixteen.as_ptr().cast());
            let sources = _mm512_loadu_si512(sources.as_ptr().cast());
            let rotated = _mm512_permutexvar_epi32(sources, tags);
            let bits = _mm512_zextsi128_si512(_mm_cvtsi32_si128(bits as i32));
            _mm512_storeu_si512(sixteen.as_mut_ptr().cast(), _mm512_or_si512(rotated, bits));
        }
    }
}
