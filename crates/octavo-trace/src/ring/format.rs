//! The numbers of `tracer/ring.h`: change both together, and the version with them.

use octavo_types::{AddressPlace, Item, ItemKind};

pub const MAGIC: u64 = 0x0076_6174_634f_0a0d;
pub const VERSION: u32 = 9;

pub const PAGE_BYTES: usize = 4096;
pub const SLOTS: usize = 960;
pub const CHUNKS: usize = 32;
pub const CHUNK_BYTES: usize = 128 * 1024;
pub const CHUNK_WORDS: usize = CHUNK_BYTES / 8;
pub const SLOT_BYTES: usize = PAGE_BYTES + (1 + CHUNKS) * CHUNK_BYTES;
/// Threads of an image that a slot describes.
pub const THREADS: usize = 96;
pub const THREAD_NAME_BYTES: usize = 16;
pub const THREAD_BYTES: usize = 8 + THREAD_NAME_BYTES;
pub const FILE_BYTES: usize = PAGE_BYTES + SLOTS * SLOT_BYTES;

pub const SLOT_FREE: u32 = 0;
pub const SLOT_OPEN: u32 = 2;

pub const NO_PARENT: u32 = u32::MAX;
/// A place in a window's record that is not known.
pub const UNKNOWN: u64 = u64::MAX;

/// Byte offsets in `struct octavo_session`.
pub mod session {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 8;
    pub const PAUSED: usize = 12;
    pub const UNTRACED: usize = 20;
    pub const SLOT_STATE: usize = 32;
    pub const WINDOW_INSTRUCTIONS: usize = SLOT_STATE + 4 * super::SLOTS;
    pub const GAP_INSTRUCTIONS: usize = WINDOW_INSTRUCTIONS + 8;
    pub const ELAPSED_MILLISECONDS: usize = GAP_INSTRUCTIONS + 8;
}

/// Byte offsets in `struct octavo_slot`.
pub mod slot {
    pub const WRITE_ADDRESS: usize = 0;
    pub const DRAFT_ADDRESS: usize = 16;
    pub const CHUNKS_PUBLISHED: usize = 24;
    pub const PID: usize = 32;
    pub const STREAM: usize = 36;
    pub const PARENT_STREAM: usize = 40;
    pub const FATAL_SIGNAL: usize = 44;
    pub const CHUNK_WORDS: usize = 48;
    pub const SECCOMP: usize = CHUNK_WORDS + 4 * super::CHUNKS;
    pub const THREADS_BEGUN: usize = SECCOMP + 4;
    pub const KERNEL_NANOSECONDS: usize = SECCOMP + 16;
    pub const CHUNKS_CONSUMED: usize = 256;
    pub const THREADS: usize = 512 + 1024;
}

const _: () = assert!(session::ELAPSED_MILLISECONDS + 8 <= PAGE_BYTES);
const _: () = assert!(slot::THREADS + THREADS * THREAD_BYTES <= PAGE_BYTES);

/// A set bit 63 makes a word a record's header: its kind, and how many payload words follow.
pub const RECORD: u64 = 1 << 63;

pub fn record_kind(header: u64) -> u8 {
    (header >> 48) as u8
}

pub fn record_words(header: u64) -> usize {
    header as u32 as usize
}

/// The word of an item in a definition. The word of a fetch is followed by the fetch's address.
#[derive(Clone, Copy)]
pub struct ItemWord(pub u64);

impl ItemWord {
    const KIND: u64 = 3;
    const GUARDED: u64 = 1 << 2;
    const ATOMIC: u64 = 1 << 3;
    const JOINED: u64 = 1 << 4;
    const SIZE_SHIFT: u32 = 16;
    const OFFSET_SHIFT: u32 = 32;

    pub fn new(item: &Item, place: AddressPlace) -> Self {
        let kind = match item.kind {
            ItemKind::Fetch => 0,
            ItemKind::Load => 1,
            ItemKind::Store => 2,
            ItemKind::Modify => 3,
        };
        let flag = |set: bool, flag| if set { flag } else { 0 };
        ItemWord(
            kind | flag(item.guarded, Self::GUARDED)
                | flag(item.atomic, Self::ATOMIC)
                | flag(!place.leads, Self::JOINED)
                | u64::from(item.size_bytes) << Self::SIZE_SHIFT
                | u64::from(place.offset) << Self::OFFSET_SHIFT,
        )
    }

    pub fn kind(self) -> ItemKind {
        match self.0 & Self::KIND {
            0 => ItemKind::Fetch,
            1 => ItemKind::Load,
            2 => ItemKind::Store,
            _ => ItemKind::Modify,
        }
    }

    pub fn is_fetch(self) -> bool {
        self.kind() == ItemKind::Fetch
    }

    pub fn is_guarded(self) -> bool {
        self.0 & Self::GUARDED != 0
    }

    pub fn is_atomic(self) -> bool {
        self.0 & Self::ATOMIC != 0
    }

    pub fn size_bytes(self) -> u16 {
        (self.0 >> Self::SIZE_SHIFT) as u16
    }

    /// Where a data item's address is found.
    pub fn place(self) -> AddressPlace {
        let offset = (self.0 >> Self::OFFSET_SHIFT) as u16;
        AddressPlace { leads: self.0 & Self::JOINED == 0, offset }
    }
}

/// In the word of an allocation's stack: the block is the parent's.
pub const INHERITED: u64 = 1 << 32;
/// In the reads of an instruction: two words more follow.
pub const HAS_LATE: u64 = 1 << 23;

/// In the last word of a range that is present.
pub const KNOWN: u64 = 1;
pub const FIRST: u64 = 1 << 1;

/// `enum octavo_record`.
pub mod kind {
    pub const DEFINE: u8 = 1;
    pub const START: u8 = 2;
    pub const MAP: u8 = 3;
    pub const UNMAP: u8 = 4;
    pub const REMAP: u8 = 5;
    pub const PROTECT: u8 = 6;
    pub const ADVISE: u8 = 7;
    pub const THREAD_START: u8 = 8;
    pub const THREAD_SWITCH: u8 = 9;
    pub const THREAD_END: u8 = 10;
    pub const FORK: u8 = 11;
    pub const EXEC: u8 = 12;
    pub const SIGNAL: u8 = 13;
    pub const MARK: u8 = 14;
    pub const EXIT: u8 = 15;
    /// In trace files only: no tracer of ours writes it.
    pub const TRANSLATION: u8 = 16;
    pub const WINDOW_BEGIN: u8 = 17;
    pub const WINDOW_END: u8 = 18;
    pub const ALLOCATION_STACK: u8 = 19;
    pub const ALLOCATE: u8 = 20;
    pub const RELEASE: u8 = 21;
    /// In trace files, and added by the reader of a ring; no tracer of ours writes it.
    pub const PRESENT: u8 = 22;
}

/// Ranges in `struct octavo_layout`.
pub const LAYOUT_RANGES: usize = 4;
