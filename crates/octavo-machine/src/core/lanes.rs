//! Numbers of several machines side by side, in a vector register where the host has one.

use std::hint::select_unpredictable;

/// A number of cycles, or a time, for each of several machines: each machine has a *lane*. Callers ensure that no sum
/// overflows and that no difference is below 0.
pub trait Lanes: Copy {
    /// The number of lanes.
    const COUNT: usize;

    /// The same number in all lanes.
    fn all(number: u32) -> Self;

    /// The numbers, by lane.
    fn as_slice(&self) -> &[u32];

    /// The numbers, by lane, to be changed.
    fn as_mut_slice(&mut self) -> &mut [u32];

    /// The numbers that a function returns for each lane.
    fn of_each(number: impl FnMut(usize) -> u32) -> Self;

    /// The sum in each lane.
    fn plus(self, other: Self) -> Self;

    /// The difference in each lane.
    fn minus(self, other: Self) -> Self;

    /// The larger number in each lane.
    fn max(self, other: Self) -> Self;

    /// The smaller number in each lane.
    fn min(self, other: Self) -> Self;

    /// The bits that are set in both numbers of each lane.
    fn and(self, other: Self) -> Self;

    /// `yes` in the lanes where this number is at least `other`, else `no`.
    fn select_at_least(self, other: Self, yes: Self, no: Self) -> Self;

    /// Whether this number is less than `other` in any lane.
    fn is_less_in_any(self, other: Self) -> bool;

    /// Whether this number is less than `other` in all lanes.
    fn is_less_in_all(self, other: Self) -> bool;

    /// The number in each lane, shifted left by `bits`. Bits that do not fit are lost.
    fn shift_left(self, bits: u32) -> Self;

    /// In each lane, the number of the lane in the table's element at the lane's index, modulo the size of the table.
    #[inline(always)]
    fn look_up<const N: usize>(table: &[Self; N], indices: Self) -> Self {
        Self::of_each(|lane| table[indices.get(lane) as usize % N].get(lane))
    }

    /// Sets the numbers that [`Self::look_up`] returns for the same indices.
    #[inline(always)]
    fn store<const N: usize>(self, table: &mut [Self; N], indices: Self) {
        for lane in 0..Self::COUNT {
            table[indices.get(lane) as usize % N].set(lane, self.get(lane));
        }
    }

    /// The difference in each lane, or 0 where `other` is larger.
    #[inline(always)]
    fn saturating_minus(self, other: Self) -> Self {
        self.max(other).minus(other)
    }

    /// The number of a lane.
    #[inline(always)]
    fn get(&self, lane: usize) -> u32 {
        self.as_slice()[lane]
    }

    /// Sets the number of a lane.
    #[inline(always)]
    fn set(&mut self, lane: usize, number: u32) {
        self.as_mut_slice()[lane] = number;
    }
}

impl<const N: usize> Lanes for [u32; N] {
    const COUNT: usize = N;

    #[inline(always)]
    fn all(number: u32) -> Self {
        [number; N]
    }

    #[inline(always)]
    fn as_slice(&self) -> &[u32] {
        self
    }

    #[inline(always)]
    fn as_mut_slice(&mut self) -> &mut [u32] {
        self
    }

    #[inline(always)]
    fn of_each(number: impl FnMut(usize) -> u32) -> Self {
        std::array::from_fn(number)
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self::of_each(|lane| self[lane] + other[lane])
    }

    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        Self::of_each(|lane| self[lane] - other[lane])
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self::of_each(|lane| self[lane].max(other[lane]))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self::of_each(|lane| self[lane].min(other[lane]))
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        Self::of_each(|lane| self[lane] & other[lane])
    }

    #[inline(always)]
    fn select_at_least(self, other: Self, yes: Self, no: Self) -> Self {
        let select = |lane: usize| {
            // The host would mispredict a branch.
            select_unpredictable(self[lane] >= other[lane], yes[lane], no[lane])
        };
        Self::of_each(select)
    }

    #[inline(always)]
    fn is_less_in_any(self, other: Self) -> bool {
        let mut is_less = false;
        for lane in 0..N {
            is_less |= self[lane] < other[lane];
        }
        is_less
    }

    #[inline(always)]
    fn is_less_in_all(self, other: Self) -> bool {
        let mut is_less = true;
        for lane in 0..N {
            is_less &= self[lane] < other[lane];
        }
        is_less
    }

    #[inline(always)]
    fn shift_left(self, bits: u32) -> Self {
        Self::of_each(|lane| self[lane] << bits)
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{EightLanes, FourLanes, SixteenLanes};

/// Lanes in vector registers. The compiler does not keep an array in such a register: it stores the elements one by
/// one, and a vector load of them then waits for all of these stores.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Lanes;

    /// Defines a type of lanes in a vector register: their number, the register, and the intrinsic of each method.
    macro_rules! vector_lanes {
        (
            $(#[$about:meta])*
            $name:ident of $count:literal in $register:ty;
            all is $all:ident, of_each is $of_each:ident($($lane:literal)*), shift is $shift:ident;
            { $($method:ident is $instruction:ident;)* }
            select is $select:expr;
            less is $less:expr;
        ) => {
            $(#[$about])*
            #[derive(Clone, Copy, Debug)]
            #[repr(transparent)]
            pub struct $name($register);

            impl Lanes for $name {
                const COUNT: usize = $count;

                #[inline(always)]
                fn all(number: u32) -> Self {
                    // SAFETY: the type is used only where the host has its instructions.
                    $name(unsafe { $all(number as i32) })
                }

                #[inline(always)]
                fn as_slice(&self) -> &[u32] {
                    // SAFETY: both have the same size, the register the larger alignment, and any bits are valid.
                    unsafe { &*(&raw const self.0).cast::<[u32; $count]>() }
                }

                #[inline(always)]
                fn as_mut_slice(&mut self) -> &mut [u32] {
                    // SAFETY: as in `as_slice`.
                    unsafe { &mut *(&raw mut self.0).cast::<[u32; $count]>() }
                }

                #[inline(always)]
                fn of_each(mut number: impl FnMut(usize) -> u32) -> Self {
                    let mut element = |lane: usize| number(lane) as i32;
                    // SAFETY: as in `all`.
                    $name(unsafe { $of_each($(element($lane)),*) })
                }

                $(
                    #[inline(always)]
                    fn $method(self, other: Self) -> Self {
                        // SAFETY: as in `all`.
                        $name(unsafe { $instruction(self.0, other.0) })
                    }
                )*

                #[inline(always)]
                fn select_at_least(self, other: Self, yes: Self, no: Self) -> Self {
                    // SAFETY: as in `all`.
                    $name(unsafe { $select(self.0, other.0, yes.0, no.0) })
                }

                #[inline(always)]
                fn is_less_in_any(self, other: Self) -> bool {
                    // SAFETY: as in `all`.
                    unsafe { $less(self.0, other.0) != 0 }
                }

                #[inline(always)]
                fn is_less_in_all(self, other: Self) -> bool {
                    // SAFETY: as in `all`.
                    unsafe { $less(self.0, other.0) == (1 << $count) - 1 }
                }

                #[inline(always)]
                fn shift_left(self, bits: u32) -> Self {
                    // SAFETY: as in `all`.
                    $name(unsafe { $shift(self.0, _mm_cvtsi32_si128(bits as i32)) })
                }
            }
        };
    }

    vector_lanes! {
        /// Four lanes. To be used only where the host has AVX2.
        FourLanes of 4 in __m128i;
        all is _mm_set1_epi32, of_each is _mm_setr_epi32(0 1 2 3), shift is _mm_sll_epi32;
        {
            plus is _mm_add_epi32;
            minus is _mm_sub_epi32;
            max is _mm_max_epu32;
            min is _mm_min_epu32;
            and is _mm_and_si128;
        }
        select is |a, b, yes, no| {
            let is_at_least = _mm_cmpeq_epi32(_mm_max_epu32(a, b), a);
            let [no, yes, mask] = [no, yes, is_at_least].map(|lanes| _mm_castsi128_ps(lanes));
            _mm_castps_si128(_mm_blendv_ps(no, yes, mask))
        };
        less is |a, b| {
            let is_at_least = _mm_cmpeq_epi32(_mm_max_epu32(a, b), a);
            !_mm_movemask_ps(_mm_castsi128_ps(is_at_least)) & 0xf
        };
    }

    vector_lanes! {
        /// Eight lanes. To be used only where the host has AVX2.
        EightLanes of 8 in __m256i;
        all is _mm256_set1_epi32, of_each is _mm256_setr_epi32(0 1 2 3 4 5 6 7), shift is _mm256_sll_epi32;
        {
            plus is _mm256_add_epi32;
            minus is _mm256_sub_epi32;
            max is _mm256_max_epu32;
            min is _mm256_min_epu32;
            and is _mm256_and_si256;
        }
        select is |a, b, yes, no| {
            let is_at_least = _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a);
            // Compiled for AVX-512, too, this is one instruction; a blend of bytes is not.
            let [no, yes, mask] = [no, yes, is_at_least].map(|lanes| _mm256_castsi256_ps(lanes));
            _mm256_castps_si256(_mm256_blendv_ps(no, yes, mask))
        };
        less is |a, b| {
            let is_at_least = _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a);
            !_mm256_movemask_ps(_mm256_castsi256_ps(is_at_least)) & 0xff
        };
    }

    vector_lanes! {
        /// Sixteen lanes. To be used only where the host has AVX-512.
        SixteenLanes of 16 in __m512i;
        all is _mm512_set1_epi32,
        of_each is _mm512_setr_epi32(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15), shift is _mm512_sll_epi32;
        {
            plus is _mm512_add_epi32;
            minus is _mm512_sub_epi32;
            max is _mm512_max_epu32;
            min is _mm512_min_epu32;
            and is _mm512_and_si512;
        }
        select is |a, b, yes, no| _mm512_mask_blend_epi32(_mm512_cmpge_epu32_mask(a, b), no, yes);
        less is |a, b| i32::from(_mm512_cmplt_epu32_mask(a, b));
    }
}
