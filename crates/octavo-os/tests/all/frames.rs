//! Frames compared with a map of owners: every frame has one owner.

use std::collections::BTreeMap;

use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
use octavo_types::FrameNumber;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

#[derive(Clone, Debug)]
enum Step {
    Allocate(Order, Owner),
    AllocateAt(u64, Order, Owner),
    Change(Index, Order, Owner),
    Free(Index, Order),
}

fn step() -> impl Strategy<Value = Step> {
    let order = || (0u8..6).prop_map(|raw| Order::new(raw).unwrap());
    let owner = || select(&Owner::ALL[..]);
    prop_oneof![
        4 => (order(), owner()).prop_map(|(order, owner)| Step::Allocate(order, owner)),
        2 => (0u64..400, order(), owner())
            .prop_map(|(frame, order, owner)| Step::AllocateAt(frame, order, owner)),
        3 => (any::<Index>(), order(), owner())
            .prop_map(|(at, order, owner)| Step::Change(at, order, owner)),
        4 => (any::<Index>(), order()).prop_map(|(at, order)| Step::Free(at, order)),
    ]
}

proptest! {
    #![proptest_config(octavo_oracle::cases(96))]

    #[test]
    fn every_frame_has_one_owner(
        frames in 1u64..400,
        largest in 0u8..=18,
        steps in vec(step(), 0..200),
    ) {
        let shape = MemoryShape::new(frames, Order::new(largest).unwrap()).unwrap();
        let mut fast = Frames::new(shape);
        let mut held: BTreeMap<u64, Owner> = BTreeMap::new();
        let mut peaks: BTreeMap<Owner, u64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Allocate(order, owner) => match fast.allocate(order, owner) {
                    Ok(block) => {
                        let block = block.raw()..block.raw() + order.frames();
                        for frame in block {
                            prop_assert!(held.insert(frame, owner).is_none());
                        }
                    }
                    Err(error) => {
                        prop_assert_eq!(error.free_frames, frames - held.len() as u64);
                        prop_assert!(error.largest_free.is_none_or(|largest| largest < order));
                    }
                },
                Step::AllocateAt(frame, order, owner) => {
                    if fast.allocate_at(FrameNumber::new(frame), order, owner) {
                        for frame in frame..frame + order.frames() {
                            prop_assert!(frame < frames && held.insert(frame, owner).is_none());
                        }
                    }
                }
                Step::Change(at, order, owner) => {
                    if let Some(block) = held_block(&held, at, order) {
                        fast.change_owner(FrameNumber::new(block), order, owner);
                        held.extend((block..block + order.frames()).map(|frame| (frame, owner)));
                    }
                }
                Step::Free(at, order) => {
                    let order = order.min(shape.largest());
                    if let Some(block) = held_block(&held, at, order) {
                        fast.free(FrameNumber::new(block), order);
                        held.retain(|frame, _| !(block..block + order.frames()).contains(frame));
                    }
                }
            }
            prop_assert_eq!(fast.check(), Ok(()));
            prop_assert_eq!(fast.free_frames(), frames - held.len() as u64);
            for owner in Owner::ALL {
                let count = held.values().filter(|&&found| found == owner).count() as u64;
                let most = peaks.entry(owner).or_default();
                *most = count.max(*most);
                prop_assert_eq!(fast.used_frames(owner), count);
                prop_assert_eq!(fast.peak_frames(owner), *most);
            }
        }
        for frame in 0..frames {
            let owner = held.get(&frame).copied();
            prop_assert_eq!(fast.owner(FrameNumber::new(frame)), owner);
        }
    }
}

/// A block of `order` around an allocated frame, all of whose frames are allocated.
fn held_block(held: &BTreeMap<u64, Owner>, at: Index, order: Order) -> Option<u64> {
    let frames: Vec<u64> = held.keys().copied().collect();
    let frame = *frames.get(at.index(frames.len().max(1)))?;
    let block = order.align_down(FrameNumber::new(frame)).raw();
    (block..block + order.frames()).all(|frame| held.contains_key(&frame)).then_some(block)
}

#[test]
fn invalid_memory_sizes_are_rejected() {
    let refused = |frames| MemoryShape::new(frames, Order::LINUX).unwrap_err().to_string();
    let expected = "a physical memory of 0 frames of 4 KiB: it has 1 to 1073741824 frames (4 TiB)";
    assert_eq!(refused(0), expected);
    assert!(refused(MemoryShape::MAX_FRAMES + 1).contains("1 to 1073741824"));
    assert!(MemoryShape::new(MemoryShape::MAX_FRAMES, Order::LINUX).is_ok());
}

/// The last free frame of the first tier with a free frame.
#[test]
fn page_tables_may_take_the_last_free_frames() {
    let mut frames = Frames::new(MemoryShape::new(1 << 12, Order::LINUX).unwrap());
    frames.place_tables_last();
    let allocate = |frames: &mut Frames, owner| frames.allocate(Order::BASE, owner).unwrap().raw();
    assert_eq!(allocate(&mut frames, Owner::PageTable), (1 << 12) - 1);
    assert_eq!(allocate(&mut frames, Owner::Data), (1 << 12) - 2);
    frames.set_tiers(vec![1024]);
    assert_eq!(allocate(&mut frames, Owner::Data), 0);
    assert_eq!(allocate(&mut frames, Owner::PageTable), 1023);
    assert_eq!(allocate(&mut frames, Owner::PageTable), 1022);
    frames.check().unwrap();
}

#[test]
fn out_of_memory_reports_remaining_blocks() {
    let mut frames = Frames::new(MemoryShape::new(8, Order::LINUX).unwrap());
    let order = |raw| Order::new(raw).unwrap();
    assert!(frames.allocate_at(FrameNumber::new(5), Order::BASE, Owner::PageTable));
    let refused = frames.allocate(order(3), Owner::Data).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "no block of 32KiB is free: 7 frames of 4 KiB are free, the largest block of them has 16KiB"
    );
    frames.allocate(order(2), Owner::Data).unwrap();
    frames.allocate(order(1), Owner::Data).unwrap();
    frames.allocate(order(0), Owner::Data).unwrap();
    let refused = frames.allocate(Order::BASE, Owner::Data).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "no block of 4KiB is free: 0 frames of 4 KiB are free, none of any size"
    );
}

/// A double free would allocate a frame twice, and panics.
#[test]
#[should_panic(expected = "an allocated frame")]
fn double_free_panics() {
    let mut frames = Frames::new(MemoryShape::new(64, Order::LINUX).unwrap());
    let block = frames.allocate(Order::new(2).unwrap(), Owner::Data).unwrap();
    frames.free(block.plus(1), Order::BASE);
    frames.free(block, Order::new(2).unwrap());
}
