//! Reference streams: their sources (a live program under our tracer, a trace file in one of many
//! formats, a synthetic description), their sinks, and the stages that every stream passes:
//! relocation, the region of interest, the address space.

pub mod check;
mod code;
mod convert;
mod counts;
pub mod formats;
mod job;
mod learn;
mod listing;
mod live;
mod memory_file;
pub mod native;
mod observer;
mod present_pages;
mod recorder;
mod relocation;
mod replay;
mod resampling;
mod resource_limits;
mod ring;
pub mod sink;
pub mod source;
mod space;
mod splitmix;
mod stream;
mod survey;
pub mod synthetic;
mod threads;
mod time_slicing;
mod window;
mod window_log;
mod words_hash;

pub use code::CodeMap;
pub use convert::{ConvertOptions, Converted, convert};
pub use counts::{Counts, Stream};
pub use job::{Job, JobProgress, JobState};
pub use listing::{Content, Entry, ListingOptions, list};
pub use live::{Live, LiveError, LiveOptions, PeriodicWindows, Tracer};
pub use native::{Manifest, NativeFile, NativeSink, NativeSource, Overview, StreamOverview};
pub use observer::{
    ExitReason, Observer, RunExit, RunProgress, RunResult, StreamProgress, StreamResult,
};
pub use present_pages::PresentPages;
pub use recorder::Recorder;
pub use relocation::Relocation;
pub use replay::{Replay, Replayed};
pub use resampling::interval_of_rate;
pub use resource_limits::AllocatorOrExit;
pub use ring::{
    DecodeError, Decoder, Encoder, FoldedReferences, MOST_NAMED_THREADS, SegmentRoom, Segments,
    Session, SessionError, Slot, Start, StreamConsumer, WordConsumer, WordWriter,
};
pub use space::{AddressSpace, Region, RegionId, RegionKind};
pub use splitmix::splitmix;
pub use stream::{Began, Ended, NamedThread, StreamEnd, StreamIdentity};
pub use survey::{StreamCounts, StreamSurvey, Survey, survey};
pub use threads::start_workers;
pub use time_slicing::{MAX_PROCESSES, TimeSlicedConsumer, TimeSlicing};
pub use window::{Limits, Window};
pub use window_log::{TracedWindow, WindowLog};
