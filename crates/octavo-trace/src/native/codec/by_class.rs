//! The deltas of a batch of addresses, gathered by class.

use octavo_types::{InstructionSet, Instructions};

/// How many addresses a batch has: few enough for the nearest cache.
pub const BATCH: usize = 512;
/// Deltas are gathered in parts of this many; a class that no delta of a part has is skipped.
const PART: usize = 16;

/// The deltas of each class from 1 on, one after the other, in as many bytes as the class has; the
/// bytes behind them have no meaning.
pub struct ByClass {
    pub one: [[u8; 1]; BATCH],
    pub two: [[u8; 2]; BATCH],
    pub four: [[u8; 4]; BATCH],
    pub eight: [[u8; 8]; BATCH],
}

impl Default for ByClass {
    fn default() -> Self {
        ByClass {
            one: [[0]; BATCH],
            two: [[0; 2]; BATCH],
            four: [[0; 4]; BATCH],
            eight: [[0; 8]; BATCH],
        }
    }
}

impl ByClass {
    /// Gathers the deltas of these symbols; returns how many each class from 1 on has.
    pub fn gather(
        &mut self,
        symbols: &[u8; BATCH],
        deltas: &[u64; BATCH],
        instructions: Instructions,
    ) -> [usize; 4] {
        match instructions.set() {
            // SAFETY: `Instructions` is constructed only for sets that the processor has.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { self.gather_avx512(symbols, deltas) },
            _ => self.gather_portable(symbols, deltas),
        }
    }

    fn gather_portable(&mut self, symbols: &[u8; BATCH], deltas: &[u64; BATCH]) -> [usize; 4] {
        let [mut one, mut two, mut four, mut eight] = [0; 4];
        // A delta is written for each class, over the one before where that was of another class.
        for (symbols, deltas) in symbols.chunks_exact(PART).zip(deltas.chunks_exact(PART)) {
            let greatest_class = symbols.iter().copied().max().unwrap_or(0) / 4;
            if greatest_class >= 3 {
                for (symbol, delta) in symbols.iter().zip(deltas) {
                    self.four[four % BATCH] = (*delta as u32).to_le_bytes();
                    self.eight[eight % BATCH] = delta.to_le_bytes();
                    four += usize::from(symbol / 4 == 3);
                    eight += usize::from(symbol / 4 == 4);
                }
            }
            if greatest_class >= 1 {
                for (symbol, delta) in symbols.iter().zip(deltas) {
                    self.one[one % BATCH] = [*delta as u8];
                    self.two[two % BATCH] = (*delta as u16).to_le_bytes();
                    one += usize::from(symbol / 4 == 1);
                    two += usize::from(symbol / 4 == 2);
                }
            }
        }
        [one, two, four, eight]
    }

    /// As [`ByClass::gather_portable`], 64 symbols at a time.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
    fn gather_avx512(&mut self, symbols: &[u8; BATCH], deltas: &[u64; BATCH]) -> [usize; 4] {
        use std::arch::x86_64::*;
        let mut counts = [0; 4];
        let groups = symbols.as_chunks::<64>().0.iter().zip(deltas.as_chunks::<64>().0);
        for (symbols, deltas) in groups {
            // SAFETY: 64 symbols are a vector of 64 bytes, and so are eight deltas.
            let (symbols, deltas) = unsafe {
                let eights = deltas.as_chunks::<8>().0;
                let eight = |at: usize| _mm512_loadu_si512(eights[at].as_ptr().cast());
                (_mm512_loadu_si512(symbols.as_ptr().cast()), std::array::from_fn::<_, 8, _>(eight))
            };
            let classes = _mm512_and_si512(_mm512_srli_epi16(symbols, 2), _mm512_set1_epi8(0x3f));
            let of_class = |class: i8| _mm512_cmpeq_epi8_mask(classes, _mm512_set1_epi8(class));
            // At most as many deltas are gathered before a group as it has predecessors: a whole
            // vector fits behind them.
            let [one, two, four, eight] = &mut counts;
            let mask = of_class(1);
            if mask != 0 {
                let low = deltas.map(|eight| _mm512_cvtepi64_epi8(eight));
                let pair = |at: usize| _mm_unpacklo_epi64(low[at], low[at + 1]);
                let all = _mm512_inserti32x4::<3>(
                    _mm512_inserti32x4::<2>(
                        _mm512_inserti32x4::<1>(_mm512_castsi128_si512(pair(0)), pair(2)),
                        pair(4),
                    ),
                    pair(6),
                );
                let to = self.one[*one..].as_mut_ptr();
                // SAFETY: see above.
                unsafe { _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi8(mask, all)) };
                *one += mask.count_ones() as usize;
            }
            let mask = of_class(2);
            if mask != 0 {
                for (half, mask) in [mask as u32, (mask >> 32) as u32].into_iter().enumerate() {
                    let low = |at: usize| _mm512_cvtepi64_epi16(deltas[4 * half + at]);
                    let pair = |at: usize| _mm256_set_m128i(low(at + 1), low(at));
                    let all = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(pair(0)), pair(2));
                    let to = self.two[*two..].as_mut_ptr();
                    // SAFETY: see above.
                    unsafe {
                        _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi16(mask, all));
                    }
                    *two += mask.count_ones() as usize;
                }
            }
            let mask = of_class(3);
            if mask != 0 {
                for (quarter, mask) in mask.to_le_bytes().as_chunks::<2>().0.iter().enumerate() {
                    let mask = u16::from_le_bytes(*mask);
                    let low = |at: usize| _mm512_cvtepi64_epi32(deltas[2 * quarter + at]);
                    let all = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low(0)), low(1));
                    let to = self.four[*four..].as_mut_ptr();
                    // SAFETY: see above.
                    unsafe {
                        _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi32(mask, all));
                    }
                    *four += mask.count_ones() as usize;
                }
            }
            let mask = of_class(4);
            if mask != 0 {
                for (mask, deltas) in mask.to_le_bytes().into_iter().zip(deltas) {
                    let to = self.eight[*eight..].as_mut_ptr();
                    // SAFETY: see above.
                    unsafe {
                        _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi64(mask, deltas));
                    }
                    *eight += mask.count_ones() as usize;
                }
            }
        }
        counts
    }
}
