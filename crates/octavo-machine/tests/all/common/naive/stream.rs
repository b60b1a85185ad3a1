//! Feeds a stream to a naive machine.

use octavo_os::ProcessId;
use octavo_types::{AddrRange, Consumer, Event, Item, ItemKind, Segment, VirtAddr};

use super::{NaiveMachine, PROCESS};

impl Consumer for NaiveMachine {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let mut addresses = addresses.iter();
        for Item { kind, guarded, size_bytes, addr, .. } in segment.items() {
            if *kind == ItemKind::Fetch {
                self.site = addr.raw();
                self.reference(*kind, *addr, *size_bytes);
                continue;
            }
            let addr = *addresses.next().unwrap();
            if *guarded && addr == VirtAddr::NULL {
                continue;
            }
            if *kind != ItemKind::Store {
                self.reference(ItemKind::Load, addr, *size_bytes);
            }
            if *kind != ItemKind::Load {
                self.reference(ItemKind::Store, addr, *size_bytes);
            }
        }
    }

    fn event(&mut self, event: &Event) {
        let event = masked(event, self.page_mask);
        self.os.event(PROCESS, &event).unwrap();
        self.apply_invalidations();
        if let Event::Present { range, known: true, .. } = event
            && self.host.is_some()
        {
            let (start, end) = (range.start().raw(), range.start().raw() + range.bytes());
            (start >> 12..end.div_ceil(4096)).for_each(|page| self.present_in_host(page));
        }
    }
}

impl NaiveMachine {
    /// Runs the background work.
    pub fn background(&mut self, instructions: u64) {
        self.os.background(instructions);
        self.apply_invalidations();
        self.host_background(instructions);
    }

    /// Forks the process; the child never runs.
    pub fn fork(&mut self) {
        self.os.fork(PROCESS).unwrap();
        self.apply_invalidations();
    }

    /// Ends the child of [`fork`](Self::fork).
    pub fn end_child(&mut self) {
        self.os.end(ProcessId(1));
        self.os.take_invalidations();
    }
}

/// The event with its addresses cut to the bits that the page table translates.
fn masked(event: &Event, page_mask: u64) -> Event {
    let mask = page_mask << 12 | 4095;
    let cut = |range: &AddrRange| {
        let start = range.start().raw() & mask;
        AddrRange::new(VirtAddr::new(start), range.bytes().min(mask - start + 1))
    };
    let mut event = event.clone();
    match &mut event {
        Event::Map { range, .. }
        | Event::Unmap { range }
        | Event::Protect { range, .. }
        | Event::Present { range, .. }
        | Event::Advise { range, .. } => *range = cut(range),
        Event::Remap { from, to } => (*from, *to) = (cut(from), cut(to)),
        _ => {}
    }
    event
}
