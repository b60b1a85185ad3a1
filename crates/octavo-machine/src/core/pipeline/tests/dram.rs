//! DRAM: refreshes, rows, batches of write-backs, channels and tiers.

use octavo_config::{DramConfig, MachineConfig, MemoryTier, OutstandingMisses};

use super::{Data, FIRST_COMMIT, L1D_CYCLES, Program, core};

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
