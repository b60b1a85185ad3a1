//! Translations by page tables: the process' own table and, in a guest, the host's.

use octavo_os::page_table::{PageTable, Range, Walk};
use octavo_os::{Memory, ProcessId};
use octavo_types::{FrameNumber, PageNumber};

use super::{Env, guest_page};
use crate::tlb::Translation;

impl Env {
    /// The host's memory, and the process in it that is the virtual machine, if there is a host.
    pub(crate) fn host_memory(&self) -> Option<(&Memory, ProcessId)> {
        Some(self.host.as_ref()?.memory())
    }

    /// The page tables that translate a mapped base page, each with the page number that it translates: the process'
    /// table and, in a guest, the host's table with the guest-physical page, if the guest maps the page.
    pub fn tables(&self, page: PageNumber) -> impl Iterator<Item = (&PageTable, PageNumber)> {
        let own = &self.os.memory().process(self.process).table;
        let backing = self.host.as_ref().and_then(|host| {
            let leaf = own.leaf(page)?;
            Some((host.table(), guest_page(leaf.frame_of(page))))
        });
        [(own, page)].into_iter().chain(backing)
    }

    /// The translation of a base page of a process by its page table, composed with the host's in a guest.
    /// The process need not be running. `None` if it has exited or the page is not mapped.
    pub(crate) fn translation(&self, process: ProcessId, page: PageNumber) -> Option<Translation> {
        let memory = self.os.memory();
        if !memory.live().any(|live| live == process) {
            return None;
        }
        let own = Translation::of(&memory.process(process).table.leaf(page)?, false);
        let Some(host) = &self.host else { return Some(own) };
        let backing = host.table().leaf(guest_page(own.frame_of(page)))?;
        Some(self.compose(page, own, Translation::of(&backing, false)))
    }

    /// Whether a walk of the running process' table causes no page fault in the host, if there is one: the host maps
    /// all nodes that the walk reads as writable, and maps the page that the walk finds.
    pub(in crate::env) fn host_has(&self, walk: &Walk, page: PageNumber) -> bool {
        let Some(host) = &self.host else { return true };
        let backs = |frame, stores: bool| {
            let leaf = host.table().leaf(guest_page(frame));
            leaf.is_some_and(|leaf| leaf.rights.write || !stores)
        };
        walk.steps().iter().all(|step| backs(step.at.frame(), true))
            && walk.leaf.is_none_or(|leaf| backs(leaf.frame_of(page), false))
    }

    /// The base frame that a store of the running process to a base page would copy now.
    pub(crate) fn source_of_copy(&self, page: PageNumber) -> Option<FrameNumber> {
        let frame = self.os.memory().source_of_copy(self.process, page)?;
        self.machine_frame(frame)
    }

    /// The machine frame of a frame of the operating system; in a guest, the host frame that backs it, if
    /// mapped.
    pub(in crate::env) fn machine_frame(&self, frame: FrameNumber) -> Option<FrameNumber> {
        match &self.host {
            Some(host) => host.backing_frame(guest_page(frame)),
            None => Some(frame),
        }
    }

    /// The range of the running process that holds a base page, if its operating system keeps ranges: pages
    /// that are contiguous in memory as in the address space, with equal permissions. In a guest, the
    /// intersection of a guest range and a host range, with permissions that both allow.
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
        let frame = FrameNumber::new(frame.raw() - before);
        Some(Range { pages, frame, rights })
    }

    /// The number of ranges of the running process and, in a guest, of the host; `None` if the operating
    /// system keeps no ranges.
    pub fn ranges(&self) -> Option<(u64, Option<u64>)> {
        let own = self.os.memory().process(self.process).table.ranges()?;
        let backing = self.host.as_ref().and_then(|host| host.table().ranges());
        Some((own.len() as u64, backing.map(|ranges| ranges.len() as u64)))
    }
}
