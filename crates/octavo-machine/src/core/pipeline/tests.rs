//! Small programs whose times have a closed form.

mod branches;
mod dram;
mod execution;
mod memory;

use octavo_config::{MachineConfig, PipelineConfig};
use octavo_hw::{MemoryTransfer, ServedBy};
use octavo_types::{Access, Instructions, PageNumber, PageSize};

use super::{CoreSetup, Pipeline};
use crate::config::resolve;
use crate::core::{Cost, Costs, InBackground, PrefetchCost, Speculation, UsedPrefetch};
use crate::counters::Counters;
use crate::front::{Beginning, Difference, Followed, LineAccess, Lines, Ops};

const L1D_CYCLES: u64 = 4;
const FRONT_END_CYCLES: u64 = 5;
/// The commit of an instruction alone: the front end, a cycle until execution, and a cycle of execution.
const FIRST_COMMIT: u64 = FRONT_END_CYCLES + 2;

/// A core that commits 4 instructions a cycle, with 4 ports of each kind and without DRAM, changed by `change`.
fn core(change: impl FnOnce(&mut MachineConfig, &mut PipelineConfig)) -> Pipeline<[u32; 1]> {
    let mut machine = resolve::<&str>("skylake", &[]).unwrap().into_config();
    let mut pipeline = machine.core.pipeline.clone().unwrap();
    assert_eq!(u64::from(machine.cache.l1d.latency_cycles), L1D_CYCLES);
    assert_eq!(u64::from(pipeline.front_end_cycles), FRONT_END_CYCLES);
    (pipeline.load_ports, pipeline.store_ports, pipeline.commit_width) = (4, 4, 4);
    machine.dram = None;
    change(&mut machine, &mut pipeline);
    let lines = Lines::of_bytes(machine.cache.line_bytes);
    Pipeline::new(&[&CoreSetup::new(&machine, &pipeline, lines)])
}

/// Instructions and the costs of their references.
#[derive(Default)]
struct Program {
    ops: Ops,
    accesses: Vec<LineAccess>,
    costs: Costs,
}

/// A reference to data and its cost.
#[derive(Clone, Copy)]
struct Data {
    line: u64,
    is_store: bool,
    walk_cycles: u32,
    cache_cycles: u32,
    handler_cycles: u32,
    /// The prefetch that the reference is the first to use.
    uses: Option<UsedPrefetch>,
    speculation: Speculation,
}

const HIT: Data = Data {
    line: 1,
    is_store: false,
    walk_cycles: 0,
    cache_cycles: 0,
    handler_cycles: 0,
    uses: None,
    speculation: Speculation::None,
};

impl Data {
    fn load(line: u64) -> Self {
        Data { line, ..HIT }
    }

    fn store(line: u64) -> Self {
        Data { line, is_store: true, ..HIT }
    }

    fn walk(self, walk_cycles: u32) -> Self {
        Data { walk_cycles, ..self }
    }

    fn predicted(self, speculation: Speculation) -> Self {
        Data { speculation, ..self }
    }

    fn handler(self, handler_cycles: u32) -> Self {
        Data { handler_cycles, ..self }
    }

    fn miss(self, cache_cycles: u32) -> Self {
        Data { cache_cycles, ..self }
    }

    fn uses(self, level: usize, line: u64) -> Self {
        Data { uses: Some(UsedPrefetch { level, line }), ..self }
    }
}

impl Program {
    /// An instruction without references.
    fn plain(&mut self, distances: &[u64]) -> &mut Self {
        self.ops.begin_with(Beginning::new(false, None), distances, &[]);
        self
    }

    /// An instruction without references that differs between the right path and a wrong path.
    fn differing(&mut self, difference: Difference, distances: &[u64]) -> &mut Self {
        let beginning = Beginning::new(false, None).differing(difference);
        self.ops.begin_with(beginning, distances, &[]);
        self
    }

    /// An instruction without references directly behind a mispredicted branch, with a difference.
    fn behind_branch(&mut self, difference: Difference) -> &mut Self {
        let followed = Followed { is_mispredicted: true, is_taken: true };
        let beginning = Beginning::new(false, None).after(followed).differing(difference);
        self.ops.begin_with(beginning, &[], &[]);
        self
    }

    /// An instruction with a reference.
    fn data(&mut self, distances: &[u64], data: Data) -> &mut Self {
        self.plain(distances).reference(data)
    }

    /// Adds a reference to the last instruction.
    fn reference(&mut self, data: Data) -> &mut Self {
        let Data { line, is_store, walk_cycles, cache_cycles, handler_cycles, uses, speculation } =
            data;
        let place = self.accesses.len();
        self.ops.data(place, true, is_store);
        let kind = if is_store { Access::Store } else { Access::Load };
        self.accesses.push(LineAccess::new(line, kind, false, 0));
        if walk_cycles + cache_cycles + handler_cycles > 0 || uses.is_some() {
            let first_transfer = self.costs.transfers.len() as u32;
            self.costs.has_handlers |= handler_cycles > 0;
            self.costs.has_flushes |= speculation == Speculation::Wrong;
            self.costs.transfers.push(MemoryTransfer::new(line, false));
            self.costs.costs.push(Cost {
                access: place as u32,
                lookup_cycles: 0,
                walk_cycles,
                cache_cycles,
                served: if uses.is_some() { ServedBy::L2 } else { ServedBy::Memory },
                first_transfer,
                transfers: u32::from(cache_cycles > 0 && uses.is_none()),
                page_size: Some(PageSize::BASE),
                handler_cycles,
                used_prefetch: uses,
                first_prefetch: 0,
                prefetches: 0,
                speculation,
                first_background: 0,
                background: 0,
            });
        }
        self
    }

    /// Adds a prefetch of a physical line from memory to the last reference, which has a cost.
    fn prefetch(&mut self, level: usize, line: u64, cycles: u32) -> &mut Self {
        let cost = self.costs.costs.last_mut().expect("a cost");
        if cost.prefetches == 0 {
            cost.first_prefetch = self.costs.prefetches.len() as u32;
        }
        cost.prefetches += 1;
        let first_transfer = self.costs.transfers.len() as u32;
        self.costs.transfers.push(MemoryTransfer::new(line, false));
        let (served, uses_l2, transfers) = (ServedBy::Memory, false, 1);
        let prefetch =
            PrefetchCost { line, level, served, cycles, uses_l2, first_transfer, transfers };
        self.costs.prefetches.push(prefetch);
        self
    }

    /// Adds a walk in the background to a base page to the last reference, which has a cost.
    fn walk_in_background(&mut self, cycles: u32, page: u64) -> &mut Self {
        self.background(InBackground::Walk { cycles, first_transfer: 0, transfers: 0 })
            .page_in_background(page)
    }

    /// Adds a base page that arrives with the last walk of the last reference.
    fn page_in_background(&mut self, page: u64) -> &mut Self {
        self.background(InBackground::Page { first: PageNumber::new(page), size: PageSize::BASE })
    }

    fn background(&mut self, background: InBackground) -> &mut Self {
        let cost = self.costs.costs.last_mut().expect("a cost");
        if cost.background == 0 {
            cost.first_background = self.costs.background.len() as u32;
        }
        cost.background += 1;
        self.costs.background.push(background);
        self
    }

    /// Adds a write-back to the last reference, which misses.
    fn write_back(&mut self, line: u64) -> &mut Self {
        let own = self.costs.transfers.pop().expect("a miss");
        self.costs.transfers.extend([MemoryTransfer::new(line, true), own]);
        self.costs.costs.last_mut().expect("a miss").transfers += 1;
        self
    }

    /// The time at which the last instruction commits.
    fn cycles(&self, mut core: Pipeline<[u32; 1]>) -> u64 {
        let costs = [&self.costs];
        core.execute(self.ops.words(), &self.accesses, 0, &costs, Instructions::PORTABLE);
        let mut counters = Counters::default();
        core.counts(0).report(&mut counters);
        let cycles = counters.get("core", "cycles").unwrap();
        let parts = counters.iter().filter(|(component, ..)| *component == "core.stack");
        assert_eq!(parts.map(|(.., value)| value).sum::<u64>(), cycles, "the stack adds up");
        assert_eq!(cycles, core.absolute(0, core.commit.cycle()[0]));
        cycles
    }
}
