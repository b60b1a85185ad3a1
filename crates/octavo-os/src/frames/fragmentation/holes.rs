//! An initial state by portion and hole fraction (Park et al., ISCA 2020, Section VII-A and Figure 7).

use octavo_types::FrameNumber;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::sampler::{below, choose_among, part_of};
use super::{FragmentationError, check_share};
use crate::frames::buddy::RegionFrames;
use crate::frames::{Frames, MemoryShape, Order, Owner};

/// The layout of the holes of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HoleLayout {
    /// Contiguous, in one run somewhere in the region.
    Clustered,
    /// Spread: the region is divided into equal parts, each with one hole at a random place.
    Dispersed,
}

/// The content of a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HoleKind {
    /// An unmovable background frame: its page must be placed elsewhere.
    Immovable,
    /// A background frame that compaction may move.
    Movable,
    /// No content: the part of the region that the program does not use. Its frames are reserved
    /// ([`Owner::Reserved`]), so that nothing else is allocated there.
    Unallocated,
}

impl HoleKind {
    fn owner(self) -> Owner {
        match self {
            HoleKind::Immovable => Owner::Background { movable: false },
            HoleKind::Movable => Owner::Background { movable: true },
            HoleKind::Unallocated => Owner::Reserved,
        }
    }
}

/// A share of the 2 MiB regions of memory is fragmented; each of these has the same share of holes among its
/// 512 base frames. All other frames are free.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Holes {
    /// The share of fragmented regions, 0 to 1 (the paper's portion).
    pub portion: f64,
    /// The share of holes in each fragmented region, 0 to 1 (the paper's fragmentation).
    pub fraction: f64,
    /// The layout of the holes of a region.
    pub layout: HoleLayout,
    /// The content of the holes.
    pub kind: HoleKind,
}

/// Builds a memory with several kinds of holes: each group has its portion of all regions; the remaining
/// regions are free.
pub(super) fn build(
    groups: &[Holes],
    shape: MemoryShape,
    seed: u64,
) -> Result<Frames, FragmentationError> {
    for group in groups {
        check_share("portion", group.portion)?;
        check_share("hole fraction", group.fraction)?;
    }
    let portions: f64 = groups.iter().map(|group| group.portion).sum();
    // Portions are rarely exact in binary: three thirds must add up to the whole.
    check_share(
        "sum of portions",
        if portions < 1.0 + 1e-9 { portions.min(1.0) } else { portions },
    )?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let regions = shape.frames() / Order::HUGE.frames();
    let mut room = regions;
    let mut wanted: Vec<u64> = Vec::with_capacity(groups.len());
    for group in groups {
        // Rounding half up may make two groups one region too large.
        wanted.push(part_of(regions, group.portion).min(room));
        room -= wanted.last().expect("it was just pushed");
    }
    let mut fragmented = Vec::new();
    for region in 0..regions {
        if let Some(group) = choose_among(&mut random, regions - region, &mut wanted) {
            fragmented.push((region, group));
        }
    }
    let mut frames = Frames::new(shape);
    for (region, group) in fragmented {
        let start = FrameNumber::new(region * Order::HUGE.frames());
        groups[group].fragment(&mut frames, start, &mut random);
    }
    Ok(frames)
}

impl Holes {
    /// Makes the holes of the region that begins at `start`.
    fn fragment(&self, frames: &mut Frames, start: FrameNumber, random: &mut Xoshiro256PlusPlus) {
        let all = Order::HUGE.frames();
        let holes = part_of(all, self.fraction);
        let clustered_at = below(random, all - holes + 1);
        if holes == 0 {
            return;
        }
        let (mut places, mut part_begins) = (RegionFrames::default(), 0);
        for hole in 0..holes {
            let place = match self.layout {
                HoleLayout::Clustered => clustered_at + hole,
                HoleLayout::Dispersed => {
                    let (low, next) = (part_begins, (hole + 1) * all / holes);
                    part_begins = next;
                    low + below(random, next - low)
                }
            };
            places[(place / 64) as usize] |= 1 << (place % 64);
        }
        frames.allocate_frames(start, &places, self.kind.owner());
    }
}
