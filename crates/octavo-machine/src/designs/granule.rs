//! Machines with a further page size in their base-page arrays, such as arm64's contiguous entries and
//! RISC-V's Svnapot: the arrays for 4 KiB pages also hold pages of that size, one entry each.

use octavo_config::{FirstLevel, PageSizes, TlbConfig, TlbLevel};
use octavo_types::PageSize;

/// The TLBs of a machine with `sizes` added to its arrays for 4 KiB pages.
pub fn tlbs(machine: &TlbConfig, sizes: &[PageSize]) -> TlbConfig {
    let mut tlbs = machine.clone();
    match &mut tlbs.first {
        FirstLevel::Split { l1i, l1d } => {
            hold(l1i, sizes);
            hold(l1d, sizes);
        }
        FirstLevel::Unified { l1 } => hold(l1, sizes),
    }
    tlbs.l2.iter_mut().for_each(|l2| hold(l2, sizes));
    tlbs
}

fn hold(level: &mut TlbLevel, sizes: &[PageSize]) {
    let is_new = |size: &&PageSize| !level.arrays.values().any(|of| of.page_sizes.hold(**size));
    let new: Vec<PageSize> = sizes.iter().filter(is_new).copied().collect();
    for array in level.arrays.values_mut() {
        if let PageSizes::List(held) = &mut array.page_sizes
            && held.contains(&PageSize::BASE)
        {
            held.extend(&new);
            held.sort_unstable();
        }
    }
}
