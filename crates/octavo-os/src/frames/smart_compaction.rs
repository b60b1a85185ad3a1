//! Smart compaction (Ram, Panwar and Basu, MICRO 2021): instead of scanning memory, it frees the region with the least
//! data to move, the one with the most free frames of those without an unmovable frame. The data moves to the fullest
//! regions that have free frames, so that others stay nearly free.
//!
//! As in the authors' kernel, the fullest regions are filled first, and regions without any free frame are never freed.
//! That kernel learns of unmovable frames by failing to move them, and skips such a region for two minutes; here they
//! are known.

use std::ops::Range;

use octavo_types::FrameNumber;

use super::compaction::{Compaction, CompactionEnd, FrameRelocator, frames_to_move, move_frame};
use super::memory::Frames;
use super::order::Order;

/// A part of memory that lies in one block of the wanted order, and its number of free frames.
struct Region {
    frames: Range<u64>,
    free: u64,
}

/// Frees the block of `order` with the least data, in the first tier of memory where that is possible. Does nothing
/// without such a block, or if free frames elsewhere do not suffice for its data; frames of free blocks of `order` do
/// not count.
pub fn free_emptiest_block(
    frames: &mut Frames,
    order: Order,
    relocator: &mut impl FrameRelocator,
) -> Compaction {
    let tiers: Vec<_> = frames.buddy().tiers().collect();
    let mut done = Compaction::new(CompactionEnd::Met);
    for tier in tiers {
        if free_in_tier(frames, order, &tier, relocator, &mut done) {
            done.end = CompactionEnd::Enough;
            break;
        }
    }
    done
}

fn free_in_tier(
    frames: &mut Frames,
    order: Order,
    tier: &Range<u64>,
    relocator: &mut impl FrameRelocator,
    done: &mut Compaction,
) -> bool {
    let mut regions = regions(frames, order, tier);
    regions.retain(|region| region.free > 0 && region.free < order.frames());
    let room: u64 = regions.iter().map(|region| region.free).sum();
    // The free frames of the emptied region are no room.
    if room < order.frames() {
        return false;
    }
    // The lowest of equal regions; sorting is stable.
    regions.sort_by_key(|region| region.free);
    let mut from_emptiest = (0..regions.len()).collect::<Vec<_>>();
    from_emptiest.sort_by_key(|number| std::cmp::Reverse(regions[*number].free));
    let found = from_emptiest.into_iter().find_map(|number| {
        let Region { frames: within, .. } = &regions[number];
        let is_whole = within.end - within.start == order.frames();
        let block = FrameNumber::new(within.start);
        let to_move = is_whole.then(|| frames_to_move(frames, block, order, relocator, &mut 0))?;
        Some((number, to_move?))
    });
    let Some((emptiest, to_move)) = found else { return false };
    regions.remove(emptiest);
    let mut targets = regions.iter().map(|region| region.frames.clone()).peekable();
    for from in to_move {
        let to = loop {
            let target = targets.peek().expect("free frames suffice");
            match frames.buddy().last_in(target) {
                Some(to) => break to,
                None => targets.next(),
            };
        };
        move_frame(frames, from, to, relocator);
        done.moved_frames += 1;
    }
    done.blocks_made += 1;
    true
}

/// The regions of a tier, by address; those at its ends may be parts of a block.
fn regions(frames: &Frames, order: Order, tier: &Range<u64>) -> Vec<Region> {
    let blocks = tier.start / order.frames()..tier.end.div_ceil(order.frames());
    blocks
        .map(|block| {
            let start = (block * order.frames()).max(tier.start);
            let end = ((block + 1) * order.frames()).min(tier.end);
            Region { frames: start..end, free: frames.buddy().free_in(&(start..end)) }
        })
        .collect()
}
