//! The vocabulary types that all crates of Octavo share.
//!
//! A program executes *segments*: straight runs of instructions whose fetch addresses, item kinds
//! and register dependences never change; only the data addresses do. So a segment is defined
//! once ([`Segment`]), and a reference stream is `(segment, its data addresses)` with memory and
//! thread [`Event`]s between. A reader of such a stream implements [`Consumer`].

mod addr;
mod counts;
mod event;
mod files;
pub mod host_memory;
mod instructions;
mod outline;
mod page;
mod segment;
pub mod spelling;
pub mod values;
mod visits;
mod width;

pub use addr::{AddrRange, FrameNumber, PhysAddr, VirtAddr};
pub use counts::{SegmentCounts, SummedCounts};
pub use event::{Event, Frame, MapSource, Protection, WindowPlace};
pub use files::open_regular;
pub use instructions::{Compiled, InstructionSet, Instructions, ParseInstructionsError};
pub use outline::{Outline, OutlinedGroup, OutlinedPage};
pub use page::{PageNumber, PageSize, ParsePageSizeError};
pub use segment::{
    Access, AddressPlace, AddressRoom, Arithmetic, DataItem, Dependences, FetchPage, Item,
    ItemKind, Segment, SegmentError,
};
pub use visits::{DataVisit, Visit, Visits};
pub use width::AddressWidth;

/// A reader of a reference stream: takes each executed segment with its data addresses, and each
/// event, in program order.
///
/// `addresses` has one entry for each of [`Segment::data`], in order; a guarded item that did not
/// execute carries [`VirtAddr::NULL`].
pub trait Consumer {
    /// One execution of `segment`.
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]);

    /// Something other than an instruction happened.
    fn event(&mut self, event: &Event);
}
