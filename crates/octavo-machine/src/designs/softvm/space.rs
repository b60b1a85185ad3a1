//! The global address space and its segments. For the parts outside segments see [`super::address_map`].
//!
//! The paper's machine extends an effective address of 32 bits to a global one of 52: its top four bits
//! select one of sixteen segment registers, whose 24 bits replace them (section 3.2, Figure 2). Programs of
//! 64 bits are mapped as follows: bits 28 and up of an effective address select its *effective segment*; each
//! effective segment of each process gets the next free global segment at its first use. So no two regions
//! collide, and 52 bits suffice for fewer than 2^24 segments.
//!
//! Shared memory lies at one global address for all mappings ("sharing memory via global addresses", section
//! 4.3): each 256 MiB of a file or shared-memory object get the next global segment at their first use
//! through a shared mapping. A kernel for such a machine would place such mappings in effective segments of
//! their own; here addresses are those of the trace, so that the shared part of an effective segment maps to
//! another global segment than the rest. Private mappings stay in their process' segments.
//!
//! The sixteen registers are indexed by the low four bits of the effective segment's number or, for shared
//! memory, of the sum of object number and part number. If the register holds another segment (never in a
//! 32-bit program without shared memory), the operating system reloads it, which is counted.

use super::settings::Sharing;
use octavo_hw::GlobalAddr;
use octavo_os::vmas::{ObjectId, Pages, Vma};
use octavo_os::{Memory, ProcessId};
use octavo_types::{FrameNumber, PageNumber, PageSize};
use rustc_hash::FxHashMap;

use crate::env::Env;
use crate::front::LineAccess;

/// log2 of the bytes of a segment: 256 MiB.
const SEGMENT_LOG2: u32 = 28;
/// log2 of the base pages of a segment.
const SEGMENT_PAGES_LOG2: u32 = SEGMENT_LOG2 - PageSize::BASE.log2() as u32;
/// Number of segment registers.
const REGISTERS: usize = 16;
/// Size of the table of recent regions, indexed by block; and log2 of the bytes of a block.
const BLOCKS: usize = 64;
const BLOCK_LOG2: u32 = 21;

/// The memory of a global segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Segment {
    /// An effective segment of a process.
    Own(ProcessId, u64),
    /// 256 MiB of a shared object.
    Shared(ObjectId, u64),
}

impl Segment {
    /// The register that holds it.
    fn register(self) -> u32 {
        let number = match self {
            Segment::Own(_, segment) => segment,
            Segment::Shared(object, part) => u64::from(object.0) + part,
        };
        (number % REGISTERS as u64) as u32
    }
}

/// A global segment, numbered from 0 in order of first use.
type SegmentNumber = u32;

/// The content of an empty register.
const NO_SEGMENT: SegmentNumber = SegmentNumber::MAX;

/// A part of an effective segment of the running process that lies in one global segment.
#[derive(Clone, Copy, Debug)]
struct Region {
    /// First line and number of lines of the stream's line size; no lines if unknown.
    first: u64,
    lines: u64,
    /// Added to an effective address, wrapping, to give the global one.
    offset: u64,
    /// Its segment, and the register that holds that.
    segment: SegmentNumber,
    register: u32,
}

const NOTHING: Region = Region { first: 0, lines: 0, offset: 0, segment: NO_SEGMENT, register: 0 };

impl Region {
    #[inline(always)]
    fn has(&self, line: u64) -> bool {
        line.wrapping_sub(self.first) < self.lines
    }
}

/// The assignment of global segments.
pub struct Space {
    line_log2: u32,
    sharing: Sharing,
    /// The region used last in each block, by the low bits of the block number.
    recent: [Region; BLOCKS],
    /// All regions used since mappings may have changed.
    regions: Vec<Region>,
    segments: FxHashMap<Segment, SegmentNumber>,
    registers: [SegmentNumber; REGISTERS],
    reloads: u64,
}

impl Space {
    /// An empty space, for accesses to lines of `line_bytes`.
    pub fn new(line_bytes: u64, sharing: Sharing) -> Self {
        Space {
            line_log2: line_bytes.trailing_zeros(),
            sharing,
            recent: [NOTHING; BLOCKS],
            regions: Vec::new(),
            segments: FxHashMap::default(),
            registers: [NO_SEGMENT; REGISTERS],
            reloads: 0,
        }
    }

    /// The global address of the line of an access.
    #[inline(always)]
    pub fn of_access(&mut self, env: &Env, access: LineAccess) -> GlobalAddr {
        let line = access.line();
        let block = (line >> (BLOCK_LOG2 - self.line_log2)) as usize % BLOCKS;
        if !self.recent[block].has(line) {
            self.recent[block] = self.find(env.os().memory(), env.process(), line);
        }
        // Reads the fields in place: a copy of the region on the stack may span two cache lines, and would be slow to
        // read back.
        let Region { offset, segment, register, .. } = self.recent[block];
        self.load(segment, register);
        GlobalAddr::new((line << self.line_log2).wrapping_add(offset))
    }

    /// Loads a segment into its register, if that holds another one.
    #[inline(always)]
    fn load(&mut self, segment: SegmentNumber, register: u32) {
        let held = &mut self.registers[register as usize % REGISTERS];
        self.reloads += u64::from(*held != segment);
        *held = segment;
    }

    /// Drops all regions, after a context switch or a change of mappings.
    pub fn clear_regions(&mut self) {
        self.recent = [NOTHING; BLOCKS];
        self.regions.clear();
    }

    /// The region of a line outside the recent regions.
    #[inline(never)]
    fn find(&mut self, memory: &Memory, process: ProcessId, line: u64) -> Region {
        let known = self.regions.iter().find(|region| region.has(line)).copied();
        known.unwrap_or_else(|| self.region(memory, process, line))
    }

    /// Determines the region of a line.
    fn region(&mut self, memory: &Memory, process: ProcessId, line: u64) -> Region {
        let lines_log2 = u32::from(PageSize::BASE.log2()) - self.line_log2;
        let page = line >> lines_log2;
        let (segment, number) = self.place(memory, process, page);
        let pages = self.around(memory, process, page);
        let global_segment = self.number(segment);
        let global = start(global_segment) + (number << PageSize::BASE.log2());
        let region = Region {
            first: pages.start << lines_log2,
            lines: (pages.end - pages.start) << lines_log2,
            offset: global.wrapping_sub(page << PageSize::BASE.log2()),
            segment: global_segment,
            register: segment.register(),
        };
        self.regions.push(region);
        region
    }

    /// The segment of a base page of a process, and the page's number in it.
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

    /// The contiguous pages around `page` in the same effective and global segment.
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
                // The next 256 MiB of the object may begin inside the mapping.
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

    fn number(&mut self, segment: Segment) -> SegmentNumber {
        let next = self.segments.len() as SegmentNumber;
        *self.segments.entry(segment).or_insert(next)
    }

    /// The global address of a base page of a process.
    pub fn of_page(&mut self, memory: &Memory, process: ProcessId, page: PageNumber) -> GlobalAddr {
        let (segment, number) = self.place(memory, process, page.raw());
        GlobalAddr::new(start(self.number(segment)) + (number << PageSize::BASE.log2()))
    }

    /// Calls [`Env::check`] or, for memory shared by global address, [`Env::check_shared`].
    pub fn check(&self, env: &Env, access: LineAccess, frame: FrameNumber) {
        let page = env.page(access).raw();
        match self.place(env.os().memory(), env.process(), page).0 {
            Segment::Own(..) => env.check(access, frame),
            Segment::Shared(..) => env.check_shared(access, frame),
        }
    }

    /// Number of segments used.
    pub fn segments(&self) -> u64 {
        self.segments.len() as u64
    }

    /// Number of reloads of segment registers.
    pub fn reloads(&self) -> u64 {
        self.reloads
    }
}

/// The first global address of a segment.
fn start(segment: SegmentNumber) -> u64 {
    u64::from(segment) << SEGMENT_LOG2
}

#[cfg(test)]
mod tests {
    use octavo_os::Os;
    use octavo_os::frames::{Frames, MemoryShape, Order};
    use octavo_os::page_table::Format;
    use octavo_os::policy::{BaseConfig, PolicySettings};
    use octavo_types::{AddrRange, Event, MapSource, Protection, VirtAddr};

    use super::*;

    fn os(processes: usize) -> (Os, Vec<ProcessId>) {
        let frames = Frames::new(MemoryShape::new(1 << 12, Order::LINUX).unwrap());
        let memory = Memory::new(frames, &[], Format::default());
        let mut os = Os::new(memory, BaseConfig {}.build());
        let processes = (0..processes).map(|_| os.spawn().unwrap()).collect();
        (os, processes)
    }

    /// The global address of an effective one, by lines of 16 bytes.
    fn global_addr(space: &mut Space, os: &Os, process: ProcessId, addr: u64) -> u64 {
        space.clear_regions();
        let region = space.find(os.memory(), process, addr >> 4);
        space.load(region.segment, region.register);
        addr.wrapping_add(region.offset)
    }

    #[test]
    fn effective_segments_map_to_distinct_global_segments() {
        let mut space = Space::new(16, Sharing::Global);
        let (os, processes) = os(2);
        let mut addr = |number: usize, addr| global_addr(&mut space, &os, processes[number], addr);
        assert_eq!(addr(0, 0x7fff_ffff_e010), 0x0fff_e010);
        assert_eq!(addr(0, 0x7ffe_ffff_e010), 0x1fff_e010);
        assert_eq!(addr(1, 0x7fff_ffff_e010), 0x2fff_e010);
        assert_eq!(addr(0, 0x7fff_f000_0000), 0);
        let page = PageNumber::new(0x7_ffff_fffe);
        let at = space.of_page(os.memory(), processes[1], page);
        assert_eq!(at, GlobalAddr::new(0x2fff_e000));
        assert_eq!(space.segments(), 3);
        // Segments with equal low four bits share a register.
        assert_eq!(space.reloads(), 4);
    }

    #[test]
    fn shared_memory_has_one_global_address() {
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
        let mut addr = |number: usize, addr| global_addr(&mut space, &os, processes[number], addr);
        // The first 256 MiB of the file, and the next part.
        assert_eq!(addr(0, 0x1000_2010), 0x0fff_e010);
        assert_eq!(addr(0, 0x1000_4010), 0x1000_0010);
        assert_eq!(addr(1, 0x5000_0fff), 0x1000_1fff);
        assert_eq!(addr(1, 0x7fff_fffe_0010), 0x10);
        // Addresses outside the mapping are private to the process.
        assert_eq!(addr(0, 0x1000_1fff), 0x2000_1fff);
        assert_eq!(addr(0, 0x1000_6000), 0x2000_6000);
        assert_eq!(addr(1, 0x7fff_fffd_ffff), 0x3ffd_ffff);
    }
}
