use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::frames::MemoryShape;

const RW: Protection = Protection { read: true, write: true, execute: false };

fn size(log2: u8) -> PageSize {
    PageSize::from_log2(log2).unwrap()
}

fn page(raw: u64) -> PageNumber {
    PageNumber::new(raw)
}

fn frame(raw: u64) -> FrameNumber {
    FrameNumber::new(raw)
}

/// Data frames start above those of page tables.
const DATA: u64 = 1 << 20;

fn table(format: Format) -> (PageTable, Frames) {
    let mut frames = Frames::new(MemoryShape::new(1 << 14, Order::LINUX).unwrap());
    (PageTable::new(format, None, &mut frames).unwrap(), frames)
}

fn used(frames: &Frames) -> u64 {
    frames.shape().frames() - frames.free_frames()
}

/// Levels that a walk reads.
fn levels(table: &PageTable, at: u64) -> Vec<u8> {
    table.walk(page(at)).steps().iter().map(|step| step.level).collect()
}

#[test]
fn walk_reads_one_entry_per_level() {
    for (levels_of_table, expected) in [(4, vec![4, 3, 2, 1]), (5, vec![5, 4, 3, 2, 1])] {
        let (mut table, mut frames) =
            table(Format { levels: levels_of_table, ..Format::default() });
        table.map(page(0x12345), PageSize::BASE, frame(DATA), RW, &mut frames).unwrap();
        assert_eq!(levels(&table, 0x12345), expected);
        assert_eq!(levels(&table, 0x12346), expected, "the last entry maps nothing");
        assert_eq!(table.walk(page(0x12346)).leaf, None);
        let above = &expected[..expected.len() - 1];
        assert_eq!(levels(&table, 0x22345), above, "the node is not there");
    }
}

/// Section III.A.1 and Figure 6: a page of 32 KiB has eight entries, seven of them aliases. An alias costs a
/// walk one more access, to the entry at the address with the page's bits cleared.
#[test]
fn alias_costs_a_walk_one_extra_access() {
    let (mut table, mut frames) = table(Format::default());
    let written = table.map(page(0x1238), size(15), frame(DATA), RW, &mut frames).unwrap();
    assert_eq!(written, Written { entries: 8, aliases: 7 });
    assert_eq!(levels(&table, 0x1238), [4, 3, 2, 1]);
    assert_eq!(levels(&table, 0x123d), [4, 3, 2, 1, 1]);
    let (first, other) = (table.walk(page(0x1238)), table.walk(page(0x123d)));
    assert_eq!(other.steps()[4].at, first.steps()[3].at);
    assert_eq!(other.steps()[3].at.raw(), first.steps()[3].at.raw() + 5 * 8);
    assert_eq!(other.leaf, first.leaf);
    assert_eq!(other.leaf.unwrap().frame_of(page(0x123d)), frame(DATA + 5));

    let copies = Format { aliases: Aliases::Copies, ..Format::default() };
    let (mut table, mut frames) = self::table(copies);
    table.map(page(0x1238), size(15), frame(DATA), RW, &mut frames).unwrap();
    assert_eq!(levels(&table, 0x123d), [4, 3, 2, 1]);
}

#[test]
fn larger_pages_replace_smaller_ones_and_their_nodes() {
    let (mut table, mut frames) = table(Format::default());
    for at in 0..512 {
        table.map(page(0x400 + at), PageSize::BASE, frame(DATA + at), RW, &mut frames).unwrap();
    }
    assert_eq!(table.nodes(), 4);
    table.map(page(0x400), PageSize::HUGE, frame(DATA), RW, &mut frames).unwrap();
    assert_eq!(table.nodes(), 3);
    assert_eq!(levels(&table, 0x5ff), [4, 3, 2]);
    let leaf = table.unmap(page(0x433), &mut frames).unwrap();
    assert_eq!((leaf.page, leaf.size), (page(0x400), PageSize::HUGE));
    assert_eq!(table.nodes(), 1, "empty nodes are given back");
    table.free_all(&mut frames);
    assert_eq!(used(&frames), 0);
}

#[test]
#[should_panic = "a larger page is in the way"]
fn mapping_inside_a_larger_page_panics() {
    let (mut table, mut frames) = table(Format::default());
    table.map(page(8), size(15), frame(DATA), RW, &mut frames).unwrap();
    let _ = table.map(page(10), size(13), frame(DATA), RW, &mut frames);
}

#[derive(Clone, Debug)]
enum Op {
    Map(u8, u64),
    Unmap(u64),
    Mark(u64, bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (12u8..=23, 0u64..1 << 12).prop_map(|(log2, at)| Op::Map(log2, at)),
        2 => (0u64..1 << 12).prop_map(Op::Unmap),
        1 => (0u64..1 << 12, any::<bool>()).prop_map(|(at, written)| Op::Mark(at, written)),
    ]
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    /// Allocates exactly the predicted nodes, and none at all if there are fewer frames.
    #[test]
    fn nodes_for_predicts_allocated_nodes(
        mapped in prop::collection::vec((12u8..=30, 0u64..1 << 30), 0..8),
        pages in prop::collection::vec((12u8..=30, 0u64..1 << 30), 1..8),
        has_five_levels in any::<bool>(),
    ) {
        let format = Format { levels: if has_five_levels { 5 } else { 4 }, ..Format::default() };
        let (mut table, mut frames) = table(format);
        let mut occupied: Vec<(u64, u64)> = Vec::new();
        let mut chosen = [Vec::new(), Vec::new()];
        for (list, drawn) in [mapped, pages].into_iter().enumerate() {
            for (log2, at) in drawn {
                // Far apart and close together.
                let at = if at % 2 == 0 { at } else { at % (1 << 20) } >> (log2 - 12) << (log2 - 12);
                let end = at + (1 << (log2 - 12));
                if occupied.iter().all(|range| range.1 <= at || end <= range.0) {
                    occupied.push((at, end));
                    chosen[list].push((page(at), size(log2)));
                }
            }
        }
        let [mapped, mut pages] = chosen;
        for (page, size) in mapped {
            table.map(page, size, frame(DATA << 10), RW, &mut frames).unwrap();
        }
        pages.sort_unstable();
        let (before, predicted) = (table.nodes(), table.nodes_for(pages.iter().copied()));
        if let Some((page, size)) = pages.first().copied()
            && let needed @ 1.. = table.nodes_for([(page, size)])
        {
            let all = frames.free_frames();
            let mut taken = Vec::new();
            while frames.free_frames() >= needed {
                taken.push(frames.allocate(Order::BASE, crate::frames::Owner::Data).unwrap());
            }
            table.map(page, size, frame(DATA << 10), RW, &mut frames).unwrap_err();
            prop_assert_eq!(table.nodes(), before);
            taken.into_iter().for_each(|frame| frames.free(frame, Order::BASE));
            prop_assert_eq!(frames.free_frames(), all);
        }
        for (page, size) in pages {
            table.map(page, size, frame(DATA << 10), RW, &mut frames).unwrap();
        }
        prop_assert_eq!(table.nodes() - before, predicted);
    }

    /// Compared with a map of pages by first base page.
    #[test]
    fn page_table_matches_a_map_of_pages(
        ops in prop::collection::vec(op(), 1..200),
        one_bit in any::<bool>(),
        copies in any::<bool>(),
    ) {
        let format = Format {
            levels: 4,
            encoding: if one_bit { SizeEncoding::OneBit } else { SizeEncoding::FourBits },
            aliases: if copies { Aliases::Copies } else { Aliases::Pointers },
            ..Format::default()
        };
        let (mut table, mut frames) = table(format);
        let mut pages: BTreeMap<u64, (u8, u64, bool, bool)> = BTreeMap::new();
        let owner = |pages: &BTreeMap<u64, (u8, u64, bool, bool)>, at: u64| {
            let (first, mapped) = pages.range(..=at).next_back()?;
            (at < first + (1 << (mapped.0 - 12))).then_some((*first, *mapped))
        };
        for (number, op) in ops.into_iter().enumerate() {
            match op {
                Op::Map(log2, at) => {
                    let count = 1 << (log2 - 12);
                    let first = at / count * count;
                    let in_the_way = |mapped: &(u8, u64, bool, bool)| mapped.0 > log2;
                    if owner(&pages, first).is_some_and(|(_, mapped)| in_the_way(&mapped)) {
                        continue;
                    }
                    let at = DATA + ((number as u64) << 12);
                    table.map(page(first), size(log2), frame(at), RW, &mut frames).unwrap();
                    pages.retain(|page, _| !(first..first + count).contains(page));
                    pages.insert(first, (log2, at, false, false));
                }
                Op::Unmap(at) => {
                    let expected = owner(&pages, at);
                    let leaf = table.unmap(page(at), &mut frames);
                    let first = expected.map(|(first, _)| first);
                    prop_assert_eq!(leaf.map(|leaf| leaf.page.raw()), first);
                    if let Some((first, _)) = expected {
                        pages.remove(&first);
                    }
                }
                Op::Mark(at, written) => {
                    let first = owner(&pages, at).map(|(first, _)| first);
                    let changed = table.mark(page(at), written);
                    let mapped = first.and_then(|first| pages.get_mut(&first));
                    let expected = mapped.is_some_and(|mapped| {
                        let before = *mapped;
                        (mapped.2, mapped.3) = (true, mapped.3 | written);
                        before != *mapped
                    });
                    prop_assert_eq!(changed, expected);
                }
            }
        }
        for at in 0..1 << 13 {
            let expected = owner(&pages, at);
            let leaf = table.leaf(page(at));
            prop_assert_eq!(
                leaf.map(|leaf| (leaf.page.raw(), leaf.size, leaf.frame.raw())),
                expected.map(|(first, mapped)| (first, size(mapped.0), mapped.1))
            );
            let walk = table.walk(page(at));
            prop_assert_eq!(walk.leaf, leaf);
            prop_assert_eq!(walk.leaf.map(|_| walk.used), table.used(page(at)));
            let used = expected.map(|(_, mapped)| (mapped.2, mapped.3));
            prop_assert_eq!(table.used(page(at)), used);
            let next = table.next(page(at), page(1 << 13)).map(|leaf| leaf.page.raw());
            let after = pages.range(at..).next().map(|(first, _)| *first);
            prop_assert_eq!(next, expected.map(|(first, _)| first).or(after));
        }
        prop_assert_eq!(used(&frames), table.nodes());
        table.free_all(&mut frames);
        prop_assert_eq!(used(&frames), 0);
    }
}

/// Base pages of the region of the random programs below, and the order of the largest page.
const REGION: u64 = 2048;
const LARGEST: u8 = 11;

/// The accessed and dirty bits of each base page, at the resolution of the page table.
#[derive(Clone)]
struct PlainUse(Vec<Used>);

impl PlainUse {
    /// Base pages per part of a page of an order, for vectors of `vector_bits` bits.
    fn part_pages(order: u8, vector_bits: u64) -> u64 {
        // Pages of 4 KiB and 2 MiB have one entry; up to 1 MiB, one per 4 KiB, and up to 512 MiB, one per 2
        // MiB.
        let (entries, of_entry) = if order < 9 { (1 << order, 1) } else { (1 << (order - 9), 512) };
        if entries == 1 || vector_bits == 0 {
            entries * of_entry
        } else {
            entries * of_entry / vector_bits.min(entries)
        }
    }

    fn any(&self, pages: std::ops::Range<u64>) -> Used {
        let used = pages.map(|page| self.0[page as usize]);
        used.fold((false, false), |all, one| (all.0 | one.0, all.1 | one.1))
    }

    /// A range becomes a page: each part receives the *or* of its base pages' bits.
    fn becomes(&mut self, first: u64, order: u8, vector_bits: u64) {
        let part = Self::part_pages(order, vector_bits);
        for from in (first..first + (1 << order)).step_by(part as usize) {
            let used = self.any(from..from + part);
            self.0[from as usize..(from + part) as usize].fill(used);
        }
    }

    fn touch(&mut self, at: u64, order: u8, vector_bits: u64, stores: bool) {
        let part = Self::part_pages(order, vector_bits);
        let from = at / part * part;
        for used in &mut self.0[from as usize..(from + part) as usize] {
            *used = (true, used.1 | stores);
        }
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(64))]

    /// Section III.C.1: after any touches, mappings in place and splits, the vectors record the used parts.
    #[test]
    fn vectors_record_used_parts(
        steps in prop::collection::vec((0..REGION, 0..=LARGEST, 0u8..4), 1..120),
        vector_bits in prop::sample::select(vec![0u8, 2, 4, 8, 16]),
        one_bit in any::<bool>(),
    ) {
        let encoding = if one_bit { SizeEncoding::OneBit } else { SizeEncoding::FourBits };
        let (mut table, mut frames) = table(Format { vector_bits, encoding, ..Format::default() });
        let mut plain = PlainUse(vec![(false, false); REGION as usize]);
        let bits = u64::from(vector_bits);
        for (at, order, action) in steps {
            let leaf = table.leaf(page(at));
            match (action, leaf) {
                (0 | 1, Some(leaf)) => {
                    table.mark(page(at), action == 1);
                    let marked = table.mark_part(page(at), action == 1);
                    let order = leaf.size.base_shift();
                    prop_assert_eq!(marked.is_some(), bits > 0 && order != 0 && order != 9);
                    plain.touch(at, order, bits, action == 1);
                }
                (_, Some(leaf)) if leaf.size.base_shift() > order => {
                    let first = leaf.page.raw();
                    let parts = (first..first + (1 << leaf.size.base_shift())).step_by(1 << order);
                    let parts: Vec<_> = parts.map(|part| (page(part), size(12 + order))).collect();
                    table.replace(leaf.page, &parts, &mut frames).unwrap();
                    for (part, _) in parts {
                        plain.becomes(part.raw(), order, bits);
                    }
                }
                _ => {
                    let first = at >> order << order;
                    let is_free = (first..first + (1 << order)).all(|other| {
                        table.leaf(page(other)).is_none_or(|leaf| leaf.size.base_shift() <= order)
                    });
                    prop_assert!(is_free, "no larger page holds {first:#x}");
                    table.map(page(first), size(12 + order), frame(DATA + first), RW, &mut frames).unwrap();
                    plain.becomes(first, order, bits);
                }
            }
            let mut from = 0;
            while let Some(leaf) = table.next(page(from), page(REGION)) {
                let (first, order) = (leaf.page.raw(), leaf.size.base_shift());
                from = first + (1 << order);
                prop_assert_eq!(table.used(leaf.page), Some(plain.any(first..from)));
                let Some(vectors) = table.vectors(leaf.page) else { continue };
                let part = PlainUse::part_pages(order, bits);
                prop_assert_eq!(vectors.part_bytes(), part << 12);
                for number in 0..vectors.parts {
                    let start = first + u64::from(number) * part;
                    prop_assert_eq!(vectors.used.of(number), plain.any(start..start + part));
                }
                // The vectors are in the entry after the true one.
                let walk = table.walk(leaf.page);
                let true_entry = walk.steps().last().unwrap().at.raw();
                prop_assert_eq!(vectors.at.raw(), true_entry + 8);
            }
        }
    }
}

#[test]
fn copied_aliases_have_no_vectors() {
    let format = Format { vector_bits: 16, aliases: Aliases::Copies, ..Format::default() };
    let (mut table, mut frames) = table(format);
    table.map(page(0), size(15), frame(DATA), RW, &mut frames).unwrap();
    assert_eq!(table.vectors(page(0)), None);
    assert_eq!(table.mark_part(page(0), true), None);
}

#[test]
fn line_of_a_walk_shows_entries_of_its_level() {
    let (mut table, mut frames) = table(Format::default());
    for (at, log2) in [(0x1_0000, 12), (0x1_0003, 12), (0x20_0000, 21), (0x20_0200, 21)] {
        table.map(page(at), size(log2), frame(DATA + at), RW, &mut frames).unwrap();
    }
    let pages = |at: u64| {
        let (entries, level) = table.entries_around(page(at), 8).unwrap();
        let is_page = entries.iter().map(|entry| entry.is_page(level)).collect::<Vec<_>>();
        (level, is_page)
    };
    let only = |numbers: [usize; 2]| (0..8).map(|at| numbers.contains(&at)).collect::<Vec<_>>();
    assert_eq!(pages(0x1_0003), (1, only([0, 3])));
    assert_eq!(pages(0x20_01ff), (2, only([0, 1])));
    assert_eq!(table.entries_around(page(0x1_0001), 8), None);
    assert!(table.neighbour_entries(page(0x1_0000), 8).is_some());
    assert_eq!(table.neighbour_entries(page(0x20_0000), 8), None);
}
