//! Random machines: cores with random widths, queues and latencies, and random memories.

use octavo_config::{
    ArithmeticLatencies, DramConfig, MachineConfig, MemoryTier, OutstandingMisses, PipelineConfig,
    StreamPrefetcher,
};
use octavo_types::PageSize;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::core::CoreGroup;

fn machine() -> impl Strategy<Value = (MachineConfig, PipelineConfig)> {
    let width = || prop_oneof![1u32..4, 1u32..=64];
    let queue = || prop_oneof![2 => 1u32..4, 2 => 1u32..40, 1 => 1u32..=1023];
    // With small reorder buffers alone, few entries would be executed on wrong paths.
    let reorder_buffer = prop_oneof![queue(), 20u32..=1023];
    let cycles = || 0u32..20;
    let refresh = prop_oneof![Just((0u32, 0u32)), (1u32..100, 1u32..400)];
    let writes = (1u32..6, 0u32..60);
    // To open a row may take longer than a whole read of an open one.
    let activate = prop_oneof![2 => cycles(), 1 => 0u32..400];
    let times = (activate, cycles(), cycles());
    let dram = ((0u32..3, 0u32..5, 6u32..14), times, writes, refresh).prop_map(
        |(
            (channels, banks, row),
            (activate_cycles, precharge_cycles, transfer_cycles),
            (write_batch, turn_cycles),
            (refresh_cycles, between),
        )| {
            DramConfig {
                channels: 1 << channels,
                banks: 1 << banks,
                row_bytes: 1 << row,
                activate_cycles,
                precharge_cycles,
                transfer_cycles,
                write_batch,
                turn_cycles,
                refresh_cycles,
                refresh_every_cycles: refresh_cycles + between,
            }
        },
    );
    // Local memory and the tiers are small, so that most lines, which are in the first frames, spread over them.
    let tier = (prop_oneof![1u64..3, 1u64..64], prop::option::of(dram.clone()));
    let tiers = vec(tier, 0..3);
    (
        [width(), width(), width(), width(), width(), width()],
        (reorder_buffer, [queue(), queue(), queue(), queue(), queue(), queue(), queue()]),
        ([cycles(), cycles(), cycles()], prop::bool::weighted(0.8), any::<bool>()),
        (1u32..8, 40u32..200, 1u32..5, (prop::option::of(dram), (0u64..3, tiers))),
        [1u32..4, 1u32..40, 1u32..8, 1u32..30],
    )
        .prop_map(|(widths, queues, cycles, (l1d, memory, walkers, dram), latencies)| {
            let (reorder_buffer, queues) = queues;
            let (cycles, wrong_paths, store_prefetch) = cycles;
            let [multiply, divide, float, float_divide] = latencies;
            let mut machine = crate::resolve("skylake", &[""; 0]).unwrap().into_config();
            machine.cache.l1d.latency_cycles = l1d;
            machine.cache.memory_latency_cycles = memory;
            machine.walker.walkers = walkers;
            let (dram, (local_frames, tiers)) = dram;
            machine.dram = dram;
            let frames = tiers.iter().map(|(frames, _)| frames).sum::<u64>();
            machine.memory.bytes = (local_frames + frames) * PageSize::BASE.bytes();
            machine.memory.tiers = (0..)
                .zip(tiers)
                .map(|(number, (frames, dram)): (u32, _)| {
                    let bytes = Some(frames * PageSize::BASE.bytes());
                    let tier = MemoryTier { bytes, share: None, added_latency_cycles: 0, dram };
                    (number.to_string(), tier)
                })
                .collect();
            // The costs contain the prefetches. With a prefetcher in its configuration, the core reports late ones.
            machine.cache.l2.prefetch.streamer = Some(StreamPrefetcher {
                streams: 1,
                confirmations: 1,
                distance: 1,
                degree: 1,
                page: PageSize::BASE,
                cross_pages: false,
            });
            let pipeline = machine.core.pipeline.clone().expect("skylake has a pipeline");
            let config = PipelineConfig {
                width: widths[0],
                fetch_width: Some(widths[5]),
                issue_width: widths[1],
                commit_width: widths[2],
                load_ports: widths[3],
                store_ports: widths[4],
                reorder_buffer,
                rename_registers: queues[0],
                load_queue: queues[1],
                store_queue: queues[2],
                fetch_buffer: queues[3],
                outstanding: OutstandingMisses { l1d: queues[4], l2: queues[5], llc: queues[6] },
                forward_cycles: cycles[0],
                front_end_cycles: cycles[1],
                mispredict_cycles: cycles[2],
                wrong_paths,
                store_prefetch,
                latencies: ArithmeticLatencies { multiply, divide, float, float_divide },
                ..pipeline
            };
            (machine, config)
        })
}

/// One machine or several, for one group.
pub(super) fn machines() -> impl Strategy<Value = Vec<(MachineConfig, PipelineConfig)>> {
    prop_oneof![vec(machine(), 1), vec(machine(), 2..=CoreGroup::MAX_MACHINES)]
}
