//! A naive model of the contiguous hints: compares the pages before and after each operation.

use std::collections::{BTreeMap, BTreeSet};

use octavo_os::{Memory, ProcessId};
use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

/// Base pages: frame and permissions by page.
type BasePages = BTreeMap<u64, (u64, Protection)>;

/// The base pages of each process and its folded blocks, after the last operation.
#[derive(Default)]
pub struct NaiveBlocks {
    processes: BTreeMap<ProcessId, (BasePages, BTreeSet<u64>)>,
    folds: u64,
    unfolds: u64,
}

impl NaiveBlocks {
    /// Drops a process.
    pub fn end(&mut self, process: ProcessId) {
        self.processes.remove(&process);
    }

    /// Ends an operation, and compares all hints.
    pub fn end_operation(&mut self, memory: &Memory) {
        let Some(pages) = memory.block_pages() else { return };
        for process in memory.live() {
            let base = memory.leaves(process, &(0..u64::MAX)).into_iter();
            let base = base.filter(|leaf| leaf.size == PageSize::BASE);
            let now: BasePages =
                base.map(|leaf| (leaf.page.raw(), (leaf.frame.raw(), leaf.rights))).collect();
            let (before, mut folded) = self.processes.remove(&process).unwrap_or_default();
            let is_same = |page: &u64| before.get(page) == now.get(page);
            let changed = before.keys().chain(now.keys()).filter(|page| !is_same(page));
            for number in changed.map(|page| page / pages).collect::<BTreeSet<_>>() {
                let block = number * pages..(number + 1) * pages;
                let written: Vec<u64> =
                    block.clone().filter(|page| now.contains_key(page) && !is_same(page)).collect();
                let together =
                    |frame| 1 << memory.frames.allocated_order(FrameNumber::new(frame)) >= pages;
                let is_foldable = now.get(&block.start).is_some_and(|(first, rights)| {
                    first % pages == 0
                        && block.clone().zip(*first..).all(|(page, frame)| {
                            now.get(&page) == Some(&(frame, *rights)) && together(frame)
                        })
                });
                let was_folded = folded.contains(&number);
                if is_foldable && (was_folded || written.last() == Some(&(block.end - 1))) {
                    self.folds += u64::from(!was_folded && (written.len() as u64) < pages);
                    folded.insert(number);
                } else {
                    let is_left =
                        block.clone().any(|page| now.contains_key(&page) && is_same(&page));
                    self.unfolds += u64::from(was_folded && is_left);
                    folded.remove(&number);
                }
            }
            let table = &memory.process(process).table;
            for page in now.keys() {
                let is_folded = folded.contains(&(page / pages));
                assert_eq!(table.is_folded(PageNumber::new(*page)), is_folded, "page {page}");
            }
            self.processes.insert(process, (now, folded));
        }
        let counted = (memory.counters.folds, memory.counters.unfolds);
        assert_eq!(counted, (self.folds, self.unfolds));
    }
}
