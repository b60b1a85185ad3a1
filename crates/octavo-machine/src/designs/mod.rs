//! The translation designs: each has its own file or folder and one line in the list below.

mod behind_tlbs;
mod build;
#[cfg(test)]
mod last_page;
mod leaf_line;
#[cfg(test)]
mod leaf_line_twin;
mod outside;
#[cfg(test)]
mod radix_twin;
pub mod registry;
#[cfg(test)]
mod setting_messages;
mod spec;
#[cfg(test)]
mod tlb_twin;
#[cfg(test)]
pub(crate) mod twins;
#[cfg(test)]
mod unwalked;
#[cfg(test)]
mod walk_twin;

pub use conventional::Conventional;
pub use direct_segment::DirectSegment;
pub use gtsm::{Gtsm, GtsmSettings};
pub use outside::{Called, MakeLevel, OutsideLevel};
pub use perfect::{PerfectL1, PerfectL2};
pub use perforated::{Perforated, Variant};
pub use registry::{
    NamedDesign, Requirement, Setup, Sizes, TranslationHardware, designs, hardware,
};
pub use rmm::Rmm;
pub use softvm::{Physical, Softvm};
pub use spec::{DesignSpec, SpecError};

/// Declares the modules of designs, each with the file that begins with its idea, and lists their families.
macro_rules! families {
    ($($module:ident $file:literal)*) => {
        $(pub mod $module;)*
        /// All designs, in the order of reports, each with its source text.
        const FAMILIES: &[(registry::Family, &str)] = &[$(($module::FAMILY, include_str!($file))),*];
    };
}

families! {
    conventional "conventional.rs"
    trident "trident.rs"
    granule "granule.rs"
    tps "tps/mod.rs"
    colt "colt/mod.rs"
    clustered_tlb "clustered_tlb/mod.rs"
    mosaic "mosaic/mod.rs"
    mix_tlb "mix_tlb/mod.rs"
    contiguous_pte "contiguous_pte/mod.rs"
    anchor "anchor/mod.rs"
    rmm "rmm.rs"
    direct_segment "direct_segment.rs"
    perforated "perforated/mod.rs"
    gtsm "gtsm/mod.rs"
    pom_tlb "pom_tlb/mod.rs"
    victima "victima/mod.rs"
    utopia "utopia/mod.rs"
    ech "ech/mod.rs"
    flattened "flattened/mod.rs"
    asap "asap/mod.rs"
    dmt "dmt/mod.rs"
    revelator "revelator/mod.rs"
    spot "spot/mod.rs"
    atp "atp/mod.rs"
    morrigan "morrigan/mod.rs"
    champsim "champsim/mod.rs"
    softvm "softvm/mod.rs"
    perfect "perfect.rs"
}
