//! Global addresses.

use octavo_machine::designs::softvm::Sharing;
use octavo_os::ProcessId;
use octavo_types::PageNumber;

use super::Naive;

/// The memory of a global segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment {
    /// A segment of a process.
    Own(ProcessId, u64),
    /// An aligned part of 256 MiB of a file or of shared memory.
    Shared(u32, u64),
}

impl Naive {
    /// The segment of an address, and the offset in it.
    pub fn place(&self, process: ProcessId, addr: u64) -> (Segment, u64) {
        if let Some((object, at)) = self.shared_at(process, addr)
            && self.softvm.kernel.sharing == Sharing::Global
        {
            return (Segment::Shared(object, at >> 28), at & 0xfff_ffff);
        }
        (Segment::Own(process, addr >> 28), addr & 0xfff_ffff)
    }

    /// The shared object at an address, and the offset in it.
    pub fn shared_at(&self, process: ProcessId, addr: u64) -> Option<(u32, u64)> {
        let page = PageNumber::new(addr >> 12);
        let (_, vma) = self.os.memory().process(process).vmas.find(page)?;
        let (object, origin) = vma.shared_object()?;
        Some((object.0, addr.wrapping_sub(origin << 12)))
    }

    /// The frame of a page that this or another process has faulted in.
    pub fn frame(&self, process: ProcessId, page: u64) -> u64 {
        let memory = self.os.memory();
        let number = PageNumber::new(page);
        let leaf = memory.process(process).table.leaf(number);
        let frame = leaf.map(|leaf| leaf.frame_of(number)).or_else(|| {
            let (object, at) = self.shared_at(process, page << 12)?;
            memory.object_page(octavo_os::vmas::ObjectId(object), at >> 12)
        });
        frame.expect("it is mapped").raw()
    }

    /// Loads a segment into its register, one of sixteen.
    pub fn load_register(&mut self, segment: Segment) {
        let number = match segment {
            Segment::Own(_, number) => number,
            Segment::Shared(object, part) => u64::from(object) + part,
        };
        let register = &mut self.registers[number as usize % 16];
        if *register != Some(segment) {
            *register = Some(segment);
            self.count("softvm.segments", "reloads", 1);
        }
    }

    /// Translates an address to the global space: segments are numbered in order of first use.
    pub fn global(&mut self, process: ProcessId, addr: u64) -> u64 {
        let (segment, at) = self.place(process, addr);
        let known = self.segments.iter().position(|known| *known == segment);
        let id = known.unwrap_or_else(|| {
            self.segments.push(segment);
            self.segments.len() - 1
        });
        (id as u64) << 28 | at
    }
}
