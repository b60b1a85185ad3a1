//! Writes the touches of one execution.

use std::hint::select_unpredictable as select;
use std::mem::MaybeUninit;

use octavo_types::{DataItem, PageSize, Segment, VirtAddr};

use super::{FETCHED, Row, Rows, SPILLED, Touch};

/// No page of code: fetches make no touches.
pub(super) const NO_CODE: (u64, Row) = (u64::MAX, Row(0));

/// A writer of the touches of a segment.
///
/// The next page cannot be predicted, so there is no branch on it: each reference writes its touch,
/// and the next one overwrites it if the page is the same.
#[derive(Clone, Copy)]
pub(super) struct TouchWriter {
    /// The place of the next touch. There is room for one at each data item and each run of fetches, one
    /// more before each of them, and one that is discarded.
    pub touches: *mut MaybeUninit<Touch>,
    /// The page of the last touch, as traced, with the mark of a fetch.
    pub current: u64,
    /// References so far in the batch.
    pub at: u32,
    /// Instructions of the segment fetched so far.
    pub fetched: u32,
    /// The marks of touches of fetches.
    pub mark: FetchMark,
}

/// The marks that distinguish fetches from data; both are 0 if kinds are not distinguished.
#[derive(Clone, Copy, Default)]
pub(super) struct FetchMark {
    /// In the page number that touches are compared by.
    pub page: u64,
    /// In [`Touch`].
    pub at: u32,
}

impl FetchMark {
    /// The marks if kinds are distinguished.
    pub const KEPT: FetchMark = FetchMark { page: 1 << 63, at: FETCHED };
}

impl TouchWriter {
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

    /// Adds the fetches of the segment up to number `fetched`, if there are any, from the page `code`, which has
    /// its mark.
    #[inline(always)]
    pub fn fetches(self, fetched: u32, (code, row): (u64, Row)) -> Self {
        let writer = self.touch(code, row, self.at | self.mark.at, fetched > self.fetched);
        TouchWriter { at: self.at + (fetched - self.fetched), fetched, ..writer }
    }

    /// Adds data items, between fetches from the page `code`. Returns `None` if an item spans two pages.
    #[inline(always)]
    pub fn data<const FETCHES: bool>(
        self,
        data: &[DataItem],
        addresses: &[VirtAddr],
        code: (u64, Row),
        rows: &mut Rows,
    ) -> Option<Self> {
        let mut writer = self;
        for (item, addr) in data.iter().zip(addresses) {
            let page = addr.page(PageSize::BASE).raw();
            if addr.raw() % PageSize::BASE.bytes() > u64::from(item.last_whole_offset) {
                return None;
            }
            let row = rows.row(page);
            if FETCHES {
                writer = writer.fetches(item.fetches_before, code);
            }
            writer = writer.touch(page, row, writer.at, true);
            writer.at += u32::from(item.references);
        }
        Some(writer)
    }

    /// Adds a segment that is fetched from several pages, or from none.
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
        let mut writer = self.data::<false>(first, first_addresses, NO_CODE, rows)?;
        let mut fetched = 0;
        for run in pages {
            let code = (run.page.raw() | writer.mark.page, rows.row(run.page.raw()));
            if run.spilled {
                // The second half of a reference that is counted already.
                let at = (writer.at - 1) | SPILLED | writer.mark.at;
                writer = writer.touch(code.0, code.1, at, true);
            }
            let (run_data, other_data) = data.split_at(run.data as usize);
            let (run_addresses, other_addresses) = addresses.split_at(run.data as usize);
            writer = writer.data::<true>(run_data, run_addresses, code, rows)?;
            fetched += run.fetches;
            writer = writer.fetches(fetched, code);
            (data, addresses) = (other_data, other_addresses);
        }
        Some(writer)
    }
}
