//! The fast path of executions: references to pages that the front finds at once change only counts and times.

use octavo_trace::Segments;
use octavo_types::{AddressRoom, Outline, PageSize, SummedCounts, VirtAddr};

use super::Study;
use super::front::STEP;
use super::stream::Access;

/// The most words processed by one call, more than a chunk of the ring has. Each makes up to two uses of a front,
/// for which [`Front::reserve`](super::front::Front::reserve) makes room.
const MOST_WORDS: usize = 1 << 16;

/// The number of words of the longest execution.
const LONGEST: usize = 1 + Outline::MOST_GROUPS;

/// Processes executions from the beginning of `words`, up to one whose segment has no outline or whose fetches are
/// not found at once. Stops after [`MOST_WORDS`], and if fewer than [`LONGEST`] words remain. Returns the number of
/// words processed.
#[inline(never)]
pub fn process(study: &mut Study, segments: &Segments, words: &[u64]) -> usize {
    let words = &words[..words.len().min(MOST_WORDS)];
    study.fetch.reserve();
    study.data.reserve();
    let (fetch_time, data_time) = (study.fetch.front().now(), study.data.front().now());
    let mut pending = Pending { fetch_time, data_time, counts: SummedCounts::default() };
    let mut rest = words;
    // With as many words as the longest execution has, the next execution is complete.
    while let Some(ahead) = rest.first_chunk::<LONGEST>()
        && let Some(outline) = segments.outline(ahead[0])
    {
        if !pending.fetches(study, outline) {
            break;
        }
        pending.counts.add(outline.counts());
        // The start of the next execution depends on the number of groups. With a branch for each number the
        // processor speculates past it.
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
        lines.look_up_words(&words[..taken]);
    }
    taken
}

/// Times and counts that are not in the study yet. They stay in registers, since no function that is not inlined takes
/// a reference to them.
#[derive(Clone, Copy)]
struct Pending {
    /// The times of the last uses in the fronts.
    fetch_time: u32,
    data_time: u32,
    counts: SummedCounts,
}

impl Pending {
    /// Makes the fetches of an execution, if their pages are found at once. Returns whether it did.
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

    /// Makes the accesses of the `count` address groups of the first execution in `words`. Returns `count`.
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
                    groups_slow(study, segments, outline, words, group, self.data_time);
                break;
            }
        }
        count
    }

    /// Adds the times and counts to the study.
    #[inline(always)]
    fn report(self, study: &mut Study) {
        study.fetch.front().set_now(self.fetch_time);
        study.data.front().set_now(self.data_time);
        study.counts.add(self.counts.each());
    }
}

/// Uses the page of an address group, if it is found at once. Returns whether it did. `time` is the time of the last
/// use of data.
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

/// Makes the accesses of the address groups, from number `first` on, of the first execution in `words`. The page of
/// group `first` was not found at once. `time` is the time of the last use of data; returns the new one.
#[inline(never)]
fn groups_slow(
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
            // All fetches were found at once, so that no fetch waits, and any order will do.
            let (references, stores, order) = (outlined.references(), outline.stores(group), 0);
            let access = Access { traced, references, stores, order };
            study.data.access_slow(access, &mut study.memory);
        } else {
            use_items(study, segments, execution, group);
        }
        time = study.data.front().now();
    }
    study.end_segment();
    time
}

/// Makes the accesses of the items of an address group one by one, which may be many uses of the front.
#[inline(never)]
fn use_items(study: &mut Study, segments: &Segments, execution: &[u64], group: usize) {
    study.data.reserve();
    let segment = segments.segment(execution[0]);
    let mut room = AddressRoom::new();
    let addresses = segment.addresses(&execution[1..], &mut room);
    let items = segment.data().iter().zip(addresses);
    for (item, addr) in items.filter(|(item, _)| item.group as usize == group) {
        study.data_slow(segment, item, *addr);
    }
}
