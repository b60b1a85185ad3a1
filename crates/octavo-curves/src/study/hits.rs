//! Executions of which most references go to pages found at once: these leave nothing but counts and times.

use octavo_trace::Segments;
use octavo_types::{AddressRoom, Outline, PageSize, VirtAddr};

use super::Study;
use super::front::STEP;
use super::stream::Access;

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
        while let Some(outline) = self.segments.outlined(self.rest) {
            if !self.fetches(outline) {
                break;
            }
            for (count, more) in self.counts.iter_mut().zip(outline.counts()) {
                *count += more;
            }
            // Where the next execution is depends on the number of groups. With a branch for each number
            // the processor goes on before it knows.
            match outline.addresses() {
                0 => self.groups(outline, 0),
                1 => self.groups(outline, 1),
                2 => self.groups(outline, 2),
                3 => self.groups(outline, 3),
                4 => self.groups(outline, 4),
                more => self.groups(outline, more),
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

    /// The address groups of an execution, which is behind them then.
    #[inline(always)]
    fn groups(&mut self, outline: &Outline, groups: usize) {
        let (execution, rest) = self.rest.split_at(1 + groups);
        self.rest = rest;
        let addresses = VirtAddr::slice_from_raw(&execution[1..]);
        let mut all_at_once = true;
        for (group, addr) in addresses.iter().enumerate() {
            if !self.group(outline, group, *addr) {
                self.group_otherwise(outline, execution, group);
                all_at_once = false;
            }
        }
        if !all_at_once {
            self.study.end_segment();
        }
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

    /// An address group of an execution that was not found at once.
    #[inline(never)]
    fn group_otherwise(&mut self, outline: &Outline, execution: &'w [u64], group: usize) {
        let addr = VirtAddr::new(execution[1 + group]);
        let traced = addr.page(PageSize::BASE).raw();
        let outlined = outline.group(group);
        let lies_in_page =
            addr.raw() % PageSize::BASE.bytes() <= outlined.last_whole_offset().into();
        self.study.data.front().set_now(self.data_time);
        // Page 0 may be the address of a guarded item that did not execute.
        if lies_in_page && traced != 0 {
            // All fetches were found at once, so that none waits for data to be served.
            let (references, stores, order) = (outlined.references(), outline.stores(group), 0);
            let access = Access { traced, references, stores, order };
            self.study.data.access_otherwise(access, &mut self.study.memory);
        } else {
            self.items_of(execution, group);
        }
        self.data_time = self.study.data.front().now();
    }

    /// The items of an address group, one by one: many uses of the front for one word.
    fn items_of(&mut self, execution: &'w [u64], group: usize) {
        self.report();
        self.study.data.reserve();
        let segment = self.segments.segment(execution[0]);
        let mut room = AddressRoom::new();
        let addresses = segment.addresses(&execution[1..], &mut room);
        let items = segment.data().iter().zip(addresses);
        for (item, addr) in items.filter(|(item, _)| item.group as usize == group) {
            self.study.other_data(segment, item, *addr);
        }
    }

    /// Reports counts and times to the study.
    #[inline(always)]
    fn report(&mut self) {
        self.study.fetch.front().set_now(self.fetch_time);
        self.study.data.front().set_now(self.data_time);
        self.study.counts.add(std::mem::take(&mut self.counts));
    }
}
