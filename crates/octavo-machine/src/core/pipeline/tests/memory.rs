//! Walks, misses, prefetches, predicted frames and software handlers.

use octavo_config::OutstandingMisses;
use octavo_types::PageSize;

use super::{Data, FIRST_COMMIT, FRONT_END_CYCLES, L1D_CYCLES, Program, core};
use crate::core::Speculation;

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
