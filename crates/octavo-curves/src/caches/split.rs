//! Converts segments to the cache lines that one stream touches.

use octavo_trace::Stream;
use octavo_types::{ItemKind, PageSize, Segment, VirtAddr};

use super::LineSize;
use crate::touches::{Row, Rows};

/// Lines in a batch, about.
const BATCH_LINES: usize = 1 << 16;
/// No line has this number.
const NO_LINE: u64 = u64::MAX;

/// Some lines that a stream touches, in order, without immediate repeats.
#[derive(Clone, Debug, Default)]
pub struct LineBatch {
    /// Lines of the smallest size: the row of the page, and the line number in the page.
    lines: Vec<(Row, u8)>,
    /// Look-ups of lines during the batch, by line size.
    pub lookups: Vec<u64>,
}

impl LineBatch {
    /// The lines of `size`, at least `smallest`: the row of the page, and the line number in the page.
    #[inline(always)]
    pub fn lines(&self, smallest: LineSize, size: LineSize) -> impl Iterator<Item = (Row, u32)> {
        let wider = size.log2() - smallest.log2();
        self.lines.iter().map(move |(row, line)| (*row, u32::from(*line) >> wider))
    }
}

/// Converts the references of one stream to lines.
pub struct LineSplitter {
    stream: Stream,
    sizes: Vec<LineSize>,
    smallest: LineSize,
    /// The last line of the smallest size, as traced.
    current: u64,
    /// References of the batch that lie within one line of the smallest size.
    within: u64,
    batch: LineBatch,
}

impl LineSplitter {
    /// An empty stream, in lines of some sizes; `None` without sizes.
    pub fn new(stream: Stream, sizes: &[LineSize]) -> Option<Self> {
        let smallest = *sizes.iter().min()?;
        let mut new = LineSplitter {
            stream,
            sizes: sizes.to_vec(),
            smallest,
            current: NO_LINE,
            within: 0,
            batch: LineBatch::default(),
        };
        new.batch.lookups = vec![0; sizes.len()];
        Some(new)
    }

    /// The size of the lines in its batches.
    pub fn smallest(&self) -> LineSize {
        self.smallest
    }

    /// Adds an execution of a segment to the batch. The caller must first [take](LineSplitter::take) a batch
    /// that is [full](LineSplitter::is_full).
    #[inline(never)]
    pub fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr], rows: &mut Rows) {
        let mut data = segment.data().iter().zip(addresses);
        if self.stream == Stream::Data {
            for (item, addr) in data {
                if !(item.guarded && *addr == VirtAddr::NULL) {
                    self.reference(*addr, item.size_bytes, item.references, rows);
                }
            }
            return;
        }
        let takes_data = self.stream == Stream::All;
        for item in segment.items() {
            if item.kind == ItemKind::Fetch {
                self.reference(item.addr, item.size_bytes, 1, rows);
            } else if let (Some((item, addr)), true) = (data.next(), takes_data)
                && !(item.guarded && *addr == VirtAddr::NULL)
            {
                self.reference(*addr, item.size_bytes, item.references, rows);
            }
        }
    }

    /// Whether the batch must be [taken](LineSplitter::take).
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.batch.lines.len() >= BATCH_LINES
    }

    /// Returns the batch so far, and begins the next one. `emptied` is a used batch, whose memory is reused.
    pub fn take(&mut self, mut emptied: LineBatch) -> LineBatch {
        emptied.lines.clear();
        emptied.lookups.clear();
        emptied.lookups.resize(self.sizes.len(), 0);
        let within = std::mem::take(&mut self.within);
        self.batch.lookups.iter_mut().for_each(|lookups| *lookups += within);
        std::mem::replace(&mut self.batch, emptied)
    }

    /// Makes the next reference touch its line, even if the last reference touched the same line. Called when
    /// the caches change or are emptied.
    pub fn end_touch(&mut self) {
        self.current = NO_LINE;
    }

    /// Adds `times` references to the same bytes.
    #[inline(always)]
    fn reference(&mut self, addr: VirtAddr, size_bytes: u16, times: u8, rows: &mut Rows) {
        let rest = u64::from(size_bytes) - 1;
        let last_whole = self.smallest.bytes() - 1 - addr.raw() % self.smallest.bytes();
        if rest > last_whole {
            return (0..times).for_each(|_| self.spanning(addr, rest, rows));
        }
        self.touch(addr.raw() >> self.smallest.log2(), rows);
        self.within += u64::from(times);
    }

    /// Adds a reference of `rest` + 1 bytes that spans lines of the smallest size.
    #[inline(never)]
    fn spanning(&mut self, addr: VirtAddr, rest: u64, rows: &mut Rows) {
        let lines = |size: LineSize| ((addr.raw() % size.bytes() + rest) >> size.log2()) + 1;
        for number in 0..lines(self.smallest) {
            let at = addr.wrapping_add(number << self.smallest.log2());
            self.touch(at.raw() >> self.smallest.log2(), rows);
        }
        for (lookups, size) in self.batch.lookups.iter_mut().zip(&self.sizes) {
            *lookups += lines(*size);
        }
    }

    #[inline(always)]
    fn touch(&mut self, line: u64, rows: &mut Rows) {
        if line != self.current {
            self.current = line;
            let in_page_log2 = self.smallest.in_page_log2();
            let number = line & ((1 << in_page_log2) - 1);
            self.batch.lines.push((rows.row(line >> in_page_log2), number as u8));
        }
    }
}

const _: () = assert!(PageSize::BASE.bytes() / LineSize::LEAST_BYTES <= 1 << u8::BITS);
