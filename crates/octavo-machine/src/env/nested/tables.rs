//! What page tables say of a page of the process that runs: its own, and the host's where it is in a
//! guest.

use octavo_os::ProcessId;
use octavo_os::page_table::{PageTable, Range};
use octavo_types::{FrameNumber, PageNumber};

use super::{Env, composed, guest_page};
use crate::tlb::Translation;

impl Env {
    /// The tables that translate a base page that is mapped, each with the page that it translates: the
    /// process' own; in a guest the host's with the guest-physical page, too, once it is mapped.
    pub fn tables(&self, page: PageNumber) -> impl Iterator<Item = (&PageTable, PageNumber)> {
        let own = &self.os.memory().process(self.process).table;
        let backing = self.host.as_ref().and_then(|host| {
            let leaf = own.leaf(page)?;
            Some((host.table(), guest_page(leaf.frame_of(page))))
        });
        [(own, page)].into_iter().chain(backing)
    }

    /// What the tables hold of a base page of a process, which need not run, nor live any more: in a guest
    /// what its own and the host's have in common. None where it is not mapped.
    pub(crate) fn translation(&self, process: ProcessId, page: PageNumber) -> Option<Translation> {
        let memory = self.os.memory();
        if !memory.live().any(|lives| lives == process) {
            return None;
        }
        let own = Translation::of(&memory.process(process).table.leaf(page)?, false);
        let Some(host) = &self.host else { return Some(own) };
        let backing = host.table().leaf(guest_page(own.frame_of(page)))?;
        Some(composed(page, own, Translation::of(&backing, false)))
    }

    /// The base frame that would be copied if the process that runs stored to a base page now.
    pub(crate) fn source_of_copy(&self, page: PageNumber) -> Option<FrameNumber> {
        let frame = self.os.memory().source_of_copy(self.process, page)?;
        self.machine_frame(frame)
    }

    /// Where in the machine's memory a frame lies that the operating system has: in a guest, what the
    /// host has behind it, if it has.
    pub(in crate::env) fn machine_frame(&self, frame: FrameNumber) -> Option<FrameNumber> {
        match &self.host {
            Some(host) => host.backing_frame(guest_page(frame)),
            None => Some(frame),
        }
    }

    /// The range of the process that runs which holds a base page, where its operating system keeps
    /// ranges: pages side by side that lie side by side in memory and have the same rights. In a guest
    /// it is what a range of the guest and one of the host's have in common, with the rights that both
    /// allow.
    pub fn range(&self, page: PageNumber) -> Option<Range> {
        let mut ranges = self.tables(page).map(|(table, page)| {
            let range = table.ranges()?.find(page)?;
            Some((page.raw() - range.pages.start, range.pages.end - page.raw(), range))
        });
        let (mut before, mut after, own) = ranges.next()??;
        let (mut frame, mut rights) = (own.frame.plus(before), own.rights);
        if self.host.is_some() {
            let (backing_before, backing_after, backing) = ranges.next()??;
            frame = backing.frame.plus(backing_before);
            before = before.min(backing_before);
            after = after.min(backing_after);
            rights.write &= backing.rights.write;
            rights.execute &= backing.rights.execute;
        }
        let pages = page.raw() - before..page.raw() + after;
        let frame = octavo_types::FrameNumber::new(frame.raw() - before);
        Some(Range { pages, frame, rights })
    }

    /// How many ranges the process that runs has, and in a guest how many the host has; none where its
    /// operating system keeps no ranges.
    pub fn ranges(&self) -> Option<(u64, Option<u64>)> {
        let own = self.os.memory().process(self.process).table.ranges()?;
        let backing = self.host.as_ref().and_then(|host| host.table().ranges());
        Some((own.len() as u64, backing.map(|ranges| ranges.len() as u64)))
    }
}
