//! Writes the touches of executions.

use std::hint::select_unpredictable as select;
use std::mem::MaybeUninit;

use octavo_types::{DataVisit, PageNumber, PageSize, VirtAddr, Visit, Visits};

use super::{FETCHED, Row, Rows, SPILLED, Touch};

/// The data addresses of an execution.
pub(super) trait Addresses: Copy {
    /// That of data item number `number`.
    fn of(self, number: usize, item: DataVisit) -> VirtAddr;

    /// How many come with the execution.
    fn len(self) -> usize;
}

impl Addresses for &[VirtAddr] {
    #[inline(always)]
    fn of(self, number: usize, _: DataVisit) -> VirtAddr {
        self[number]
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.len()
    }
}

/// The addresses of groups, as they come in words.
#[derive(Clone, Copy)]
pub(super) struct OfGroups<'w>(pub &'w [u64]);

impl Addresses for OfGroups<'_> {
    #[inline(always)]
    fn of(self, _: usize, item: DataVisit) -> VirtAddr {
        item.address(self.0)
    }

    #[inline(always)]
    fn len(self) -> usize {
        self.0.len()
    }
}

/// A writer of touches. `KINDS`: fetches and data are distinguished.
///
/// The next page cannot be predicted, so there is no branch on it: each reference writes its touch,
/// and the next one overwrites it if the page is the same.
#[derive(Clone, Copy)]
pub(super) struct TouchWriter<const KINDS: bool> {
    /// The place of the next touch. For each execution there is room for two at each visit, and one behind the last.
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
    /// Of an execution without fetches, and of one whose fetches are left out.
    const NONE: Code = Code { page: u64::MAX, row: Row(0) };

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

    /// Adds an execution, with its fetches if `FETCHES` and its data if `DATA`. Returns `None` if a data item spans two
    /// pages.
    #[inline(always)]
    pub fn execution<const FETCHES: bool, const DATA: bool>(
        self,
        visits: &Visits,
        addresses: impl Addresses,
        rows: &mut Rows,
    ) -> Option<Self> {
        let (mut writer, start, mut data) = (self, self.at, InData::default());
        // The position of a fetch with `before` references of the segment before it.
        let position =
            |before: u32, data: InData| start + before - if DATA { 0 } else { data.references };
        let mut code = match visits.first_page() {
            Some(page) if FETCHES => Code::new::<KINDS>(page, rows),
            _ => Code::NONE,
        };
        for visit in visits.iter() {
            match visit {
                Visit::Data(item) => {
                    if FETCHES {
                        writer = writer.fetches(position(item.before(), data), code);
                    }
                    if DATA {
                        let addr = addresses.of(data.items, item);
                        if !item.is_whole_at(addr) {
                            return None;
                        }
                        let page = addr.page(PageSize::BASE).raw();
                        writer = writer.touch(page, rows.row(page), writer.at, true);
                        writer.at += item.references();
                    }
                    data.items += 1;
                    data.references += item.references();
                }
                Visit::Fetch { page, before, spilled } if FETCHES => {
                    writer = writer.fetches(position(before, data), code);
                    code = Code::new::<KINDS>(page, rows);
                    writer = if spilled { writer.spilled(code) } else { writer };
                }
                Visit::Fetch { .. } => {}
            }
        }
        if FETCHES {
            writer = writer.fetches(position(visits.references(), data), code);
        }
        Some(writer)
    }
}

/// Data items of a segment, and the references that they make.
#[derive(Clone, Copy, Default)]
struct InData {
    items: usize,
    references: u32,
}
