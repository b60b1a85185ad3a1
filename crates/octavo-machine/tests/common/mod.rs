//! What the tests of machines share.
#![allow(dead_code)] // Each test uses a part of it.

pub mod naive;

use octavo_hw::{CacheConfig, PrivateConfig, PteEntry, Replacement, SharedConfig, WalkCacheConfig};
use octavo_machine::{ArrayConfig, MachineConfig, Sim, SimConfig, Sizes};
use octavo_oracle::strategies::{RandomStream, Step};
use octavo_trace::WordConsumer;
use octavo_types::{Consumer, Instructions, PageSize, VirtAddr};

/// An array of a TLB.
pub fn array(name: &str, entries: u64, ways: u64, sizes: &[PageSize]) -> ArrayConfig {
    ArrayConfig {
        name: name.to_owned(),
        entries,
        ways,
        sizes: Sizes::Some(sizes.to_vec()),
        replacement: Replacement::Lru,
    }
}

/// A cache of so many lines of 64 bytes.
pub fn cache(lines: u64, ways: u64, latency_cycles: u32) -> CacheConfig {
    let replacement = Replacement::Lru;
    CacheConfig { bytes: lines * 64, ways, line_bytes: 64, latency_cycles, replacement }
}

/// A machine so small that everything in it overflows.
pub fn tiny() -> MachineConfig {
    let huge = [PageSize::HUGE];
    let both = [PageSize::BASE, PageSize::HUGE];
    MachineConfig {
        cores: 1,
        page_table_levels: 4,
        memory_frames: 1 << 20,
        l1i: vec![array("4k", 4, 2, &both[..1]), array("2m", 2, 2, &huge)],
        l1d: Some(vec![array("4k", 6, 2, &both[..1]), array("2m", 2, 1, &huge)]),
        l2: vec![array("main", 12, 3, &both)],
        l2_hit_latency_cycles: 9,
        walk_caches: vec![WalkCacheConfig::x86_64(2, 3), WalkCacheConfig::x86_64(3, 2)],
        private: PrivateConfig {
            l1i: cache(8, 2, 4),
            l1d: cache(8, 2, 4),
            l2: cache(24, 3, 12),
            pte_entry: PteEntry::L1d,
        },
        shared: SharedConfig { llc: cache(64, 4, 40), memory_latency_cycles: 200 },
    }
}

/// Designs on a machine, all that can be checked checked.
pub fn config(machine: MachineConfig, designs: &[&str]) -> SimConfig {
    SimConfig {
        machine,
        designs: designs.iter().map(|name| (*name).to_owned()).collect(),
        native_layout: false,
        warm_up_instructions: 0,
        interval_instructions: None,
        is_checked: true,
        instructions: Instructions::PORTABLE,
    }
}

/// Plays a stream and ends it.
pub fn play(sim: &mut Sim, stream: &RandomStream) {
    for step in &stream.steps {
        match step {
            Step::Segment(number, addresses) => {
                let mut words = vec![*number as u64];
                words.extend_from_slice(VirtAddr::slice_to_raw(addresses));
                sim.execution(&stream.segments[*number], &words);
            }
            Step::Event(event) => sim.event(event),
        }
    }
    sim.finish();
}
