//! Loops compiled for several instruction sets.

use octavo_types::{InstructionSet, Instructions};

#[cfg(target_arch = "x86_64")]
use super::{Avx2, Avx512};
use super::{Machine, Portable};

/// Work that any machine can do. The implementation must be inlined.
pub(crate) trait Work {
    /// Does the work with the instructions of `machine`.
    fn on<M: Machine>(self, machine: M);
}

/// Does `work` with an instruction set.
#[inline(always)]
pub(crate) fn run(instructions: Instructions, work: impl Work) {
    match instructions.set() {
        InstructionSet::Portable => work.on(Portable),
        // SAFETY: `Instructions` is constructed only for sets that the processor has.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => unsafe { on_avx2(work) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => unsafe { on_avx512(work) },
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
