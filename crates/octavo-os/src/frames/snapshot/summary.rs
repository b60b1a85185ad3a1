//! What `octavo snapshot --show` says: plain numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::about::Process;
use super::runs::FrameState;
use super::{FrameRuns, Snapshot};
use crate::frames::Order;

/// A snapshot in numbers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// When it was taken: seconds since 1970.
    pub taken_at_seconds: u64,
    /// The kernel's release.
    pub kernel: String,
    /// Whether the state of every frame is known.
    pub exact: bool,
    /// Memory that the kernel has.
    pub memory_bytes: u64,
    /// Memory that a simulation of this snapshot has, holes included.
    pub simulated_bytes: u64,
    /// Memory that is free.
    pub free_bytes: u64,
    /// The largest block of the kernel's allocator.
    pub largest_block_bytes: u64,
    /// The share of 2 MiB regions for what may be moved, 0 to 1; none where not known.
    pub movable_share: Option<f64>,
    /// Bytes by state: free, absent, fixed, movable, process; none where frames are not known.
    pub states: Option<BTreeMap<&'static str, u64>>,
    /// By page size, from 4 KiB to 1 GiB.
    pub coverage: Vec<SizeCoverage>,
    /// The process that it is about.
    pub process: Option<Process>,
    /// What could not be read, a sentence each.
    pub missing: Vec<String>,
}

/// What pages of one size could use (paper 003, Figure 15).
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SizeCoverage {
    /// The page size.
    pub page_size_bytes: u64,
    /// Free blocks of exactly this size, as the kernel counts them; none above its largest.
    pub free_blocks: Option<u64>,
    /// Free memory in blocks of at least this size; none where not known.
    pub usable_bytes: Option<u64>,
    /// The same as a share of all free memory, 0 to 1.
    pub share: Option<f64>,
    /// Memory of the process that pages of this size could map as it lies; none without one.
    pub process_bytes: Option<u64>,
}

impl Snapshot {
    /// The snapshot in numbers.
    pub fn summary(&self) -> Summary {
        let about = self.about();
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
