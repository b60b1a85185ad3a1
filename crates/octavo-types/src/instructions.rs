//! Which instructions a kernel may use.

use std::fmt;
use std::str::FromStr;

/// The environment variable that names the instructions to use instead of the best ones.
const FORCED: &str = "OCTAVO_INSTRUCTIONS";

/// The instructions that the fast kernels are compiled for. The portable ones are what every
/// processor of the architecture has (on 64-bit Arm that is NEON, on x86-64 it is SSE2); others
/// are chosen at run time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum InstructionSet {
    /// Instructions that every processor of the architecture has.
    Portable,
    /// AVX2, BMI1 and BMI2, POPCNT.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with its F, BW, DQ, VL, VBMI and VBMI2 parts, and all of [`InstructionSet::Avx2`].
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// An instruction set that this processor has. Constructed only after that was checked, so that
/// holding one permits its use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instructions(InstructionSet);

impl Instructions {
    /// Instructions that every processor of the architecture has.
    pub const PORTABLE: Self = Instructions(InstructionSet::Portable);

    /// Which set it is.
    #[inline(always)]
    pub fn set(self) -> InstructionSet {
        self.0
    }

    /// The best of this processor, or those that `OCTAVO_INSTRUCTIONS` names, where the processor
    /// has them.
    pub fn best() -> Self {
        let all = Self::all();
        let forced = std::env::var(FORCED).ok().and_then(|name| name.parse().ok());
        forced.unwrap_or(all[all.len() - 1])
    }

    /// All of this processor, the best last.
    pub fn all() -> Vec<Self> {
        let sets = [
            (InstructionSet::Portable, true),
            #[cfg(target_arch = "x86_64")]
            (InstructionSet::Avx2, has_avx2()),
            #[cfg(target_arch = "x86_64")]
            (InstructionSet::Avx512, has_avx2() && has_avx512()),
        ];
        sets.into_iter().filter(|(_, is_here)| *is_here).map(|(set, _)| Instructions(set)).collect()
    }

    /// Its name, as [`Instructions::from_str`] reads it.
    pub fn name(self) -> &'static str {
        match self.0 {
            InstructionSet::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => "avx512",
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vbmi2")
}

/// Work with a hot loop, which [`Instructions::run`] compiles for each set of instructions.
pub trait Compiled {
    /// The result of the work.
    type Output;

    /// Does the work. Functions called in its loop are compiled for the instructions only if they are
    /// inlined, so this method and its callees should be `#[inline(always)]`; the compiler may leave
    /// closures out of line.
    fn run(self) -> Self::Output;
}

impl Instructions {
    /// Does `work` in a copy that is compiled for these instructions.
    #[inline(always)]
    pub fn run<W: Compiled>(self, work: W) -> W::Output {
        match self.0 {
            InstructionSet::Portable => work.run(),
            // SAFETY: `Instructions` is constructed only for sets that the processor has.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => unsafe { on_avx2(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { on_avx512(work) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn on_avx2<W: Compiled>(work: W) -> W::Output {
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx2,bmi1,bmi2,popcnt")]
fn on_avx512<W: Compiled>(work: W) -> W::Output {
    work.run()
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of an instruction set that is unknown, or that this processor does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("instructions `{0}`: this processor has {1}")]
pub struct ParseInstructionsError(String, String);

impl FromStr for Instructions {
    type Err = ParseInstructionsError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let all = Self::all();
        all.iter().copied().find(|known| known.name() == name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|known| known.name()).collect();
            ParseInstructionsError(name.to_owned(), names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_runs_its_copy() {
        struct Sum<'a>(&'a [u64]);
        impl Compiled for Sum<'_> {
            type Output = u64;

            #[inline(always)]
            fn run(self) -> u64 {
                self.0.iter().sum()
            }
        }
        for instructions in Instructions::all() {
            assert_eq!(instructions.run(Sum(&[1; 100])), 100, "{instructions}");
        }
    }

    #[test]
    fn each_has_a_name_and_the_portable_ones_are_always_there() {
        let all = Instructions::all();
        assert_eq!(all[0], Instructions::PORTABLE);
        for instructions in all {
            assert_eq!(instructions.to_string().parse(), Ok(instructions));
        }
        let error = "mmx".parse::<Instructions>().unwrap_err().to_string();
        assert!(error.starts_with("instructions `mmx`: this processor has portable"), "{error}");
    }
}
