//! The global address space: segments, and what lies outside them.
//!
//! The paper's machine extends an effective address of 32 bits to a global one of 52: its top four
//! bits choose one of sixteen segment registers, whose 24 bits take their place (section 3.2,
//! Figure 2). Programs of 64 bits are mapped on to that by this rule: an effective address lies in the
//! *effective segment* that its bits from 28 on say, whatever their number; each effective segment of
//! each process gets the next global segment that nobody has, when it is first used. So no two regions
//! collide, and 52 bits hold them all as long as there are fewer than 2^24 segments. The sixteen
//! registers hold effective segments by the low four bits of their numbers; where another one is in its
//! register (a program of 32 bits has none), the operating system loads the register, which is counted.
//!
//! The global page table and physical memory, which the paper tells from segments by the top bits of an
//! address (section 4.2, Figure 5), are told by bits above all segments here.

use octavo_hw::GlobalAddr;
use octavo_os::ProcessId;
use octavo_types::{PageNumber, PageSize, PhysAddr};
use rustc_hash::FxHashMap;

use super::pages::PageOf;
use crate::front::LineAccess;

/// The logarithm of a segment's bytes: 256 MiB.
const SEGMENT_LOG2: u32 = 28;
/// Segment registers.
const REGISTERS: usize = 16;
/// Above this bit of a key is the process, below it the effective segment.
const PROCESS_SHIFT: u32 = 48;
/// The global page table: one entry of four bytes for each page of the global space.
const TABLE: u64 = 1 << 62;
/// Physical memory, cacheable.
const PHYSICAL: u64 = 1 << 61;
/// Where root page tables begin in physical memory.
const ROOT_TABLES: u64 = 1 << 16;
/// The logarithm of the bytes of a page-table entry.
const PTE_LOG2: u32 = 2;

/// A segment of the global space, dense from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SegmentId(u32);

/// An effective segment of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key(u64);

const NOBODY: Key = Key(u64::MAX);

impl Key {
    #[inline(always)]
    fn new(process: ProcessId, segment: u64) -> Self {
        Key(u64::from(process.0) << PROCESS_SHIFT | segment)
    }
}

/// Which global segments the processes have.
pub struct Space {
    line_log2: u32,
    /// By side, the segment that was referenced last, and where it begins.
    recent: [(Key, u64); 2],
    segments: FxHashMap<Key, SegmentId>,
    /// By segment.
    keys: Vec<Key>,
    registers: [Key; REGISTERS],
    reloads: u64,
}

impl Space {
    /// No segment is used. Accesses are to lines of so many bytes.
    pub fn new(line_bytes: u64) -> Self {
        Space {
            line_log2: line_bytes.trailing_zeros(),
            recent: [(NOBODY, 0); 2],
            segments: FxHashMap::default(),
            keys: Vec::new(),
            registers: [NOBODY; REGISTERS],
            reloads: 0,
        }
    }

    /// The global address of the line of an access.
    #[inline(always)]
    pub fn of_access(&mut self, process: ProcessId, access: LineAccess) -> GlobalAddr {
        let shift = SEGMENT_LOG2 - self.line_log2;
        let (line, side) = (access.line(), access.side());
        let key = Key::new(process, line >> shift);
        let (held, base) = self.recent[side];
        let base = if held == key { base } else { self.enter(side, key) };
        GlobalAddr::new(base | (line & ((1 << shift) - 1)) << self.line_log2)
    }

    /// A side goes on in another segment.
    #[inline(never)]
    fn enter(&mut self, side: usize, key: Key) -> u64 {
        let register = &mut self.registers[key.0 as usize % REGISTERS];
        if *register != key {
            self.reloads += 1;
            let lost = std::mem::replace(register, key);
            for recent in self.recent.iter_mut().filter(|recent| recent.0 == lost) {
                recent.0 = NOBODY;
            }
        }
        let base = u64::from(self.segment(key).0) << SEGMENT_LOG2;
        self.recent[side] = (key, base);
        base
    }

    fn segment(&mut self, key: Key) -> SegmentId {
        let next = SegmentId(self.keys.len() as u32);
        let id = *self.segments.entry(key).or_insert(next);
        if id == next {
            self.keys.push(key);
        }
        id
    }

    /// The global address of a base page of a process.
    pub fn of_page(&mut self, process: ProcessId, page: PageNumber) -> GlobalAddr {
        let shift = SEGMENT_LOG2 - u32::from(PageSize::BASE.log2());
        let id = self.segment(Key::new(process, page.raw() >> shift));
        let offset = (page.raw() & ((1 << shift) - 1)) << PageSize::BASE.log2();
        GlobalAddr::new(u64::from(id.0) << SEGMENT_LOG2 | offset)
    }

    /// The base page of a process that has a global address.
    pub fn page_of(&self, addr: GlobalAddr) -> PageOf {
        let shift = SEGMENT_LOG2 - u32::from(PageSize::BASE.log2());
        let key = self.keys[(addr.raw() >> SEGMENT_LOG2) as usize].0;
        let segment = key & ((1 << PROCESS_SHIFT) - 1);
        let page = addr.raw() >> PageSize::BASE.log2() & ((1 << shift) - 1);
        PageOf {
            process: ProcessId((key >> PROCESS_SHIFT) as u16),
            page: PageNumber::new(segment << shift | page),
        }
    }

    /// How many segments have been used.
    pub fn segments(&self) -> u64 {
        self.keys.len() as u64
    }

    /// How often a segment register was loaded.
    pub fn reloads(&self) -> u64 {
        self.reloads
    }
}

/// The address of an entry of the global page table, the *UPTE* of an address in a segment (Figure 7,
/// step 1): its page's number chooses it, and the two lowest bits are 0.
pub fn user_entry(addr: GlobalAddr) -> GlobalAddr {
    GlobalAddr::new(TABLE | addr.raw() >> PageSize::BASE.log2() << PTE_LOG2)
}

/// The physical address of the entry of a root page table, the *URPT*, that maps the page of the UPTE of
/// an address (Figure 7, step 2). Each segment has a group of 64 of them, 256 bytes; the groups of a
/// process lie as its segments were first used, where the paper's lie as the effective address says.
pub fn root_entry(addr: GlobalAddr) -> PhysAddr {
    let pages_log2 = 2 * u32::from(PageSize::BASE.log2()) - PTE_LOG2;
    PhysAddr::new(ROOT_TABLES + (addr.raw() >> pages_log2 << PTE_LOG2))
}

/// A physical address that may be cached, as virtual caches see it.
pub fn physical(addr: PhysAddr) -> GlobalAddr {
    GlobalAddr::new(PHYSICAL | addr.raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::Kind;

    fn access(addr: u64) -> LineAccess {
        LineAccess::new(addr >> 4, Kind::Load, false, 0)
    }

    #[test]
    fn each_effective_segment_of_each_process_has_one_of_its_own() {
        let mut space = Space::new(16);
        let [one, two] = [ProcessId(0), ProcessId(1)];
        let addr = |space: &mut Space, process, addr| space.of_access(process, access(addr)).raw();
        assert_eq!(addr(&mut space, one, 0x7fff_ffff_e010), 0x0fff_e010);
        assert_eq!(addr(&mut space, one, 0x7ffe_ffff_e010), 0x1fff_e010);
        assert_eq!(addr(&mut space, two, 0x7fff_ffff_e010), 0x2fff_e010);
        assert_eq!(addr(&mut space, one, 0x7fff_f000_0000), 0);
        let page = PageNumber::new(0x7_ffff_fffe);
        assert_eq!(space.of_page(two, page), GlobalAddr::new(0x2fff_e000));
        assert_eq!(space.page_of(GlobalAddr::new(0x2fff_e123)), PageOf { process: two, page });
        assert_eq!(space.segments(), 3);
        // Segments of the same low four bits share a register.
        assert_eq!(space.reloads(), 4);
    }

    /// Section 4.2: each 4 KiB of entries maps 4 MiB, and each root entry those.
    #[test]
    fn entries_lie_as_figure_7_says() {
        let addr = GlobalAddr::new(0x1234_5678);
        assert_eq!(user_entry(addr).raw(), TABLE | 0x1_2345 << 2);
        assert_eq!(root_entry(addr).raw(), ROOT_TABLES + (0x1234_5678 >> 22) * 4);
        let next_segment = GlobalAddr::new(0x1_0000_0000);
        assert_eq!(root_entry(next_segment).raw() - ROOT_TABLES, 16 * 256);
    }
}
