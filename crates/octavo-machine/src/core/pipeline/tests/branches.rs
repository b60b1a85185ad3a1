//! Branches and wrong paths.

use octavo_config::PipelineConfig;

use super::super::Pipeline;
use super::{Data, FIRST_COMMIT, L1D_CYCLES, Program, core};
use crate::front::{Beginning, Difference, Followed};

/// Cycles from the completion of a mispredicted branch to the fetch of the right path.
const MISPREDICT_CYCLES: u64 = 11;

/// A core with [`MISPREDICT_CYCLES`], changed by `change`.
fn behind_branches(change: impl FnOnce(&mut PipelineConfig)) -> Pipeline<[u32; 1]> {
    core(|_, pipeline| {
        pipeline.mispredict_cycles = MISPREDICT_CYCLES as u32;
        change(pipeline);
    })
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
fn a_mispredicted_branch_waits_for_its_operands() {
    let mut program = Program::default();
    program.data(&[], Data::load(0).miss(200));
    program.plain(&[1]).behind_branch(Difference::Last);
    let branch = FIRST_COMMIT - 1 + 200 + L1D_CYCLES + 1;
    let commit = branch + MISPREDICT_CYCLES + FIRST_COMMIT;
    assert_eq!(program.cycles(behind_branches(|_| {})), commit);
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
