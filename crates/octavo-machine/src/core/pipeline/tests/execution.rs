//! Widths, dependences, latencies, buffers and queues.

use octavo_config::ArithmeticLatencies;
use octavo_types::Arithmetic;

use super::{Data, FIRST_COMMIT, FRONT_END_CYCLES, L1D_CYCLES, Program, core};
use crate::front::{Beginning, Followed};

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

const LATENCIES: ArithmeticLatencies =
    ArithmeticLatencies { multiply: 3, divide: 26, float: 4, float_divide: 14 };

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
