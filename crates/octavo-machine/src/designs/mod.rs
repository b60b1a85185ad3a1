//! The translation designs: each has its own file or folder and one line in the list below.

mod build;
pub mod registry;
mod spec;
#[cfg(test)]
mod twins;

pub use conventional::Conventional;
pub use direct_segment::DirectSegment;
pub use gtsm::Gtsm;
pub use perfect::{PerfectL1, PerfectL2};
pub use perforated::{Perforated, Variant};
pub use registry::{
    NamedDesign, Requirement, Setup, Sizes, TranslationHardware, designs, hardware,
};
pub use rmm::Rmm;
pub use softvm::{Physical, Softvm};
pub use spec::{DesignSpec, SpecError};

/// Declares the modules of designs and lists their families.
macro_rules! families {
    ($($module:ident)*) => {
        $(pub mod $module;)*
        /// All designs, in the order of reports.
        const FAMILIES: &[registry::Family] = &[$($module::FAMILY),*];
    };
}

families! {
    conventional
    granule
    tps
    colt
    rmm
    direct_segment
    perforated
    gtsm
    pom_tlb
    ech
    softvm
    perfect
}
