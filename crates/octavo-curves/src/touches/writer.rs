//! Writes the touches of one execution.

use std::hint::select_unpredictable as select;
use std::mem::MaybeUninit;

use octavo_types::{DataItem, PageSize, Segment, VirtAddr};

use super::{FETCHED, Row, Rows, SPILLED, Touch};

/// A writer of the touches of a segment. `KINDS`: fetches and data are distinguished.
///
/// The next page cannot be predicted, so there is no branch on it: each reference writes its touch,
/// and the next one overwrites it if the page is the same.
#[derive(Clone, Copy)]
pub(super) struct TouchWriter<const KINDS: bool> {
    /// The place of the next touch. There is room for one at each data item and each run of fetches, one
    /// more before each of them, and one that is discarded.
    pub touches: *mut MaybeUninit<Touch>,
    /// The page of the last touch, as traced, with the mark of a fetch.
    pub current: u64,
    /// References in the batch before the segment.
    pub start: u32,
    /// References in the batch so far.
    pub at: u32,
}

/// A page that is fetched from.
#[derive(Clone, Copy)]
struct Code {
    /// Its number, as traced, with the mark of a fetch.
    page: u64,
    row: Row,
}

/// The mark of a fetch in the page number that touches are compared by.
pub(super) const fn marked(page: u64, is_marked: bool) -> u64 {
    if is_marked { page | 1 << 63 } else { page }
}

/// The mark of a fetch in [`Touch`].
pub(super) const fn mark(is_marked: bool) -> u32 {
    if is_marked { FETCHED } else { 0 }
}

impl<const KINDS: bool> TouchWriter<KINDS> {
    /// Writes a touch. Keeps it if `counts`, and if its page differs from the last one.
    #[inline(always)]
    fn touch(self, page: u64, row: Row, at: u32, counts: bool) -> Self {
        let kept = usize::from(counts & (page != self.current));
        // SAFETY: there is room, see the field.
        let touches = unsafe {
            (*self.touches).write(Touch { row, at });
            self.touches.add(kept)
        };
        TouchWriter { touches, current: select(counts, page, self.current), ..self }
    }

    /// Adds fetches up to reference number `end` of the batch, if there are any.
    #[inline(always)]
    fn fetches(self, end: u32, code: Code) -> Self {
        let writer = self.touch(code.page, code.row, self.at | mark(KINDS), end != self.at);
        TouchWriter { at: end, ..writer }
    }

    /// Adds data items without the fetches between them. Returns `None` if an item spans two pages.
    #[inline(always)]
    pub fn data(self, data: &[DataItem], addresses: &[VirtAddr], rows: &mut Rows) -> Option<Self> {
        self.items(data, addresses, None, rows)
    }

    /// Adds a segment that is fetched from one page. Returns `None` if a data item spans two pages.
    #[inline(always)]
    pub fn one_page(
        self,
        segment: &Segment,
        addresses: &[VirtAddr],
        rows: &mut Rows,
    ) -> Option<Self> {
        let page = segment.fetch_pages()[0].page.raw();
        let code = Code { page: marked(page, KINDS), row: rows.row(page) };
        let writer = self.items(segment.data(), addresses, Some(code), rows)?;
        let all = segment.instructions() + segment.loads() + segment.stores();
        Some(writer.fetches(self.start + all, code))
    }

    /// Adds data items, and the fetches before each of them from `code`. Returns `None` if an item spans two
    /// pages.
    #[inline(always)]
    fn items(
        self,
        data: &[DataItem],
        addresses: &[VirtAddr],
        code: Option<Code>,
        rows: &mut Rows,
    ) -> Option<Self> {
        let mut writer = self;
        for (item, addr) in data.iter().zip(addresses) {
            let page = addr.page(PageSize::BASE).raw();
            if addr.raw() % PageSize::BASE.bytes() > u64::from(item.last_whole_offset) {
                return None;
            }
            let row = rows.row(page);
            if let Some(code) = code {
                writer = writer.fetches(self.start + item.references_before, code);
            }
            writer = writer.touch(page, row, writer.at, true);
            writer.at += u32::from(item.references);
        }
        Some(writer)
    }

    /// Adds a segment that is fetched from several pages, or from none. Returns `None` if a data item spans two
    /// pages.
    #[inline(never)]
    pub fn page_by_page(
        self,
        segment: &Segment,
        addresses: &[VirtAddr],
        rows: &mut Rows,
    ) -> Option<Self> {
        let pages = segment.fetch_pages();
        let in_runs: u32 = pages.iter().map(|run| run.data).sum();
        let before = segment.data().len() - in_runs as usize;
        let (first, mut data) = segment.data().split_at(before);
        let (first_addresses, mut addresses) = addresses.split_at(before);
        let mut writer = self.data(first, first_addresses, rows)?;
        for run in pages {
            let page = run.page.raw();
            let code = Code { page: marked(page, KINDS), row: rows.row(page) };
            if run.spilled {
                // The second half of a reference that is counted already.
                let at = (writer.at - 1) | SPILLED | mark(KINDS);
                writer = writer.touch(code.page, code.row, at, true);
            }
            let (run_data, other_data) = data.split_at(run.data as usize);
            let (run_addresses, other_addresses) = addresses.split_at(run.data as usize);
            let in_data: u32 = run_data.iter().map(|item| u32::from(item.references)).sum();
            let end = writer.at + run.fetches + in_data;
            writer = writer.items(run_data, run_addresses, Some(code), rows)?;
            writer = writer.fetches(end, code);
            (data, addresses) = (other_data, other_addresses);
        }
        Some(writer)
    }
}
