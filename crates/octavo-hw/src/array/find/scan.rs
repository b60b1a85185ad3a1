//! The scan of sets small enough to compare as a whole.

use std::ops::{Deref, DerefMut};

use bytemuck::{Pod, Zeroable};
use octavo_types::{InstructionSet, Instructions};

/// Maximum number of scanned ways.
pub(in super::super) const MAX_SCANNED: usize = 16;

/// Eight keys: a cache line, a vector of AVX-512, two of AVX2.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Keys aligned to cache lines.
#[derive(Clone, Debug)]
pub(in super::super) struct Keys(Box<[Line]>);

impl Keys {
    /// At least `count` copies of `key`.
    pub fn new(key: u64, count: usize) -> Self {
        Keys(vec![Line([key; 8]); count.div_ceil(8)].into_boxed_slice())
    }
}

impl Deref for Keys {
    type Target = [u64];

    #[inline(always)]
    fn deref(&self) -> &[u64] {
        bytemuck::cast_slice(&self.0)
    }
}

impl DerefMut for Keys {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u64] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// A mask of the keys equal to `key` among 4, 8 or 16 keys: bit *n* for position *n*. Zero for other numbers
/// of keys.
#[inline(always)]
pub(in super::super) fn scan(instructions: Instructions, keys: &[u64], key: u64) -> u32 {
    match instructions.set() {
        InstructionSet::Portable => portable(keys, key),
        // SAFETY: `Instructions` values exist only for instruction sets of this processor.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => unsafe { x86::avx2(keys, key) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => unsafe { x86::avx512(keys, key) },
    }
}

/// For any processor, without a branch on the result.
#[inline]
fn portable(keys: &[u64], key: u64) -> u32 {
    let four = |keys: &[u64; 4]| {
        let [a, b, c, d] = keys.map(|held| u32::from(held == key));
        a | b << 1 | c << 2 | d << 3
    };
    match keys.as_chunks::<4>().0 {
        [a] => four(a),
        [a, b] => four(a) | four(b) << 4,
        [a, b, c, d] => four(a) | four(b) << 4 | four(c) << 8 | four(d) << 12,
        _ => 0,
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    #[inline]
    fn four(keys: &[u64; 4], key: u64) -> u32 {
        // SAFETY: the load reads 32 bytes, the size of `keys`, and needs no alignment.
        let keys = unsafe { _mm256_loadu_si256(keys.as_ptr().cast()) };
        let equal = _mm256_cmpeq_epi64(keys, _mm256_set1_epi64x(key as i64));
        _mm256_movemask_pd(_mm256_castsi256_pd(equal)) as u32
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    #[inline]
    pub fn avx2(keys: &[u64], key: u64) -> u32 {
        match keys.as_chunks::<4>().0 {
            [a] => four(a, key),
            [a, b] => four(a, key) | four(b, key) << 4,
            [a, b, c, d] => {
                let low = four(a, key) | four(b, key) << 4;
                low | four(c, key) << 8 | four(d, key) << 12
            }
            _ => 0,
        }
    }

    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,bmi1,bmi2,popcnt"
    )]
    #[inline]
    fn eight(keys: &[u64; 8], key: u64) -> u32 {
        // SAFETY: the load reads 64 bytes, the size of `keys`, and needs no alignment.
        let keys = unsafe { _mm512_loadu_si512(keys.as_ptr().cast()) };
        u32::from(_mm512_cmpeq_epi64_mask(keys, _mm512_set1_epi64(key as i64)))
    }

    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,bmi1,bmi2,popcnt"
    )]
    #[inline]
    pub fn avx512(keys: &[u64], key: u64) -> u32 {
        match keys.as_chunks::<8>() {
            ([a], []) => eight(a, key),
            ([a, b], []) => eight(a, key) | eight(b, key) << 8,
            ([], four) => avx2(four, key),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn all_instruction_sets_agree(
            lines in vec(prop_oneof![0u64..3, (0u64..3).prop_map(|key| key << 32)], 16),
            key in prop_oneof![0u64..3, (0u64..3).prop_map(|key| key << 32)],
        ) {
            for count in [4, 8, 16] {
                let mut keys = Keys::new(u64::MAX, count);
                keys[..count].copy_from_slice(&lines[..count]);
                let bits = lines[..count].iter().enumerate();
                let expected: u32 = bits.map(|(at, held)| u32::from(*held == key) << at).sum();
                for instructions in Instructions::all() {
                    let found = scan(instructions, &keys[..count], key);
                    prop_assert_eq!(found, expected, "{} {}", instructions, count);
                }
            }
        }
    }
}
