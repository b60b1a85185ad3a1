//! Where reference streams come from: a live program under our tracer, or Lackey's text; and the
//! stages that every stream passes: relocation, the region of interest, the address space.

mod lackey;
mod live;
mod relocation;
mod ring;
mod space;
mod window;

pub use lackey::{LackeyCounts, LackeyError, LackeySummary, read_lackey};
pub use live::{
    Began, Ended, ExitReason, Live, LiveError, LiveExit, LiveOptions, LiveProgress, LiveResult,
    Observer, StreamProgress, StreamResult, Tracer,
};
pub use relocation::Relocation;
pub use ring::{DecodeError, Decoder, Encoder, Session, SessionError, Slot, Start};
pub use space::{AddressSpace, Region, RegionId, RegionKind};
pub use window::{Limits, Window};
