//! Frames beside a map of who holds what: every frame has one holder, whatever happens.

use std::collections::BTreeMap;

use octavo_os::frames::{Frames, Holder, MemoryShape, Order};
use octavo_types::FrameNumber;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

#[derive(Clone, Debug)]
enum Step {
    Allocate(Order, Holder),
    AllocateAt(u64, Order, Holder),
    Change(Index, Order, Holder),
    Free(Index, Order),
}

fn step() -> impl Strategy<Value = Step> {
    let order = || (0u8..6).prop_map(|raw| Order::new(raw).unwrap());
    let holder = || select(&Holder::ALL[..]);
    prop_oneof![
        4 => (order(), holder()).prop_map(|(order, holder)| Step::Allocate(order, holder)),
        2 => (0u64..400, order(), holder())
            .prop_map(|(frame, order, holder)| Step::AllocateAt(frame, order, holder)),
        3 => (any::<Index>(), order(), holder())
            .prop_map(|(at, order, holder)| Step::Change(at, order, holder)),
        4 => (any::<Index>(), order()).prop_map(|(at, order)| Step::Free(at, order)),
    ]
}

proptest! {
    #![proptest_config(octavo_oracle::cases(96))]

    #[test]
    fn every_frame_has_one_holder(
        frames in 1u64..400,
        largest in 0u8..=18,
        steps in vec(step(), 0..200),
    ) {
        let shape = MemoryShape::new(frames, Order::new(largest).unwrap()).unwrap();
        let mut fast = Frames::new(shape);
        let mut held: BTreeMap<u64, Holder> = BTreeMap::new();
        let mut peaks: BTreeMap<Holder, u64> = BTreeMap::new();
        let mut peak = 0;
        for step in steps {
            match step {
                Step::Allocate(order, holder) => match fast.allocate(order, holder) {
                    Ok(block) => {
                        let block = block.raw()..block.raw() + order.frames();
                        for frame in block {
                            prop_assert!(held.insert(frame, holder).is_none());
                        }
                    }
                    Err(error) => {
                        prop_assert_eq!(error.free_frames, frames - held.len() as u64);
                        prop_assert!(error.largest_free.is_none_or(|largest| largest < order));
                    }
                },
                Step::AllocateAt(frame, order, holder) => {
                    if fast.allocate_at(FrameNumber::new(frame), order, holder) {
                        for frame in frame..frame + order.frames() {
                            prop_assert!(frame < frames && held.insert(frame, holder).is_none());
                        }
                    }
                }
                Step::Change(at, order, holder) => {
                    if let Some(block) = held_block(&held, at, order) {
                        fast.change_holder(FrameNumber::new(block), order, holder);
                        held.extend((block..block + order.frames()).map(|frame| (frame, holder)));
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
            peak = peak.max(held.len() as u64);
            prop_assert_eq!(fast.peak_used_frames(), peak);
            prop_assert_eq!(fast.free_frames(), frames - held.len() as u64);
            for holder in Holder::ALL {
                let count = held.values().filter(|&&found| found == holder).count() as u64;
                let most = peaks.entry(holder).or_default();
                *most = count.max(*most);
                prop_assert_eq!(fast.used_frames(holder), count);
                prop_assert_eq!(fast.peak_frames(holder), *most);
            }
        }
        for frame in 0..frames {
            let holder = held.get(&frame).copied();
            prop_assert_eq!(fast.holder(FrameNumber::new(frame)), holder);
        }
    }
}

/// A block of `order` all of whose frames are held, around one that is.
fn held_block(held: &BTreeMap<u64, Holder>, at: Index, order: Order) -> Option<u64> {
    let frames: Vec<u64> = held.keys().copied().collect();
    let frame = *frames.get(at.index(frames.len().max(1)))?;
    let block = order.align_down(FrameNumber::new(frame)).raw();
    (block..block + order.frames()).all(|frame| held.contains_key(&frame)).then_some(block)
}

#[test]
fn a_memory_has_a_size() {
    let refused = |frames| MemoryShape::new(frames, Order::LINUX).unwrap_err().to_string();
    let says = "a physical memory of 0 frames of 4 KiB: it has 1 to 1073741824 frames (4 TiB)";
    assert_eq!(refused(0), says);
    assert!(refused(MemoryShape::MAX_FRAMES + 1).contains("1 to 1073741824"));
    assert!(MemoryShape::new(MemoryShape::MAX_FRAMES, Order::LINUX).is_ok());
}

#[test]
fn running_out_says_what_is_left() {
    let mut frames = Frames::new(MemoryShape::new(8, Order::LINUX).unwrap());
    let order = |raw| Order::new(raw).unwrap();
    assert!(frames.allocate_at(FrameNumber::new(5), Order::BASE, Holder::PageTable));
    let refused = frames.allocate(order(3), Holder::Data).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "no block of 32KiB is free: 7 frames of 4 KiB are free, the largest block of them has 16KiB"
    );
    frames.allocate(order(2), Holder::Data).unwrap();
    frames.allocate(order(1), Holder::Data).unwrap();
    frames.allocate(order(0), Holder::Data).unwrap();
    let refused = frames.allocate(Order::BASE, Holder::Data).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "no block of 4KiB is free: 0 frames of 4 KiB are free, none of any size"
    );
}

/// What is freed twice would be given out twice: it is never accepted.
#[test]
#[should_panic(expected = "only frames that somebody holds")]
fn nothing_is_freed_twice() {
    let mut frames = Frames::new(MemoryShape::new(64, Order::LINUX).unwrap());
    let block = frames.allocate(Order::new(2).unwrap(), Holder::Data).unwrap();
    frames.free(block.plus(1), Order::BASE);
    frames.free(block, Order::new(2).unwrap());
}
