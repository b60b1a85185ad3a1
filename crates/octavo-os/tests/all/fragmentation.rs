//! Initial states: exact, and reproducible by seed.

use octavo_oracle::NaiveBuddy;
use octavo_os::frames::fragmentation::{
    Faults, Fragmentation, HoleKind, HoleLayout, Holes, OrderMix,
};
use octavo_os::frames::{Buddy, Coverage, Frames, MemoryShape, Order, Owner};
use octavo_types::FrameNumber;
use proptest::collection::vec;
use proptest::prelude::*;

fn shape(frames: u64, largest: u8) -> MemoryShape {
    MemoryShape::new(frames, Order::new(largest).unwrap()).unwrap()
}

fn holders(frames: &Frames) -> Vec<Option<Owner>> {
    (0..frames.shape().frames()).map(|frame| frames.owner(FrameNumber::new(frame))).collect()
}

/// A memory with random blocks allocated in order.
fn used(frames: u64, largest: u8, taken: &[(u64, u8)]) -> NaiveBuddy {
    let mut buddy = NaiveBuddy::new(frames, largest);
    for &(frame, order) in taken {
        buddy.allocate_at(FrameNumber::new((frame % frames) >> order << order), order);
    }
    buddy
}

fn taken() -> impl Strategy<Value = Vec<(u64, u8)>> {
    vec((any::<u64>(), prop_oneof![4 => 0u8..3, 1 => 0u8..9]), 0..150)
}

proptest! {
    #![proptest_config(octavo_oracle::cases(128))]

    /// The order mix of a memory can be rebuilt.
    #[test]
    fn order_mix_yields_the_given_blocks(
        frames in 1u64..6000,
        largest in 0u8..=18,
        more in 0u8..4,
        taken in taken(),
        movable_share in 0.0..=1.0,
        seed in any::<u64>(),
    ) {
        let buddy = used(frames, largest, &taken);
        let mut mix = OrderMix {
            free_blocks: [0; Order::COUNT],
            largest: Order::new(largest).unwrap(),
            movable_share,
        };
        for (_, order) in buddy.blocks() {
            mix.free_blocks[usize::from(order)] += 1;
        }
        let state = Fragmentation::OrderMix(mix.clone());
        let built = state.build(shape(frames, largest), seed).unwrap();
        prop_assert_eq!(built.check(), Ok(()));
        let blocks = |order: Order| built.buddy().free_blocks(order);
        for order in Order::all() {
            prop_assert_eq!(blocks(order), mix.free_blocks[order.index()], "{:?}", order);
        }
        let held = frames - built.free_frames();
        let foreign = |movable| built.used_frames(Owner::Background { movable });
        prop_assert_eq!(foreign(true) + foreign(false), held);
        for owner in Owner::ALL {
            prop_assert_eq!(built.peak_frames(owner), built.used_frames(owner));
        }

        // Blocks of the largest order may be adjacent; others may not.
        let larger = (largest + more).min(18);
        let built = state.build(shape(frames, larger), seed).unwrap();
        let free = built.buddy();
        prop_assert_eq!(free.free_frames(), frames - held);
        let coverage = Coverage::of_blocks(|order| mix.free_blocks[order.index()], mix.largest);
        for order in mix.largest.and_smaller() {
            prop_assert_eq!(Coverage::of(free).usable_frames(order), coverage.usable_frames(order));
        }
    }

    #[test]
    fn holes_follow_portion_fraction_and_layout(
        regions in 1u64..12,
        rest in 0u64..512,
        portion in 0.0..=1.0,
        fraction in prop_oneof![0.0..=1.0, Just(0.0), Just(1.0)],
        clustered in any::<bool>(),
        kind in prop::sample::select(vec![
            (HoleKind::Immovable, Owner::Background { movable: false }),
            (HoleKind::Movable, Owner::Background { movable: true }),
            (HoleKind::Unallocated, Owner::Reserved),
        ]),
        seed in any::<u64>(),
    ) {
        let layout = if clustered { HoleLayout::Clustered } else { HoleLayout::Dispersed };
        let (kind, owner) = kind;
        let state = Fragmentation::Holes(Holes { portion, fraction, layout, kind });
        let built = state.build(shape(regions * 512 + rest, 10), seed).unwrap();
        prop_assert_eq!(built.check(), Ok(()));
        let holes = (512.0 * fraction).round() as usize;
        let mut fragmented = 0;
        for region in holders(&built).chunks(512) {
            let held: Vec<usize> = (0..region.len()).filter(|&at| region[at].is_some()).collect();
            prop_assert!(held.iter().all(|&at| region[at] == Some(owner)));
            if held.is_empty() {
                continue;
            }
            fragmented += 1;
            prop_assert_eq!(region.len(), 512, "a region that memory ends in has none");
            prop_assert_eq!(held.len(), holes);
            if clustered {
                prop_assert_eq!(held[holes - 1] - held[0], holes - 1);
            } else {
                for (hole, at) in held.into_iter().enumerate() {
                    prop_assert!((hole * 512 / holes..(hole + 1) * 512 / holes).contains(&at));
                }
            }
        }
        if holes > 0 {
            prop_assert_eq!(fragmented, (regions as f64 * portion).round() as u64);
        }
    }

    /// As many faults as requested, except in the last frames; clustered ones in whole runs of 16.
    #[test]
    fn faults_follow_portion_and_layout(
        frames in 1u64..6000,
        portion in prop_oneof![0.0..=1.0, 0.0..=0.1, Just(1.0)],
        clustered in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let layout = if clustered { HoleLayout::Clustered } else { HoleLayout::Dispersed };
        let built = Fragmentation::Faults(Faults { portion, layout }).build(shape(frames, 10), seed);
        let built = built.unwrap();
        prop_assert_eq!(built.check(), Ok(()));
        let run = if clustered { 16 } else { 1 };
        // One frame for the hole bitmap, and one for chunk bitmaps.
        let room = frames.saturating_sub(2);
        let runs = (frames as f64 * portion / run as f64).round() as u64;
        prop_assert_eq!(built.used_frames(Owner::Faulty), runs.min(room / run) * run);
        prop_assert_eq!(built.free_frames() + built.used_frames(Owner::Faulty), frames);
        let held = holders(&built);
        prop_assert!(held[room as usize..].iter().all(Option::is_none));
        for faulty in held.chunk_by(|a, b| a == b).filter(|run| run[0].is_some()) {
            prop_assert_eq!(faulty.len() as u64 % run, 0);
        }
    }

    /// Several kinds of regions: the naive count of each, and the remaining clean ones.
    #[test]
    fn hole_groups_use_disjoint_regions(
        regions in 1u64..40,
        shares in prop::collection::vec(0.0..=1.0, 1..4),
        seed in any::<u64>(),
    ) {
        // Each kind has a distinct number of holes, which identifies its regions.
        let count = shares.len() as f64;
        let groups: Vec<Holes> = shares
            .iter()
            .enumerate()
            .map(|(number, share)| Holes {
                portion: share / count,
                fraction: (number + 1) as f64 * 64.0 / 512.0,
                layout: if number == 0 { HoleLayout::Clustered } else { HoleLayout::Dispersed },
                kind: HoleKind::Immovable,
            })
            .collect();
        let state = Fragmentation::MixedHoles(groups.clone());
        let built = state.build(shape(regions * 512, 10), seed).unwrap();
        prop_assert_eq!(built.check(), Ok(()));
        let all = holders(&built);
        let held = |region: &[Option<Owner>]| region.iter().filter(|owner| owner.is_some()).count();
        let (mut left, mut used) = (regions, 0);
        for (number, group) in groups.iter().enumerate() {
            let wanted = ((regions as f64 * group.portion).round() as u64).min(left);
            let found =
                all.chunks(512).filter(|region| held(region) == (number + 1) * 64).count() as u64;
            prop_assert_eq!(found, wanted);
            (left, used) = (left - wanted, used + wanted);
        }
        let clean = all.chunks(512).filter(|region| held(region) == 0).count() as u64;
        prop_assert_eq!(clean, regions - used);
    }

    /// Coverage by definition: free frames in aligned free blocks of the size.
    #[test]
    fn coverage_counts_aligned_free_blocks(
        frames in 1u64..3000,
        largest in 0u8..=10,
        taken in taken(),
    ) {
        let naive = used(frames, largest, &taken);
        let mut buddy = Buddy::all_free(frames, Order::new(largest).unwrap());
        let mut is_free = vec![false; frames as usize];
        for (block, order) in naive.blocks() {
            is_free[block.raw() as usize..][..1 << order].fill(true);
        }
        for (frame, free) in is_free.iter().enumerate() {
            prop_assert!(*free || buddy.allocate_at(FrameNumber::new(frame as u64), Order::BASE));
        }
        let coverage = Coverage::of(&buddy);
        for order in Order::all() {
            let blocks = is_free.chunks_exact(order.frames() as usize);
            let usable = blocks.filter(|block| block.iter().all(|free| *free)).count() as u64;
            prop_assert_eq!(coverage.usable_frames(order), Some(usable << order.raw()));
        }
        let free_frames = is_free.iter().filter(|free| **free).count() as u64;
        prop_assert_eq!(coverage.free_frames(), free_frames);
        prop_assert_eq!(coverage.share(Order::BASE), (free_frames > 0).then_some(1.0));
    }
}

#[test]
fn equal_seeds_give_equal_memory() {
    let mut free_blocks = [0; Order::COUNT];
    free_blocks[..8].fill(12);
    let mix = OrderMix { free_blocks, largest: Order::LINUX, movable_share: 0.5 };
    let holes = Holes {
        portion: 0.5,
        fraction: 0.25,
        layout: HoleLayout::Dispersed,
        kind: HoleKind::Immovable,
    };
    for state in [Fragmentation::OrderMix(mix), Fragmentation::Holes(holes)] {
        let build = |seed| holders(&state.build(shape(10_000, 10), seed).unwrap());
        assert_eq!(build(3), build(3));
        assert_ne!(build(3), build(4));
    }
    let empty = Fragmentation::Empty.build(shape(10_000, 10), 3).unwrap();
    assert_eq!(empty.free_frames(), 10_000);
}

/// Movable shares are exact, by regions as in Linux.
#[test]
fn movable_frames_have_separate_regions() {
    let free_blocks = [0; Order::COUNT];
    let mix = OrderMix { free_blocks, largest: Order::LINUX, movable_share: 0.25 };
    let built = Fragmentation::OrderMix(mix).build(shape(20 * 512, 10), 1).unwrap();
    assert_eq!(built.used_frames(Owner::Background { movable: true }), 5 * 512);
    for region in holders(&built).chunks(512) {
        assert!(region.iter().all(|owner| *owner == region[0]));
    }
}

/// With independent random faults of 4 KiB frames, the numbers of fault-free 64 KiB sub-blocks, and of 4 MiB
/// chunks with 32 of them, follow the binomial distribution.
#[test]
fn dispersed_faults_are_independent() {
    let faults = Faults { portion: 0.055, layout: HoleLayout::Dispersed };
    let built = Fragmentation::Faults(faults).build(shape(1 << 20, 10), 1).unwrap();
    let held = holders(&built);
    let healthy = |frames: &[Option<Owner>]| frames.iter().all(Option::is_none);
    let healthy_blocks =
        |chunk: &[Option<Owner>]| chunk.chunks(16).filter(|frames| healthy(frames)).count();
    let chunks: Vec<usize> = held.chunks(1024).map(healthy_blocks).collect();
    // 0.945^16 of 65,536 sub-blocks, with a standard deviation of 126.
    let all: usize = chunks.iter().sum();
    assert!((26_510 - 500..26_510 + 500).contains(&all), "{all}");
    // 7.7% of 1024 chunks, with a standard deviation of 8.5.
    let fit = chunks.iter().filter(|healthy| **healthy >= 32).count();
    assert!((45..=113).contains(&fit), "{fit}");
    assert!(!held.chunks(512).any(healthy), "no 2 MiB are whole");
}

#[test]
fn invalid_fragmentation_is_rejected() {
    let refused = |state: Fragmentation| state.build(shape(1024, 10), 0).unwrap_err().to_string();
    let holes = |portion, fraction| {
        let (layout, kind) = (HoleLayout::Clustered, HoleKind::Movable);
        Fragmentation::Holes(Holes { portion, fraction, layout, kind })
    };
    assert_eq!(refused(holes(1.5, 0.0)), "portion 1.5: give a share from 0 to 1");
    assert_eq!(refused(holes(0.5, f64::NAN)), "hole fraction NaN: give a share from 0 to 1");
    let faults = Faults { portion: -0.1, layout: HoleLayout::Dispersed };
    let refused_faults = refused(Fragmentation::Faults(faults));
    assert_eq!(refused_faults, "portion of faults -0.1: give a share from 0 to 1");
    let Fragmentation::Holes(most) = holes(0.75, 0.5) else { unreachable!() };
    assert_eq!(
        refused(Fragmentation::MixedHoles(vec![most, most])),
        "sum of portions 1.5: give a share from 0 to 1"
    );
    let mix = |order: usize, blocks| {
        let mut free_blocks = [0; Order::COUNT];
        free_blocks[order] = blocks;
        let largest = Order::new(10).unwrap();
        Fragmentation::OrderMix(OrderMix { free_blocks, largest, movable_share: 0.0 })
    };
    assert_eq!(
        refused(mix(11, 1)),
        "the order mix has free blocks of order 11, and says that none is above order 10"
    );
    let too_much = "the order mix has 2048 free frames; memory has 1024 frames in all";
    assert_eq!(refused(mix(10, 2)), too_much);
    assert!(refused(mix(10, u64::MAX)).contains("memory has 1024 frames"));
    assert_eq!(
        refused(mix(0, 513)),
        "the order mix has 513 free blocks of order 0; beside the larger ones there is room for \
         512, as two that are buddies would merge"
    );
}

#[test]
fn order_mix_scales_with_memory() {
    let mut free_blocks = [0; Order::COUNT];
    free_blocks[0] = 100;
    free_blocks[10] = 3;
    let mix = OrderMix { free_blocks, largest: Order::LINUX, movable_share: 0.5 };
    let half = mix.scaled(1 << 20, 1 << 19);
    assert_eq!((half.free_blocks[0], half.free_blocks[10]), (50, 2));
    assert_eq!(mix.scaled(1 << 20, 1 << 20), mix);
}
