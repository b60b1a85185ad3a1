//! Prefetches of the lines around an access that have followed the accesses of its instruction before.
//!
//! - A *visit* begins with an access by an instruction to a line that no visit under way covers: its *trigger*. It
//!   covers the lines from `before` lines before to `after` lines behind the trigger, within the bounds of prefetches.
//! - An access to a line that a visit covers is noted in the most recent such visit by its distance from the trigger,
//!   and begins no visit.
//! - The `visits` most recent visits are under way. When another begins, the oldest ends, and the entry of its
//!   instruction learns: the count of each distance that was accessed goes up by one, up to `confirmations`, and the
//!   count of every other distance, inside the bounds or not, is reset to 0.
//! - An instruction uses the entry of its address modulo `entries`. If the entry belongs to another instruction when a
//!   visit ends, it is reassigned with all counts 0.
//! - When a visit begins, the lines at the distances whose count has reached `confirmations` are prefetched, the
//!   nearest first; of two equally near lines, the one behind the trigger first.
//!
//! AMD's Software Optimization Guide for Family 1Ah names such a prefetcher "L1 Region". Spatial Memory Streaming
//! (Somogyi et al., ISCA 2006) keeps a bit for each line of a region, by the instruction and by the position of the
//! trigger in the region; here each distance has a count, independent of the position of the trigger.

use std::collections::VecDeque;

use super::{Blocks, RegionConfig};

/// A set of distances from a trigger: bit `before + distance` is set for each distance.
type Distances = u64;

/// A visit under way.
#[derive(Clone, Copy, Debug)]
struct Visit {
    site: u64,
    trigger: u64,
    accessed: Distances,
}

/// The visits under way, and the table of instructions.
#[derive(Clone, Debug)]
pub struct Region {
    config: RegionConfig,
    /// The most recent one first.
    visits: VecDeque<Visit>,
    /// The instruction that an entry belongs to.
    sites: Box<[Option<u64>]>,
    /// The counts of each entry, in `confirmations` words: word `n` has the distances whose count is above `n`, which
    /// were accessed in each of the last `n + 1` visits.
    counts: Box<[Distances]>,
}

impl Region {
    pub fn new(config: RegionConfig) -> Self {
        let entries = config.entries as usize;
        Region {
            config,
            visits: VecDeque::with_capacity(config.visits as usize),
            sites: vec![None; entries].into(),
            counts: vec![0; entries * config.confirmations as usize].into(),
        }
    }

    /// Trains with an access of the instruction at `site`. Appends the lines to prefetch to `out`.
    pub fn train(&mut self, blocks: Blocks, site: u64, line: u64, out: &mut Vec<u64>) {
        let RegionConfig { before, after, bounds, .. } = self.config;
        for visit in &mut self.visits {
            let bit = line.wrapping_sub(visit.trigger).wrapping_add(before.into());
            if bit <= u64::from(before + after)
                && blocks.reach(bounds, visit.trigger, bit as i64 - i64::from(before)) == Some(line)
            {
                visit.accessed |= 1 << bit;
                return;
            }
        }
        if self.visits.len() == self.config.visits as usize
            && let Some(oldest) = self.visits.pop_back()
        {
            self.learn(oldest);
        }
        self.visits.push_front(Visit { site, trigger: line, accessed: 0 });
        self.prefetch(blocks, site, line, out);
    }

    /// The words of an entry in `counts`.
    fn words(&self, entry: usize) -> std::ops::Range<usize> {
        let confirmations = self.config.confirmations as usize;
        entry * confirmations..(entry + 1) * confirmations
    }

    /// The entry that an instruction uses.
    fn entry(&self, site: u64) -> usize {
        (site % self.sites.len() as u64) as usize
    }

    /// Counts the distances of a visit that has ended.
    fn learn(&mut self, Visit { site, accessed, .. }: Visit) {
        let entry = self.entry(site);
        let words = self.words(entry);
        let counts = &mut self.counts[words];
        if self.sites[entry].replace(site) != Some(site) {
            counts.fill(0);
        }
        counts.rotate_right(1);
        counts[0] = Distances::MAX;
        for count in counts {
            *count &= accessed;
        }
    }

    /// Appends the lines around a trigger whose counts have reached `confirmations`.
    fn prefetch(&self, blocks: Blocks, site: u64, trigger: u64, out: &mut Vec<u64>) {
        let RegionConfig { before, after, degree, bounds, .. } = self.config;
        let entry = self.entry(site);
        let confirmed = self.counts[self.words(entry).end - 1];
        if confirmed == 0 || self.sites[entry] != Some(site) {
            return;
        }
        let distances = (1..=i64::from(before.max(after))).flat_map(|near| [near, -near]);
        let lines = distances
            .filter(|distance| {
                let bit = distance + i64::from(before);
                bit >= 0 && confirmed >> bit & 1 != 0
            })
            .filter_map(|distance| blocks.reach(bounds, trigger, distance));
        out.extend(lines.take(degree as usize));
    }
}
