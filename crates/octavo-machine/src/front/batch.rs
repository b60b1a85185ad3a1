//! Batches: line accesses and the control events between them.

use std::ops::Range;

use octavo_types::{Access, Event, PageNumber, PageSize};

use super::ops::Ops;

/// An access to one line, and the number of its repeats: following references of its [side](Access::is_fetch)
/// that hit in the same way in every design.
///
/// A *repeat* is a reference to the line of the previous reference of its side; the same first-level TLB
/// entry and first-level cache line serve it. Two kinds of such references are separate accesses: a store after
/// loads only, since it makes the line and its page dirty; and a data reference after the code page has
/// changed, since a page walk may have read page-table entries through the data cache in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineAccess(
    /// From the top: number of repeats; virtual line number; one bit for the second half of a reference whose
    /// first half lies in the same page; two bits of kind. Eight bytes, since the host's caches read each batch
    /// once for each simulated machine.
    u64,
);

const KIND_BITS: u32 = 2;
const HALF: u64 = 1 << KIND_BITS;
const LINE_SHIFT: u32 = KIND_BITS + 1;
/// Addresses of 57 bits, and lines of 8 bytes at least, leave room for 54 bits of line.
const REPEATS_SHIFT: u32 = 57;
const REPEATS_BITS: u32 = u64::BITS - REPEATS_SHIFT;

impl LineAccess {
    /// The maximum number of repeats of an access. Further repeats form another access, with the same result.
    pub const MAX_REPEATS: u32 = (1 << REPEATS_BITS) - 1;

    /// An access to line number `line`, with up to [`LineAccess::MAX_REPEATS`] repeats. `is_half` marks the
    /// second half of a reference whose first half has looked up the page.
    #[inline(always)]
    pub fn new(line: u64, kind: Access, is_half: bool, repeats: u32) -> Self {
        debug_assert!(repeats <= Self::MAX_REPEATS && line >> (REPEATS_SHIFT - LINE_SHIFT) == 0);
        let packed = line << LINE_SHIFT | (kind as u64) | if is_half { HALF } else { 0 };
        LineAccess(packed | u64::from(repeats) << REPEATS_SHIFT)
    }

    /// The virtual line: an address divided by the bytes of a line.
    #[inline(always)]
    pub fn line(self) -> u64 {
        self.0 << REPEATS_BITS >> (REPEATS_BITS + LINE_SHIFT)
    }

    /// The kind of the reference.
    #[inline(always)]
    pub fn kind(self) -> Access {
        match self.0 & (HALF - 1) {
            0 => Access::Fetch,
            1 => Access::Load,
            _ => Access::Store,
        }
    }

    /// 0 for a fetch, 1 for data. Branch-free.
    #[inline(always)]
    pub(crate) fn side(self) -> usize {
        usize::from(self.0 & (HALF - 1) != Access::Fetch as u64)
    }

    /// Whether it is a store. Branch-free.
    #[inline(always)]
    pub(crate) fn is_store(self) -> bool {
        self.0 & Access::Store as u64 != 0
    }

    /// The number of repeats.
    #[inline(always)]
    pub fn repeats(self) -> u32 {
        (self.0 >> REPEATS_SHIFT) as u32
    }

    /// The number of page lookups: one for each reference, none for a second half.
    #[inline(always)]
    pub fn lookups(self) -> u32 {
        self.repeats() + u32::from(self.0 & HALF == 0)
    }

    /// Splits it into the access without repeats, and a second half that stands for the repeats alone: its
    /// [lookups](LineAccess::lookups) are theirs.
    #[inline(always)]
    pub fn split(self) -> (LineAccess, LineAccess) {
        let first = LineAccess(self.0 & ((1 << REPEATS_SHIFT) - 1));
        (first, LineAccess(self.0 | HALF))
    }

    /// The first repeat as an access, with the remaining repeats. At least one repeat is required.
    #[inline(always)]
    pub fn repeat(self) -> LineAccess {
        debug_assert!(self.repeats() > 0);
        LineAccess((self.0 & !HALF) - (1 << REPEATS_SHIFT))
    }

    /// The packed representation.
    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// The access of [`LineAccess::bits`].
    #[inline(always)]
    pub(super) const fn from_bits(bits: u64) -> Self {
        LineAccess(bits)
    }

    /// An access without repeats; `kind` is the number of an [`Access`].
    #[inline(always)]
    pub(super) const fn of_kind(line: u64, kind: u64) -> Self {
        LineAccess(line << LINE_SHIFT | kind)
    }

    /// Stands for no access. Its repeat count is full, so that nothing is counted as its repeat.
    pub(super) const NOTHING: Self = LineAccess(u64::MAX);

    /// Whether both are to the same line.
    #[inline(always)]
    pub(super) fn same_line(self, other: LineAccess) -> bool {
        (self.0 ^ other.0) << REPEATS_BITS >> (REPEATS_BITS + LINE_SHIFT) == 0
    }

    /// Whether it looks up its page: it is not a second half.
    #[inline(always)]
    pub(crate) fn is_whole(self) -> bool {
        self.0 & HALF == 0
    }

    /// Whether its repeat count has room for `repeats` more.
    #[inline(always)]
    pub(super) fn has_room(self, repeats: u32) -> bool {
        self.repeats() + repeats <= Self::MAX_REPEATS
    }

    /// The access with `times` more repeats.
    #[inline(always)]
    pub(super) fn repeated(self, times: u32) -> Self {
        LineAccess(self.0.wrapping_add(u64::from(times) << REPEATS_SHIFT))
    }
}

/// A process image. Numbers are dense from 0, in order of creation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ImageId(pub u32);

/// An event between accesses that the machine, not the design, handles.
#[derive(Clone, Debug)]
pub enum ControlEvent {
    /// The running process changed its memory mappings.
    Memory(Event),
    /// A context switch: this core runs this process from here on.
    Switch {
        /// The core, dense from 0.
        core: usize,
        /// The process.
        image: ImageId,
    },
    /// A process begins, empty or as a copy of another (fork).
    Spawn {
        /// The process.
        image: ImageId,
        /// The parent of a copy.
        copy_of: Option<ImageId>,
    },
    /// A process exits.
    Exit(ImageId),
    /// The number of instructions executed so far, by all processes: the operating system may do background
    /// work.
    Tick(u64),
    /// The warm-up ends: earlier counts are discarded.
    WarmUpEnd,
    /// An interval ends.
    IntervalEnd,
}

/// Accesses and control events, in order.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The first `len` are valid.
    accesses: Vec<LineAccess>,
    len: usize,
    /// Control events, each with the number of accesses and of words of `ops` before it.
    events: Vec<(u32, u32, ControlEvent)>,
    /// The instructions, for machines with cores; else empty.
    pub(super) ops: Ops,
    /// For each access to data, the traced address of its instruction, for prefetchers and designs that use it;
    /// unspecified for fetches. As long as `accesses`, or empty.
    pub(super) sites: Vec<u64>,
}

/// The accesses and instructions between two control events.
#[derive(Clone, Debug)]
pub struct Part<'b> {
    /// The numbers of its accesses in the batch.
    pub accesses: Range<usize>,
    /// Its instructions as words of [`Ops`]; empty without cores.
    pub words: &'b [u32],
    /// For each access to data, the traced address of its instruction; unspecified for fetches. Empty if no
    /// prefetcher and no design uses it.
    pub sites: &'b [u64],
    /// The event that ends it; `None` for the last part.
    pub event: Option<&'b ControlEvent>,
}

/// Minimum number of accesses by which a batch grows.
const ROOM: usize = 1 << 12;

impl Batch {
    /// The parts between control events.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let ends =
            self.events.iter().map(|(at, word, event)| (*at as usize, *word as usize, Some(event)));
        let (mut from, mut from_word) = (0, 0);
        ends.chain([(self.len, self.ops.len(), None)]).map(move |(to, to_word, event)| {
            let accesses = std::mem::replace(&mut from, to)..to;
            let words = &self.ops.words()[std::mem::replace(&mut from_word, to_word)..to_word];
            let sites = self.sites.get(accesses.clone()).unwrap_or_default();
            Part { accesses, words, sites, event }
        })
    }

    /// All accesses.
    pub fn accesses(&self) -> &[LineAccess] {
        &self.accesses[..self.len]
    }

    /// The number of accesses.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has neither accesses nor control events.
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.events.is_empty()
    }

    /// Whether machines collect their counters at one of its events.
    pub fn collects_counters(&self) -> bool {
        let collects =
            |event| matches!(event, &ControlEvent::WarmUpEnd | &ControlEvent::IntervalEnd);
        self.events.iter().any(|(.., event)| collects(event))
    }

    /// Removes all accesses, events and instructions.
    pub fn clear(&mut self) {
        self.len = 0;
        self.events.clear();
        self.ops.clear();
    }

    /// All accesses, with space for at least `more` behind them.
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

    /// As [`Self::room`]; with `notes_sites`, `sites` has the same length.
    #[inline(always)]
    pub(super) fn room_with_sites(
        &mut self,
        more: usize,
        notes_sites: bool,
    ) -> (&mut [LineAccess], &mut [u64]) {
        self.room(more);
        if notes_sites && self.sites.len() < self.accesses.len() {
            self.sites.resize(self.accesses.len(), 0);
        }
        (&mut self.accesses, &mut self.sites)
    }

    /// Sets the number of valid accesses.
    #[inline(always)]
    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    pub(super) fn push_event(&mut self, event: ControlEvent) {
        self.events.push((self.len as u32, self.ops.len() as u32, event));
    }
}

/// The size of cache lines, and conversions between lines and pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lines {
    /// log2 of the bytes of a line.
    log2: u8,
}

impl Lines {
    /// Lines of 64 bytes.
    pub(super) const USUAL: Lines = Lines { log2: 6 };

    /// Lines of a power of two of bytes, 8 to 4096.
    ///
    /// # Panics
    /// If `bytes` is another number.
    pub fn of_bytes(bytes: u64) -> Self {
        assert!(
            bytes.is_power_of_two() && (8..=4096).contains(&bytes),
            "no line has {bytes} bytes"
        );
        Lines { log2: bytes.ilog2() as u8 }
    }

    /// log2 of the bytes of a line.
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

    /// The number of lines of `pages` base pages.
    #[inline(always)]
    pub(super) fn in_pages(self, pages: u64) -> u64 {
        pages << (PageSize::BASE.log2() - self.log2)
    }

    /// The physical line of a virtual line whose base page lies in base frame number `frame`.
    #[inline(always)]
    pub fn physical(self, line: u64, frame: u64) -> u64 {
        let shift = PageSize::BASE.log2() - self.log2;
        frame << shift | line & ((1 << shift) - 1)
    }
}
