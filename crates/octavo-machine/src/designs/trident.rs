//! Trident (Ram, Panwar and Basu, "Trident: Harnessing Architectural Resources for All Page Sizes in x86 Processors",
//! MICRO 2021): the conventional design under an operating system that gives programs pages of 1 GiB, then of 2 MiB,
//! then of 4 KiB.
//!
//! - A fault maps 1 GiB if the aligned range lies in its mapping, nothing of it is mapped, and a block is free. Otherwise
//!   it maps 2 MiB or 4 KiB, as Linux's transparent huge pages do.
//! - Free blocks of 1 GiB are cleared in the background, so that a fault need not clear its page.
//! - `khugepaged` collapses an aligned 1 GiB whose pages are private, if no more than `max_ptes_none_largest` base pages
//!   are missing. Without a free block it compacts memory; where that does not help, or 1 GiB does not fit, it collapses
//!   ranges of 2 MiB.
//! - *Smart compaction* frees the 1 GiB of physical memory with the least data and without an unmovable frame. The data
//!   moves to the regions with the fewest free frames. After failures it is deferred, as Linux defers compaction.
//! - In a guest with `exchange` set (Trident-pv), a hypercall has the host exchange the memory behind a page and behind
//!   its new place, in place of a copy.
//!
//! The text of the paper was not available; its abstract and the authors' kernel (Linux 4.17.3) were read. From the
//! kernel: the conditions of faults and of promotion, the limit of missing pages (all but one), 2 GiB in each scan,
//! compaction at faults by the setting `defrag`, clear blocks first, the regions of smart compaction and that it moves
//! base pages alone, 512 exchanges in a hypercall.
//!
//! It differs from that kernel where noted here. The kernel's scan leaves a GiB that it could not collapse for lack of a
//! block, without looking at its ranges of 2 MiB. The kernel collapses memory only if it was accessed lately. It finds
//! unmovable frames by failing to move them, and then leaves the region alone for two minutes; here they are known. Its
//! thread that clears memory was not published: blocks that are free at the start are clear, and the pace is assumed
//! (one block in 300 million instructions, which is 1 GiB in 0.1 s). It exchanges base pages one by one; here they share
//! hypercalls, too. The host refuses to exchange a page that it maps as a part of a larger one, and the guest copies, as
//! there. If the host has not given memory to the new place, that kernel copies as well; here the page moves there, since
//! in a simulation the guest's operating system touches no memory. Background memory of the guest is always copied.

use super::registry::{Family, NamedDesign};

/// The conventional design with pages of 1 GiB.
#[rustfmt::skip]
pub const FAMILY: Family = Family::new(
    &[],
    &[NamedDesign { name: "trident", hardware: "conventional", policy: "trident", about: "transparent pages of 1 GiB, then 2 MiB, then 4 KiB", figure: "huge-pages" }],
);
