//! Random programs as batches: the words of their entries, their accesses, and the costs of these for a machine.

use octavo_hw::{MemoryTransfer, ServedBy};
use octavo_types::Access;

use super::programs::{BackgroundDraft, CostDraft, EntryDraft};
use crate::core::{Cost, Costs, InBackground, PrefetchCost, Speculation, UsedPrefetch};
use crate::front::{Beginning, Difference, Followed, LineAccess, Ops};

/// A batch: its accesses, and for each part its words, the index of its first access, and its costs.
#[derive(Clone, Default, Debug)]
pub(super) struct Batch {
    pub(super) accesses: Vec<LineAccess>,
    pub(super) parts: Vec<(Vec<u32>, usize, Costs)>,
}

impl Batch {
    /// Adds an access with its cost to the last part. A read from memory takes `memory` cycles if the memory is idle.
    /// Returns the index of the access.
    fn access(&mut self, line: u64, kind: Access, cost: Option<&CostDraft>, memory: u32) -> usize {
        let place = self.accesses.len();
        self.accesses.push(LineAccess::new(line, kind, false, 0));
        let (_, first, costs) = self.parts.last_mut().expect("a part");
        if let Some(cost) = cost {
            let first_transfer = costs.transfers.len();
            let (cycles, reads, page_size) = cost.walk.clone().unwrap_or((0, Vec::new(), None));
            let reads = reads.into_iter().map(|line| MemoryTransfer::new(line, false));
            let walk_cycles = cycles + reads.len() as u32 * memory;
            costs.transfers.extend(reads);
            if walk_cycles > 0 || cost.cache_cycles > 0 {
                let writes = cost.writes.iter().map(|line| MemoryTransfer::new(*line, true));
                costs.transfers.extend(writes);
            }
            let mut cache_cycles = cost.cache_cycles;
            if cost.served == ServedBy::Memory {
                cache_cycles += memory;
                costs.transfers.push(MemoryTransfer::new(cost.line, false));
            }
            costs.has_handlers |= cost.handler_cycles > 0;
            costs.has_flushes |= cost.speculation == Speculation::Wrong;
            let transfers = costs.transfers.len() - first_transfer;
            let first_prefetch = costs.prefetches.len();
            // Fetches cause no prefetches.
            let prefetches = cost.prefetches.iter().filter(|_| kind != Access::Fetch);
            for prefetch in prefetches {
                let first_transfer = costs.transfers.len();
                let from_memory = prefetch.served == ServedBy::Memory;
                let own = from_memory.then_some(MemoryTransfer::new(prefetch.line, false));
                let writes = prefetch.writes.iter().map(|line| MemoryTransfer::new(*line, true));
                costs.transfers.extend(own.into_iter().chain(writes));
                costs.prefetches.push(PrefetchCost {
                    line: prefetch.line,
                    level: prefetch.level,
                    served: prefetch.served,
                    cycles: prefetch.cycles + if from_memory { memory } else { 0 },
                    uses_l2: prefetch.uses_l2,
                    first_transfer: first_transfer as u32,
                    transfers: (costs.transfers.len() - first_transfer) as u32,
                });
            }
            let first_background = costs.background.len();
            for background in &cost.background {
                let background = match background {
                    BackgroundDraft::Walk(cycles, reads) => {
                        let first_transfer = costs.transfers.len() as u32;
                        let reads = reads.iter().map(|line| MemoryTransfer::new(*line, false));
                        costs.transfers.extend(reads);
                        let transfers = costs.transfers.len() as u32 - first_transfer;
                        InBackground::Walk {
                            cycles: cycles + transfers * memory,
                            first_transfer,
                            transfers,
                        }
                    }
                    BackgroundDraft::Page(first, size) => {
                        InBackground::Page { first: *first, size: *size }
                    }
                };
                costs.background.push(background);
            }
            costs.costs.push(Cost {
                access: (place - *first) as u32,
                lookup_cycles: cost.lookup_cycles,
                walk_cycles,
                cache_cycles,
                served: cost.served,
                first_transfer: first_transfer as u32,
                transfers: transfers as u32,
                page_size,
                handler_cycles: cost.handler_cycles,
                used_prefetch: cost
                    .used
                    .filter(|_| kind != Access::Fetch)
                    .map(|(level, line)| UsedPrefetch { level, line }),
                first_prefetch: first_prefetch as u32,
                prefetches: (costs.prefetches.len() - first_prefetch) as u32,
                speculation: cost.speculation,
                first_background: first_background as u32,
                background: (costs.background.len() - first_background) as u32,
            });
        }
        place
    }
}

/// The batches of a program, for a machine whose memory takes `memory` cycles for a read when it is idle.
pub(super) fn batches(entries: &[EntryDraft], memory: u32) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut batch = Batch::default();
    let mut ops = Ops::default();
    batch.parts.push(Default::default());
    // Whether each entry has a store.
    let mut stores: Vec<bool> = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        let continues = entry.continues && number > 0;
        let (is_mispredicted, is_taken) =
            if continues || number == 0 { (false, false) } else { entry.followed };
        let difference = match entry.difference {
            Difference::OffPath if !is_mispredicted => Difference::Last,
            difference => difference,
        };
        if continues {
            ops.continuation(difference);
        } else {
            let in_program = |distances: &[u64]| -> Vec<u64> {
                distances.iter().copied().filter(|distance| *distance <= number as u64).collect()
            };
            let beginning = Beginning::new(entry.writes, entry.arithmetic).differing(difference);
            ops.begin_with(
                beginning.after(Followed { is_mispredicted, is_taken }),
                &in_program(&entry.distances),
                &in_program(&entry.late),
            );
        }
        if let Some((line, cost)) = &entry.fetch {
            batch.access(*line, Access::Fetch, cost.as_ref(), memory);
            ops.fetch(true);
        }
        let (mut has_load, mut has_store) = (false, false);
        for reference in &entry.references {
            let data: Vec<usize> = (0..batch.accesses.len())
                .filter(|place| batch.accesses[*place].kind() != Access::Fetch)
                .collect();
            let kind = if reference.is_store { Access::Store } else { Access::Load };
            match reference.repeats.filter(|_| !data.is_empty()) {
                Some(index) => ops.data(*index.get(&data), false, reference.is_store),
                None => {
                    let place = batch.access(reference.line, kind, reference.cost.as_ref(), memory);
                    ops.data(place, true, reference.is_store);
                }
            }
            has_load |= !reference.is_store;
            has_store |= reference.is_store;
        }
        if let Some(distance) = entry.forward.filter(|_| has_load) {
            let store = number.checked_sub(distance as usize).filter(|number| stores[*number]);
            store.into_iter().for_each(|_| ops.forward(distance));
        }
        stores.push(has_store);
        let (ends_part, ends_batch) = entry.ends;
        if ends_part || ends_batch || number + 1 == entries.len() {
            batch.parts.last_mut().unwrap().0 = ops.words().to_vec();
            ops.clear();
            if ends_batch || number + 1 == entries.len() {
                batches.push(std::mem::take(&mut batch));
            }
            let first = batch.accesses.len();
            batch.parts.push((Vec::new(), first, Costs::default()));
        }
    }
    batches
}
