//! Misses by block, and counts of blocks, equal the naive ones.

use std::collections::{BTreeMap, BTreeSet};

use octavo_curves::{ArrayShape, MachineTlbs, Sizes, Study, StudyConfig, TlbsOfSize};
use octavo_oracle::NaiveAllocations;
use octavo_oracle::strategies::{RandomStream, Step, stream};
use octavo_trace::{CodeMap, Decoder, Encoder};
use octavo_types::{
    AddrRange, Consumer, Event, Frame, ItemKind, MapSource, PageSize, Protection, Segment, VirtAddr,
};
use proptest::prelude::*;

const STACKS: u32 = 4;

/// Stack 0 is unknown; each other stack has a caller of its own, with or without a wrapper.
fn describe_stacks(consumer: &mut impl Consumer) {
    consumer.event(&Event::AllocationStack { number: 0, frames: Vec::new() });
    for number in 1..STACKS {
        let frame = |addr: u64, function: &str| Frame {
            addr: VirtAddr::new(addr),
            function: function.to_owned(),
        };
        let mut frames = vec![frame(0x10, "malloc"), frame(0x20, "xmalloc")];
        frames.truncate(1 + number as usize % 2);
        frames.push(frame(0x100 * u64::from(number), "caller"));
        consumer.event(&Event::AllocationStack { number, frames });
    }
}

/// Allocations and frees where the references are: blocks that are small, span pages, or are large.
fn heap_event() -> impl Strategy<Value = Event> {
    let start = (0x100u64..0x180, 0u64..64).prop_map(|(page, part)| (page << 12) + part * 64);
    let bytes = prop_oneof![4 => 1u64..300, 2 => 1u64..20_000, 1 => 1u64..0x10_0000];
    let addr = || start.clone().prop_map(VirtAddr::new);
    let freed = prop::option::weighted(0.2, addr());
    prop_oneof![
        3 => (addr(), bytes, 0..STACKS, freed, any::<bool>()).prop_map(
            |(start, bytes, stack, freed, inherited)| {
                let block = AddrRange::new(start, bytes);
                Event::Allocate { block, stack, freed, inherited }
            }
        ),
        1 => addr().prop_map(|start| Event::Release { start }),
    ]
}

/// Maps a file for each instruction, so that misses show the instruction, until another mapping replaces it.
fn map_instructions(random: &RandomStream, consumer: &mut impl Consumer) {
    let items = random.segments.iter().flat_map(Segment::items);
    let fetches = items.filter(|item| item.kind == ItemKind::Fetch).map(|item| item.addr);
    for addr in fetches.collect::<BTreeSet<_>>() {
        consumer.event(&Event::Map {
            range: AddrRange::new(addr, 1),
            protection: Protection::from_bits(5),
            source: MapSource::File { path: format!("{addr:?}"), offset_bytes: 0 },
            flags: 0,
        });
    }
}

/// The code of a stream.
#[derive(Default)]
struct Code(CodeMap);

impl Consumer for Code {
    fn segment(&mut self, _: &Segment, _: &[VirtAddr]) {}

    fn event(&mut self, event: &Event) {
        self.0.apply(event);
    }
}

/// A stream with allocations between its steps.
fn play(random: &RandomStream, heap: &[(usize, Event)], consumer: &mut impl Consumer) {
    describe_stacks(consumer);
    map_instructions(random, consumer);
    for (index, step) in random.steps.iter().enumerate() {
        for (_, event) in heap.iter().filter(|(at, _)| *at == index) {
            consumer.event(event);
        }
        let one = RandomStream { segments: random.segments.clone(), steps: vec![step.clone()] };
        one.play(consumer);
    }
}

fn add(sums: &mut Vec<u64>, counts: &[u64]) {
    sums.resize(counts.len(), 0);
    sums.iter_mut().zip(counts).for_each(|(sum, more)| *sum += more);
}

fn study(sizes: &[PageSize], levels: &[u32], machine: Option<MachineTlbs>) -> Study {
    Study::new(&StudyConfig {
        sizes: Sizes::new(sizes.to_vec()),
        fetch_levels: levels.to_vec(),
        data_levels: levels.to_vec(),
        machine,
        core_cache_bytes: None,
        native_layout: true,
        allocation_wrappers: vec!["x*".to_owned()],
    })
}

proptest! {
    #![proptest_config(octavo_oracle::cases(64))]

    #[test]
    fn misses_by_block_and_counts_of_blocks_are_exact(
        random in stream(1..200),
        heap in prop::collection::vec((0usize..200, heap_event()), 0..120),
        levels in prop::collection::vec(1u32..24, 1..=2),
    ) {
        let sizes = [12, 14, 21].map(|log2| PageSize::from_log2(log2).unwrap());
        let entries: Vec<usize> = levels.iter().map(|entries| *entries as usize).collect();
        let mut naive = NaiveAllocations::new(&sizes, &entries);
        play(&random, &heap, &mut naive);
        let mut encoder = Encoder::default();
        play(&random, &heap, &mut encoder);
        let mut study = study(&sizes, &levels, None);
        Decoder::default().decode(encoder.words(), &mut study).unwrap();

        let found = study.allocations().unwrap();
        let site = |stack: u32| if stack == 0 { 0 } else { 0x100 * u64::from(stack) };
        let sites: BTreeMap<u64, (u64, u64)> = found.sites.iter()
            .map(|site| (site.address.raw(), (site.blocks, site.most_bytes)))
            .collect();
        let expected: BTreeMap<u64, (u64, u64)> = naive.counts().iter()
            .map(|(stack, counts)| (site(*stack), (counts.allocated, counts.most_bytes)))
            .collect();
        prop_assert_eq!(sites, expected);

        let mut code = Code::default();
        play(&random, &heap, &mut code);
        let mut expected: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for ((stack, instruction), counts) in naive.misses() {
            let file = code.0.file_at(*instruction).map(|(path, _)| path.to_owned());
            add(expected.entry((stack.map(site), file)).or_default(), counts);
        }
        let mut misses: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for row in &found.misses {
            let site = row.stack.map(|stack| found.sites[found.stacks[stack].site].address.raw());
            add(misses.entry((site, row.place.path.clone())).or_default(), &row.counts);
        }
        prop_assert_eq!(misses, expected);

        // All misses of data are attributed.
        for (column, size) in sizes.iter().enumerate() {
            let total = study.total();
            let last = total.data_curves.iter().rfind(|curve| curve.page_size == *size);
            let attributed: u64 = found.misses.iter().map(|row| row.counts[column]).sum();
            prop_assert_eq!(last.map_or(0, |curve| curve.misses), attributed);
        }
    }

    /// All walks of a machine are attributed. (Other tests compare its TLBs with the oracle.)
    #[test]
    fn all_walks_of_a_machine_are_attributed(
        random in stream(1..200),
        heap in prop::collection::vec((0usize..200, heap_event()), 0..60),
        has_second in any::<bool>(),
    ) {
        let tlbs = |log2: u8| {
            let page_size = PageSize::from_log2(log2).unwrap();
            let shape = |sets, ways| ArrayShape { entry_size: page_size, sets, ways };
            let second = has_second.then(|| shape(4, 3));
            TlbsOfSize { page_size, fetch: shape(1, 8), data: shape(2, 4), second }
        };
        let machine = MachineTlbs { sizes: vec![tlbs(12), tlbs(21)] };
        let mut study = study(&[PageSize::BASE], &[16], Some(machine));
        play(&random, &heap, &mut study);
        let found = study.allocations().unwrap();
        let total = study.total();
        for (number, column) in found.columns.iter().enumerate() {
            if !column.modelled {
                continue;
            }
            let mut curves = total.data_machine.iter();
            let last = curves.rfind(|curve| curve.page_size == column.page_size);
            let attributed: u64 = found.misses.iter().map(|row| row.counts[number]).sum();
            prop_assert_eq!(last.map_or(0, |curve| curve.misses), attributed);
        }
    }
}

#[test]
fn a_stream_without_stacks_has_no_allocations() {
    let mut study = study(&[PageSize::BASE], &[4], None);
    let step = Step::Event(Event::Mark { value: 7 });
    RandomStream { segments: Vec::new(), steps: vec![step] }.play(&mut study);
    assert_eq!(study.allocations(), None);
}
