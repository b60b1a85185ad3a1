//! The global address space: segments, and what lies outside them.
//!
//! The paper's machine extends an effective address of 32 bits to a global one of 52: its top four
//! bits choose one of sixteen segment registers, whose 24 bits take their place (section 3.2,
//! Figure 2). Programs of 64 bits are mapped on to that by this rule: an effective address lies in the
//! *effective segment* that its bits from 28 on say, whatever their number; each effective segment of
//! each process gets the next global segment that nobody has, when it is first used. So no two regions
//! collide, and 52 bits hold them all as long as there are fewer than 2^24 segments.
//!
//! Memory that is shared lies at one global address, whoever maps it and wherever ("sharing memory via
//! global addresses", section 4.3): each 256 MiB of a file or of shared memory get the next global
//! segment when they are first used through a shared mapping. A kernel for such a machine would place
//! such a mapping in effective segments of its own; here a program's addresses are what they are, so
//! its part of an effective segment is as if it lay in another one. What is mapped privately stays in
//! its process' segments.
//!
//! The sixteen registers hold segments by the low four bits of the effective segment's number, or for
//! memory that is shared of the object's number and the part's, added; where another one is in its
//! register (a program of 32 bits without shared memory has none), the operating system loads the
//! register, which is counted.
//!
//! The global page table and physical memory, which the paper tells from segments by the top bits of an
//! address (section 4.2, Figure 5), are told by bits above all segments here.

use octavo_config::Sharing;
use octavo_hw::GlobalAddr;
use octavo_os::vmas::{ObjectId, Pages, Vma};
use octavo_os::{Memory, ProcessId};
use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr};
use rustc_hash::FxHashMap;

use crate::env::Env;
use crate::front::LineAccess;

/// The logarithm of a segment's bytes: 256 MiB.
const SEGMENT_LOG2: u32 = 28;
/// The logarithm of a segment's base pages.
const SEGMENT_PAGES_LOG2: u32 = SEGMENT_LOG2 - PageSize::BASE.log2() as u32;
/// Segment registers.
const REGISTERS: usize = 16;
/// The global page table: one entry of four bytes for each page of the global space.
const TABLE: u64 = 1 << 62;
/// Physical memory, cacheable.
const PHYSICAL: u64 = 1 << 61;
/// Where root page tables begin in physical memory: above all frames, so that they are nobody else's.
const ROOT_TABLES: u64 = 1 << 42 | 1 << 16;
/// The logarithm of the bytes of a page-table entry.
const PTE_LOG2: u32 = 2;

/// What a global segment is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Segment {
    /// An effective segment of a process.
    Own(ProcessId, u64),
    /// 256 MiB of memory that is shared.
    Shared(ObjectId, u64),
}

impl Segment {
    /// Which register holds it.
    fn register(self) -> usize {
        let number = match self {
            Segment::Own(_, segment) => segment,
            Segment::Shared(object, part) => u64::from(object.0) + part,
        };
        number as usize % REGISTERS
    }
}

/// A part of an effective segment of the process that runs, all of it in one global segment.
#[derive(Clone, Copy, Debug)]
struct Region {
    /// Its first line, of those that accesses are to, and how many it has: none where nothing is known.
    first: u64,
    lines: u64,
    /// What is to be added to an effective address, wrapping.
    offset: u64,
    segment: Segment,
}

const NOTHING: Region =
    Region { first: 0, lines: 0, offset: 0, segment: Segment::Own(ProcessId(u16::MAX), u64::MAX) };

/// Which global segments there are.
pub struct Space {
    line_log2: u32,
    sharing: Sharing,
    /// By the low four bits of an effective segment's number, the part of it that was used last; of no
    /// segment that is in no register.
    regions: [Region; REGISTERS],
    /// Dense from 0, in order of first use.
    segments: FxHashMap<Segment, u64>,
    registers: [Option<Segment>; REGISTERS],
    reloads: u64,
}

impl Space {
    /// No segment is used. Accesses are to lines of so many bytes.
    pub fn new(line_bytes: u64, sharing: Sharing) -> Self {
        Space {
            line_log2: line_bytes.trailing_zeros(),
            sharing,
            regions: [NOTHING; REGISTERS],
            segments: FxHashMap::default(),
            registers: [None; REGISTERS],
            reloads: 0,
        }
    }

    /// The global address of the line of an access.
    #[inline(always)]
    pub fn of_access(&mut self, env: &Env, access: LineAccess) -> GlobalAddr {
        let line = access.line();
        let place = (line >> (SEGMENT_LOG2 - self.line_log2)) as usize % REGISTERS;
        let Region { first, lines, offset, .. } = self.regions[place];
        let offset = if line.wrapping_sub(first) < lines {
            offset
        } else {
            self.enter(env.os().memory(), env.process(), line, place)
        };
        GlobalAddr::new((line << self.line_log2).wrapping_add(offset))
    }

    /// Which process runs, or what it has mapped, may be another from here on.
    pub fn forget(&mut self) {
        self.regions = [NOTHING; REGISTERS];
    }

    /// A region is used that is not at hand; what is to be added to its addresses.
    #[inline(never)]
    fn enter(&mut self, memory: &Memory, process: ProcessId, line: u64, place: usize) -> u64 {
        let lines_log2 = u32::from(PageSize::BASE.log2()) - self.line_log2;
        let page = line >> lines_log2;
        let (segment, number) = self.place(memory, process, page);
        let pages = self.around(memory, process, page);
        let held = &mut self.registers[segment.register()];
        if *held != Some(segment) {
            self.reloads += 1;
            let lost = held.replace(segment);
            for region in self.regions.iter_mut().filter(|region| Some(region.segment) == lost) {
                *region = NOTHING;
            }
        }
        let global = self.start(segment) + (number << PageSize::BASE.log2());
        let offset = global.wrapping_sub(page << PageSize::BASE.log2());
        self.regions[place] = Region {
            first: pages.start << lines_log2,
            lines: (pages.end - pages.start) << lines_log2,
            offset,
            segment,
        };
        offset
    }

    /// The segment of a base page of a process, and the number of the page in it.
    fn place(&self, memory: &Memory, process: ProcessId, page: u64) -> (Segment, u64) {
        let split =
            |number| (number >> SEGMENT_PAGES_LOG2, number & ((1 << SEGMENT_PAGES_LOG2) - 1));
        if self.sharing == Sharing::Global
            && let Some((_, vma)) = memory.process(process).vmas.find(PageNumber::new(page))
            && let Some((object, origin)) = vma.shared_object()
        {
            let (part, number) = split(page.wrapping_sub(origin));
            return (Segment::Shared(object, part), number);
        }
        let (segment, number) = split(page);
        (Segment::Own(process, segment), number)
    }

    /// Pages around one, side by side in the same effective segment and the same global one.
    fn around(&self, memory: &Memory, process: ProcessId, page: u64) -> Pages {
        let start = page >> SEGMENT_PAGES_LOG2 << SEGMENT_PAGES_LOG2;
        let mut pages = start..start + (1 << SEGMENT_PAGES_LOG2);
        let is_shared =
            |vma: &Vma| self.sharing == Sharing::Global && vma.shared_object().is_some();
        for (part, vma) in memory.process(process).vmas.within(&pages) {
            if !is_shared(&vma) {
                continue;
            }
            if part.contains(&page) {
                // The next 256 MiB of the object may begin between.
                let number = self.place(memory, process, page).1;
                let [before, after] = [number, (1 << SEGMENT_PAGES_LOG2) - number];
                return page - before.min(page - part.start)..part.end.min(page + after);
            }
            match part.end <= page {
                true => pages.start = part.end,
                false => pages.end = pages.end.min(part.start),
            }
        }
        pages
    }

    /// Where a segment begins.
    fn start(&mut self, segment: Segment) -> u64 {
        let next = self.segments.len() as u64;
        *self.segments.entry(segment).or_insert(next) << SEGMENT_LOG2
    }

    /// The global address of a base page of a process.
    pub fn of_page(&mut self, memory: &Memory, process: ProcessId, page: PageNumber) -> GlobalAddr {
        let (segment, number) = self.place(memory, process, page.raw());
        GlobalAddr::new(self.start(segment) + (number << PageSize::BASE.log2()))
    }

    /// As [`Env::check`]; of memory that is shared by global address, what all have of it.
    pub fn check(&self, env: &Env, access: LineAccess, frame: FrameNumber) {
        let page = env.page(access).raw();
        match self.place(env.os().memory(), env.process(), page).0 {
            Segment::Own(..) => env.check(access, frame),
            Segment::Shared(..) => env.check_shared(access, frame),
        }
    }

    /// How many segments have been used.
    pub fn segments(&self) -> u64 {
        self.segments.len() as u64
    }

    /// How often a segment register was loaded.
    pub fn reloads(&self) -> u64 {
        self.reloads
    }
}

/// The address of an entry of the global page table, the *UPTE* of an address in a segment (Figure 7,
/// step 1): its page's number chooses it, and the two lowest bits are 0. Here pages have 2^`page_log2`
/// bytes, as whatever is protected alike has an entry.
pub fn user_entry(addr: GlobalAddr, page_log2: u32) -> GlobalAddr {
    GlobalAddr::new(TABLE | addr.raw() >> page_log2 << PTE_LOG2)
}

/// The physical address of the entry of a root page table, the *URPT*, that maps the page of the UPTE of
/// an address (Figure 7, step 2). Each segment has a group of 64 of them, 256 bytes; the groups of a
/// process lie as its segments were first used, where the paper's lie as the effective address says.
pub fn root_entry(addr: GlobalAddr, page_log2: u32) -> PhysAddr {
    let pages_log2 = page_log2 + u32::from(PageSize::BASE.log2()) - PTE_LOG2;
    PhysAddr::new(ROOT_TABLES + (addr.raw() >> pages_log2 << PTE_LOG2))
}

/// A physical address that may be cached, as virtual caches see it.
pub fn physical(addr: PhysAddr) -> GlobalAddr {
    GlobalAddr::new(PHYSICAL | addr.raw())
}

#[cfg(test)]
mod tests {
    use octavo_os::Os;
    use octavo_os::frames::{Frames, MemoryShape, Order};
    use octavo_os::page_table::Format;
    use octavo_os::policy::by_name;
    use octavo_types::{AddrRange, Event, MapSource, Protection, VirtAddr};

    use super::*;

    fn os(processes: usize) -> (Os, Vec<ProcessId>) {
        let frames = Frames::new(MemoryShape::new(1 << 12, Order::LINUX).unwrap());
        let memory = Memory::new(frames, &[], Format::default());
        let mut os = Os::new(memory, (by_name("base").unwrap().usual)().build());
        let processes = (0..processes).map(|_| os.spawn().unwrap()).collect();
        (os, processes)
    }

    /// As [`Space::of_access`] finds the address of a line of 16 bytes.
    fn of(space: &mut Space, os: &Os, process: ProcessId, addr: u64) -> u64 {
        let place = (addr >> SEGMENT_LOG2) as usize % REGISTERS;
        let offset = space.enter(os.memory(), process, addr >> 4, place);
        addr.wrapping_add(offset)
    }

    #[test]
    fn each_effective_segment_of_each_process_has_one_of_its_own() {
        let mut space = Space::new(16, Sharing::Global);
        let (os, processes) = os(2);
        let mut addr = |number: usize, addr| of(&mut space, &os, processes[number], addr);
        assert_eq!(addr(0, 0x7fff_ffff_e010), 0x0fff_e010);
        assert_eq!(addr(0, 0x7ffe_ffff_e010), 0x1fff_e010);
        assert_eq!(addr(1, 0x7fff_ffff_e010), 0x2fff_e010);
        assert_eq!(addr(0, 0x7fff_f000_0000), 0);
        let page = PageNumber::new(0x7_ffff_fffe);
        let at = space.of_page(os.memory(), processes[1], page);
        assert_eq!(at, GlobalAddr::new(0x2fff_e000));
        assert_eq!(space.segments(), 3);
        // Segments of the same low four bits share a register.
        assert_eq!(space.reloads(), 4);
    }

    #[test]
    fn what_is_shared_has_one_address() {
        let (mut os, processes) = os(2);
        let mut map = |number: usize, at: u64, pages: u64, offset: u64| {
            let event = Event::Map {
                range: AddrRange::new(VirtAddr::new(at), pages << 12),
                protection: Protection::from_bits(3),
                source: MapSource::File { path: "file".to_owned(), offset_bytes: offset << 12 },
                flags: 1,
            };
            os.event(processes[number], &event).unwrap();
        };
        map(0, 0x1000_2000, 4, 0xfffe);
        map(1, 0x7fff_fffe_0000, 16, 0);
        map(1, 0x5000_0000, 1, 0x1_0001);
        let mut space = Space::new(16, Sharing::Global);
        let mut addr = |number: usize, addr| of(&mut space, &os, processes[number], addr);
        // The first 256 MiB of the file, and what is behind them.
        assert_eq!(addr(0, 0x1000_2010), 0x0fff_e010);
        assert_eq!(addr(0, 0x1000_4010), 0x1000_0010);
        assert_eq!(addr(1, 0x5000_0fff), 0x1000_1fff);
        assert_eq!(addr(1, 0x7fff_fffe_0010), 0x10);
        // What lies beside it is the process' own.
        assert_eq!(addr(0, 0x1000_1fff), 0x2000_1fff);
        assert_eq!(addr(0, 0x1000_6000), 0x2000_6000);
        assert_eq!(addr(1, 0x7fff_fffd_ffff), 0x3ffd_ffff);
    }

    /// Section 4.2: each 4 KiB of entries maps 4 MiB, and each root entry those.
    #[test]
    fn entries_lie_as_figure_7_says() {
        let addr = GlobalAddr::new(0x1234_5678);
        assert_eq!(user_entry(addr, 12).raw(), TABLE | 0x1_2345 << 2);
        assert_eq!(root_entry(addr, 12).raw(), ROOT_TABLES + (0x1234_5678 >> 22) * 4);
        let next_segment = GlobalAddr::new(0x1_0000_0000);
        // Where each line of 16 bytes has an entry, those of 16 KiB are a page.
        assert_eq!(user_entry(addr, 4).raw(), TABLE | 0x123_4567 << 2);
        assert_eq!(root_entry(addr, 4).raw(), ROOT_TABLES + (0x1234_5678 >> 14) * 4);
        assert_eq!(root_entry(next_segment, 12).raw() - ROOT_TABLES, 16 * 256);
    }
}
