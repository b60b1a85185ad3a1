//! Builds touches from the items of one execution.

use std::hint::select_unpredictable as select;
use std::mem::MaybeUninit;

use octavo_types::{DataItem, PageSize, Segment, VirtAddr};

use super::{FETCHED, Row, Rows, SPILLED, Touch};

/// No code: fetches do not count.
pub(super) const NO_CODE: (u64, Row) = (u64::MAX, Row(0));

/// Touches in the making, of a segment.
///
/// The next page cannot be predicted, so there is no branch on it: each reference writes its touch,
/// and the next one overwrites it if the page is the same.
#[derive(Clone, Copy)]
pub(super) struct Made {
    /// Where the next one is written. There is room for one at each data item and each run of
    /// fetches, one more before each of them, and one that does not count.
    pub touches: *mut MaybeUninit<Touch>,
    /// The page of the last touch, as traced, with the mark of a fetch.
    pub current: u64,
    /// References so far, in the batch.
    pub at: u32,
    /// Instructions fetched so far, of the segment.
    pub fetched: u32,
    /// How the touches of fetches are marked.
    pub mark: FetchMark,
}

/// Distinguishes fetches from data; both marks are 0 where kinds are not kept apart.
#[derive(Clone, Copy, Default)]
pub(super) struct FetchMark {
    /// In the page number that touches are compared by.
    pub page: u64,
    /// In [`Touch`].
    pub at: u32,
}

impl FetchMark {
    /// Kinds are kept apart.
    pub const KEPT: FetchMark = FetchMark { page: 1 << 63, at: FETCHED };
}

impl Made {
    /// A touch, which counts if it does and if the page is another than the last one.
    #[inline(always)]
    fn touch(self, page: u64, row: Row, at: u32, counts: bool) -> Self {
        let made = usize::from(counts & (page != self.current));
        // SAFETY: there is room.
        let touches = unsafe {
            (*self.touches).write(Touch { row, at });
            self.touches.add(made)
        };
        Made { touches, current: select(counts, page, self.current), ..self }
    }

    /// All fetches of the segment up to `fetched`, where there are more of them, are from the page
    /// `code`, which has its mark.
    #[inline(always)]
    pub fn fetches(self, fetched: u32, (code, row): (u64, Row)) -> Self {
        let made = self.touch(code, row, self.at | self.mark.at, fetched > self.fetched);
        Made { at: self.at + (fetched - self.fetched), fetched, ..made }
    }

    /// Some data items, between fetches from the page `code`; none if one of them spans two pages.
    #[inline(always)]
    pub fn data<const FETCHES: bool>(
        self,
        data: &[DataItem],
        addresses: &[VirtAddr],
        code: (u64, Row),
        rows: &mut Rows,
    ) -> Option<Self> {
        let mut made = self;
        for (item, addr) in data.iter().zip(addresses) {
            let page = addr.page(PageSize::BASE).raw();
            if addr.raw() % PageSize::BASE.bytes() > u64::from(item.last_whole_offset) {
                return None;
            }
            let row = rows.row(page);
            if FETCHES {
                made = made.fetches(item.fetches_before, code);
            }
            made = made.touch(page, row, made.at, true);
            made.at += u32::from(item.references);
        }
        Some(made)
    }

    /// A segment that is fetched from several pages, or from none.
    #[inline(never)]
    pub fn page_by_page(
        self,
        segment: &Segment,
        addresses: &[VirtAddr],
        rows: &mut Rows,
    ) -> Option<Self> {
        let pages = segment.fetch_pages();
        let of_runs: u32 = pages.iter().map(|run| run.data).sum();
        let before = segment.data().len() - of_runs as usize;
        let (first, mut data) = segment.data().split_at(before);
        let (first_addresses, mut addresses) = addresses.split_at(before);
        let mut made = self.data::<false>(first, first_addresses, NO_CODE, rows)?;
        let mut fetched = 0;
        for run in pages {
            let code = (run.page.raw() | made.mark.page, rows.row(run.page.raw()));
            if run.spilled {
                // The reference that it ends is counted already.
                made = made.touch(code.0, code.1, (made.at - 1) | SPILLED | made.mark.at, true);
            }
            let (of_run, others) = data.split_at(run.data as usize);
            let (of_run_addresses, other_addresses) = addresses.split_at(run.data as usize);
            made = made.data::<true>(of_run, of_run_addresses, code, rows)?;
            fetched += run.fetches;
            made = made.fetches(fetched, code);
            (data, addresses) = (others, other_addresses);
        }
        Some(made)
    }
}
