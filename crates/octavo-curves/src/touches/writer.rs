//! Writes the touches of executions.

use std::hint::select_unpredictable as select;
use std::mem::MaybeUninit;

use octavo_types::{DataItem, FetchPage, PageNumber, PageSize, Segment, VirtAddr};

use super::{FETCHED, Row, Rows, SPILLED, Touch};

/// A writer of touches. `KINDS`: fetches and data are distinguished.
///
/// The next page cannot be predicted, so there is no branch on it: each reference writes its touch,
/// and the next one overwrites it if the page is the same.
#[derive(Clone, Copy)]
pub(super) struct TouchWriter<const KINDS: bool> {
    /// The place of the next touch. For each segment there is room for one at each data item and each run of fetches,
    /// one more before each of them, and one that is discarded.
    pub touches: *mut MaybeUninit<Touch>,
    /// The page of the last touch, as traced, with the mark of a fetch.
    pub current: u64,
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

impl Code {
    #[inline(always)]
    fn new<const KINDS: bool>(page: PageNumber, rows: &mut Rows) -> Self {
        Code { page: marked(page.raw(), KINDS), row: rows.row(page.raw()) }
    }
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

    /// Adds the second half of a fetch that is counted already.
    #[inline(always)]
    fn spilled(self, code: Code) -> Self {
        self.touch(code.page, code.row, (self.at - 1) | SPILLED | mark(KINDS), true)
    }

    /// Adds fetches up to reference number `end` of the batch, if there are any.
    #[inline(always)]
    fn fetches(self, end: u32, code: Code) -> Self {
        let writer = self.touch(code.page, code.row, self.at | mark(KINDS), end != self.at);
        TouchWriter { at: end, ..writer }
    }

    /// Adds the fetches of a segment without its data.
    #[inline(always)]
    pub fn fetch_pages(self, segment: &Segment, rows: &mut Rows) -> Self {
        let add = |writer: Self, run: &FetchPage| {
            let code = Code::new::<KINDS>(run.page, rows);
            let writer = if run.spilled { writer.spilled(code) } else { writer };
            writer.fetches(writer.at + run.fetches, code)
        };
        segment.fetch_pages().iter().fold(self, add)
    }

    /// Adds data items without the fetches between them. Returns `None` if an item spans two pages.
    #[inline(always)]
    pub fn data(self, data: &[DataItem], addresses: &[VirtAddr], rows: &mut Rows) -> Option<Self> {
        self.items(data, addresses, self.at, None, rows)
    }

    /// Adds a segment. Returns `None` if a data item spans two pages.
    #[inline(always)]
    pub fn segment(
        self,
        segment: &Segment,
        addresses: &[VirtAddr],
        rows: &mut Rows,
    ) -> Option<Self> {
        let [run] = segment.fetch_pages() else {
            return self.page_by_page(segment, addresses, rows);
        };
        let code = Code::new::<KINDS>(run.page, rows);
        let writer = self.items(segment.data(), addresses, self.at, Some(code), rows)?;
        let all = segment.instructions() + segment.loads() + segment.stores();
        Some(writer.fetches(self.at + all, code))
    }

    /// Adds data items of a segment that began at reference number `start` of the batch, and the fetches before each of
    /// them from `code`. Returns `None` if an item spans two pages.
    #[inline(always)]
    fn items(
        self,
        data: &[DataItem],
        addresses: &[VirtAddr],
        start: u32,
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
                writer = writer.fetches(start + item.references_before, code);
            }
            writer = writer.touch(page, row, writer.at, true);
            writer.at += u32::from(item.references);
        }
        Some(writer)
    }

    /// Adds a segment that is fetched from several pages, or from none. Returns `None` if a data item spans two
    /// pages.
    #[inline(never)]
    fn page_by_page(
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
            let code = Code::new::<KINDS>(run.page, rows);
            if run.spilled {
                writer = writer.spilled(code);
            }
            let (run_data, other_data) = data.split_at(run.data as usize);
            let (run_addresses, other_addresses) = addresses.split_at(run.data as usize);
            let in_data: u32 = run_data.iter().map(|item| u32::from(item.references)).sum();
            let end = writer.at + run.fetches + in_data;
            writer = writer.items(run_data, run_addresses, self.at, Some(code), rows)?;
            writer = writer.fetches(end, code);
            (data, addresses) = (other_data, other_addresses);
        }
        Some(writer)
    }
}
