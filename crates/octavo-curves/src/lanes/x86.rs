//! Vectors of x86-64.
//!
//! A value of these types proves that the processor has its instructions; only its construction is
//! unsafe. The methods must be inlined into functions that are compiled for these instructions, and
//! have no closures, which might not be inlined.

use std::arch::x86_64::*;

use super::{Bits, LEVELS, Lanes, MAX_WAYS, Machine, NONE, Order, differing_from};

/// The number of each lane.
static LANES: [u32; MAX_WAYS] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// The bits of an index that select the set, for each level.
const MASKS: [u16; LEVELS] = {
    let mut all = [0; LEVELS];
    let mut level = 0;
    while level < LEVELS {
        all[level] = (1 << level) - 1;
        level += 1;
    }
    all
};

/// [`MASKS`], twice in each word, since a double word is broadcast faster than a word.
static DOUBLE_MASKS: [u32; LEVELS] = {
    let mut all = [0; LEVELS];
    let mut level = 0;
    while level < LEVELS {
        all[level] = ((1 << level) - 1) * 0x1_0001;
        level += 1;
    }
    all
};

/// A processor with AVX2.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// The proof.
    ///
    /// # Safety
    ///
    /// The processor must have AVX2.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Avx2(())
    }

    /// The halves of some lanes.
    #[inline(always)]
    fn load(self, lanes: &Lanes) -> [__m256i; 2] {
        let from: *const __m256i = lanes.0.as_ptr().cast();
        // SAFETY: there is AVX2; `lanes` has the size of two vectors, and is aligned to 64 bytes.
        unsafe { [_mm256_load_si256(from), _mm256_load_si256(from.add(1))] }
    }

    #[inline(always)]
    fn store(self, lanes: &mut Lanes, halves: [__m256i; 2]) {
        let to: *mut __m256i = lanes.0.as_mut_ptr().cast();
        // SAFETY: as in `load`.
        unsafe {
            _mm256_store_si256(to, halves[0]);
            _mm256_store_si256(to.add(1), halves[1]);
        }
    }

    /// The differences of all index bits from a value, so arranged that packing both vectors puts them in order.
    #[inline(always)]
    fn differences(self, bits: &Bits, value: u16) -> [__m256i; 2] {
        let from: *const __m256i = bits.0.as_ptr().cast();
        // SAFETY: there is AVX2; `bits` has the size of two vectors, and is aligned to 64 bytes.
        unsafe {
            let (low, high) = (_mm256_load_si256(from), _mm256_load_si256(from.add(1)));
            let value = _mm256_set1_epi16(value as i16);
            [
                _mm256_xor_si256(_mm256_permute2x128_si256::<0x20>(low, high), value),
                _mm256_xor_si256(_mm256_permute2x128_si256::<0x31>(low, high), value),
            ]
        }
    }

    /// All bits of the lanes in the mask `lanes`, in both halves.
    #[inline(always)]
    fn masks(self, lanes: u32) -> [__m256i; 2] {
        // SAFETY: there is AVX2.
        unsafe {
            let low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let high = _mm256_slli_epi32::<8>(low);
            let lanes = _mm256_set1_epi32(lanes as i32);
            [
                _mm256_cmpeq_epi32(_mm256_and_si256(lanes, low), low),
                _mm256_cmpeq_epi32(_mm256_and_si256(lanes, high), high),
            ]
        }
    }
}

impl Machine for Avx2 {
    /// The differences from the value.
    type Compared = [__m256i; 2];

    #[inline(always)]
    fn equal(self, lanes: &Lanes, id: u32) -> u32 {
        let [low, high] = self.load(lanes);
        // SAFETY: there is AVX2.
        unsafe {
            let id = _mm256_set1_epi32(id as i32);
            let low = _mm256_castsi256_ps(_mm256_cmpeq_epi32(low, id));
            let high = _mm256_castsi256_ps(_mm256_cmpeq_epi32(high, id));
            _mm256_movemask_ps(low) as u32 | (_mm256_movemask_ps(high) as u32) << 8
        }
    }

    #[inline(always)]
    fn push(self, lanes: &mut Lanes, id: u32, moving: u32) {
        let old = self.load(lanes);
        let moving = self.masks(moving);
        // SAFETY: there is AVX2.
        let new = unsafe {
            // Each half with its last lane first.
            let sources = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
            let rotated = [
                _mm256_permutevar8x32_epi32(old[0], sources),
                _mm256_permutevar8x32_epi32(old[1], sources),
            ];
            let low = _mm256_blend_epi32::<1>(rotated[0], _mm256_set1_epi32(id as i32));
            let high = _mm256_blend_epi32::<1>(rotated[1], rotated[0]);
            [
                _mm256_blendv_epi8(old[0], low, moving[0]),
                _mm256_blendv_epi8(old[1], high, moving[1]),
            ]
        };
        self.store(lanes, new);
    }

    #[inline(always)]
    fn last(self, lanes: &Lanes) -> u32 {
        let [_, high] = self.load(lanes);
        // SAFETY: there is AVX2.
        unsafe { _mm256_extract_epi32::<7>(high) as u32 }
    }

    #[inline(always)]
    fn pull(self, lanes: &mut Lanes, moving: u32) {
        let old = self.load(lanes);
        let moving = self.masks(moving);
        // SAFETY: there is AVX2.
        let new = unsafe {
            // Each half with its first lane last.
            let sources = _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 0);
            let rotated = [
                _mm256_permutevar8x32_epi32(old[0], sources),
                _mm256_permutevar8x32_epi32(old[1], sources),
            ];
            let low = _mm256_blend_epi32::<0x80>(rotated[0], rotated[1]);
            let high = _mm256_blend_epi32::<0x80>(rotated[1], _mm256_set1_epi32(NONE as i32));
            [
                _mm256_blendv_epi8(old[0], low, moving[0]),
                _mm256_blendv_epi8(old[1], high, moving[1]),
            ]
        };
        self.store(lanes, new);
    }

    #[inline(always)]
    fn push_bits(self, bits: &mut Bits, value: u16, moving: u32) {
        let at: *mut __m256i = bits.0.as_mut_ptr().cast();
        // SAFETY: there is AVX2; `bits` has the size of two vectors, and is aligned to 64 bytes.
        unsafe {
            let old = [_mm256_load_si256(at), _mm256_load_si256(at.add(1))];
            // For each 128-bit half of a vector, the 128-bit half before it.
            let first = _mm256_permute2x128_si256::<0x02>(old[0], _mm256_set1_epi16(value as i16));
            let second = _mm256_permute2x128_si256::<0x21>(old[0], old[1]);
            let low = _mm256_alignr_epi8::<14>(old[0], first);
            let high = _mm256_alignr_epi8::<14>(old[1], second);
            let lanes = _mm256_setr_epi16(
                1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768,
            );
            let moving_low = _mm256_and_si256(_mm256_set1_epi16(moving as i16), lanes);
            let moving_high = _mm256_and_si256(_mm256_set1_epi16((moving >> 16) as i16), lanes);
            let low = _mm256_blendv_epi8(old[0], low, _mm256_cmpeq_epi16(moving_low, lanes));
            let high = _mm256_blendv_epi8(old[1], high, _mm256_cmpeq_epi16(moving_high, lanes));
            _mm256_store_si256(at, low);
            _mm256_store_si256(at.add(1), high);
        }
    }

    #[inline(always)]
    fn exchange(self, lanes: &mut Lanes, exchanged: bool) {
        let [old, high] = self.load(lanes);
        // SAFETY: there is AVX2.
        let low = unsafe {
            let new = _mm256_shuffle_epi32::<0b11_10_00_01>(old);
            let first = _mm256_set_epi64x(0, 0, 0, -i64::from(exchanged));
            _mm256_blendv_epi8(old, new, first)
        };
        self.store(lanes, [low, high]);
    }

    #[inline(always)]
    fn exchange_bits(self, bits: &mut Bits, exchanged: bool) {
        let at: *mut __m256i = bits.0.as_mut_ptr().cast();
        // SAFETY: there is AVX2; `bits` is longer than a vector, and is aligned to 64 bytes.
        unsafe {
            let old = _mm256_load_si256(at);
            let new = _mm256_shufflelo_epi16::<0b11_10_00_01>(old);
            let first = _mm256_setr_epi32(-i32::from(exchanged), 0, 0, 0, 0, 0, 0, 0);
            _mm256_store_si256(at, _mm256_blendv_epi8(old, new, first));
        }
    }

    #[inline(always)]
    fn equal_bits(self, bits: &Bits, value: u16) -> u32 {
        // SAFETY: there is AVX2.
        unsafe {
            let [low, high] = self.differences(bits, value);
            let zero = _mm256_setzero_si256();
            let low = _mm256_cmpeq_epi16(low, zero);
            let high = _mm256_cmpeq_epi16(high, zero);
            _mm256_movemask_epi8(_mm256_packs_epi16(low, high)) as u32
        }
    }

    #[inline(always)]
    fn compare(self, bits: &Bits, value: u16, _: usize) -> [__m256i; 2] {
        self.differences(bits, value)
    }

    #[inline(always)]
    fn sharing_at(self, [low, high]: &[__m256i; 2], level: usize) -> u32 {
        // SAFETY: there is AVX2.
        unsafe {
            let mask = _mm256_set1_epi32(DOUBLE_MASKS[level] as i32);
            let zero = _mm256_setzero_si256();
            let low = _mm256_cmpeq_epi16(_mm256_and_si256(*low, mask), zero);
            let high = _mm256_cmpeq_epi16(_mm256_and_si256(*high, mask), zero);
            _mm256_movemask_epi8(_mm256_packs_epi16(low, high)) as u32
        }
    }

    #[inline(always)]
    fn sharing(self, order: Order, value: u16) -> [u32; LEVELS] {
        let from: *const __m256i = order.bits.0.as_ptr().cast();
        // SAFETY: there is AVX2; `bits` has the size of two vectors, and is aligned to 64 bytes.
        unsafe {
            let old = [_mm256_load_si256(from), _mm256_load_si256(from.add(1))];
            let top = _mm256_set1_epi64x(order.top as i64);
            let low = _mm256_permute4x64_epi64::<0b10_01_00_11>(old[0]);
            let high = _mm256_permute4x64_epi64::<0b10_01_00_11>(old[1]);
            let high = _mm256_blend_epi32::<0b11>(high, low);
            let low = _mm256_blend_epi32::<0b11>(low, top);
            let value = _mm256_set1_epi16(value as i16);
            // Pages that are not counted are made to differ in all bits.
            let places = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let last = order.pages as i16 - 1;
            let behind_low = _mm256_cmpgt_epi16(places, _mm256_set1_epi16(last));
            let behind_high = _mm256_cmpgt_epi16(places, _mm256_set1_epi16(last - 16));
            let low = _mm256_or_si256(_mm256_xor_si256(low, value), behind_low);
            let high = _mm256_or_si256(_mm256_xor_si256(high, value), behind_high);
            let mut counts = [order.pages as u32; LEVELS];
            let zero = _mm256_setzero_si256();
            for (mask, count) in MASKS.iter().zip(&mut counts).skip(1) {
                let mask = _mm256_set1_epi16(*mask as i16);
                let low = _mm256_cmpeq_epi16(_mm256_and_si256(low, mask), zero);
                let high = _mm256_cmpeq_epi16(_mm256_and_si256(high, mask), zero);
                *count = _mm256_movemask_epi8(_mm256_packs_epi16(low, high)).count_ones();
            }
            counts
        }
    }
}

/// A processor with AVX-512.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// The proof.
    ///
    /// # Safety
    ///
    /// The processor must have AVX-512F and BW.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Avx512(())
    }

    #[inline(always)]
    fn load(self, lanes: &Lanes) -> __m512i {
        // SAFETY: there is AVX-512; `lanes` has the size of a vector, and is aligned to 64 bytes.
        unsafe { _mm512_load_si512(lanes.0.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, lanes: &mut Lanes, vector: __m512i) {
        // SAFETY: as in `load`.
        unsafe { self.write(lanes.0.as_mut_ptr().cast(), vector) }
    }

    /// The lanes of [`Machine::push`].
    #[inline(always)]
    fn moved(self, lanes: &Lanes, id: u32, moving: u32) -> __m512i {
        let old = self.load(lanes);
        // SAFETY: there is AVX-512.
        unsafe {
            let id = _mm512_set1_epi32(id as i32);
            _mm512_mask_alignr_epi32::<15>(old, moving as u16, old, id)
        }
    }

    /// Writes a whole vector. Unless the write is volatile, a compiler may write only the lanes that change, under a mask,
    /// and after such a write the next load of the vector waits until the write has reached the cache.
    ///
    /// # Safety
    ///
    /// `to` must be valid for the write of a vector, and aligned to 64 bytes.
    #[inline(always)]
    unsafe fn write(self, to: *mut __m512i, vector: __m512i) {
        // SAFETY: as promised.
        unsafe { to.write_volatile(vector) }
    }
}

impl Machine for Avx512 {
    /// The differences from the value.
    type Compared = __m512i;

    #[inline(always)]
    fn equal(self, lanes: &Lanes, id: u32) -> u32 {
        let lanes = self.load(lanes);
        // SAFETY: there is AVX-512.
        u32::from(unsafe { _mm512_cmpeq_epi32_mask(lanes, _mm512_set1_epi32(id as i32)) })
    }

    #[inline(always)]
    fn push(self, lanes: &mut Lanes, id: u32, moving: u32) {
        self.store(lanes, self.moved(lanes, id, moving));
    }

    #[inline(always)]
    fn pushed(self, mut lanes: Lanes, id: u32, moving: u32) -> Lanes {
        let new = self.moved(&lanes, id, moving);
        // SAFETY: there is AVX-512; `lanes` has the size of a vector, and is aligned to 64 bytes.
        unsafe { _mm512_store_si512(lanes.0.as_mut_ptr().cast(), new) };
        lanes
    }

    #[inline(always)]
    fn last(self, lanes: &Lanes) -> u32 {
        // SAFETY: there is AVX-512.
        unsafe { _mm_extract_epi32::<3>(_mm512_extracti32x4_epi32::<3>(self.load(lanes))) as u32 }
    }

    #[inline(always)]
    fn pull(self, lanes: &mut Lanes, moving: u32) {
        let old = self.load(lanes);
        // SAFETY: there is AVX-512.
        let new = unsafe {
            let none = _mm512_set1_epi32(NONE as i32);
            _mm512_mask_alignr_epi32::<1>(old, moving as u16, none, old)
        };
        self.store(lanes, new);
    }

    #[inline(always)]
    fn push_bits(self, bits: &mut Bits, value: u16, moving: u32) {
        let at: *mut __m512i = bits.0.as_mut_ptr().cast();
        // SAFETY: there is AVX-512; `bits` has the size of a vector, and is aligned to 64 bytes.
        unsafe {
            let old = _mm512_load_si512(at);
            // The lower word of each double word gets the upper word of the double word below.
            let below = _mm512_alignr_epi32::<15>(old, _mm512_set1_epi16(value as i16));
            let pushed =
                _mm512_or_si512(_mm512_srli_epi32::<16>(below), _mm512_slli_epi32::<16>(old));
            self.write(at, _mm512_mask_mov_epi16(old, moving, pushed));
        }
    }

    #[inline(always)]
    fn exchange(self, lanes: &mut Lanes, exchanged: bool) {
        let old = self.load(lanes);
        let first = u16::from(exchanged) * 0b11;
        // SAFETY: there is AVX-512.
        let new = unsafe { _mm512_mask_shuffle_epi32::<0b11_10_00_01>(old, first, old) };
        self.store(lanes, new);
    }

    #[inline(always)]
    fn exchange_bits(self, bits: &mut Bits, exchanged: bool) {
        let at: *mut __m512i = bits.0.as_mut_ptr().cast();
        let first = u32::from(exchanged) * 0b11;
        // SAFETY: there is AVX-512; `bits` has the size of a vector, and is aligned to 64 bytes.
        unsafe {
            let old = _mm512_load_si512(at);
            let new = _mm512_mask_shufflelo_epi16::<0b11_10_00_01>(old, first, old);
            self.write(at, new);
        }
    }

    #[inline(always)]
    fn equal_bits(self, bits: &Bits, value: u16) -> u32 {
        // SAFETY: there is AVX-512; `bits` has the size of a vector, and is aligned to 64 bytes.
        unsafe {
            let bits = _mm512_load_si512(bits.0.as_ptr().cast());
            _mm512_cmpeq_epi16_mask(bits, _mm512_set1_epi16(value as i16))
        }
    }

    #[inline(always)]
    fn compare(self, bits: &Bits, value: u16, _: usize) -> __m512i {
        // SAFETY: there is AVX-512; `bits` has the size of a vector, and is aligned to 64 bytes.
        unsafe {
            let bits = _mm512_load_si512(bits.0.as_ptr().cast());
            _mm512_xor_si512(bits, _mm512_set1_epi16(value as i16))
        }
    }

    #[inline(always)]
    fn sharing_at(self, differences: &__m512i, level: usize) -> u32 {
        // SAFETY: there is AVX-512.
        unsafe {
            let mask = _mm512_set1_epi32(DOUBLE_MASKS[level] as i32);
            _mm512_testn_epi16_mask(*differences, mask)
        }
    }

    #[inline(always)]
    fn sharing(self, order: Order, value: u16) -> [u32; LEVELS] {
        // SAFETY: there is AVX-512; `bits` has the size of a vector, and is aligned to 64 bytes.
        unsafe {
            let bits = _mm512_load_si512(order.bits.0.as_ptr().cast());
            let all = _mm512_alignr_epi32::<14>(bits, _mm512_set1_epi64(order.top as i64));
            let differences = _mm512_xor_si512(all, _mm512_set1_epi16(value as i16));
            let counted = ((1u64 << order.pages) - 1) as u32;
            let mut counts = [0; LEVELS];
            for (mask, count) in MASKS.iter().zip(&mut counts) {
                let mask = _mm512_set1_epi16(*mask as i16);
                *count = _mm512_mask_testn_epi16_mask(counted, differences, mask).count_ones();
            }
            counts
        }
    }

    #[inline(always)]
    fn differing(self, a: &[u32], b: &[u32], indexes: &mut [u32]) -> usize {
        // SAFETY: there is AVX-512; the array is as long as the register.
        let lanes = unsafe { _mm512_loadu_si512(LANES.as_ptr().cast()) };
        let (mut at, mut found) = (0, 0);
        // As long as a whole vector may be written.
        for (a, b) in a.chunks_exact(16).zip(b.chunks_exact(16)).take(indexes.len() / 16) {
            // SAFETY: there is AVX-512; the chunks are as long as a register. No more indexes are found than were
            // passed, so that there is room for a register behind those found.
            unsafe {
                let (a, b) = (a.as_ptr().cast(), b.as_ptr().cast());
                let differ = _mm512_cmpneq_epi32_mask(_mm512_loadu_si512(a), _mm512_loadu_si512(b));
                let here = _mm512_add_epi32(_mm512_set1_epi32(at as i32), lanes);
                let compressed = _mm512_maskz_compress_epi32(differ, here);
                _mm512_storeu_si512(indexes.as_mut_ptr().add(found).cast(), compressed);
                found += differ.count_ones() as usize;
            }
            at += 16;
        }
        differing_from(at, found, a, b, indexes)
    }
}
