//! Small programs whose times have a closed form.

use octavo_config::{
    ArithmeticLatencies, DramConfig, MachineConfig, MemoryTier, OutstandingMisses, PipelineConfig,
};
use octavo_hw::{MemoryTransfer, ServedBy};
use octavo_types::{Access, Arithmetic, PageNumber, PageSize};

use super::*;
use crate::config::resolve;
use crate::core::{Cost, InBackground, PrefetchCost, Speculation, UsedPrefetch};
use crate::front::{Beginning, Followed, Ops};

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

#[test]
fn independent_instructions_take_the_width() {
    let mut program = Program::default();
    for _ in 0..400 {
        program.plain(&[]);
    }
    assert_eq!(program.cycles(core(|_, _| {})), FIRST_COMMIT + 99);
}

#[test]
fn a_chain_of_instructions_takes_a_cycle_each() {
    let mut program = Program::default();
    program.plain(&[]);
    for _ in 1..100 {
        program.plain(&[1]);
    }
    assert_eq!(program.cycles(core(|_, _| {})), FIRST_COMMIT + 99);
}

#[test]
fn a_dependent_chase_costs_the_sum_of_latencies() {
    let mut program = Program::default();
    for number in 0..50 {
        let load = Data::load(1000 * number).walk(30).miss(196);
        program.data(if number == 0 { &[] } else { &[1] }, load);
    }
    let each = 30 + 196 + L1D_CYCLES;
    // The first load begins at `FIRST_COMMIT - 1`.
    assert_eq!(program.cycles(core(|_, _| {})), FIRST_COMMIT - 1 + 50 * each);
}

#[test]
fn a_chase_at_predicted_frames_costs_lines_and_the_rest_of_the_last_walk() {
    let chase = |speculation, walk: u32| {
        let mut program = Program::default();
        for number in 0..50 {
            let load = Data::load(1000 * number).walk(walk).miss(196).predicted(speculation);
            program.data(if number == 0 { &[] } else { &[1] }, load);
        }
        program.cycles(core(|_, _| {}))
    };
    let line = 196 + L1D_CYCLES;
    // A walk that ends before its line arrives costs nothing.
    assert_eq!(chase(Speculation::Right, 30), FIRST_COMMIT - 1 + 50 * line);
    // A longer one delays the commit of the last load. The walks of the others have ended by then.
    assert_eq!(chase(Speculation::Right, 300), FIRST_COMMIT - 1 + 49 * line + 300);
    // The load behind a wrong prediction is fetched again before the line of the current load arrives.
    assert_eq!(chase(Speculation::Wrong, 30), chase(Speculation::None, 30));
}

#[test]
fn instructions_after_a_wrong_frame_are_fetched_again() {
    let cycles = |speculation| {
        let mut program = Program::default();
        program.data(&[], Data::load(0).walk(100).predicted(speculation));
        for _ in 0..40 {
            program.plain(&[]);
        }
        program.cycles(core(|_, pipeline| pipeline.mispredict_cycles = 7))
    };
    // The load begins at `FIRST_COMMIT - 1`. The 40 others commit four a cycle, three of them with the load.
    let load = FIRST_COMMIT - 1 + 100 + L1D_CYCLES;
    assert_eq!(cycles(Speculation::None), load + 10);
    // The others pass the front end after the walk.
    assert_eq!(cycles(Speculation::Wrong), FIRST_COMMIT - 1 + 100 + 7 + FIRST_COMMIT + 9);
    // After a right prediction the load commits with the end of the walk: its data has arrived before.
    assert_eq!(cycles(Speculation::Right), FIRST_COMMIT - 1 + 100 + 10);
}

#[test]
fn independent_loads_overlap_up_to_the_outstanding_misses() {
    let loads = |outstanding: u32| {
        let mut program = Program::default();
        for number in 0..48 {
            program.data(&[], Data::load(1000 * number).miss(200));
        }
        program.cycles(core(|_, pipeline| {
            pipeline.outstanding = OutstandingMisses { l1d: outstanding, l2: 48, llc: 48 };
        }))
    };
    // All misses are sent while the first is under way. Four loads begin in a cycle.
    assert_eq!(loads(48), FIRST_COMMIT - 1 + 11 + 200 + L1D_CYCLES);
    // Groups of `outstanding` misses follow each other: a miss begins when one of the group before ends.
    for outstanding in [1, 2, 4] {
        let groups = 48 / u64::from(outstanding);
        assert_eq!(loads(outstanding), FIRST_COMMIT - 1 + 200 * groups + L1D_CYCLES);
    }
}

#[test]
fn a_chain_of_divisions_takes_their_latency() {
    let cycles = |arithmetic: Option<Arithmetic>| {
        let mut program = Program::default();
        for number in 0..10u64 {
            let producer: &[u64] = if number == 0 { &[] } else { &[1] };
            program.ops.begin_with(Beginning::new(true, arithmetic), producer, &[]);
        }
        program.cycles(core(|_, pipeline| pipeline.latencies = LATENCIES))
    };
    assert_eq!(cycles(None), FIRST_COMMIT - 1 + 10);
    assert_eq!(cycles(Some(Arithmetic::Divide)), FIRST_COMMIT - 1 + 10 * 26);
}

#[test]
fn arithmetic_begins_when_the_load_of_its_instruction_is_complete() {
    let cycles = |arithmetic: Option<Arithmetic>| {
        let mut program = Program::default();
        program.ops.begin_with(Beginning::new(true, arithmetic), &[], &[]);
        program.reference(Data::load(0).miss(100));
        program.cycles(core(|_, pipeline| pipeline.latencies = LATENCIES))
    };
    assert_eq!(cycles(None), FIRST_COMMIT - 1 + 100 + L1D_CYCLES);
    assert_eq!(cycles(Some(Arithmetic::Float)), FIRST_COMMIT - 1 + 100 + L1D_CYCLES + 4 - 1);
}

const LATENCIES: ArithmeticLatencies =
    ArithmeticLatencies { multiply: 3, divide: 26, float: 4, float_divide: 14 };

#[test]
fn a_full_reorder_buffer_stalls() {
    let cycles = |reorder_buffer: u32| {
        let mut program = Program::default();
        program.data(&[], Data::load(0).miss(1000));
        for _ in 0..99 {
            program.plain(&[]);
        }
        program.data(&[], Data::load(5000).miss(1000));
        program.cycles(core(|_, pipeline| pipeline.reorder_buffer = reorder_buffer))
    };
    let miss = 1000 + L1D_CYCLES;
    // The second load is the 101st instruction: it begins 25 cycles after the first.
    assert_eq!(cycles(101), FIRST_COMMIT - 1 + 25 + miss);
    // The second load is dispatched when the first one commits, and begins a cycle later.
    assert_eq!(cycles(100), FIRST_COMMIT - 1 + miss + 1 + miss);
}

#[test]
fn rename_registers_bound_instructions_in_flight() {
    let cycles = |rename_registers: u32| {
        let mut program = Program::default();
        program.data(&[], Data::load(0).miss(1000));
        for _ in 0..20 {
            program.ops.begin_with(Beginning::new(true, None), &[], &[]);
        }
        program.data(&[], Data::load(5000).miss(1000));
        program.ops.begin_with(Beginning::new(true, None), &[], &[]);
        program.cycles(core(|_, pipeline| pipeline.rename_registers = rename_registers))
    };
    let miss = 1000 + L1D_CYCLES;
    // The 23 instructions commit four a cycle from the commit of the first load on.
    assert_eq!(cycles(21), FIRST_COMMIT - 1 + miss + 5);
    // The 20th instruction with a register waits until the first one commits, together with the first load.
    let waits = FIRST_COMMIT - 1 + miss + FIRST_COMMIT - FRONT_END_CYCLES - 1 + miss;
    assert_eq!(cycles(19), waits);
}

/// A sum of words whose lines miss: each addition needs the last sum, its load does not.
#[test]
fn a_load_does_not_wait_for_the_other_operand_of_its_instruction() {
    let cycles = |late: bool| {
        let mut program = Program::default();
        for number in 0..8 {
            let sum: &[u64] = if number > 0 { &[1] } else { &[] };
            let (early, late) = if late { (&[][..], sum) } else { (sum, &[][..]) };
            program.ops.begin_with(Beginning::new(true, None), early, late);
            program.reference(Data::load(64 * number).miss(1000));
        }
        program.cycles(core(|_, _| {}))
    };
    let miss = 1000 + L1D_CYCLES;
    assert_eq!(cycles(false), FIRST_COMMIT - 1 + 8 * miss);
    // All lines are requested at once; then each addition takes a cycle.
    assert_eq!(cycles(true), FIRST_COMMIT - 1 + miss + 7);
}

/// A store needs the operands of its address alone to be translated.
#[test]
fn a_store_walks_before_its_data_is_ready() {
    let cycles = |late: bool| {
        let mut program = Program::default();
        program.data(&[], Data::load(0).miss(1000));
        let (early, late): (&[u64], &[u64]) = if late { (&[], &[1]) } else { (&[1], &[]) };
        program.ops.begin_with(Beginning::new(false, None), early, late);
        program.reference(Data::store(5000).walk(500));
        program.cycles(core(|_, _| {}))
    };
    let miss = 1000 + L1D_CYCLES;
    assert_eq!(cycles(false), FIRST_COMMIT - 1 + miss + 500 + 1);
    assert_eq!(cycles(true), FIRST_COMMIT - 1 + miss + 1);
}

#[test]
fn the_line_of_a_store_is_prefetched_while_a_load_before_it_misses() {
    // With room for one store, the second is dispatched when the first has its line: 300 cycles after the first is
    // translated, or without prefetches 300 cycles after it commits behind the load.
    let cycles = |store_prefetch: bool| {
        let mut program = Program::default();
        program.data(&[], Data::load(0).miss(200)).data(&[], Data::store(64).miss(300));
        program.data(&[], Data::store(1));
        program.cycles(core(|_, pipeline| {
            (pipeline.store_queue, pipeline.store_prefetch) = (1, store_prefetch);
        }))
    };
    assert_eq!(cycles(true), FIRST_COMMIT - 1 + 300 + 2);
    assert_eq!(cycles(false), FIRST_COMMIT - 1 + 200 + L1D_CYCLES + 300 + 2);
}

#[test]
fn doubling_the_walkers_halves_a_phase_bound_by_walks() {
    let cycles = |walkers: u32| {
        let mut program = Program::default();
        for number in 0..64 {
            program.data(&[], Data::load(64 * number).walk(100));
        }
        program.cycles(core(|machine, _| machine.walker.walkers = walkers))
    };
    for walkers in [1, 2, 4, 8] {
        let walks = 6400 / u64::from(walkers);
        assert_eq!(cycles(walkers), FIRST_COMMIT - 1 + walks + L1D_CYCLES + u64::from(walkers > 4));
    }
}

#[test]
fn walks_of_a_page_and_misses_of_a_line_are_merged() {
    let mut program = Program::default();
    program.data(&[], Data::load(0).walk(100).miss(200));
    // The same line, and another line of the page.
    program.data(&[], Data::load(0)).data(&[], Data::load(1).miss(50));
    assert_eq!(program.cycles(core(|_, _| {})), FIRST_COMMIT - 1 + 100 + 200 + L1D_CYCLES);
    let mut alone = Program::default();
    alone.data(&[], Data::load(0).walk(100)).data(&[], Data::load(1).miss(500));
    assert_eq!(alone.cycles(core(|_, _| {})), FIRST_COMMIT - 1 + 100 + 500 + L1D_CYCLES);
}

#[test]
fn a_use_waits_for_the_background_walk_that_brings_its_page() {
    // Loads of pages 0 and 1; the second may depend on the first. Page 1 arrives with the walk to page 0 (`with_own`),
    // which takes 100 cycles, or with a walk in the background, which takes 50.
    let cycles = |with_own: bool, is_dependent: bool, walkers: u32| {
        let mut program = Program::default();
        program.data(&[], Data::load(0).walk(100));
        match with_own {
            true => program.page_in_background(1),
            false => program.walk_in_background(50, 1),
        };
        let distances: &[u64] = if is_dependent { &[1] } else { &[] };
        program.data(distances, Data::load(64));
        let pipeline = core(|machine, _| machine.walker.walkers = walkers);
        program.cycles(pipeline) - (FIRST_COMMIT - 1) - L1D_CYCLES
    };
    for walkers in [1, 2] {
        assert_eq!(cycles(true, false, walkers), 100);
        // The page has arrived when the first load is complete.
        assert_eq!(cycles(true, true, walkers), 100 + L1D_CYCLES);
        assert_eq!(cycles(false, true, walkers), 100 + 50);
    }
    // A use before the start of the walk in the background starts it, if a walker is free.
    assert_eq!(cycles(false, false, 1), 100 + 50);
    assert_eq!(cycles(false, false, 2), 100);
}

#[test]
fn walks_in_the_background_keep_walkers_busy() {
    // A chain of two loads with walks, and an unused walk in the background of the first.
    let cycles = |background: u32, walkers: u32| {
        let mut program = Program::default();
        program.data(&[], Data::load(0).walk(100)).walk_in_background(background, 9);
        program.data(&[1], Data::load(64).walk(100));
        let pipeline = core(|machine, _| machine.walker.walkers = walkers);
        program.cycles(pipeline) - (FIRST_COMMIT - 1) - L1D_CYCLES
    };
    let without = 100 + L1D_CYCLES + 100;
    assert_eq!(cycles(70, 2), without);
    assert_eq!(cycles(70, 1), without + 70 - L1D_CYCLES);
}

#[test]
fn a_use_before_the_miss_starts_the_miss() {
    let mut program = Program::default();
    // The second load has the miss, but waits for the first. The third uses the line early.
    program.data(&[], Data::load(0).miss(700)).data(&[1], Data::load(9).miss(300));
    program.data(&[], Data::load(9));
    let chain = 700 + L1D_CYCLES + 300 + L1D_CYCLES;
    assert_eq!(program.cycles(core(|_, _| {})), FIRST_COMMIT - 1 + chain);
}

#[test]
fn a_load_waits_for_a_prefetched_line_under_way() {
    let cycles = |level: usize, distances: &[u64], outstanding: u32| {
        let mut program = Program::default();
        program.data(&[], Data::load(0).miss(200)).prefetch(level, 500, 200);
        let load = Data::load(70).uses(level, 500);
        // From the second level it takes ten cycles.
        program.data(distances, if level == 0 { load } else { load.miss(10) });
        program.cycles(core(|_, pipeline| {
            pipeline.outstanding = OutstandingMisses { l1d: outstanding, l2: 4, llc: 4 };
        }))
    };
    let miss = FIRST_COMMIT - 1 + 200 + L1D_CYCLES;
    // The prefetched line arrives with the line of the miss. An independent load uses it late; a dependent one does
    // not.
    assert_eq!(cycles(0, &[], 4), miss);
    assert_eq!(cycles(1, &[], 4), miss);
    assert_eq!(cycles(0, &[1], 4), miss + L1D_CYCLES);
    assert_eq!(cycles(1, &[1], 4), miss + 10 + L1D_CYCLES);
    // With one outstanding miss in the first level, a prefetch into that level follows the miss, and the load waits.
    assert_eq!(cycles(0, &[1], 1), miss + 200);
    // A prefetch into the second level does not take the outstanding miss of the first level. The independent load does
    // not get it before the first load's miss ends.
    assert_eq!(cycles(1, &[1], 1), miss + 10 + L1D_CYCLES);
    assert_eq!(cycles(1, &[], 1), miss + 10);
}

#[test]
fn a_use_before_the_prefetch_starts_the_prefetch() {
    let mut program = Program::default();
    // The prefetch is sent with a miss that waits for another miss. The third load uses the line at once.
    program.data(&[], Data::load(0).miss(700));
    program.data(&[1], Data::load(9).miss(300)).prefetch(0, 500, 200);
    program.data(&[], Data::load(70).uses(0, 500)).data(&[1], Data::load(71).miss(750));
    let chain = FIRST_COMMIT - 1 + 700 + L1D_CYCLES + 300 + L1D_CYCLES;
    assert!(200 + 750 + 2 * L1D_CYCLES < chain - FIRST_COMMIT + 1);
    assert_eq!(program.cycles(core(|_, _| {})), chain);
}

#[test]
fn useless_prefetches_take_bandwidth() {
    let cycles = |prefetches: u64, transfer_cycles: u32| {
        let mut program = Program::default();
        program.data(&[], Data::load(0).miss(200));
        for number in 0..prefetches {
            program.prefetch(1, 1 + number, 200);
        }
        program.data(&[], Data::load(1000).miss(200));
        program.cycles(core(|machine, pipeline| {
            pipeline.outstanding = OutstandingMisses { l1d: 64, l2: 64, llc: 64 };
            machine.dram = Some(DramConfig {
                channels: 1,
                banks: 1024,
                row_bytes: 64,
                activate_cycles: 0,
                precharge_cycles: 0,
                transfer_cycles,
                write_batch: 1,
                turn_cycles: 0,
                refresh_cycles: 0,
                refresh_every_cycles: 0,
            });
        }))
    };
    let alone = FIRST_COMMIT - 1 + 200 + L1D_CYCLES;
    assert_eq!(cycles(0, 10), alone + 10);
    // Five prefetched lines take the channel before the line of the second load.
    assert_eq!(cycles(5, 10), alone + 60);
    assert_eq!(cycles(5, 0), alone);
}

#[test]
fn a_mispredicted_branch_waits_for_its_operands() {
    let mut program = Program::default();
    program.data(&[], Data::load(0).miss(200));
    program.plain(&[1]).behind_branch(Difference::Last);
    let branch = FIRST_COMMIT - 1 + 200 + L1D_CYCLES + 1;
    let commit = branch + MISPREDICT_CYCLES + FIRST_COMMIT;
    assert_eq!(program.cycles(behind_branches(|_| {})), commit);
}

/// Adds a load that misses for `cycles`, a mispredicted branch that depends on it, and an instruction that differs.
/// Returns when the branch is complete.
fn mispredicted(program: &mut Program, cycles: u32) -> u64 {
    program.data(&[], Data::load(0).miss(cycles));
    program.plain(&[1]);
    program.behind_branch(Difference::Last);
    FIRST_COMMIT - 1 + u64::from(cycles) + L1D_CYCLES + 1
}

#[test]
fn lines_requested_on_a_wrong_path_are_in_the_cache_on_the_right_path() {
    let mut program = Program::default();
    let branch = mispredicted(&mut program, 200);
    program.data(&[], Data::load(100).walk(30).miss(160));
    // The line arrives before the branch is complete.
    let fetched = branch + MISPREDICT_CYCLES;
    let commit = fetched + FIRST_COMMIT - 1 + L1D_CYCLES;
    assert_eq!(program.cycles(behind_branches(|_| {})), commit);
    let without = behind_branches(|pipeline| pipeline.wrong_paths = false);
    assert_eq!(program.cycles(without), commit + 190);
}

#[test]
fn the_right_path_waits_for_a_line_under_way_from_a_wrong_path() {
    let mut program = Program::default();
    mispredicted(&mut program, 200);
    program.data(&[], Data::load(100).walk(30).miss(500));
    // The load begins as if the branch were predicted.
    assert_eq!(program.cycles(behind_branches(|_| {})), FIRST_COMMIT - 1 + 530 + L1D_CYCLES);
}

#[test]
fn differing_instructions_and_their_consumers_wait_for_the_right_path() {
    for (difference, distances) in [
        (Difference::Last, &[][..]),
        (Difference::Earlier, &[]),
        // The producer differs.
        (Difference::None, &[1]),
    ] {
        let mut program = Program::default();
        let branch = mispredicted(&mut program, 200);
        program.differing(difference, distances).reference(Data::load(100).miss(160));
        let ready = branch + MISPREDICT_CYCLES + FIRST_COMMIT - 1 + distances.len() as u64;
        let commit = ready + 160 + L1D_CYCLES;
        assert_eq!(program.cycles(behind_branches(|_| {})), commit, "{difference:?}");
    }
}

#[test]
fn a_misprediction_found_on_a_wrong_path_redirects_that_path() {
    let mut program = Program::default();
    mispredicted(&mut program, 400);
    // The second branch waits for a line on the path of the first.
    program.data(&[], Data::load(100).miss(100));
    program.plain(&[1]);
    program.behind_branch(Difference::Last).reference(Data::load(200).miss(500));
    let second = FIRST_COMMIT - 1 + 100 + L1D_CYCLES + 1;
    let begins = second + MISPREDICT_CYCLES + FIRST_COMMIT - 1;
    assert_eq!(program.cycles(behind_branches(|_| {})), begins + 500 + L1D_CYCLES);
}

#[test]
fn a_later_branch_that_waits_for_the_right_path_has_its_own_wrong_path() {
    let mut program = Program::default();
    let first = mispredicted(&mut program, 200);
    // The second branch waits for a line that is requested on the right path alone.
    program.differing(Difference::Earlier, &[]).reference(Data::load(100).miss(500));
    program.plain(&[1]);
    program.behind_branch(Difference::Last);
    // The load needs the result of the instruction behind the first branch, which only the right path has.
    program.data(&[4], Data::load(200).miss(600));
    let right = first + MISPREDICT_CYCLES + FIRST_COMMIT - 1;
    assert_eq!(program.cycles(behind_branches(|_| {})), right + 1 + 600 + L1D_CYCLES);
}

#[test]
fn a_branch_off_the_path_ends_it() {
    for (difference, is_early) in [(Difference::Last, true), (Difference::OffPath, false)] {
        let mut program = Program::default();
        let first = mispredicted(&mut program, 400);
        program.plain(&[]);
        program.behind_branch(difference);
        program.data(&[], Data::load(100).miss(600));
        let commit = FIRST_COMMIT - 1 + 600 + L1D_CYCLES;
        // The second branch waits for nothing, so that its own wrong path is too short.
        let second = first + MISPREDICT_CYCLES + FIRST_COMMIT;
        let late = second + MISPREDICT_CYCLES + commit;
        let cycles = program.cycles(behind_branches(|_| {}));
        // Slots behind the second branch begin in the next cycle.
        assert_eq!(cycles, if is_early { commit + 1 } else { late }, "{difference:?}");
    }
}

#[test]
fn older_paths_reach_an_off_path_branch_after_they_find_the_branch_before_it() {
    let mut program = Program::default();
    mispredicted(&mut program, 2000);
    // The second branch waits on the path of the first one.
    program.data(&[], Data::load(100).miss(600));
    program.plain(&[1]);
    program.behind_branch(Difference::Last);
    program.behind_branch(Difference::OffPath);
    program.data(&[], Data::load(200).miss(3000));
    let second = FIRST_COMMIT - 1 + 600 + L1D_CYCLES + 1;
    let ready = second + MISPREDICT_CYCLES + FIRST_COMMIT - 1;
    assert_eq!(program.cycles(behind_branches(|_| {})), ready + 3000 + L1D_CYCLES);
}

#[test]
fn a_wrong_path_fills_the_reorder_buffer() {
    let cycles = |between: u64| {
        let mut program = Program::default();
        mispredicted(&mut program, 2000);
        for _ in 0..between {
            program.plain(&[]);
        }
        program.data(&[], Data::load(100).miss(3000));
        program.cycles(behind_branches(|pipeline| {
            (pipeline.reorder_buffer, pipeline.rename_registers) = (100, 100);
        }))
    };
    // The buffer also holds the first load, the branch, the instruction behind it, and the last load.
    assert!(cycles(96) < 3500, "the last load begins on the wrong path");
    assert!(cycles(97) > 5000, "the last load waits until the first commits");
}

/// Cycles from the completion of a mispredicted branch to the fetch of the right path.
const MISPREDICT_CYCLES: u64 = 11;

/// A core with [`MISPREDICT_CYCLES`], changed by `change`.
fn behind_branches(change: impl FnOnce(&mut PipelineConfig)) -> Pipeline<[u32; 1]> {
    core(|_, pipeline| {
        pipeline.mispredict_cycles = MISPREDICT_CYCLES as u32;
        change(pipeline);
    })
}

#[test]
fn taken_branches_end_the_cycle_of_fetch() {
    let mut program = Program::default();
    for number in 0..100 {
        let is_taken = number % 2 == 0 && number > 0;
        let followed = Followed { is_mispredicted: false, is_taken };
        program.ops.begin_with(Beginning::new(false, None).after(followed), &[], &[]);
    }
    assert_eq!(program.cycles(core(|_, _| {})), FIRST_COMMIT + 49);
}

#[test]
fn fetch_runs_ahead_of_dispatch_where_it_is_wider() {
    let cycles = |fetch_width| {
        let mut program = Program::default();
        for number in 0..400 {
            let is_taken = number % 10 == 0 && number > 0;
            let followed = Followed { is_mispredicted: false, is_taken };
            program.ops.begin_with(Beginning::new(false, None).after(followed), &[], &[]);
        }
        program.cycles(core(|_, pipeline| pipeline.fetch_width = fetch_width))
    };
    // Four a cycle, 10 instructions up to a taken branch are fetched in 3 cycles. Dispatch takes 2.5.
    assert_eq!(cycles(None), FIRST_COMMIT + 3 * 40 - 1);
    assert_eq!(cycles(Some(8)), FIRST_COMMIT + 400 / 4 - 1);
    assert_eq!(cycles(Some(3)), FIRST_COMMIT + 4 * 40 - 1);
}

#[test]
fn a_full_store_queue_stalls() {
    let cycles = |store_queue: u32| {
        let mut program = Program::default();
        for number in 0..20 {
            program.data(&[], Data::store(1000 * number).miss(300));
        }
        program.cycles(core(|_, pipeline| {
            (pipeline.store_queue, pipeline.outstanding.l1d) = (store_queue, 20);
        }))
    };
    // Stores miss after they commit.
    assert_eq!(cycles(20), FIRST_COMMIT + 4);
    // The line of the first comes 300 cycles after its commit; then one store follows another.
    assert_eq!(cycles(1), FIRST_COMMIT + 19 * (300 + 2));
}

#[test]
fn a_load_takes_its_value_from_a_store() {
    let forward_cycles = 3;
    let mut program = Program::default();
    program.data(&[], Data::load(0).miss(100));
    program.data(&[1], Data::store(1));
    program.plain(&[]);
    program.ops.data(1, false, false);
    program.ops.forward(1);
    let core = core(|_, pipeline| pipeline.forward_cycles = forward_cycles);
    let stored = FIRST_COMMIT - 1 + 100 + L1D_CYCLES + 1;
    assert_eq!(program.cycles(core), stored + u64::from(forward_cycles));
}

const ONE_CHANNEL: DramConfig = DramConfig {
    channels: 1,
    banks: 16,
    row_bytes: 8192,
    activate_cycles: 40,
    precharge_cycles: 40,
    transfer_cycles: 10,
    write_batch: 1,
    turn_cycles: 0,
    refresh_cycles: 0,
    refresh_every_cycles: 0,
};

/// Eight loads in a chain, each in another bank. The first is requested during the first refresh, and begins at its
/// end, 150. The fifth is requested four misses later, at 950, during the next refresh, from 900 to 1050.
#[test]
fn loads_wait_for_the_end_of_a_refresh() {
    let cycles = |refresh_cycles: u32| {
        let mut program = Program::default();
        for number in 0..8 {
            let producer: &[u64] = if number == 0 { &[] } else { &[1] };
            program.data(producer, Data::load(number * 128).miss(196));
        }
        program.cycles(core(|machine, _| {
            let refresh_every_cycles = 900;
            machine.dram = Some(DramConfig { refresh_cycles, refresh_every_cycles, ..ONE_CHANNEL });
        }))
    };
    let first = FIRST_COMMIT - 1;
    let chain = 8 * (196 + L1D_CYCLES);
    assert_eq!(cycles(0), first + chain);
    assert_eq!(cycles(150), 150 + chain + (1050 - 950));
}

/// A chain of loads that alternates between two rows of one bank: each but the first closes a row, unless the refresh
/// that begins at 900 has closed it.
#[test]
fn refreshes_close_rows() {
    let cycles = |refresh_every_cycles: u32| {
        let mut program = Program::default();
        for number in 0..8 {
            let producer: &[u64] = if number == 0 { &[] } else { &[1] };
            // Row 17 folds into bank 0, as row 0 does.
            program.data(producer, Data::load(number % 2 * 17 * 128).miss(196));
        }
        program.cycles(core(|machine, _| {
            machine.dram =
                Some(DramConfig { refresh_cycles: 1, refresh_every_cycles, ..ONE_CHANNEL });
        }))
    };
    let open = FIRST_COMMIT - 1 + 8 * (196 + L1D_CYCLES);
    assert_eq!(cycles(1_000_000), open + 7 * 40);
    assert_eq!(cycles(900), open + 6 * 40);
}

/// Three loads in a chain, each in another bank and with a write-back. With batches of two, the channel writes when the
/// second load is sent: after the transfer of that load, which begins 40 cycles later, the channel turns around and
/// transfers two lines. The third load is sent 200 cycles after the second.
#[test]
fn a_batch_of_writes_closes_the_channel() {
    let cycles = |write_batch: u32| {
        let mut program = Program::default();
        for number in 0..3 {
            let producer: &[u64] = if number == 0 { &[] } else { &[1] };
            program.data(producer, Data::load(number * 128).miss(196));
            program.write_back((3 + number) * 128);
        }
        program.cycles(core(|machine, _| {
            machine.dram = Some(DramConfig { write_batch, turn_cycles: 500, ..ONE_CHANNEL });
        }))
    };
    let chain = FIRST_COMMIT - 1 + 3 * (196 + L1D_CYCLES);
    assert_eq!(cycles(4), chain);
    assert_eq!(cycles(2), chain + (40 + 10 + 500 + 2 * 10 - 200));
}

#[test]
fn channels_bound_the_lines_of_memory() {
    let cycles = |channels: u32| {
        let mut program = Program::default();
        for line in 0..64 {
            program.data(&[], Data::load(line).miss(196));
        }
        program.cycles(core(|machine, pipeline| {
            machine.dram = Some(DramConfig { channels, ..ONE_CHANNEL });
            pipeline.outstanding = OutstandingMisses { l1d: 64, l2: 64, llc: 64 };
        }))
    };
    // Each channel opens one row, and is then busy until the last line.
    for channels in [1, 2, 4] {
        let transfers = 10 * (64 / u64::from(channels) - 1);
        assert_eq!(cycles(channels), FIRST_COMMIT - 1 + 196 + L1D_CYCLES + transfers);
    }
}

/// Sets a memory of 64 local lines, and 64 lines in a tier with channels of its own.
fn far_channels(machine: &mut MachineConfig, channels: u32) {
    let tier = MemoryTier {
        bytes: Some(4096),
        share: None,
        added_latency_cycles: 100,
        dram: Some(DramConfig { channels, ..ONE_CHANNEL }),
    };
    machine.memory.bytes = 2 * 4096;
    machine.memory.tiers.insert("far".to_owned(), tier);
    machine.dram = Some(DramConfig { channels: 4, ..ONE_CHANNEL });
}

/// Loads of 64 lines, the last `far` of them in the tier: both parts of memory transfer at once, and the slower one
/// ends last. A far line costs 100 cycles more than a local one.
#[test]
fn each_tier_has_channels_of_its_own() {
    let cycles = |far: u64, channels: u32| {
        let mut program = Program::default();
        for line in 0..64 {
            let (line, added) = if line < 64 - far { (line, 0) } else { (line + 64, 100) };
            program.data(&[], Data::load(line).miss(196 + added));
        }
        program.cycles(core(|machine, pipeline| {
            far_channels(machine, channels);
            pipeline.outstanding = OutstandingMisses { l1d: 64, l2: 64, llc: 64 };
        }))
    };
    // The first line of a part of memory opens its row and is transferred, and the others follow. Loads are sent four a
    // cycle, the first at `FIRST_COMMIT - 1`.
    let ends = |first: u64, lines: u64, channels: u64, added: u64| {
        FIRST_COMMIT - 1 + first / 4 + 196 + added + L1D_CYCLES + 10 * (lines / channels - 1)
    };
    assert_eq!(cycles(0, 1), ends(0, 64, 4, 0));
    assert_eq!(cycles(64, 1), ends(0, 64, 1, 100));
    assert_eq!(cycles(64, 2), ends(0, 64, 2, 100));
    assert_eq!(cycles(32, 1), ends(32, 32, 1, 100));
}

#[test]
fn a_handler_drains_the_core_and_delays_later_instructions() {
    let cycles = |behind: u64| {
        let mut program = Program::default();
        program.data(&[], Data::load(0).miss(1000));
        program.data(&[], Data::load(5000).handler(50).miss(100));
        for number in 0..behind {
            program.data(&[], Data::load(9000 + number).miss(70));
        }
        program.cycles(core(|_, _| {}))
    };
    // When the first load has committed, the handler is fetched and runs. Then the second load is fetched again.
    let first = FIRST_COMMIT - 1 + 1000 + L1D_CYCLES;
    let returned = first + FRONT_END_CYCLES + 50;
    let second = returned + FIRST_COMMIT - 1 + 100 + L1D_CYCLES;
    assert_eq!(cycles(0), second);
    // Three later loads commit with the second, and the next four a cycle after it.
    assert_eq!(cycles(3), second);
    assert_eq!(cycles(7), second + 1);
}

#[test]
fn a_walk_for_one_line_is_not_shared_by_its_page() {
    let cycles = |page_size: Option<PageSize>| {
        let mut program = Program::default();
        program.data(&[], Data::load(0).walk(300));
        program.costs.costs[0].page_size = page_size;
        program.data(&[], Data::load(1));
        program.data(&[1], Data::load(2).miss(400));
        program.cycles(core(|_, _| {}))
    };
    // The second load hits. It waits for the walk only if that is for the page of both.
    assert_eq!(cycles(None), FIRST_COMMIT - 1 + L1D_CYCLES + 400 + L1D_CYCLES);
    assert_eq!(
        cycles(Some(PageSize::BASE)),
        FIRST_COMMIT - 1 + 300 + L1D_CYCLES + 400 + L1D_CYCLES
    );
}
