//! What machines consume: accesses to lines, and between them whatever else happens.

use std::ops::Range;

use octavo_types::{Event, PageNumber, PageSize};

/// What a reference does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// An instruction fetch.
    Fetch,
    /// A load.
    Load,
    /// A store.
    Store,
}

/// An access to one line, and how many more of its [side](Kind::is_fetch) follow that nothing can
/// tell from it.
///
/// A *repeat* is a reference to the line that the reference before it on its side went to; it is
/// served as that one was, by the first-level TLB entry and the first-level cache. A store that
/// only loads precede there is none, since it makes the line and its page dirty; nor is a data
/// reference before which the page of the code changed, since a walk may have read entries of page
/// tables through the data cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineAccess(
    /// From the top: how many repeat it; the virtual line's number; one bit that says that it is the
    /// second half of a reference whose first half is in the same page; two bits of kind. Eight bytes:
    /// batches pass through the host's caches once for each machine.
    u64,
);

const KIND_BITS: u32 = 2;
const HALF: u64 = 1 << KIND_BITS;
const LINE_SHIFT: u32 = KIND_BITS + 1;
/// Addresses of 57 bits, and lines of 8 bytes at least, leave room for 54 bits of line.
const REPEATS_SHIFT: u32 = 57;
const REPEATS_BITS: u32 = u64::BITS - REPEATS_SHIFT;

impl LineAccess {
    /// The most repeats that an access counts. More of them are an access of their own, which nobody
    /// can tell from them either.
    pub const MAX_REPEATS: u32 = (1 << REPEATS_BITS) - 1;

    /// An access to line number `line`, with up to [`LineAccess::MAX_REPEATS`]; `is_half` says that
    /// the reference has looked its page up already.
    #[inline(always)]
    pub fn new(line: u64, kind: Kind, is_half: bool, repeats: u32) -> Self {
        debug_assert!(repeats <= Self::MAX_REPEATS && line >> (REPEATS_SHIFT - LINE_SHIFT) == 0);
        let packed = line << LINE_SHIFT | (kind as u64) | if is_half { HALF } else { 0 };
        LineAccess(packed | u64::from(repeats) << REPEATS_SHIFT)
    }

    /// The virtual line: an address divided by the bytes of a line.
    #[inline(always)]
    pub fn line(self) -> u64 {
        self.0 << REPEATS_BITS >> (REPEATS_BITS + LINE_SHIFT)
    }

    /// What the reference does.
    #[inline(always)]
    pub fn kind(self) -> Kind {
        match self.0 & (HALF - 1) {
            0 => Kind::Fetch,
            1 => Kind::Load,
            _ => Kind::Store,
        }
    }

    /// 0 for a fetch, 1 for data; no branch.
    #[inline(always)]
    pub(crate) fn side(self) -> usize {
        usize::from(self.0 & (HALF - 1) != Kind::Fetch as u64)
    }

    /// Whether it stores; no branch.
    #[inline(always)]
    pub(crate) fn is_store(self) -> bool {
        self.0 & Kind::Store as u64 != 0
    }

    /// How many references follow that nothing can tell from it.
    #[inline(always)]
    pub fn repeats(self) -> u32 {
        (self.0 >> REPEATS_SHIFT) as u32
    }

    /// How many times the page is looked up: once for each reference.
    #[inline(always)]
    pub fn lookups(self) -> u32 {
        self.repeats() + u32::from(self.0 & HALF == 0)
    }

    /// The access without its repeats, and those, which have looked up nothing yet.
    #[inline(always)]
    pub fn split(self) -> (LineAccess, LineAccess) {
        let first = LineAccess(self.0 & ((1 << REPEATS_SHIFT) - 1));
        (first, LineAccess(self.0 | HALF))
    }

    /// The first of those that repeat it, with the others; there is one.
    #[inline(always)]
    pub fn repeat(self) -> LineAccess {
        debug_assert!(self.repeats() > 0);
        LineAccess((self.0 & !HALF) - (1 << REPEATS_SHIFT))
    }

    /// The access in one word.
    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// What [`LineAccess::bits`] are of.
    #[inline(always)]
    pub(super) const fn from_bits(bits: u64) -> Self {
        LineAccess(bits)
    }

    /// An access that nothing repeats, of a kind by its number.
    #[inline(always)]
    pub(super) const fn of_kind(line: u64, kind: u64) -> Self {
        LineAccess(line << LINE_SHIFT | kind)
    }

    /// None, which nothing repeats.
    pub(super) const NOTHING: Self = LineAccess(u64::MAX);

    /// Whether both are to the same line.
    #[inline(always)]
    pub(super) fn same_line(self, other: LineAccess) -> bool {
        (self.0 ^ other.0) << REPEATS_BITS >> (REPEATS_BITS + LINE_SHIFT) == 0
    }

    /// Whether it looks its page up itself.
    #[inline(always)]
    pub(super) fn is_whole(self) -> bool {
        self.0 & HALF == 0
    }

    /// Whether so many more can be counted with it.
    #[inline(always)]
    pub(super) fn has_room(self, repeats: u32) -> bool {
        self.repeats() + repeats <= Self::MAX_REPEATS
    }

    /// The same, and so many more follow.
    #[inline(always)]
    pub(super) fn repeated(self, times: u32) -> Self {
        LineAccess(self.0.wrapping_add(u64::from(times) << REPEATS_SHIFT))
    }
}

impl Kind {
    /// Whether it is of the side of instructions, which has TLBs and a cache of its own.
    #[inline(always)]
    pub fn is_fetch(self) -> bool {
        self == Kind::Fetch
    }
}

/// A process image, dense from 0 in the order in which they begin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ImageId(pub u32);

/// Something between accesses.
#[derive(Clone, Debug)]
pub enum ControlEvent {
    /// The process that runs did something to its memory.
    Memory(Event),
    /// From here on this core runs this process.
    Switch {
        /// The core, dense from 0.
        core: usize,
        /// The process.
        image: ImageId,
    },
    /// A process begins: a copy of another one, or empty.
    Spawn {
        /// The process.
        image: ImageId,
        /// Whose copy it is.
        copy_of: Option<ImageId>,
    },
    /// A process is over.
    Exit(ImageId),
    /// So many instructions have been executed in all: the operating system may work behind the
    /// programs' backs.
    Tick(u64),
    /// The warm-up is over: whatever was counted so far does not count.
    WarmUpEnd,
    /// An interval is over.
    IntervalEnd,
}

/// Accesses and marks in order.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// As many as there are, and room for more.
    accesses: Vec<LineAccess>,
    len: usize,
    /// Each with the number of accesses before it.
    marks: Vec<(u32, ControlEvent)>,
}

/// Room is made for so many accesses at least.
const ROOM: usize = 1 << 12;

impl Batch {
    /// Runs of accesses, each with the mark behind it, if there is one.
    pub fn parts(&self) -> impl Iterator<Item = (&[LineAccess], Option<&ControlEvent>)> {
        let ends = self.marks.iter().map(|(at, mark)| (*at as usize, Some(mark)));
        let mut from = 0;
        ends.chain([(self.len, None)]).map(move |(to, mark)| {
            let part = Range { start: from, end: to };
            from = to;
            (&self.accesses[part], mark)
        })
    }

    /// How many accesses there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.marks.is_empty()
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.len = 0;
        self.marks.clear();
    }

    /// All accesses, and room for so many more.
    #[inline(always)]
    pub(super) fn room(&mut self, more: usize) -> &mut [LineAccess] {
        if self.accesses.len() - self.len < more {
            self.grow(more);
        }
        &mut self.accesses
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let room = self.len + more.max(ROOM).max(self.len);
        self.accesses.resize(room, LineAccess::NOTHING);
    }

    /// So many accesses are there now.
    #[inline(always)]
    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    pub(super) fn mark(&mut self, mark: ControlEvent) {
        self.marks.push((self.len as u32, mark));
    }
}

/// Where lines lie in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lines {
    /// The logarithm of a line's bytes.
    log2: u8,
}

impl Lines {
    /// Those of 64 bytes.
    pub(super) const USUAL: Lines = Lines { log2: 6 };

    /// Lines of a power of two of bytes, 8 to 4096.
    ///
    /// # Panics
    /// Where it is none of those.
    pub fn of_bytes(bytes: u64) -> Self {
        assert!(
            bytes.is_power_of_two() && (8..=4096).contains(&bytes),
            "no line has {bytes} bytes"
        );
        Lines { log2: bytes.ilog2() as u8 }
    }

    /// The logarithm of a line's bytes.
    #[inline(always)]
    pub fn log2(self) -> u8 {
        self.log2
    }

    /// The base page of a line.
    #[inline(always)]
    pub fn page(self, line: u64) -> PageNumber {
        PageNumber::new(line >> (PageSize::BASE.log2() - self.log2))
    }

    /// Whether two accesses are to the same base page.
    #[inline(always)]
    pub(super) fn same_page(self, one: LineAccess, other: LineAccess) -> bool {
        let shift = LINE_SHIFT + u32::from(PageSize::BASE.log2() - self.log2);
        (one.0 ^ other.0) << REPEATS_BITS >> (REPEATS_BITS + shift) == 0
    }

    /// How many lines so many base pages have.
    #[inline(always)]
    pub(super) fn in_pages(self, pages: u64) -> u64 {
        pages << (PageSize::BASE.log2() - self.log2)
    }

    /// A virtual line's physical one, its base page being in base frame number `frame`.
    #[inline(always)]
    pub fn physical(self, line: u64, frame: u64) -> u64 {
        let shift = PageSize::BASE.log2() - self.log2;
        frame << shift | line & ((1 << shift) - 1)
    }
}
