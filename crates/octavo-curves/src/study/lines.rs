//! Lines of data that miss the private caches of a core, estimated from a sample of all lines.
//!
//! Each such line evicts another one from these caches, perhaps a line of the page table. Their number between two
//! page walks determines how far from the core a walk finds its entries.
//!
//! The cache is fully associative with LRU replacement. One line in [`SHARE`] is simulated, in a cache smaller by the
//! same factor, as in SHARDS (Waldspurger et al., FAST 2015). An address group counts as the line of its lowest
//! address, which is recorded with an execution. Lines of code are left out.

use octavo_types::{Compiled, Instructions, Segment, VirtAddr};

/// One line in this number is simulated.
const SHARE: u64 = 1 << SHARE_LOG2;
const SHARE_LOG2: u32 = 7;
/// Bytes of a line.
const LINE_BYTES: u64 = 64;
/// Words below are not addresses, but numbers of segments, or addresses of guarded items that did not execute.
const LEAST_ADDRESS: u64 = 1 << 20;
/// Words tested together.
const CHUNK: usize = 8;
/// 2^32 divided by the golden ratio, so that consecutive lines are sampled at even distances.
const FACTOR: u32 = 0x9e37_79b1;

/// A cache of a share of the lines.
pub struct LineSample {
    /// The lines in the cache, most recently used first; at first fewer than `entries`.
    lines: Vec<u64>,
    entries: usize,
    misses: u64,
    instructions: Instructions,
}

impl LineSample {
    /// An empty cache of `cache_bytes`.
    pub fn new(cache_bytes: u64) -> Self {
        let entries = (cache_bytes / (LINE_BYTES * SHARE)).max(1) as usize;
        let lines = Vec::with_capacity(entries);
        LineSample { lines, entries, misses: 0, instructions: Instructions::best() }
    }

    /// Estimated misses of all lines of data.
    pub fn misses(&self) -> u64 {
        self.misses * SHARE
    }

    /// The count without the lines, if only results are read from now on.
    pub fn results_only(&self) -> Self {
        LineSample { lines: Vec::new(), ..*self }
    }

    /// Sets the misses to an earlier result of [`LineSample::misses`].
    pub fn roll_back(&mut self, misses: u64) {
        self.misses = misses / SHARE;
    }

    /// Looks up the lines of executions in words: for each, the number of the segment and the addresses of its groups.
    #[inline(always)]
    pub fn look_up_words(&mut self, words: &[u64]) {
        let instructions = self.instructions;
        instructions.run(LookUpWords { words, sample: self });
    }

    /// Looks up the lines of an execution of a segment, given the address of each data item.
    pub fn look_up_execution(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let mut groups = 0;
        for (item, addr) in segment.data().iter().zip(addresses) {
            if item.group as usize == groups {
                groups += 1;
                // The address of a guarded item that did not execute is null.
                self.look_up(addr.raw().saturating_sub(item.offset.into()));
            }
        }
    }

    #[inline(always)]
    fn look_up(&mut self, word: u64) {
        if is_sampled(word) && word >= LEAST_ADDRESS {
            self.use_line(word / LINE_BYTES);
        }
    }

    #[inline(never)]
    fn use_line(&mut self, line: u64) {
        let found = self.lines.iter().position(|held| *held == line);
        let place = found.unwrap_or_else(|| {
            self.misses += 1;
            if self.lines.len() < self.entries {
                self.lines.push(line);
            }
            self.lines.len() - 1
        });
        self.lines.copy_within(..place, 1);
        self.lines[0] = line;
    }
}

/// Whether the line of an address is in the sample.
#[inline(always)]
fn is_sampled(word: u64) -> bool {
    ((word / LINE_BYTES) as u32).wrapping_mul(FACTOR) >> (u32::BITS - SHARE_LOG2) == 0
}

/// The search of the few sampled words among many.
struct LookUpWords<'a> {
    words: &'a [u64],
    sample: &'a mut LineSample,
}

impl Compiled for LookUpWords<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (chunks, rest) = self.words.as_chunks::<CHUNK>();
        for chunk in chunks {
            if chunk.iter().fold(false, |any, word| any | is_sampled(*word)) {
                chunk.iter().for_each(|word| self.sample.look_up(*word));
            }
        }
        rest.iter().for_each(|word| self.sample.look_up(*word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_trace::splitmix;
    use proptest::prelude::*;

    /// The misses of a naive LRU cache of all lines.
    fn misses_of_whole(words: &[u64], cache_bytes: u64) -> u64 {
        let mut held: Vec<u64> = Vec::new();
        let mut misses = 0;
        for line in words.iter().map(|word| word / LINE_BYTES) {
            match held.iter().position(|one| *one == line) {
                Some(place) => drop(held.remove(place)),
                None => misses += 1,
            }
            held.insert(0, line);
            held.truncate((cache_bytes / LINE_BYTES) as usize);
        }
        misses
    }

    /// `count` addresses in a memory of `bytes` bytes, more often near its beginning.
    fn addresses(count: u64, bytes: u64) -> Vec<u64> {
        let random = |number: u64| splitmix(number) as f64 / u64::MAX as f64;
        let offset = |number: u64| (random(number) * random(!number) * bytes as f64) as u64;
        (0..count).map(|number| LEAST_ADDRESS + offset(number)).collect()
    }

    #[test]
    fn estimates_are_near_what_a_whole_cache_misses() {
        const CACHE: u64 = 256 << 10;
        for memory in [CACHE / 2, 2 * CACHE, 16 * CACHE] {
            let words = addresses(200_000, memory);
            let mut sample = LineSample::new(CACHE);
            sample.look_up_words(&words);
            let (whole, estimated) = (misses_of_whole(&words, CACHE), sample.misses());
            assert!(estimated.abs_diff(whole) < whole / 8, "{memory}: {estimated} for {whole}");
        }
    }

    #[test]
    fn numbers_of_segments_and_guarded_items_are_no_lines() {
        let mut sample = LineSample::new(1 << 20);
        sample.look_up_words(&Vec::from_iter(0..LEAST_ADDRESS));
        assert_eq!(sample.misses(), 0);
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(64))]

        /// Lines that fit in the cache miss once, however the words are divided.
        #[test]
        fn lines_that_fit_miss_once(
            words in prop::collection::vec(LEAST_ADDRESS..LEAST_ADDRESS + (1 << 20), 0..4000),
            part in 1usize..100,
        ) {
            let mut sample = LineSample::new(1 << 20);
            words.chunks(part).for_each(|part| sample.look_up_words(part));
            let sampled = words.iter().filter(|word| is_sampled(**word));
            let mut lines: Vec<u64> = sampled.map(|word| word / LINE_BYTES).collect();
            lines.sort_unstable();
            lines.dedup();
            prop_assert_eq!(sample.misses(), lines.len() as u64 * SHARE);
        }
    }
}
