//! Classified misses of one TLB: the classes of Hill ("Aspects of cache memory and instruction
//! buffer performance", 1987), and the misses that a larger page would have avoided, by region and
//! by instruction.

mod places;
mod tlb;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use octavo_trace::RegionId;
use octavo_types::{PageNumber, PageSize, VirtAddr};

use crate::stack::Order;
use crate::touches::{Rows, Touches};
use tlb::Tlb;

pub use places::{FunctionMisses, MissClasses};

/// The TLB whose misses are classified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassesConfig {
    /// Its page size.
    pub page_size: PageSize,
    /// The larger page size that misses are compared with.
    pub larger: PageSize,
    /// log2 of its number of sets, which are indexed by the low bits of the page number.
    pub sets_log2: u8,
    /// Its ways.
    pub ways: u32,
}

impl ClassesConfig {
    /// Its number of entries.
    pub fn entries(&self) -> u32 {
        self.ways << self.sets_log2
    }
}

/// Misses by class. Each miss is either compulsory, capacity or conflict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClassCounts {
    /// Misses on pages that had never been touched.
    pub compulsory: u64,
    /// Misses at which a fully associative TLB of as many entries misses, too.
    pub capacity: u64,
    /// Misses at which a fully associative TLB of as many entries hits.
    pub conflict: u64,
    /// Misses of any class at which the same TLB with the larger page size hits.
    pub page_size: u64,
}

impl ClassCounts {
    /// All misses.
    pub fn misses(&self) -> u64 {
        self.compulsory + self.capacity + self.conflict
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &ClassCounts) {
        self.compulsory += other.compulsory;
        self.capacity += other.capacity;
        self.conflict += other.conflict;
        self.page_size += other.page_size;
    }
}

/// The classes of one stream's misses.
pub struct Classes {
    config: ClassesConfig,
    tlb: Tlb,
    larger: Tlb,
    /// The pages of a fully associative TLB.
    fully: Order,
    /// A bitmap of the page ids that this stream has touched.
    touched: Vec<u64>,
    counts: PlaceCounts,
}

/// Misses by the address of the instruction, as traced, and the region of the page. Hashed with a random key,
/// since a hostile trace could otherwise cause collisions.
pub type PlaceCounts = HashMap<(VirtAddr, RegionId), ClassCounts, RandomState>;

impl Classes {
    /// Empty TLBs without misses.
    pub fn new(config: ClassesConfig) -> Self {
        Classes {
            tlb: Tlb::new(config.sets_log2, config.ways),
            larger: Tlb::new(config.sets_log2, config.ways),
            fully: Order::new(config.entries()),
            touched: Vec::new(),
            counts: HashMap::default(),
            config,
        }
    }

    /// Processes the next batch, which has origins. `region` returns the region of a base page as traced.
    pub fn process(
        &mut self,
        batch: &Touches,
        rows: &Rows,
        mut region: impl FnMut(PageNumber) -> RegionId,
    ) {
        let number = |page_size| rows.sizes().iter().position(|size| size == page_size);
        let sizes = (number(self.config.page_size), number(self.config.larger));
        let (Some(size), Some(larger)) = sizes else { unreachable!("rows have both sizes") };
        for (touch, origin) in batch.touches.iter().zip(&batch.origins) {
            let row = touch.row();
            let page = rows.page(row).raw();
            let (id, larger_id) = (rows.id(row, size), rows.id(row, larger));
            let avoided = self.larger.access(larger_id, page >> self.config.larger.base_shift());
            self.fully.grow(id + 1);
            let slot = self.fully.slot(id);
            match slot {
                Some(slot) => self.fully.replace(slot, id),
                None => {
                    self.fully.push(id);
                }
            }
            if self.tlb.access(id, page >> self.config.page_size.base_shift()) {
                continue;
            }
            let key = (*origin, region(rows.traced(row)));
            let counts = self.counts.entry(key).or_default();
            counts.page_size += u64::from(avoided);
            if first_touch(&mut self.touched, id) {
                counts.compulsory += 1;
            } else if slot.is_some() {
                counts.conflict += 1;
            } else {
                counts.capacity += 1;
            }
        }
    }

    /// Empties the TLBs. The record of touched pages stays, for compulsory misses.
    pub fn flush(&mut self) {
        self.tlb.clear();
        self.larger.clear();
        self.fully.clear();
    }

    /// Removes the counts of a process image before another one runs, which has other instructions and regions.
    pub fn take_counts(&mut self) -> PlaceCounts {
        std::mem::take(&mut self.counts)
    }

    /// Restores the counts that [`Classes::take_counts`] has removed.
    pub fn put_counts(&mut self, counts: PlaceCounts) {
        self.counts = counts;
    }
}

/// Marks a page as touched, and returns whether this is its first touch. Only TLB misses need to call it: the first
/// touch of a page is always a miss.
pub(crate) fn first_touch(touched: &mut Vec<u64>, id: u32) -> bool {
    let (word, bit) = (id as usize / 64, 1 << (id % 64));
    if touched.len() <= word {
        touched.resize(word + 1, 0);
    }
    let first = touched[word] & bit == 0;
    touched[word] |= bit;
    first
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::sizes::Sizes;
    use crate::touches::Splitter;
    use octavo_oracle::strategies::{RandomStream, Step, stream};
    use octavo_oracle::{NaiveReferences, NaiveSets, NaiveTlb};
    use octavo_trace::Relocation;
    use octavo_trace::Stream;
    use octavo_types::ItemKind;
    use proptest::prelude::*;

    type Counts = BTreeMap<(VirtAddr, u16), ClassCounts>;

    fn region(page: u64) -> RegionId {
        RegionId((page >> 4) as u16 % 3)
    }

    /// The counts of data references looked up in three naive TLBs.
    fn expected(random: &RandomStream, config: &ClassesConfig) -> Counts {
        let mut list = NaiveReferences::default();
        random.play(&mut list);
        let (sets, ways) = (1usize << config.sets_log2, config.ways as usize);
        let mut tlb = NaiveSets::new(sets, ways);
        let mut larger = NaiveSets::new(sets, ways);
        let mut fully = NaiveTlb::new(sets * ways);
        let (mut touched, mut counts) = (BTreeSet::new(), Counts::new());
        let mut origin = VirtAddr::NULL;
        for reference in &list.references {
            if reference.kind == ItemKind::Fetch {
                origin = reference.addr;
                continue;
            }
            let last = reference.addr.wrapping_add(u64::from(reference.size_bytes) - 1);
            let pages = reference.addr.raw() >> 12..=last.raw() >> 12;
            let times = if reference.kind == ItemKind::Modify { 2 } else { 1 };
            for page in (0..times).flat_map(|_| pages.clone()) {
                let small = PageNumber::new(page >> config.page_size.base_shift());
                let large = PageNumber::new(page >> config.larger.base_shift());
                let set = |page: PageNumber| page.raw() as usize % sets;
                let avoided = larger.access(set(large), large);
                let in_fully = fully.access(small);
                if tlb.access(set(small), small) {
                    continue;
                }
                let misses = counts.entry((origin, region(page).0)).or_default();
                misses.page_size += u64::from(avoided);
                match (touched.insert(small), in_fully) {
                    (true, _) => misses.compulsory += 1,
                    (false, true) => misses.conflict += 1,
                    (false, false) => misses.capacity += 1,
                }
            }
        }
        counts
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn classes_equal_those_of_naive_tlbs(
            random in stream(0..300), sets_log2 in 0u8..4, ways in 1u32..5,
            sizes in (12u8..15, 1u8..9),
        ) {
            let size = |log2| PageSize::from_log2(log2).unwrap();
            let (page_size, larger) = (size(sizes.0), size(sizes.0 + sizes.1));
            let config = ClassesConfig { page_size, larger, sets_log2, ways };
            let mut rows = Rows::new(Sizes::new(vec![page_size, larger]), Relocation::default());
            let mut splitter = Splitter::new(Stream::Data).with_origins();
            let mut classes = Classes::new(config);
            for (number, step) in random.steps.iter().enumerate() {
                if let Step::Segment(index, addresses) = step {
                    splitter.segment(&random.segments[*index], addresses, &mut rows);
                }
                if number % 7 == 0 || number + 1 == random.steps.len() {
                    let batch = splitter.take(Touches::default());
                    classes.process(&batch, &rows, |page| region(page.raw()));
                }
            }
            let counts = classes.take_counts().into_iter();
            let counts: Counts =
                counts.map(|((pc, region), misses)| ((pc, region.0), misses)).collect();
            prop_assert_eq!(counts, expected(&random, &config));
        }
    }
}
