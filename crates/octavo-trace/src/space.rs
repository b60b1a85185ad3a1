//! The address space of one traced process, and the regions that its users speak of: the heap, the
//! stack, each file's text and data, each large anonymous mapping.

use std::collections::BTreeMap;
use std::iter;
use std::ops::Range;

use octavo_types::{AddrRange, Event, MapSource, PageNumber, PageSize, Protection, VirtAddr};
use rustc_hash::FxHashMap;

use crate::relocation::Relocation;

/// An anonymous mapping from this size on is a region of its own.
const LARGE_BYTES: u64 = 1 << 20;
/// Upper bound on such regions, for programs that map without end.
const LARGE_REGIONS: usize = 256;
/// `MAP_STACK` of `mmap(2)`: a thread's stack.
const MAP_STACK: u64 = 0x20000;
/// `MAP_SHARED` of `mmap(2)`.
const MAP_SHARED: u64 = 0x1;
/// `MAP_FIXED` of `mmap(2)`.
const MAP_FIXED: u64 = 0x10;
/// `MAP_HUGETLB` of `mmap(2)`: pages of hugetlbfs, of the size whose binary logarithm is in the
/// bits from [`MAP_HUGE_SHIFT`] on, or of the default size.
const MAP_HUGETLB: u64 = 0x40000;
const MAP_HUGE_SHIFT: u32 = 26;
const MAP_HUGE_MASK: u64 = 0x3f;
/// The tracer's own bit beside the flags of `mmap(2)`, `OCTAVO_MAP_BY_MALLOC` of ring.h: the C
/// library made the mapping for its `malloc`.
const MAP_BY_MALLOC: u64 = 1 << 32;
const MADV_HUGEPAGE: u64 = 14;
const MADV_NOHUGEPAGE: u64 = 15;
const MADV_COLLAPSE: u64 = 25;
/// Binary logarithm of 2 MiB.
const HUGE_LOG2: u64 = 21;

/// A region's number, dense from 0 within its process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RegionId(pub u16);

/// The kind of a region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegionKind {
    /// The `brk` heap.
    Heap,
    /// The main thread's stack.
    Stack,
    /// The other threads' stacks.
    ThreadStack,
    /// A file's executable mappings.
    Text,
    /// A file's other mappings, and the zeroed memory that continues them.
    Data,
    /// Anonymous memory.
    Anonymous,
    /// Shared memory.
    Shared,
    /// Memory outside all mappings that the tracer saw, and the library that Valgrind preloads.
    Other,
}

impl RegionKind {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            RegionKind::Heap => "heap",
            RegionKind::Stack => "stack",
            RegionKind::ThreadStack => "thread-stack",
            RegionKind::Text => "text",
            RegionKind::Data => "data",
            RegionKind::Anonymous => "anonymous",
            RegionKind::Shared => "shared",
            RegionKind::Other => "other",
        }
    }
}

/// A region: mappings counted together.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its name, unique within the process.
    pub name: String,
    /// Its kind.
    pub kind: RegionKind,
    /// The file, if the region is a file's.
    pub path: Option<String>,
    /// The lowest address that it ever had, relocated.
    pub start: VirtAddr,
    /// How many mappings were counted here.
    pub mappings: u64,
    mapped: Peak,
    by_malloc: Peak,
    /// By `PageRequest`.
    requested: [Peak; 3],
}

impl Region {
    /// The most bytes that were mapped at one time.
    pub fn peak_bytes(&self) -> u64 {
        self.mapped.most
    }

    /// The most bytes that the C library had mapped for its `malloc`. Mappings inherited from a parent process
    /// are not recognised.
    pub fn malloc_bytes(&self) -> u64 {
        self.by_malloc.most
    }

    /// The most bytes for which the program requested 2 MiB pages at one time, by `madvise(MADV_HUGEPAGE)` or
    /// `MADV_COLLAPSE`. Bytes that a later `MADV_NOHUGEPAGE` covers are not included.
    pub fn asked_huge_bytes(&self) -> u64 {
        self.requested[PageRequest::Huge as usize].most
    }

    /// The most bytes for which the program refused 2 MiB pages at one time, by `madvise(MADV_NOHUGEPAGE)`.
    /// Bytes that a later `MADV_HUGEPAGE` covers are not included.
    pub fn asked_small_bytes(&self) -> u64 {
        self.requested[PageRequest::Small as usize].most
    }

    /// The most bytes of its mappings that were pages of hugetlbfs, of 2 MiB or more
    /// (`MAP_HUGETLB`, which the tracer also reports of System V shared memory with `SHM_HUGETLB`).
    pub fn hugetlb_bytes(&self) -> u64 {
        self.requested[PageRequest::Hugetlb as usize].most
    }

    /// The peaks to which the bytes of a mapping count.
    fn peaks_of(&mut self, mapping: &Mapping) -> impl Iterator<Item = &mut Peak> {
        let requested = mapping.requested.map(|request| &mut self.requested[request as usize]);
        let of_malloc = mapping.by_malloc.then_some(&mut self.by_malloc);
        iter::once(&mut self.mapped).chain(of_malloc).chain(requested)
    }
}

/// The pages that a program requests for a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PageRequest {
    Huge,
    Small,
    Hugetlb,
}

/// Bytes of a kind that a region has, and the most that it ever had.
#[derive(Clone, Copy, Default, Debug)]
struct Peak {
    now: u64,
    most: u64,
}

impl Peak {
    fn add(&mut self, bytes: u64) {
        self.now += bytes;
        self.most = self.most.max(self.now);
    }
}

/// The identity of the region that a mapping belongs to.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Kind(RegionKind),
    File(String, RegionKind),
    Large(VirtAddr, u64),
    SmallAnonymous,
}

#[derive(Clone, Copy)]
struct Mapping {
    end: VirtAddr,
    region: RegionId,
    writable: bool,
    backing: Backing,
    by_malloc: bool,
    requested: Option<PageRequest>,
}

impl Mapping {
    /// Whether its memory is the process's own, and not of hugetlbfs.
    fn is_own(&self) -> bool {
        self.backing == Backing::Own && self.requested != Some(PageRequest::Hugetlb)
    }
}

/// Where the pages of a mapping come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backing {
    /// Memory of the process's own.
    Own,
    /// A file's pages; a store to one copies it.
    File,
    /// Memory in which all processes that have mapped it see each store.
    Shared,
}

/// The mappings of one process, from its events. Addresses in it are as traced.
#[derive(Clone)]
pub struct AddressSpace {
    mappings: BTreeMap<VirtAddr, Mapping>,
    regions: Vec<Region>,
    by_key: FxHashMap<Key, RegionId>,
    large: usize,
    relocation: Relocation,
    stack: Option<AddrRange>,
}

impl AddressSpace {
    /// The region of addresses outside every mapping.
    pub const UNMAPPED: RegionId = RegionId(0);

    /// An empty address space. `stack` is the range that the main stack may grow to, in traced
    /// addresses: its growth needs no event.
    pub fn new(relocation: Relocation, stack: Option<AddrRange>) -> Self {
        let mut space = AddressSpace {
            mappings: BTreeMap::new(),
            regions: Vec::new(),
            by_key: FxHashMap::default(),
            large: 0,
            relocation,
            stack,
        };
        space.region_for(Key::Kind(RegionKind::Other), VirtAddr::NULL);
        space
    }

    /// The relocation that turns traced addresses into those shown.
    pub fn relocation(&self) -> &Relocation {
        &self.relocation
    }

    /// Every region so far; a [`RegionId`] is an index here.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The region of a traced base page: that of the mapping it lies in. Base pages never straddle
    /// mappings.
    pub fn region_of(&mut self, page: PageNumber) -> RegionId {
        let addr = VirtAddr::new(page.raw() << PageSize::BASE.log2());
        let below = self.mappings.range(..=addr).next_back();
        match below {
            Some((_, mapping)) if addr < mapping.end => mapping.region,
            _ if self.stack.is_some_and(|stack| stack.contains(addr)) => {
                self.region_for(Key::Kind(RegionKind::Stack), addr)
            }
            _ => Self::UNMAPPED,
        }
    }

    /// Whether other processes may have a traced base page in the same frame: a page of shared
    /// memory, or of a file's mapping that is not writable here.
    pub fn may_be_shared(&self, page: PageNumber) -> bool {
        let addr = VirtAddr::new(page.raw() << PageSize::BASE.log2());
        let below = self.mappings.range(..=addr).next_back();
        below.is_some_and(|(_, mapping)| {
            let shared = match mapping.backing {
                Backing::Own => false,
                Backing::File => !mapping.writable,
                Backing::Shared => true,
            };
            addr < mapping.end && shared
        })
    }

    /// Whether a traced base page lies in memory of the process's own: anonymous memory, the heap
    /// or the stack, but not pages of hugetlbfs.
    pub fn is_own(&self, page: PageNumber) -> bool {
        let addr = VirtAddr::new(page.raw() << PageSize::BASE.log2());
        let mapping = self.next_mapping(addr, addr);
        mapping.is_some_and(|(_, mapping)| mapping.is_own())
    }

    /// Whether any of these traced base pages lies in memory of the process's own.
    pub fn has_own(&self, pages: &Range<u64>) -> bool {
        let [start, end] =
            [pages.start, pages.end].map(|page| VirtAddr::new(page << PageSize::BASE.log2()));
        self.mappings.range(..end).any(|(_, mapping)| mapping.end > start && mapping.is_own())
    }

    /// Whether a page of `size` that begins with a traced base page would lie in memory of the
    /// process's own that has the same rights everywhere and for which huge pages are not refused.
    /// The heap is taken to grow by whole pages of that size, as under an allocator that requests
    /// them.
    pub fn fits(&self, first: PageNumber, size: PageSize) -> bool {
        let start = VirtAddr::new(first.raw() << PageSize::BASE.log2());
        let end = AddrRange::new(start, size.bytes()).end();
        let (mut at, mut last) = (start, None::<Mapping>);
        while at < end {
            let next = self.next_mapping(at, end);
            let Some((_, mapping)) = next.filter(|(begin, _)| *begin <= at) else {
                let is_heap = |mapping: Mapping| {
                    self.regions[usize::from(mapping.region.0)].kind == RegionKind::Heap
                };
                return next.is_none() && last.is_some_and(is_heap);
            };
            let differs = last.is_some_and(|last| last.writable != mapping.writable);
            if differs || !mapping.is_own() || mapping.requested == Some(PageRequest::Small) {
                return false;
            }
            (at, last) = (mapping.end, Some(mapping));
        }
        true
    }

    /// Applies an event. Returns whether the event is of a kind that changes mappings.
    pub fn apply(&mut self, event: &Event) -> bool {
        match event {
            Event::Map { range, protection, source, flags } => {
                self.map(*range, *protection, source, *flags);
            }
            Event::Unmap { range } => drop(self.cut_out(*range)),
            Event::Remap { from, to } => self.remap(*from, *to),
            Event::Protect { range, protection } => self.protect(*range, *protection),
            Event::Advise { range, advice } => {
                self.advise(*range, *advice);
                return false;
            }
            _ => return false,
        }
        true
    }

    fn map(&mut self, range: AddrRange, protection: Protection, source: &MapSource, flags: u64) {
        if range.is_empty() {
            return;
        }
        self.cut_out(range);
        let key = self.key_of(range, protection, source, flags);
        let region = self.region_for(key, range.start());
        let end = range.end();
        let backing = match source {
            MapSource::Shared => Backing::Shared,
            MapSource::File { .. } if flags & MAP_SHARED != 0 => Backing::Shared,
            MapSource::File { .. } => Backing::File,
            MapSource::Anonymous | MapSource::Heap | MapSource::Stack => Backing::Own,
        };
        let log2 = (flags >> MAP_HUGE_SHIFT) & MAP_HUGE_MASK;
        let is_hugetlb = flags & MAP_HUGETLB != 0 && (log2 == 0 || log2 >= HUGE_LOG2);
        let (writable, requested) = (protection.write, is_hugetlb.then_some(PageRequest::Hugetlb));
        let by_malloc = flags & MAP_BY_MALLOC != 0;
        let mapping = Mapping { end, region, writable, backing, by_malloc, requested };
        self.insert(range.start(), mapping);
        self.regions[region.0 as usize].mappings += 1;
    }

    fn key_of(
        &self,
        range: AddrRange,
        protection: Protection,
        source: &MapSource,
        flags: u64,
    ) -> Key {
        match source {
            MapSource::Heap => Key::Kind(RegionKind::Heap),
            MapSource::Stack => Key::Kind(RegionKind::Stack),
            MapSource::Shared => Key::Kind(RegionKind::Shared),
            // Valgrind loads these files into every program.
            MapSource::File { path, .. } if path.contains("/vgpreload_") => {
                Key::Kind(RegionKind::Other)
            }
            MapSource::File { path, .. } => Key::File(path.clone(), file_kind(protection)),
            MapSource::Anonymous if flags & MAP_STACK != 0 => Key::Kind(RegionKind::ThreadStack),
            MapSource::Anonymous => {
                // A loader maps the zeroed rest of a file's writable data at a fixed place right
                // behind it.
                if (flags & MAP_FIXED != 0 || flags == 0)
                    && let Some(path) = self.data_file_ending_at(range.start())
                {
                    return Key::File(path, RegionKind::Data);
                }
                if range.bytes() < LARGE_BYTES {
                    return Key::SmallAnonymous;
                }
                let large = Key::Large(range.start(), range.bytes());
                if self.by_key.contains_key(&large) || self.large < LARGE_REGIONS {
                    large
                } else {
                    Key::SmallAnonymous
                }
            }
        }
    }

    fn data_file_ending_at(&self, addr: VirtAddr) -> Option<String> {
        let (_, mapping) = self.mappings.range(..addr).next_back()?;
        let region = &self.regions[mapping.region.0 as usize];
        let continues = mapping.end == addr && mapping.writable && region.kind == RegionKind::Data;
        if continues { region.path.clone() } else { None }
    }

    fn remap(&mut self, from: AddrRange, to: AddrRange) {
        let moved = self.cut_out(from);
        self.cut_out(to);
        // A region keeps its name when `mremap` moves or grows it.
        if let Some(mapping) = moved {
            self.insert(to.start(), Mapping { end: to.end(), ..mapping });
        }
    }

    fn protect(&mut self, range: AddrRange, protection: Protection) {
        self.change_parts(range, |space, mapping, _| {
            let region = space.protected_region(mapping.region, protection);
            Some(Mapping { region, writable: protection.write, ..mapping })
        });
    }

    fn advise(&mut self, range: AddrRange, advice: u64) {
        let new = match advice {
            MADV_HUGEPAGE | MADV_COLLAPSE => PageRequest::Huge,
            MADV_NOHUGEPAGE => PageRequest::Small,
            _ => return,
        };
        self.change_parts(range, |space, mapping, bytes| {
            // The kernel does not collapse memory for which huge pages are refused.
            let is_refused =
                advice == MADV_COLLAPSE && mapping.requested == Some(PageRequest::Small);
            if mapping.requested == Some(new)
                || mapping.requested == Some(PageRequest::Hugetlb)
                || is_refused
            {
                return None;
            }
            if let Some(old) = mapping.requested {
                space.regions[mapping.region.0 as usize].requested[old as usize].most -= bytes;
            }
            Some(Mapping { requested: Some(new), ..mapping })
        });
    }

    /// Changes the part of each mapping that lies in a range. `change` gets the mapping and the
    /// bytes of its part; `None` leaves the part as it is.
    fn change_parts(
        &mut self,
        range: AddrRange,
        mut change: impl FnMut(&mut Self, Mapping, u64) -> Option<Mapping>,
    ) {
        let mut at = range.start();
        while at < range.end() {
            let Some((start, mapping)) = self.next_mapping(at, range.end()) else { break };
            let (start, end) = (start.max(at), mapping.end.min(range.end()));
            let bytes = end.raw() - start.raw();
            if let Some(changed) = change(self, mapping, bytes) {
                self.cut_out(AddrRange::new(start, bytes));
                self.insert(start, Mapping { end, ..changed });
            }
            at = end;
        }
    }

    /// The region of a file's mapping after a change of its protection: text if it is executable,
    /// else data.
    fn protected_region(&mut self, region: RegionId, protection: Protection) -> RegionId {
        let old = &self.regions[region.0 as usize];
        let (Some(path), start) = (old.path.clone(), old.start) else { return region };
        // A mapping without any rights only keeps its place.
        if old.kind == file_kind(protection) || protection == Protection::default() {
            return region;
        }
        let kind = file_kind(protection);
        let known = self.by_key.get(&Key::File(path.clone(), kind)).copied();
        known.unwrap_or_else(|| self.new_region(Key::File(path, kind), start))
    }

    /// The first mapping that reaches past `at` and starts before `end`.
    fn next_mapping(&self, at: VirtAddr, end: VirtAddr) -> Option<(VirtAddr, Mapping)> {
        let around = self.mappings.range(..=at).next_back().filter(|(_, m)| m.end > at);
        let next = around.or_else(|| self.mappings.range(at..end).next());
        next.map(|(start, mapping)| (*start, *mapping))
    }

    fn insert(&mut self, start: VirtAddr, mapping: Mapping) {
        self.mappings.insert(start, mapping);
        let shown = self.relocation.address(start);
        let bytes = mapping.end.raw() - start.raw();
        let region = &mut self.regions[mapping.region.0 as usize];
        for peak in region.peaks_of(&mapping) {
            peak.add(bytes);
        }
        region.start = region.start.min(shown);
    }

    /// Removes every mapping inside `range`, splitting those that straddle its ends; returns the
    /// first of them.
    fn cut_out(&mut self, range: AddrRange) -> Option<Mapping> {
        let mut first = None;
        if range.is_empty() {
            return first;
        }
        while let Some((start, mapping)) = self.next_mapping(range.start(), range.end()) {
            self.mappings.remove(&start);
            first.get_or_insert(mapping);
            let cut_start = start.max(range.start());
            let cut_end = mapping.end.min(range.end());
            if start < cut_start {
                self.mappings.insert(start, Mapping { end: cut_start, ..mapping });
            }
            if cut_end < mapping.end {
                self.mappings.insert(cut_end, mapping);
            }
            let cut_bytes = cut_end.raw() - cut_start.raw();
            let region = &mut self.regions[mapping.region.0 as usize];
            for peak in region.peaks_of(&mapping) {
                peak.now -= cut_bytes;
            }
        }
        first
    }

    fn region_for(&mut self, key: Key, start: VirtAddr) -> RegionId {
        match self.by_key.get(&key) {
            Some(region) => *region,
            None => {
                let shown = self.relocation.address(start);
                self.new_region(key, shown)
            }
        }
    }

    /// A new region whose lowest address, relocated, is `start` so far.
    fn new_region(&mut self, key: Key, start: VirtAddr) -> RegionId {
        if self.regions.len() > u16::MAX as usize - 1 {
            return Self::UNMAPPED;
        }
        let (name, kind, path) = match &key {
            Key::Kind(RegionKind::ThreadStack) => {
                ("thread stacks".to_owned(), RegionKind::ThreadStack, None)
            }
            Key::Kind(kind) => (kind.name().to_owned(), *kind, None),
            Key::SmallAnonymous => ("anon (small)".to_owned(), RegionKind::Anonymous, None),
            Key::Large(_, bytes) => {
                self.large += 1;
                let mib = *bytes as f64 / f64::from(1 << 20);
                (format!("anon {mib:.1}MiB #{}", self.large), RegionKind::Anonymous, None)
            }
            Key::File(path, kind) => (self.file_name(path, *kind), *kind, Some(path.clone())),
        };
        let id = RegionId(self.regions.len() as u16);
        self.regions.push(Region {
            name,
            kind,
            path,
            start,
            mappings: 0,
            mapped: Peak::default(),
            by_malloc: Peak::default(),
            requested: Default::default(),
        });
        self.by_key.insert(key, id);
        id
    }

    /// The file's last component, or its whole path if another file has the same last component.
    fn file_name(&self, path: &str, kind: RegionKind) -> String {
        let base = path.rsplit('/').next().filter(|base| !base.is_empty()).unwrap_or("file");
        // Linux marks every file of memfd_create as deleted.
        let base =
            base.strip_suffix(" (deleted)").filter(|b| b.starts_with("memfd:")).unwrap_or(base);
        let short = format!("{base} {}", kind.name());
        let taken = self.regions.iter().any(|region| region.name == short);
        if taken { format!("{path} {}", kind.name()) } else { short }
    }
}

fn file_kind(protection: Protection) -> RegionKind {
    if protection.execute { RegionKind::Text } else { RegionKind::Data }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: Protection = Protection { read: true, write: true, execute: false };
    const RX: Protection = Protection { read: true, write: false, execute: true };

    fn range(start: u64, bytes: u64) -> AddrRange {
        AddrRange::new(VirtAddr::new(start), bytes)
    }

    fn map(start: u64, bytes: u64, protection: Protection, source: MapSource, flags: u64) -> Event {
        Event::Map { range: range(start, bytes), protection, source, flags }
    }

    fn file(path: &str) -> MapSource {
        MapSource::File { path: path.to_owned(), offset_bytes: 0 }
    }

    fn name_at(space: &mut AddressSpace, addr: u64) -> String {
        let region = space.region_of(VirtAddr::new(addr).page(PageSize::BASE));
        space.regions()[region.0 as usize].name.clone()
    }

    fn space() -> AddressSpace {
        AddressSpace::new(Relocation::default(), Some(range(0x7000_0000, 0x10_0000)))
    }

    const HUGE: u64 = PageSize::HUGE.bytes();

    fn fits(space: &AddressSpace, start: u64) -> bool {
        space.fits(VirtAddr::new(start).page(PageSize::BASE), PageSize::HUGE)
    }

    #[test]
    fn a_large_page_fits_into_memory_of_one_kind_and_right() {
        let mut space = space();
        let base = 16 * HUGE;
        space.apply(&map(base, HUGE / 2, RW, MapSource::Anonymous, 0));
        assert!(!fits(&space, base), "the other half is unmapped");
        space.apply(&map(base + HUGE / 2, HUGE / 2 + 4096, RW, MapSource::Anonymous, 0));
        assert!(fits(&space, base), "the kernel merges neighbours");
        assert!(!fits(&space, base + HUGE));
        assert!(!fits(&space, base - HUGE));
        space.apply(&Event::Protect { range: range(base + 4096, 4096), protection: RX });
        assert!(!fits(&space, base), "the rights differ");
        for source in [MapSource::Shared, file("/srv/data")] {
            space.apply(&map(base, HUGE, RW, source, 0));
            assert!(!fits(&space, base));
            assert!(!space.is_own(VirtAddr::new(base).page(PageSize::BASE)));
        }
        space.apply(&map(base, HUGE, RW, MapSource::Anonymous, 0));
        assert!(fits(&space, base));
        space.apply(&Event::Advise { range: range(base, 4096), advice: MADV_NOHUGEPAGE });
        assert!(!fits(&space, base));
        assert!(space.is_own(VirtAddr::new(base).page(PageSize::BASE)));
        space.apply(&map(base, HUGE, RW, MapSource::Anonymous, MAP_HUGETLB));
        assert!(!space.is_own(VirtAddr::new(base).page(PageSize::BASE)));
    }

    #[test]
    fn the_heap_grows_by_whole_large_pages() {
        let mut space = space();
        let base = 16 * HUGE;
        space.apply(&map(base + 4096, HUGE, RW, MapSource::Heap, 0));
        assert!(!fits(&space, base), "the heap begins behind it");
        assert!(fits(&space, base + HUGE));
        space.apply(&map(base + 2 * HUGE - 4096, 4096, RW, MapSource::Anonymous, 0));
        assert!(!fits(&space, base + HUGE), "the heap cannot grow so far");
    }

    #[test]
    fn ranges_of_nothing_change_nothing() {
        let mut space = space();
        space.apply(&map(0x10000, 0x4000, RW, MapSource::Heap, 0));
        space.apply(&Event::Unmap { range: range(0x12000, 0) });
        space.apply(&Event::Protect { range: range(0x12000, 0), protection: RX });
        space.apply(&Event::Remap { from: range(0x12000, 0), to: range(0x13000, 0) });
        assert_eq!(name_at(&mut space, 0x12000), "heap");
        assert_eq!(name_at(&mut space, 0x13fff), "heap");
    }

    #[test]
    fn a_loaded_library_has_text_data_and_its_zeroed_rest() {
        let mut space = space();
        let lib = || file("/usr/lib/libx.so");
        space.apply(&map(0x10000, 0x8000, Protection::from_bits(1), lib(), 2));
        space.apply(&map(0x12000, 0x2000, RX, lib(), 2 | MAP_FIXED));
        space.apply(&map(0x16000, 0x2000, RW, lib(), 2 | MAP_FIXED));
        space.apply(&map(0x18000, 0x3000, RW, MapSource::Anonymous, 0x22 | MAP_FIXED));
        assert_eq!(name_at(&mut space, 0x10000), "libx.so data");
        assert_eq!(name_at(&mut space, 0x13fff), "libx.so text");
        assert_eq!(name_at(&mut space, 0x14000), "libx.so data");
        assert_eq!(name_at(&mut space, 0x1afff), "libx.so data");
        assert_eq!(name_at(&mut space, 0x1b000), "other");
        let text = space.regions().iter().find(|r| r.kind == RegionKind::Text).unwrap();
        assert_eq!((text.start, text.peak_bytes()), (VirtAddr::new(0x12000), 0x2000));
    }

    #[test]
    fn a_file_of_memfd_create_is_not_called_deleted() {
        let mut space = space();
        space.apply(&map(0x10000, 0x1000, RX, file("/memfd:vmem (deleted)"), 1));
        space.apply(&map(0x20000, 0x1000, RX, file("/usr/lib/libx.so (deleted)"), 1));
        assert_eq!(name_at(&mut space, 0x10000), "memfd:vmem text");
        assert_eq!(name_at(&mut space, 0x20000), "libx.so (deleted) text");
        assert_eq!(space.regions()[1].path.as_deref(), Some("/memfd:vmem (deleted)"));
    }

    #[test]
    fn shared_memory_and_files_that_cannot_be_written_may_be_shared() {
        let mut space = space();
        let may = |space: &AddressSpace, addr: u64| {
            space.may_be_shared(VirtAddr::new(addr).page(PageSize::BASE))
        };
        space.apply(&map(0x10000, 0x4000, RW, MapSource::Shared, 0));
        space.apply(&map(0x20000, 0x4000, RW, file("/srv/store"), MAP_SHARED));
        space.apply(&map(0x30000, 0x4000, RX, file("/usr/lib/libx.so"), 2));
        space.apply(&map(0x40000, 0x4000, RW, file("/usr/lib/libx.so"), 2));
        space.apply(&map(0x50000, 0x4000, RW, MapSource::Anonymous, 0x22));
        assert!([0x10000, 0x13fff, 0x20000, 0x30000].iter().all(|addr| may(&space, *addr)));
        assert!(![0x14000, 0x40000, 0x50000, 0x60000].iter().any(|addr| may(&space, *addr)));
        // Pages that the loader has relocated and then protected.
        let range = range(0x40000, 0x1000);
        space.apply(&Event::Protect { range, protection: Protection::from_bits(1) });
        assert!(may(&space, 0x40000) && !may(&space, 0x41000));
        space.apply(&Event::Remap {
            from: range,
            to: AddrRange::new(VirtAddr::new(0x70000), 0x1000),
        });
        assert!(may(&space, 0x70000) && !may(&space, 0x40000));
    }

    #[test]
    fn large_anonymous_mappings_stand_alone_and_keep_their_name() {
        let mut space = space();
        space.apply(&map(0x100_0000, 4 << 20, RW, MapSource::Anonymous, 0x22));
        space.apply(&map(0x200_0000, 0x4000, RW, MapSource::Anonymous, 0x22));
        assert_eq!(name_at(&mut space, 0x100_0000), "anon 4.0MiB #1");
        assert_eq!(name_at(&mut space, 0x200_0000), "anon (small)");
        space.apply(&Event::Remap {
            from: range(0x100_0000, 4 << 20),
            to: range(0x1000_0000, 8 << 20),
        });
        assert_eq!(name_at(&mut space, 0x100_0000), "other");
        assert_eq!(name_at(&mut space, 0x107f_f000), "anon 4.0MiB #1");
        space.apply(&Event::Unmap { range: range(0x1010_0000, 1 << 20) });
        assert_eq!(name_at(&mut space, 0x1010_0000), "other");
        assert_eq!(name_at(&mut space, 0x1020_0000), "anon 4.0MiB #1");
        assert_eq!(space.regions()[1].peak_bytes(), 8 << 20);
    }

    #[test]
    fn requested_bytes_count_for_the_last_request_only() {
        let mut space = space();
        let advise = |start, bytes, advice| Event::Advise { range: range(start, bytes), advice };
        space.apply(&map(0x100_0000, 8 << 20, RW, MapSource::Anonymous, 0x22));
        for _ in 0..2 {
            assert!(!space.apply(&advise(0x120_0000, 4 << 20, MADV_HUGEPAGE)));
        }
        let requested = |space: &AddressSpace| {
            let region = &space.regions()[1];
            (region.asked_huge_bytes() >> 20, region.asked_small_bytes() >> 20)
        };
        assert_eq!(requested(&space), (4, 0));
        space.apply(&advise(0x140_0000, 16 << 20, MADV_NOHUGEPAGE));
        assert_eq!(
            requested(&space),
            (2, 4),
            "bytes with a later request for small pages do not count"
        );
        space.apply(&advise(0x150_0000, 1 << 20, MADV_HUGEPAGE));
        assert_eq!(requested(&space), (3, 3));
        space.apply(&Event::Unmap { range: range(0x100_0000, 8 << 20) });
        assert_eq!(requested(&space), (3, 3), "a peak is not lowered by unmapping");
        space.apply(&map(0x100_0000, 8 << 20, RW, MapSource::Anonymous, 0x22));
        space.apply(&advise(0x100_0000, 2 << 20, MADV_HUGEPAGE));
        assert_eq!(requested(&space), (3, 3));
    }

    #[test]
    fn a_collapse_asks_for_huge_pages_where_they_are_not_refused() {
        let mut space = space();
        let advise = |start, bytes, advice| Event::Advise { range: range(start, bytes), advice };
        space.apply(&map(0x100_0000, 8 << 20, RW, MapSource::Anonymous, 0x22));
        space.apply(&advise(0x100_0000, 2 << 20, MADV_NOHUGEPAGE));
        space.apply(&advise(0x100_0000, 8 << 20, MADV_COLLAPSE));
        let region = &space.regions()[1];
        assert_eq!((region.asked_huge_bytes(), region.asked_small_bytes()), (6 << 20, 2 << 20));
    }

    #[test]
    fn pages_of_hugetlbfs_are_known_by_the_flags_of_their_mapping() {
        let size = |log2: u64| log2 << MAP_HUGE_SHIFT;
        for (flags, bytes) in [
            (0x22 | MAP_HUGETLB, 8 << 20),
            (0x22 | MAP_HUGETLB | size(21), 8 << 20),
            (0x21 | MAP_HUGETLB | size(30), 8 << 20),
            (0x22 | MAP_HUGETLB | size(16), 0),
            (0x22 | size(21), 0),
        ] {
            let mut space = space();
            space.apply(&map(0x100_0000, 8 << 20, RW, MapSource::Anonymous, flags));
            space.apply(&Event::Advise {
                range: range(0x100_0000, 8 << 20),
                advice: MADV_NOHUGEPAGE,
            });
            assert_eq!(space.regions()[1].hugetlb_bytes(), bytes, "{flags:#x}");
        }
    }

    #[test]
    fn memory_of_malloc_is_known_by_the_tracers_flag_and_stays_so_when_it_moves() {
        let mut space = space();
        let flags = 0x22 | MAP_BY_MALLOC;
        space.apply(&map(0x100_0000, 4 << 20, RW, MapSource::Anonymous, flags));
        space.apply(&map(0x200_0000, 4 << 20, RW, MapSource::Anonymous, 0x22));
        space.apply(&Event::Remap {
            from: range(0x100_0000, 4 << 20),
            to: range(0x1000_0000, 8 << 20),
        });
        space.apply(&Event::Unmap { range: range(0x1000_0000, 6 << 20) });
        space.apply(&Event::Advise { range: range(0x1060_0000, 1 << 20), advice: MADV_HUGEPAGE });
        let region = &space.regions()[1];
        let found = (region.malloc_bytes(), region.peak_bytes(), region.asked_huge_bytes());
        assert_eq!(found, (8 << 20, 8 << 20, 1 << 20));
        assert_eq!(space.regions()[2].malloc_bytes(), 0);
    }

    #[test]
    fn the_stack_grows_without_events() {
        let mut space = space();
        assert_eq!(name_at(&mut space, 0x700f_f000), "stack");
        assert_eq!(name_at(&mut space, 0x6fff_f000), "other");
    }

    #[test]
    fn protection_moves_a_file_between_text_and_data() {
        let mut space = space();
        space.apply(&map(0x40000, 0x4000, RW, file("/tmp/jit"), 2));
        space.apply(&Event::Protect { range: range(0x41000, 0x1000), protection: RX });
        assert_eq!(name_at(&mut space, 0x40000), "jit data");
        assert_eq!(name_at(&mut space, 0x41000), "jit text");
        assert_eq!(name_at(&mut space, 0x42000), "jit data");
    }
}
