//! Executions whose references all go to pages found at once: they leave nothing but counts and times.

use octavo_trace::Segments;
use octavo_types::{Outline, VirtAddr};

use super::front::{Front, STEP};

/// The greatest number of words, and so of executions, between two calls of [`Front::reserve`].
const MOST_WORDS: usize = 1 << 13;

/// The executions that hit, up to where one misses.
pub struct Hits<'w> {
    /// The number of words of these executions.
    pub words: usize,
    /// The execution of which data has missed, with the place of the item. Its fetches, and the items
    /// before, have hit.
    pub missed: Option<(&'w [u64], usize)>,
    /// Instructions, loads, stores and modifies of all executions whose fetches have hit, were every
    /// guarded item to execute.
    pub counts: [u32; 4],
}

impl<'w> Hits<'w> {
    /// Takes executions from the beginning of `words`, until one whose segment has no outline, or whose
    /// fetches are not found at once, or until data is not found at once; not all of many words.
    #[inline(never)]
    pub fn take(
        fetch: &mut Front,
        data: &mut Front,
        segments: &Segments,
        words: &'w [u64],
    ) -> Self {
        fetch.reserve();
        data.reserve();
        let rest = &words[..words.len().min(MOST_WORDS)];
        let (fetch_time, data_time) = (fetch.now(), data.now());
        Taking { fetch, data, segments, rest, fetch_time, data_time }.run()
    }
}

/// The times are those of the last uses in the fronts: the loop has them in registers.
struct Taking<'a, 'w> {
    fetch: &'a mut Front,
    data: &'a mut Front,
    segments: &'a Segments,
    rest: &'w [u64],
    fetch_time: u32,
    data_time: u32,
}

impl<'w> Taking<'_, 'w> {
    #[inline(always)]
    fn run(mut self) -> Hits<'w> {
        let mut counts = [0; 4];
        let words = self.rest.len();
        let missed = loop {
            let Some((outline, execution)) = self.segments.outlined(self.rest) else { break None };
            if !self.fetches(outline) {
                break None;
            }
            for (count, more) in counts.iter_mut().zip(outline.counts()) {
                *count += more;
            }
            // Where the next execution is depends on the number of items. With a branch for each number
            // the processor goes on before it knows.
            let missed = match outline.addresses() {
                0 => self.items(outline, 0),
                1 => self.items(outline, 1),
                2 => self.items(outline, 2),
                3 => self.items(outline, 3),
                4 => self.items(outline, 4),
                more => self.items(outline, more),
            };
            if let Some(place) = missed {
                break Some((execution, place));
            }
        };
        self.fetch.set_now(self.fetch_time);
        self.data.set_now(self.data_time);
        let words = words - self.rest.len() - missed.map_or(0, |(execution, _)| execution.len());
        Hits { words, missed, counts }
    }

    /// The fetches of an execution; whether they were found at once. If not, nothing has happened.
    #[inline(always)]
    fn fetches(&mut self, outline: &Outline) -> bool {
        let [instructions, ..] = outline.counts();
        let Some(first) = self.fetch.guess(outline.first_page().raw(), false) else { return false };
        let Some(page) = outline.second_page() else {
            self.fetch_from(first, instructions);
            return true;
        };
        let Some(second) = self.fetch.guess(page.raw(), false) else { return false };
        self.fetch_from(first, outline.first_fetches());
        self.fetch_from(second, instructions - outline.first_fetches());
        true
    }

    #[inline(always)]
    fn fetch_from(&mut self, slot: usize, fetches: u32) {
        self.fetch_time += STEP;
        self.fetch.use_at(self.fetch_time, slot, fetches.into());
    }

    /// The first execution with its `items` data items, which are behind it then. Returns the place of
    /// the first item that is not found at once.
    #[inline(always)]
    fn items(&mut self, outline: &Outline, items: usize) -> Option<usize> {
        let (execution, rest) = self.rest.split_at(1 + items);
        self.rest = rest;
        let addresses = VirtAddr::slice_from_raw(&execution[1..]);
        for place in 0..items {
            let item = outline.item(place);
            let last = item.last_whole_offset();
            let slot = self.data.guess_data(addresses[place], item.stores(), last);
            let Some(slot) = slot else { return Some(place) };
            self.data_time += STEP;
            self.data.use_at(self.data_time, slot, item.references());
        }
        None
    }
}
