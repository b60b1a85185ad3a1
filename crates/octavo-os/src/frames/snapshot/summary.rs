//! The figures of `octavo snapshot --show`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::header::Process;
use super::runs::FrameState;
use super::{FrameRuns, Snapshot};
use crate::frames::Order;

/// Figures of a snapshot.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Time of capture, in seconds since 1970.
    pub taken_at_seconds: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Whether the state of every frame is known.
    pub exact: bool,
    /// Memory of the kernel.
    pub memory_bytes: u64,
    /// Memory of a simulation of this snapshot, including holes.
    pub simulated_bytes: u64,
    /// Free memory.
    pub free_bytes: u64,
    /// The largest block of the kernel's allocator.
    pub largest_block_bytes: u64,
    /// The share of movable 2 MiB regions, 0 to 1; `None` if unknown.
    pub movable_share: Option<f64>,
    /// Bytes by state: free, absent, fixed, movable, process; `None` if frames are unknown.
    pub states: Option<BTreeMap<&'static str, u64>>,
    /// By page size, from 4 KiB to 1 GiB.
    pub coverage: Vec<SizeCoverage>,
    /// The captured process.
    pub process: Option<Process>,
    /// Information that could not be read, a sentence each.
    pub missing: Vec<String>,
}

/// Memory that pages of one size could use (Guvenilir and Patt, ISCA 2020, Figure 15).
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SizeCoverage {
    /// The page size.
    pub page_size_bytes: u64,
    /// Free blocks of exactly this size; `None` above the kernel's largest.
    pub free_blocks: Option<u64>,
    /// Free memory in blocks of at least this size; `None` if unknown.
    pub usable_bytes: Option<u64>,
    /// `usable_bytes` as a share of all free memory, 0 to 1.
    pub share: Option<f64>,
    /// Memory of the process that pages of this size could map in place; `None` without a process.
    pub process_bytes: Option<u64>,
}

impl Snapshot {
    /// The figures of the snapshot.
    pub fn summary(&self) -> Summary {
        let about = self.header();
        let coverage = self.coverage();
        let blocks = about.free_blocks();
        let largest = about.largest();
        let bytes = |frames: u64| frames * Order::BASE.page_size().bytes();
        let size = |order: Order| SizeCoverage {
            page_size_bytes: order.page_size().bytes(),
            free_blocks: (order <= largest).then(|| blocks[order.index()]),
            usable_bytes: coverage.usable_frames(order).map(bytes),
            share: coverage.share(order),
            process_bytes: about
                .process
                .as_ref()
                .map(|process| bytes(process.mappable_frames[order.index()])),
        };
        Summary {
            taken_at_seconds: about.taken_at_seconds,
            kernel: about.kernel.clone(),
            exact: self.runs().is_some(),
            memory_bytes: bytes(about.memory_frames),
            simulated_bytes: bytes(self.frames()),
            free_bytes: bytes(coverage.free_frames()),
            largest_block_bytes: largest.page_size().bytes(),
            movable_share: about.movable_share(),
            states: self.runs().map(|runs| {
                FrameState::ALL.map(|state| (state.name(), bytes(frames_in(runs, state)))).into()
            }),
            coverage: Order::all().map(size).collect(),
            process: about.process.clone(),
            missing: about.missing.clone(),
        }
    }
}

fn frames_in(runs: &FrameRuns, state: FrameState) -> u64 {
    runs.iter().filter(|(found, _)| *found == state).map(|(_, length)| length).sum()
}
