//! Checks of translations against the page tables.

use octavo_types::FrameNumber;

use super::Env;
use crate::front::LineAccess;

impl Env {
    /// Checks that the page of an access lies in `frame` and permits it, by the page table; in a guest, by
    /// the guest's and the host's.
    ///
    /// # Panics
    /// If it does not.
    #[inline(never)]
    pub(crate) fn check(&self, access: LineAccess, frame: FrameNumber) {
        let page = self.page(access);
        let mut lies_in = None;
        for (table, table_page) in self.tables(page) {
            let leaf = table.leaf(table_page).expect("a translated page is mapped");
            let may_store = leaf.rights.write || !access.is_store();
            assert!(may_store, "page {:#x} is not to be stored to", page.raw());
            lies_in = Some(leaf.frame_of(table_page));
        }
        assert_eq!(Some(frame), lies_in, "page {:#x} lies elsewhere", page.raw());
    }

    /// Checks that the page of an access to shared memory lies in `frame`, by the operating system's record
    /// of the shared object and, in a guest, the host's table. The process' own table may not hold the page,
    /// and store permission is not checked.
    ///
    /// # Panics
    /// If it does not.
    pub(crate) fn check_shared(&self, access: LineAccess, frame: FrameNumber) {
        let (page, memory) = (self.page(access), self.os.memory());
        let mapping = memory.process(self.process).vmas.find(page);
        let shared = mapping.and_then(|(_, vma)| vma.shared_object());
        let (object, origin) = shared.expect("the mapping is there, and it is shared");
        let lies_in = memory.object_page(object, page.raw().wrapping_sub(origin));
        let lies_in = lies_in.and_then(|frame| self.machine_frame(frame));
        assert_eq!(Some(frame), lies_in, "page {:#x} lies elsewhere", page.raw());
    }
}
