//! That designs translate as page tables do.

use octavo_types::FrameNumber;

use super::Env;
use crate::front::LineAccess;

impl Env {
    /// That the page of an access lies in `frame` is what the page table says, too; in a guest, its
    /// own and the host's.
    ///
    /// # Panics
    /// Where it is not.
    #[inline(never)]
    pub(crate) fn check(&self, access: LineAccess, frame: FrameNumber) {
        let page = self.page(access);
        let mut lies_in = None;
        for (table, of) in self.tables(page) {
            let leaf = table.leaf(of).expect("what was translated is mapped");
            let may_store = leaf.rights.write || !access.is_store();
            assert!(may_store, "page {:#x} is not to be stored to", page.raw());
            lies_in = Some(leaf.frame_of(of));
        }
        assert_eq!(Some(frame), lies_in, "page {:#x} lies elsewhere", page.raw());
    }

    /// That the page of an access, which a mapping of the process that runs shares with others, lies in
    /// `frame` is what the operating system says of that memory, and in a guest the host; the process' own
    /// table may not have it, and who may store to it is not asked.
    ///
    /// # Panics
    /// Where it does not.
    pub(crate) fn check_shared(&self, access: LineAccess, frame: FrameNumber) {
        let (page, memory) = (self.page(access), self.os.memory());
        let mapping = memory.process(self.process).vmas.find(page);
        let of = mapping.and_then(|(_, vma)| vma.shared_object());
        let (object, origin) = of.expect("the mapping is there, and it is shared");
        let lies_in = memory.object_page(object, page.raw().wrapping_sub(origin));
        let lies_in = lies_in.and_then(|frame| self.machine_frame(frame));
        assert_eq!(Some(frame), lies_in, "page {:#x} lies elsewhere", page.raw());
    }
}
