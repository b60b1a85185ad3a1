//! What page tables say of a page of the process that runs: its own, and the host's where it is in a
//! guest.

use octavo_os::page_table::{PageTable, Range};
use octavo_types::PageNumber;

use super::{Env, guest_page};

impl Env {
    /// The tables that translate a base page that is mapped, each with the page that it translates: the
    /// process' own; in a guest the host's with the guest-physical page, too, once it is mapped.
    pub fn tables(&self, page: PageNumber) -> impl Iterator<Item = (&PageTable, PageNumber)> {
        let own = &self.os.memory().process(self.process).table;
        let behind = self.host.as_ref().and_then(|host| {
            let leaf = own.leaf(page)?;
            Some((host.table(), guest_page(leaf.frame_of(page))))
        });
        [(own, page)].into_iter().chain(behind)
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
            let (behind_before, behind_after, behind) = ranges.next()??;
            frame = behind.frame.plus(behind_before);
            before = before.min(behind_before);
            after = after.min(behind_after);
            rights.write &= behind.rights.write;
            rights.execute &= behind.rights.execute;
        }
        let pages = page.raw() - before..page.raw() + after;
        let frame = octavo_types::FrameNumber::new(frame.raw() - before);
        Some(Range { pages, frame, rights })
    }

    /// How many ranges the process that runs has, and in a guest how many the host has; none where its
    /// operating system keeps no ranges.
    pub fn ranges(&self) -> Option<(u64, Option<u64>)> {
        let own = self.os.memory().process(self.process).table.ranges()?;
        let behind = self.host.as_ref().and_then(|host| host.table().ranges());
        Some((own.len() as u64, behind.map(|ranges| ranges.len() as u64)))
    }
}
