//! Loops compiled for several instruction sets.

use octavo_types::Instructions;

#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
use super::lanes::{Machine, Portable};

/// Something that any machine can do; to be inlined.
pub(super) trait Work {
    /// Does it.
    fn on<M: Machine>(self, machine: M);
}

/// Instructions that this processor has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Present(Instructions);

impl Present {
    /// The given ones, or the portable ones where it has not got them.
    pub fn new(instructions: Instructions) -> Self {
        let is_there = Instructions::all().contains(&instructions);
        Present(if is_there { instructions } else { Instructions::Portable })
    }

    /// Does `work` with them.
    #[inline(always)]
    pub fn run(self, work: impl Work) {
        match self.0 {
            Instructions::Portable => work.on(Portable),
            // SAFETY: the processor has them, as this type says.
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => unsafe { on_avx2(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => unsafe { on_avx512(work) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn on_avx2(work: impl Work) {
    // SAFETY: this function is only called where there is AVX2.
    work.on(unsafe { Avx2::new() });
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,bmi1,bmi2,popcnt")]
fn on_avx512(work: impl Work) {
    // SAFETY: this function is only called where there is AVX-512.
    work.on(unsafe { Avx512::new() });
}
