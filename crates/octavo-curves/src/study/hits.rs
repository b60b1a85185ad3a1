//! Executions of which most references go to pages found at once: these leave nothing but counts and times.

use octavo_trace::Segments;
use octavo_types::{AddressRoom, Outline, OutlinedCounts, PageSize, VirtAddr};

use super::Study;
use super::front::STEP;
use super::stream::Access;

/// The greatest number of words that are taken at once, more than a chunk of the ring has. Each makes up to
/// two uses of a front, which [`Front::reserve`](super::front::Front::reserve) makes room for.
const MOST_WORDS: usize = 1 << 16;

/// The number of words of the longest execution.
const LONGEST: usize = 1 + Outline::MOST_GROUPS;

/// Takes executions from the beginning of `words`, until one whose segment has no outline or whose fetches are
/// not found at once; not all of many words, and not the last ones. Returns how many words they have.
#[inline(never)]
pub fn take(study: &mut Study, segments: &Segments, words: &[u64]) -> usize {
    let words = &words[..words.len().min(MOST_WORDS)];
    study.fetch.reserve();
    study.data.reserve();
    let (fetch_time, data_time) = (study.fetch.front().now(), study.data.front().now());
    let mut pending = Pending { fetch_time, data_time, counts: OutlinedCounts::default() };
    let mut rest = words;
    // Where there are as many words as the longest execution has, the next one is whole.
    while let Some(ahead) = rest.first_chunk::<LONGEST>()
        && let Some(outline) = segments.outline(ahead[0])
    {
        if !pending.fetches(study, outline) {
            break;
        }
        pending.counts.add(outline);
        // Where the next execution is depends on the number of groups. With a branch for each number
        // the processor goes on before it knows.
        let groups = match outline.addresses() {
            0 => 0,
            1 => pending.groups(study, segments, outline, ahead, 1),
            2 => pending.groups(study, segments, outline, ahead, 2),
            3 => pending.groups(study, segments, outline, ahead, 3),
            4 => pending.groups(study, segments, outline, ahead, 4),
            more => pending.groups(study, segments, outline, ahead, more),
        };
        rest = &rest[1 + groups..];
    }
    pending.report(study);
    let taken = words.len() - rest.len();
    if let Some(lines) = &mut study.lines {
        lines.take_words(&words[..taken]);
    }
    taken
}

/// Times and counts that the study does not have yet. They stay in registers: no function that is called, and not
/// inlined, takes a reference to them.
#[derive(Clone, Copy)]
struct Pending {
    /// The times of the last uses in the fronts.
    fetch_time: u32,
    data_time: u32,
    counts: OutlinedCounts,
}

impl Pending {
    /// The fetches of an execution; whether they were found at once. If not, nothing has happened.
    #[inline(always)]
    fn fetches(&mut self, study: &mut Study, outline: &Outline) -> bool {
        let front = study.fetch.front();
        let Some(first) = front.guess_outlined(outline.first_page()) else { return false };
        let Some(page) = outline.second_page() else {
            self.fetch_from(study, first, outline.instructions());
            return true;
        };
        let Some(second) = front.guess_outlined(page) else { return false };
        self.fetch_from(study, first, outline.first_fetches());
        self.fetch_from(study, second, outline.instructions() - outline.first_fetches());
        true
    }

    #[inline(always)]
    fn fetch_from(&mut self, study: &mut Study, slot: usize, fetches: u32) {
        self.fetch_time += STEP;
        study.fetch.front().use_at(self.fetch_time, slot, fetches.into());
    }

    /// The `count` address groups of the execution that `words` begin with. Returns `count`.
    #[inline(always)]
    fn groups(
        &mut self,
        study: &mut Study,
        segments: &Segments,
        outline: &Outline,
        words: &[u64; LONGEST],
        count: usize,
    ) -> usize {
        for (group, addr) in VirtAddr::slice_from_raw(&words[1..=count]).iter().enumerate() {
            if !use_group(study, outline, group, *addr, &mut self.data_time) {
                self.data_time =
                    groups_otherwise(study, segments, outline, words, group, self.data_time);
                break;
            }
        }
        count
    }

    /// Gives them to the study.
    #[inline(always)]
    fn report(self, study: &mut Study) {
        study.fetch.front().set_now(self.fetch_time);
        study.data.front().set_now(self.data_time);
        study.counts.add(self.counts.each());
    }
}

/// Uses the page of an address group, if it is found at once; whether it was. If not, nothing has happened. `time` is
/// that of the last use of data.
#[inline(always)]
fn use_group(
    study: &mut Study,
    outline: &Outline,
    group: usize,
    addr: VirtAddr,
    time: &mut u32,
) -> bool {
    let stores = outline.stores(group);
    let group = outline.group(group);
    let front = study.data.front();
    let slot = front.guess_data(addr, stores, group.last_whole_offset());
    if let Some(slot) = slot {
        *time += STEP;
        front.use_at(*time, slot, group.references());
    }
    slot.is_some()
}

/// The address groups, from number `first` on, of the execution that `words` begin with; the first of them was not
/// found at once. `time` is that of the last use of data before. Returns that of the last one.
#[inline(never)]
fn groups_otherwise(
    study: &mut Study,
    segments: &Segments,
    outline: &Outline,
    words: &[u64; LONGEST],
    first: usize,
    mut time: u32,
) -> u32 {
    let execution = &words[..=outline.addresses()];
    for group in first..outline.addresses() {
        let addr = VirtAddr::new(execution[1 + group]);
        if group > first && use_group(study, outline, group, addr, &mut time) {
            continue;
        }
        study.data.front().set_now(time);
        let traced = addr.page(PageSize::BASE).raw();
        let outlined = outline.group(group);
        let lies_in_page =
            addr.raw() % PageSize::BASE.bytes() <= outlined.last_whole_offset().into();
        // Page 0 may be the address of a guarded item that did not execute.
        if lies_in_page && traced != 0 {
            // All fetches were found at once, so that none waits for data to be served.
            let (references, stores, order) = (outlined.references(), outline.stores(group), 0);
            let access = Access { traced, references, stores, order };
            study.data.access_otherwise(access, &mut study.memory);
        } else {
            use_items(study, segments, execution, group);
        }
        time = study.data.front().now();
    }
    study.end_segment();
    time
}

/// The items of an address group, one by one: many uses of the front for one word.
#[inline(never)]
fn use_items(study: &mut Study, segments: &Segments, execution: &[u64], group: usize) {
    study.data.reserve();
    let segment = segments.segment(execution[0]);
    let mut room = AddressRoom::new();
    let addresses = segment.addresses(&execution[1..], &mut room);
    let items = segment.data().iter().zip(addresses);
    for (item, addr) in items.filter(|(item, _)| item.group as usize == group) {
        study.other_data(segment, item, *addr);
    }
}
