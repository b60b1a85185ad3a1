//! A segment as the lines that it fetches and the data items between.

use octavo_types::{Item, ItemKind, PageSize, Segment};

use super::Filter;
use super::batch::Lines;

/// One thing that an execution of a segment does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Instructions are fetched from a line, as traced.
    Fetch {
        /// The line.
        line: u64,
        /// Whether the first access is the second half of an instruction that begins in the same
        /// page.
        is_half: bool,
        /// How many accesses follow the first.
        repeats: u32,
    },
    /// The next data item.
    Data {
        /// The highest offset in a line from which it does not reach into the next one.
        last_whole_offset: i32,
        /// How many bytes it touches.
        size_bytes: u16,
        /// Whether it loads.
        loads: bool,
        /// Whether it stores.
        stores: bool,
    },
}

/// The steps of a segment.
pub fn steps(segment: &Segment, lines: Lines, filter: Filter) -> Box<[Step]> {
    let mut steps: Vec<Step> = Vec::new();
    // Where the last fetch is among them.
    let mut fetch: Option<usize> = None;
    for item in segment.items() {
        if item.kind != ItemKind::Fetch {
            steps.push(data(item, lines));
            if filter != Filter::BySide {
                fetch = None;
            }
            continue;
        }
        let first = item.addr.raw() >> lines.log2();
        let last = item.addr.wrapping_add(u64::from(item.size_bytes) - 1).raw() >> lines.log2();
        let mut line = first;
        loop {
            match fetch.map(|at| &mut steps[at]) {
                Some(Step::Fetch { line: before, repeats, .. })
                    if *before == line && filter != Filter::Nothing =>
                {
                    *repeats += 1;
                }
                _ => {
                    fetch = Some(steps.len());
                    let is_half = line != first && !begins_page(line, lines);
                    steps.push(Step::Fetch { line, is_half, repeats: 0 });
                }
            }
            if line == last {
                break;
            }
            line = line.wrapping_add(1);
        }
    }
    steps.into()
}

/// Whether a line is the first of its base page.
pub fn begins_page(line: u64, lines: Lines) -> bool {
    line.trailing_zeros() >= u32::from(PageSize::BASE.log2() - lines.log2())
}

fn data(item: &Item, lines: Lines) -> Step {
    Step::Data {
        last_whole_offset: (1 << lines.log2()) - i32::from(item.size_bytes),
        size_bytes: item.size_bytes,
        loads: matches!(item.kind, ItemKind::Load | ItemKind::Modify),
        stores: matches!(item.kind, ItemKind::Store | ItemKind::Modify),
    }
}
