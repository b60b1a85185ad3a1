//! Memory that a process has already when its trace begins.

use octavo_os::base_pages;
use octavo_os::vmas::Pages;
use octavo_types::{Event, PageNumber};

use super::{Env, guest_page};

impl Env {
    /// Has the operating system map memory that the running process has already: `event`, whose base pages are `pages`.
    /// In a guest, the host maps the pages behind this memory and behind the page-table nodes that lead to it. None of
    /// this is counted. `None` when memory has run out.
    pub(crate) fn present(&mut self, event: &Event, pages: &Pages) -> Option<()> {
        let process = self.process;
        let interrupted = self.interrupted;
        let done = self.with_os(|os| os.event(process, event));
        self.interrupted = interrupted;
        done?;
        let Some(host) = &self.host else { return Some(()) };
        let interrupted = host.interrupted;
        let done = self.back_present(pages);
        self.host.as_mut().expect("it has just been there").interrupted = interrupted;
        done
    }

    /// Has the host map the pages that back the mapped pages of a range and the page-table nodes that lead to them.
    fn back_present(&mut self, pages: &Pages) -> Option<()> {
        let process = self.process;
        for leaf in self.os.memory().leaves(process, pages) {
            let end = (leaf.page.raw() + base_pages(leaf.size)).min(pages.end);
            let first = PageNumber::new(leaf.page.raw().max(pages.start));
            for step in self.table_walk(first).steps() {
                let node = guest_page(step.at.frame());
                if self.host().table().leaf(node).is_none() {
                    self.with_host(|host, _| host.present(&(node.raw()..node.raw() + 1)))?;
                }
            }
            let backing = guest_page(leaf.frame_of(first)).raw();
            let backing = backing..backing + (end - first.raw());
            self.with_host(|host, _| host.present(&backing))?;
        }
        Some(())
    }
}
