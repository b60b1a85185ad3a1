//! Vectors of eight numbers.
//!
//! Compilers vectorise these loops badly or not at all. Written with vector instructions they are three to
//! five times as fast.

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

use crate::touches::LANES;

/// Instructions that every x86-64 processor has.
#[cfg(target_arch = "x86_64")]
pub const PORTABLE: x86::Sse2 = x86::Sse2;
/// Instructions that every processor has.
#[cfg(not(target_arch = "x86_64"))]
pub const PORTABLE: Plain = Plain;

/// A number for each lane.
pub type Numbers = [u32; LANES];

/// The operations of a vector instruction set. A value proves that the processor has the instructions.
pub trait Vectors: Copy {
    /// A number for each lane, in registers.
    type Lanes: Copy;
    /// Some of the lanes.
    type Mask: Copy;

    /// From memory.
    fn load(self, from: &Numbers) -> Self::Lanes;
    /// To memory.
    fn store(self, lanes: Self::Lanes, to: &mut Numbers);
    /// The same number in each lane.
    fn splat(self, number: u32) -> Self::Lanes;
    /// The lanes of `among` in which `a` and `b` differ.
    fn differ(self, among: Self::Mask, a: Self::Lanes, b: Self::Lanes) -> Self::Mask;
    /// Every lane.
    fn every(self) -> Self::Mask;
    /// The lanes of `mask`, or none.
    fn only_if(self, condition: bool, mask: Self::Mask) -> Self::Mask;
    /// `a` with `b` added, modulo 2^32, in the lanes of `mask`.
    fn add(self, mask: Self::Mask, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// `a` with 1 added in the lanes of `mask`.
    fn count(self, mask: Self::Mask, a: Self::Lanes) -> Self::Lanes;
    /// `a` in the lanes of `mask`, `b` in the others.
    fn choose(self, mask: Self::Mask, a: Self::Lanes, b: Self::Lanes) -> Self::Lanes;
    /// A bit for each lane, the lowest for the first.
    fn bits(self, mask: Self::Mask) -> u32;
    /// The lanes whose bits are set.
    fn mask(self, bits: u32) -> Self::Mask;
}

/// Plain arrays, for any processor. In a mask, all bits of a lane are set, or none.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[derive(Clone, Copy)]
pub struct Plain;

#[cfg(any(test, not(target_arch = "x86_64")))]
impl Vectors for Plain {
    type Lanes = Numbers;
    type Mask = Numbers;

    #[inline(always)]
    fn load(self, from: &Numbers) -> Numbers {
        *from
    }

    #[inline(always)]
    fn store(self, lanes: Numbers, to: &mut Numbers) {
        *to = lanes;
    }

    #[inline(always)]
    fn splat(self, number: u32) -> Numbers {
        [number; LANES]
    }

    #[inline(always)]
    fn differ(self, among: Numbers, a: Numbers, b: Numbers) -> Numbers {
        std::array::from_fn(|lane| among[lane] & u32::from(a[lane] != b[lane]).wrapping_neg())
    }

    #[inline(always)]
    fn every(self) -> Numbers {
        [u32::MAX; LANES]
    }

    #[inline(always)]
    fn only_if(self, condition: bool, mask: Numbers) -> Numbers {
        mask.map(|mask| mask & u32::from(condition).wrapping_neg())
    }

    #[inline(always)]
    fn add(self, mask: Numbers, a: Numbers, b: Numbers) -> Numbers {
        std::array::from_fn(|lane| a[lane].wrapping_add(b[lane] & mask[lane]))
    }

    #[inline(always)]
    fn count(self, mask: Numbers, a: Numbers) -> Numbers {
        std::array::from_fn(|lane| a[lane].wrapping_sub(mask[lane]))
    }

    #[inline(always)]
    fn choose(self, mask: Numbers, a: Numbers, b: Numbers) -> Numbers {
        std::array::from_fn(|lane| (a[lane] & mask[lane]) | (b[lane] & !mask[lane]))
    }

    #[inline(always)]
    fn bits(self, mask: Numbers) -> u32 {
        (0..LANES).map(|lane| mask[lane] & 1 << lane).sum()
    }

    #[inline(always)]
    fn mask(self, bits: u32) -> Numbers {
        std::array::from_fn(|lane| (bits >> lane & 1).wrapping_neg())
    }
}
