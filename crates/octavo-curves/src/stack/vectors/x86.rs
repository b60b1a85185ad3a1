//! Vectors of x86-64.

use std::arch::x86_64::*;

use super::{Numbers, Vectors};

/// The bit of each lane.
const ONES: Numbers = [1, 2, 4, 8, 16, 32, 64, 128];

/// Instructions that every x86-64 processor has.
#[derive(Clone, Copy)]
pub struct Sse2;

/// Two halves.
type Halves = [__m128i; 2];

#[inline(always)]
fn halves(a: Halves, b: Halves, combine: impl Fn(__m128i, __m128i) -> __m128i) -> Halves {
    [combine(a[0], b[0]), combine(a[1], b[1])]
}

#[inline(always)]
fn both(a: Halves, b: Halves) -> Halves {
    // SAFETY: SSE2 is part of the architecture.
    halves(a, b, |a, b| unsafe { _mm_and_si128(a, b) })
}

// SAFETY of all that follows for `Sse2`: SSE2 is part of the architecture.
impl Vectors for Sse2 {
    type Lanes = Halves;
    type Mask = Halves;

    #[inline(always)]
    fn load(self, from: &Numbers) -> Halves {
        let from = from.as_ptr().cast::<__m128i>();
        // SAFETY: the array is as long as both halves; loads need no alignment.
        unsafe { [_mm_loadu_si128(from), _mm_loadu_si128(from.add(1))] }
    }

    #[inline(always)]
    fn store(self, lanes: Halves, to: &mut Numbers) {
        let to = to.as_mut_ptr().cast::<__m128i>();
        // SAFETY: the array is as long as both halves; stores need no alignment.
        unsafe {
            _mm_storeu_si128(to, lanes[0]);
            _mm_storeu_si128(to.add(1), lanes[1]);
        }
    }

    #[inline(always)]
    fn splat(self, number: u32) -> Halves {
        // SAFETY: see above.
        unsafe { [_mm_set1_epi32(number as i32); 2] }
    }

    #[inline(always)]
    fn differ(self, among: Halves, a: Halves, b: Halves) -> Halves {
        // SAFETY: see above.
        let equal = halves(a, b, |a, b| unsafe { _mm_cmpeq_epi32(a, b) });
        // SAFETY: see above.
        halves(equal, among, |equal, among| unsafe { _mm_andnot_si128(equal, among) })
    }

    #[inline(always)]
    fn every(self) -> Halves {
        self.splat(u32::MAX)
    }

    #[inline(always)]
    fn only_if(self, condition: bool, mask: Halves) -> Halves {
        both(mask, self.splat(u32::from(condition).wrapping_neg()))
    }

    #[inline(always)]
    fn add(self, mask: Halves, a: Halves, b: Halves) -> Halves {
        // SAFETY: see above.
        halves(a, both(mask, b), |a, b| unsafe { _mm_add_epi32(a, b) })
    }

    #[inline(always)]
    fn count(self, mask: Halves, a: Halves) -> Halves {
        // SAFETY: see above.
        halves(a, mask, |a, mask| unsafe { _mm_sub_epi32(a, mask) })
    }

    #[inline(always)]
    fn choose(self, mask: Halves, a: Halves, b: Halves) -> Halves {
        // SAFETY: see above.
        let differing = halves(a, b, |a, b| unsafe { _mm_xor_si128(a, b) });
        // SAFETY: see above.
        halves(b, both(differing, mask), |b, change| unsafe { _mm_xor_si128(b, change) })
    }

    #[inline(always)]
    fn bits(self, mask: Halves) -> u32 {
        // SAFETY: see above.
        unsafe {
            let low = _mm_movemask_ps(_mm_castsi128_ps(mask[0]));
            let high = _mm_movemask_ps(_mm_castsi128_ps(mask[1]));
            (low | high << 4) as u32
        }
    }

    #[inline(always)]
    fn mask(self, bits: u32) -> Halves {
        let ones = self.load(&ONES);
        // SAFETY: see above.
        halves(both(self.splat(bits), ones), ones, |a, b| unsafe { _mm_cmpeq_epi32(a, b) })
    }
}

/// AVX2, all lanes in one register.
#[derive(Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// Proves that the processor has the instructions.
    ///
    /// # Safety
    ///
    /// The processor has AVX2.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Avx2(())
    }
}

// SAFETY of all that follows for `Avx2`: there is a value of it, so that the processor has AVX2.
impl Vectors for Avx2 {
    type Lanes = __m256i;
    type Mask = __m256i;

    #[inline(always)]
    fn load(self, from: &Numbers) -> __m256i {
        // SAFETY: see above; the array is as long as the register; loads need no alignment.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, lanes: __m256i, to: &mut Numbers) {
        // SAFETY: see above; the array is as long as the register; stores need no alignment.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), lanes) }
    }

    #[inline(always)]
    fn splat(self, number: u32) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_set1_epi32(number as i32) }
    }

    #[inline(always)]
    fn differ(self, among: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_andnot_si256(_mm256_cmpeq_epi32(a, b), among) }
    }

    #[inline(always)]
    fn every(self) -> __m256i {
        self.splat(u32::MAX)
    }

    #[inline(always)]
    fn only_if(self, condition: bool, mask: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_and_si256(mask, self.splat(u32::from(condition).wrapping_neg())) }
    }

    #[inline(always)]
    fn add(self, mask: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_add_epi32(a, _mm256_and_si256(mask, b)) }
    }

    #[inline(always)]
    fn count(self, mask: __m256i, a: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_sub_epi32(a, mask) }
    }

    #[inline(always)]
    fn choose(self, mask: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_blendv_epi8(b, a, mask) }
    }

    #[inline(always)]
    fn bits(self, mask: __m256i) -> u32 {
        // SAFETY: see above.
        unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(mask)) as u32 }
    }

    #[inline(always)]
    fn mask(self, bits: u32) -> __m256i {
        let ones = self.load(&ONES);
        // SAFETY: see above.
        unsafe { _mm256_cmpeq_epi32(_mm256_and_si256(self.splat(bits), ones), ones) }
    }
}

/// AVX-512 in registers of AVX2's length, with masks of their own.
#[derive(Clone, Copy)]
pub struct Avx512(Avx2);

impl Avx512 {
    /// Proves that the processor has the instructions.
    ///
    /// # Safety
    ///
    /// The processor has AVX2 and AVX-512 with its F and VL parts.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        // SAFETY: the caller's.
        Avx512(unsafe { Avx2::new() })
    }
}

// SAFETY of all that follows for `Avx512`: there is a value of it, so that the processor has it.
impl Vectors for Avx512 {
    type Lanes = __m256i;
    type Mask = __mmask8;

    #[inline(always)]
    fn load(self, from: &Numbers) -> __m256i {
        self.0.load(from)
    }

    #[inline(always)]
    fn store(self, lanes: __m256i, to: &mut Numbers) {
        self.0.store(lanes, to);
    }

    #[inline(always)]
    fn splat(self, number: u32) -> __m256i {
        self.0.splat(number)
    }

    #[inline(always)]
    fn differ(self, among: __mmask8, a: __m256i, b: __m256i) -> __mmask8 {
        // SAFETY: see above.
        unsafe { _mm256_mask_cmpneq_epi32_mask(among, a, b) }
    }

    #[inline(always)]
    fn every(self) -> __mmask8 {
        __mmask8::MAX
    }

    #[inline(always)]
    fn only_if(self, condition: bool, mask: __mmask8) -> __mmask8 {
        mask & __mmask8::from(condition).wrapping_neg()
    }

    #[inline(always)]
    fn add(self, mask: __mmask8, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_mask_add_epi32(a, mask, a, b) }
    }

    #[inline(always)]
    fn count(self, mask: __mmask8, a: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_mask_sub_epi32(a, mask, a, self.splat(u32::MAX)) }
    }

    #[inline(always)]
    fn choose(self, mask: __mmask8, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm256_mask_blend_epi32(mask, b, a) }
    }

    #[inline(always)]
    fn bits(self, mask: __mmask8) -> u32 {
        u32::from(mask)
    }

    #[inline(always)]
    fn mask(self, bits: u32) -> __mmask8 {
        bits as __mmask8
    }
}
