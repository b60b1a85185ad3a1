//! A small memory with one process, for tests of single operations.

use octavo_os::frames::{Frames, MemoryShape, Order};
use octavo_os::page_table::{Format, Leaf};
use octavo_os::vmas::{Advice, Backing, Vma};
use octavo_os::{Memory, Os, ProcessId};
use octavo_types::{AddrRange, Event, MapSource, PageNumber, PageSize, Protection, VirtAddr};

pub const RW: Protection = Protection { read: true, write: true, execute: false };
pub const R: Protection = Protection { read: true, write: false, execute: false };
pub const SIZE_32K: PageSize = PageSize::from_log2(15).unwrap();

/// A base page.
pub fn page(raw: u64) -> PageNumber {
    PageNumber::new(raw)
}

/// A memory of `frames` with an empty process and page sizes of 4 KiB, 32 KiB, 2 MiB and 1 GiB.
pub fn memory(frames: u64) -> (Memory, ProcessId) {
    let frames = Frames::new(MemoryShape::new(frames, Order::LARGEST).unwrap());
    let sizes = [SIZE_32K, PageSize::HUGE, PageSize::LARGEST];
    let mut memory = Memory::new(frames, &sizes, Format::default());
    let process = memory.spawn().unwrap();
    (memory, process)
}

/// Maps a new page.
pub fn place(memory: &mut Memory, process: ProcessId, at: u64, size: PageSize) {
    memory.place_new(process, page(at), size, RW).unwrap();
}

/// The page mapped at a base page.
pub fn leaf(memory: &Memory, process: ProcessId, at: u64) -> Leaf {
    memory.process(process).table.leaf(page(at)).unwrap()
}

/// An anonymous mapping.
pub fn vma(os: &mut Os, process: ProcessId, at: u64, pages: u64) {
    let range = AddrRange::new(VirtAddr::new(at << 12), pages << 12);
    let source = MapSource::Anonymous;
    os.event(process, &Event::Map { range, protection: RW, source, flags: 2 }).unwrap();
}

/// An anonymous mapping with these permissions.
pub fn vma_of(rights: Protection) -> Vma {
    Vma { rights, backing: Backing::Anonymous, advice: Advice::None }
}
