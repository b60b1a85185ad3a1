//! Events between segments: memory management, threads, processes, signals, marks.

use std::fmt;

use crate::addr::{AddrRange, PhysAddr, VirtAddr};

/// The access rights of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Protection {
    /// Loads are allowed.
    pub read: bool,
    /// Stores are allowed.
    pub write: bool,
    /// Instruction fetches are allowed.
    pub execute: bool,
}

impl Protection {
    /// From the `PROT_*` bits of `mmap(2)`: 1 read, 2 write, 4 execute.
    pub const fn from_bits(bits: u64) -> Self {
        Protection { read: bits & 1 != 0, write: bits & 2 != 0, execute: bits & 4 != 0 }
    }
}

/// The backing of a new mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MapSource {
    /// Zero-filled memory of the program's own.
    Anonymous,
    /// A file, from `offset_bytes` on.
    File {
        /// Its path; empty if the tracer does not know it.
        path: String,
        /// Where in the file the mapping starts.
        offset_bytes: u64,
    },
    /// The initial stack of the main thread, or its growth.
    Stack,
    /// The `brk` heap.
    Heap,
    /// System V or anonymous shared memory.
    Shared,
}

/// A place in the execution of a process image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowPlace {
    /// Instructions executed before it, outside windows too, if they were counted.
    pub instructions: Option<u64>,
    /// Milliseconds since the first process began, if that was recorded.
    pub milliseconds: Option<u64>,
}

/// A frame of the stack of an allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The entry of the allocation function, or an address in the call that led to the frame
    /// before.
    pub addr: VirtAddr,
    /// The function that the address lies in, as the tracer knows it; empty: unknown.
    pub function: String,
}

/// One event of a reference stream. Addresses are the traced program's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Memory appears: `mmap`, the program image, stack growth, `brk` growth, `shmat`.
    Map {
        /// Where.
        range: AddrRange,
        /// Its access rights.
        protection: Protection,
        /// Its backing.
        source: MapSource,
        /// The raw `MAP_*` flags of `mmap(2)`, 0 where the mapping did not come from it.
        flags: u64,
    },
    /// Memory goes: `munmap`, `brk` shrinking, `shmdt`.
    Unmap {
        /// Where.
        range: AddrRange,
    },
    /// `mremap` moved or resized a mapping.
    Remap {
        /// The old mapping.
        from: AddrRange,
        /// The new mapping.
        to: AddrRange,
    },
    /// `mprotect`.
    Protect {
        /// Where.
        range: AddrRange,
        /// The new rights.
        protection: Protection,
    },
    /// `madvise`.
    Advise {
        /// Where.
        range: AddrRange,
        /// The raw `MADV_*` value.
        advice: u64,
    },
    /// A thread was created.
    ThreadStart {
        /// Its number in this process; the first thread is 1.
        thread: u32,
    },
    /// Another thread runs from here on.
    ThreadSwitch {
        /// The thread that runs now.
        thread: u32,
    },
    /// A thread ended.
    ThreadEnd {
        /// Its number.
        thread: u32,
    },
    /// The process forked.
    Fork {
        /// The child's process identifier.
        child: u32,
    },
    /// The process is about to replace its image, or has failed to.
    Exec {
        /// The program asked for; empty where the exec announced last has failed.
        path: String,
    },
    /// A signal was delivered to a handler, or ended the process.
    Signal {
        /// Its number.
        signal: u32,
    },
    /// The program passed one of the macros of `octavo.h`.
    Mark {
        /// 1 begins the region of interest, 2 ends it, others are the program's own.
        value: u64,
    },
    /// The trace records where a page lay in physical memory.
    Translation {
        /// An address in the page.
        virt: VirtAddr,
        /// Where it lay.
        phys: PhysAddr,
    },
    /// A window begins: from here on everything is traced.
    WindowBegin {
        /// Where.
        at: WindowPlace,
    },
    /// A window ends: until the next one begins, nothing but events is traced.
    WindowEnd {
        /// Where.
        at: WindowPlace,
    },
    /// Describes a stack of allocations. The first one of a stream, number 0, has no frames, and
    /// announces that allocations are recorded.
    AllocationStack {
        /// Its number.
        number: u32,
        /// The allocation function first, then its callers.
        frames: Vec<Frame>,
    },
    /// A block was allocated.
    Allocate {
        /// Where.
        block: AddrRange,
        /// The number of the stack.
        stack: u32,
        /// The block that the same call has freed.
        freed: Option<VirtAddr>,
        /// The parent of this process allocated it.
        inherited: bool,
    },
    /// A block is about to be freed.
    Release {
        /// Its first address.
        start: VirtAddr,
    },
    /// Counting begins, or resumes, in a process that runs already: a range of base pages of its
    /// own memory that are present shortly after the first execution that counts. The stream has
    /// this execution after these events, one for each range, from low addresses to high ones.
    Present {
        /// Where.
        range: AddrRange,
        /// Whether all of these pages are present, in this process and in no other one. If not, it
        /// is unknown which are: the mapping has transparent huge pages, of which the process may
        /// have touched a part, or is very large.
        known: bool,
        /// Whether this is the first range since counting began or resumed.
        first: bool,
    },
    /// The process ends.
    Exit {
        /// Its exit code.
        code: i32,
    },
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |set, letter| if set { letter } else { '-' };
        let Protection { read, write, execute } = *self;
        write!(f, "{}{}{}", flag(read, 'r'), flag(write, 'w'), flag(execute, 'x'))
    }
}

impl fmt::Display for MapSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapSource::Anonymous => write!(f, "anonymous"),
            MapSource::File { path, offset_bytes } => write!(f, "{path} from {offset_bytes:#x}"),
            MapSource::Stack => write!(f, "stack"),
            MapSource::Heap => write!(f, "heap"),
            MapSource::Shared => write!(f, "shared"),
        }
    }
}

impl fmt::Display for WindowPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.instructions, self.milliseconds) {
            (Some(1), _) => write!(f, " after 1 instruction"),
            (Some(instructions), _) => write!(f, " after {instructions} instructions"),
            (None, Some(milliseconds)) => write!(f, " after {milliseconds} ms"),
            (None, None) => Ok(()),
        }
    }
}

/// One line for people.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Map { range, protection, source, .. } => {
                write!(f, "map {range} {protection} {source}")
            }
            Event::Unmap { range } => write!(f, "unmap {range}"),
            Event::Remap { from, to } => write!(f, "remap {from} to {to}"),
            Event::Protect { range, protection } => write!(f, "protect {range} {protection}"),
            Event::Advise { range, advice } => write!(f, "advise {range} {advice}"),
            Event::ThreadStart { thread } => write!(f, "thread {thread} starts"),
            Event::ThreadSwitch { thread } => write!(f, "thread {thread} runs"),
            Event::ThreadEnd { thread } => write!(f, "thread {thread} ends"),
            Event::Fork { child } => write!(f, "fork of process {child}"),
            Event::Exec { path } if path.is_empty() => write!(f, "exec failed"),
            Event::Exec { path } => write!(f, "exec {path}"),
            Event::Signal { signal } => write!(f, "signal {signal}"),
            Event::Mark { value } => write!(f, "mark {value}"),
            Event::Translation { virt, phys } => {
                write!(f, "translation {virt} at {:#x}", phys.raw())
            }
            Event::WindowBegin { at } => write!(f, "window begins{at}"),
            Event::WindowEnd { at } => write!(f, "window ends{at}"),
            Event::AllocationStack { number, frames } => {
                write!(f, "allocation stack {number}")?;
                frames.iter().try_for_each(|frame| write!(f, " {}", frame.addr))
            }
            Event::Allocate { block, stack, .. } => write!(f, "allocate {block} by stack {stack}"),
            Event::Release { start } => write!(f, "release {start}"),
            Event::Present { range, known: true, .. } => write!(f, "present {range}"),
            Event::Present { range, .. } => write!(f, "present in part {range}"),
            Event::Exit { code } => write!(f, "exit {code}"),
        }
    }
}

impl Event {
    /// The mark that begins the region of interest.
    pub const MARK_BEGIN: u64 = 1;
    /// The mark that ends it.
    pub const MARK_END: u64 = 2;

    /// Whether it changes mappings or their rights.
    pub fn changes_mappings(&self) -> bool {
        use Event::{Map, Protect, Remap, Unmap};
        matches!(self, Map { .. } | Unmap { .. } | Remap { .. } | Protect { .. })
    }

    /// The ranges of memory that it names.
    pub fn ranges(&self) -> impl Iterator<Item = AddrRange> {
        let (first, second) = match self {
            Event::Map { range, .. }
            | Event::Unmap { range }
            | Event::Protect { range, .. }
            | Event::Advise { range, .. }
            | Event::Present { range, .. } => (Some(*range), None),
            Event::Remap { from, to } => (Some(*from), Some(*to)),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// The name under which the event is counted. `None` for events that are not counted: threads,
    /// windows, stacks, present memory and the exit.
    pub fn name(&self) -> Option<&'static str> {
        Some(match self {
            Event::Map { .. } => "map",
            Event::Unmap { .. } => "unmap",
            Event::Remap { .. } => "remap",
            Event::Protect { .. } => "protect",
            Event::Advise { .. } => "advise",
            Event::Fork { .. } => "fork",
            Event::Exec { path } if path.is_empty() => "exec-failed",
            Event::Exec { .. } => "exec",
            Event::Signal { .. } => "signal",
            Event::Mark { .. } => "mark",
            Event::Translation { .. } => "translation",
            Event::Allocate { .. } => "allocate",
            Event::Release { .. } => "release",
            _ => return None,
        })
    }
}
