//! Executions whose references all go to pages found at once: they leave nothing but counts and times.

use octavo_trace::Segments;
use octavo_types::{Outline, VirtAddr};

use super::front::{Front, STEP};

/// The greatest number of words that are taken at once, more than a chunk of the ring has. Each makes up to
/// two uses of a front, which [`Front::reserve`] makes room for.
const MOST_WORDS: usize = 1 << 16;

/// The executions that hit, up to where one misses.
pub struct Hits<'w> {
    /// The number of words of these executions, that of the one with a miss included.
    pub words: usize,
    /// The data item that has missed. The fetches of its execution, and the items before, have hit.
    pub missed: Option<Place<'w>>,
    /// Instructions, loads, stores and modifies of all executions whose fetches have hit, were every
    /// guarded item to execute.
    pub counts: [u32; 4],
}

/// A data item of an execution.
#[derive(Clone, Copy)]
pub struct Place<'w> {
    /// The words of the execution.
    pub execution: &'w [u64],
    /// The number of items before it.
    pub item: usize,
}

impl<'w> Hits<'w> {
    /// Takes the data items of an execution `from` some place on, and then executions from the beginning of
    /// `words`, until one whose segment has no outline, or whose fetches are not found at once, or until
    /// data is not found at once; not all of many words.
    #[inline(never)]
    pub fn take(
        fetch: &mut Front,
        data: &mut Front,
        segments: &Segments,
        from: Option<Place<'w>>,
        words: &'w [u64],
    ) -> Self {
        fetch.reserve();
        data.reserve();
        let rest = &words[..words.len().min(MOST_WORDS)];
        let (fetch_time, data_time) = (fetch.now(), data.now());
        Taking { fetch, data, segments, rest, fetch_time, data_time }.run(from)
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
    fn run(mut self, from: Option<Place<'w>>) -> Hits<'w> {
        let mut counts = [0; 4];
        let words = self.rest.len();
        let mut missed = from.and_then(|from| self.items_from(from));
        while missed.is_none() {
            let Some((outline, execution)) = self.segments.outlined(self.rest) else { break };
            if !self.fetches(outline) {
                break;
            }
            for (count, more) in counts.iter_mut().zip(outline.counts()) {
                *count += more;
            }
            // Where the next execution is depends on the number of items. With a branch for each number
            // the processor goes on before it knows.
            let item = match outline.addresses() {
                0 => self.items(outline, 0),
                1 => self.items(outline, 1),
                2 => self.items(outline, 2),
                3 => self.items(outline, 3),
                4 => self.items(outline, 4),
                more => self.items(outline, more),
            };
            missed = item.map(|item| Place { execution, item });
        }
        self.fetch.set_now(self.fetch_time);
        self.data.set_now(self.data_time);
        Hits { words: words - self.rest.len(), missed, counts }
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
        (0..items).find(|item| !self.item(outline, *item, addresses[*item]))
    }

    /// The items of an execution from a place on. Returns the place of the first one that is not found at
    /// once.
    #[inline(always)]
    fn items_from(&mut self, from: Place<'w>) -> Option<Place<'w>> {
        let (outline, execution) = self.segments.outlined(from.execution)?;
        let addresses = VirtAddr::slice_from_raw(&execution[1..]);
        let item = (from.item..addresses.len())
            .find(|item| !self.item(outline, *item, addresses[*item]))?;
        Some(Place { execution, item })
    }

    /// A data item; whether it was found at once. If not, nothing has happened.
    #[inline(always)]
    fn item(&mut self, outline: &Outline, item: usize, addr: VirtAddr) -> bool {
        let item = outline.item(item);
        let slot = self.data.guess_data(addr, item.stores(), item.last_whole_offset());
        if let Some(slot) = slot {
            self.data_time += STEP;
            self.data.use_at(self.data_time, slot, item.references());
        }
        slot.is_some()
    }
}
