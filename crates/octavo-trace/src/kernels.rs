//! Which instruction set the hot loops use, chosen once at run time.
//!
//! The loops are written once, in plain Rust, and compiled for each set; nothing but the code that
//! the compiler makes of them differs.

use std::sync::OnceLock;

/// An instruction set that the hot loops are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernels {
    /// AVX-512 F, BW, CD, DQ and VL.
    Avx512,
    /// AVX2, BMI and LZCNT.
    Avx2,
    /// What every x86-64 processor has.
    Portable,
}

impl Kernels {
    /// Every set, the fastest first.
    pub const ALL: [Kernels; 3] = [Kernels::Avx512, Kernels::Avx2, Kernels::Portable];

    /// The best set of this machine, or the one that the environment variable `OCTAVO_KERNELS`
    /// names (`avx512`, `avx2`, `portable`), if the machine has it.
    pub fn chosen() -> Self {
        static CHOSEN: OnceLock<Kernels> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            let wanted = std::env::var("OCTAVO_KERNELS").unwrap_or_default();
            Kernels::ALL
                .into_iter()
                .find(|set| set.supported() && (wanted.is_empty() || wanted == set.name()))
                .unwrap_or(Kernels::Portable)
        })
    }

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Kernels::Avx512 => "avx512",
            Kernels::Avx2 => "avx2",
            Kernels::Portable => "portable",
        }
    }

    /// Whether this machine has it.
    pub fn supported(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            match self {
                Kernels::Avx512 => {
                    avx2 && is_x86_feature_detected!("avx512f")
                        && is_x86_feature_detected!("avx512bw")
                        && is_x86_feature_detected!("avx512cd")
                        && is_x86_feature_detected!("avx512dq")
                        && is_x86_feature_detected!("avx512vl")
                }
                Kernels::Avx2 => avx2,
                Kernels::Portable => true,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Kernels::Portable
        }
    }
}
