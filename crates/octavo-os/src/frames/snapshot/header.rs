//! The header of a snapshot file: facts about the machine besides its frames.

use serde::{Deserialize, Serialize};

use super::error::SnapshotError;
use crate::frames::{MemoryShape, Order};

/// Figures of a machine's memory.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SnapshotHeader {
    /// Time of capture, in seconds since 1970.
    pub taken_at_seconds: u64,
    /// The kernel's release, such as `6.1.0`.
    pub kernel: String,
    /// Memory of the kernel, in base frames (`MemTotal` of `/proc/meminfo`).
    pub memory_frames: u64,
    /// The zones of `/proc/buddyinfo`.
    pub zones: Vec<Zone>,
    /// The captured process, if any.
    pub process: Option<Process>,
    /// Information that could not be read, and its substitute, a sentence each.
    pub missing: Vec<String>,
}

/// A zone of memory.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Zone {
    /// Its NUMA node.
    pub node: u32,
    /// `DMA`, `DMA32`, `Normal`, `Movable` or `Device`.
    pub name: String,
    /// Free blocks by order.
    pub free_blocks: Vec<u64>,
    /// Its 2 MiB regions by kind, from `/proc/pagetypeinfo`; `None` if unreadable.
    pub regions: Option<Regions>,
}

/// Numbers of 2 MiB regions by kind of memory.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Regions {
    /// Movable regions (`Movable`, `CMA`).
    pub movable: u64,
    /// All other regions (`Unmovable`, `Reclaimable`, `HighAtomic`, `Isolate`).
    pub others: u64,
}

/// The physical layout of a process.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// Its process identifier.
    pub pid: u32,
    /// Its name, from `/proc/PID/comm`.
    pub name: String,
    /// Resident base pages.
    pub resident_frames: u64,
    /// By order: the number of resident pages in blocks aligned and contiguous both virtually and physically,
    /// which pages of that size could map in place.
    pub mappable_frames: Vec<u64>,
}

impl SnapshotHeader {
    /// The order of the largest block of the machine's allocator.
    pub fn largest(&self) -> Order {
        let orders = self.zones.iter().map(|zone| zone.free_blocks.len()).max().unwrap_or(1);
        Order::new(orders.saturating_sub(1) as u8).expect("a header that was checked")
    }

    /// Free blocks of all zones, by order.
    pub fn free_blocks(&self) -> [u64; Order::COUNT] {
        let mut sums = [0; Order::COUNT];
        for zone in &self.zones {
            for (sum, blocks) in sums.iter_mut().zip(&zone.free_blocks) {
                *sum += blocks;
            }
        }
        sums
    }

    /// The share of movable 2 MiB regions; `None` if unknown.
    pub fn movable_share(&self) -> Option<f64> {
        let regions = || self.zones.iter().filter_map(|zone| zone.regions);
        let movable: u64 = regions().map(|counts| counts.movable).sum();
        let all = movable + regions().map(|counts| counts.others).sum::<u64>();
        (all > 0).then(|| movable as f64 / all as f64)
    }

    /// The number of 2 MiB regions that are not movable; `None` if unknown.
    pub fn other_regions(&self) -> Option<u64> {
        let regions = || self.zones.iter().filter_map(|zone| zone.regions);
        regions().next()?;
        Some(regions().map(|counts| counts.others).sum())
    }

    /// Rejects impossible figures, so that later computations cannot overflow.
    pub fn check(&self) -> Result<(), SnapshotError> {
        let refuse = |detail: String| Err(SnapshotError::Header(detail));
        let most = MemoryShape::MAX_FRAMES;
        if self.memory_frames == 0 || self.memory_frames > most {
            return refuse(format!("memory of {} frames; it has 1 to {most}", self.memory_frames));
        }
        let zones = self.zones.len();
        if zones == 0 || zones > 10_000 {
            return refuse(format!("{zones} zones; there are 1 to 10000"));
        }
        for zone in &self.zones {
            let orders = zone.free_blocks.len();
            if orders == 0 || orders > Order::COUNT {
                return refuse(format!("{orders} orders; there are 1 to {}", Order::COUNT));
            }
            if zone.regions.is_some_and(|counts| counts.movable.max(counts.others) > most) {
                return refuse(format!("more than {most} regions"));
            }
        }
        let mut blocks = Order::all().flat_map(|order| {
            self.zones
                .iter()
                .filter_map(move |zone| Some((order, *zone.free_blocks.get(order.index())?)))
        });
        let free_frames = blocks.try_fold(0u64, |sum, (order, blocks)| {
            sum.checked_add(blocks.checked_mul(order.frames())?)
        });
        if free_frames.is_none_or(|frames| frames > self.memory_frames) {
            return refuse("more free memory than memory".to_owned());
        }
        if let Some(process) = &self.process
            && (process.mappable_frames.len() != Order::COUNT
                || process.mappable_frames.iter().any(|frames| *frames > process.resident_frames))
        {
            return refuse("a process with more mappable memory than memory".to_owned());
        }
        Ok(())
    }
}
