//! Converts segments to the cache lines that one stream touches.

use octavo_trace::Stream;
use octavo_types::{ItemKind, PageSize, Segment, VirtAddr};

use super::LineSize;
use crate::touches::{Row, Rows};

/// Lines in a batch, about.
const BATCH_LINES: usize = 1 << 16;
/// No line has this number.
const NO_LINE: u64 = u64::MAX;

/// Some lines that a stream touches, in order, none the same as the one before it.
#[derive(Clone, Debug, Default)]
pub struct LineBatch {
    /// Lines of the smallest size, each by its page's row and its number in the page.
    lines: Vec<(Row, u8)>,
    /// By size, how often lines were looked up in the time of the batch.
    pub lookups: Vec<u64>,
}

impl LineBatch {
    /// The lines of a size that is not smaller: by their page's row, and their number in the page.
    #[inline(always)]
    pub fn lines(&self, smallest: LineSize, size: LineSize) -> impl Iterator<Item = (Row, u32)> {
        let wider = size.log2() - smallest.log2();
        self.lines.iter().map(move |(row, line)| (*row, u32::from(*line) >> wider))
    }
}

/// Makes the lines of one stream.
pub struct LineSplitter {
    stream: Stream,
    sizes: Vec<LineSize>,
    smallest: LineSize,
    /// The last line of the smallest size, as traced.
    current: u64,
    /// References of the batch that lie in one line, whatever the size.
    within: u64,
    batch: LineBatch,
}

impl LineSplitter {
    /// A stream that has touched nothing, in lines of some sizes; none where there are no sizes.
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

    /// The size that the lines of its batches have.
    pub fn smallest(&self) -> LineSize {
        self.smallest
    }

    /// Takes an execution of a segment in. A batch that [`LineSplitter::is_full`] is to be taken
    /// first.
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

    /// Whether the batch is to be handed on.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.batch.lines.len() >= BATCH_LINES
    }

    /// The batch so far; the next one begins where it ends. `emptied` is a used batch, whose memory
    /// is reused.
    pub fn take(&mut self, mut emptied: LineBatch) -> LineBatch {
        emptied.lines.clear();
        emptied.lookups.clear();
        emptied.lookups.resize(self.sizes.len(), 0);
        let within = std::mem::take(&mut self.within);
        self.batch.lookups.iter_mut().for_each(|of| *of += within);
        std::mem::replace(&mut self.batch, emptied)
    }

    /// Makes the next reference touch its line, even if the last one touched the same line: the
    /// caches are other ones, or were emptied.
    pub fn end_touch(&mut self) {
        self.current = NO_LINE;
    }

    /// The same bytes are referenced so many times.
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

    /// A reference that ends in another line than it begins in, `rest` bytes on.
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
