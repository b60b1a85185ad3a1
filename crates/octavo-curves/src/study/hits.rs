//! Executions of which most references go to pages found at once: these leave nothing but counts and times.

use octavo_trace::Segments;
use octavo_types::{AddressRoom, Outline, VirtAddr};

use super::Study;
use super::front::STEP;

/// The greatest number of words that are taken at once, more than a chunk of the ring has. Each makes up to
/// two uses of a front, which [`Front::reserve`](super::front::Front::reserve) makes room for.
const MOST_WORDS: usize = 1 << 16;

/// Takes executions from the beginning of `words`, until one whose segment has no outline or whose fetches are
/// not found at once; not all of many words. Returns how many words they have.
#[inline(never)]
pub fn take(study: &mut Study, segments: &Segments, words: &[u64]) -> usize {
    let words = &words[..words.len().min(MOST_WORDS)];
    study.fetch.reserve();
    study.data.reserve();
    let (fetch_time, data_time) = (study.fetch.front().now(), study.data.front().now());
    let taking = Taking { study, segments, rest: words, counts: [0; 4], fetch_time, data_time };
    words.len() - taking.run()
}

struct Taking<'a, 'w> {
    study: &'a mut Study,
    segments: &'a Segments,
    /// The words that are left.
    rest: &'w [u64],
    /// Instructions, loads, stores and modifies that are not reported to the study yet.
    counts: [u32; 4],
    /// The times of the last uses in the fronts: the loop has them in registers.
    fetch_time: u32,
    data_time: u32,
}

impl<'w> Taking<'_, 'w> {
    /// Returns how many words are left.
    #[inline(always)]
    fn run(mut self) -> usize {
        while let Some((outline, execution)) = self.segments.outlined(self.rest) {
            if !self.fetches(outline) {
                break;
            }
            for (count, more) in self.counts.iter_mut().zip(outline.counts()) {
                *count += more;
            }
            // Where the next execution is depends on the number of groups. With a branch for each number
            // the processor goes on before it knows.
            let missed = match outline.addresses() {
                0 => self.groups(outline, 0),
                1 => self.groups(outline, 1),
                2 => self.groups(outline, 2),
                3 => self.groups(outline, 3),
                4 => self.groups(outline, 4),
                more => self.groups(outline, more),
            };
            if let Some(group) = missed {
                self.items_from(execution, group);
            }
        }
        self.report();
        self.rest.len()
    }

    /// The fetches of an execution; whether they were found at once. If not, nothing has happened.
    #[inline(always)]
    fn fetches(&mut self, outline: &Outline) -> bool {
        let [instructions, ..] = outline.counts();
        let front = self.study.fetch.front();
        let Some(first) = front.guess(outline.first_page().raw(), false) else { return false };
        let Some(page) = outline.second_page() else {
            self.fetch_from(first, instructions);
            return true;
        };
        let Some(second) = front.guess(page.raw(), false) else { return false };
        self.fetch_from(first, outline.first_fetches());
        self.fetch_from(second, instructions - outline.first_fetches());
        true
    }

    #[inline(always)]
    fn fetch_from(&mut self, slot: usize, fetches: u32) {
        self.fetch_time += STEP;
        self.study.fetch.front().use_at(self.fetch_time, slot, fetches.into());
    }

    /// The first execution with its `groups` address groups, which are behind it then. Returns the first
    /// group that is not found at once.
    #[inline(always)]
    fn groups(&mut self, outline: &Outline, groups: usize) -> Option<usize> {
        let (execution, rest) = self.rest.split_at(1 + groups);
        self.rest = rest;
        let addresses = VirtAddr::slice_from_raw(&execution[1..]);
        (0..groups).find(|group| !self.group(outline, *group, addresses[*group]))
    }

    /// An address group; whether it was found at once. If not, nothing has happened.
    #[inline(always)]
    fn group(&mut self, outline: &Outline, group: usize, addr: VirtAddr) -> bool {
        let stores = outline.stores(group);
        let group = outline.group(group);
        let front = self.study.data.front();
        let slot = front.guess_data(addr, stores, group.last_whole_offset());
        if let Some(slot) = slot {
            self.data_time += STEP;
            front.use_at(self.data_time, slot, group.references());
        }
        slot.is_some()
    }

    /// The items of an execution, from those of an address group on that was not found at once: it may span
    /// two pages.
    #[inline(never)]
    fn items_from(&mut self, execution: &'w [u64], group: usize) {
        self.report();
        let segment = self.segments.segment(execution[0]);
        let data = segment.data();
        let mut room = AddressRoom::new();
        let addresses = segment.addresses(&execution[1..], &mut room);
        // A group has an item at least.
        let mut from = group;
        while (data[from].group as usize) < group {
            from += 1;
        }
        self.study.data(segment, &data[from..], &addresses[from..]);
        self.study.end_segment();
        self.fetch_time = self.study.fetch.front().now();
        self.data_time = self.study.data.front().now();
    }

    /// Reports counts and times to the study.
    #[inline(always)]
    fn report(&mut self) {
        self.study.fetch.front().set_now(self.fetch_time);
        self.study.data.front().set_now(self.data_time);
        self.study.counts.add(std::mem::take(&mut self.counts));
    }
}
