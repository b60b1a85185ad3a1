//! The translation designs: each has its own file or folder and one line in the [`registry`].

mod build;
pub mod colt;
mod conventional;
mod direct_segment;
mod granule;
mod gtsm;
mod perfect;
mod perforated;
pub mod registry;
mod rmm;
mod softvm;
mod spec;
mod tps;

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
