//! Address translation with prefetching (ASAP; Margaritov, Ustiugov, Bugnion and Grot, "Prefetched Address Translation",
//! MICRO 2019): page tables lie in memory in the order of the addresses that they map, so that hardware prefetches the
//! last entries of a walk while it reads the first ones.
//!
//! - For each large mapping, an *area*, the operating system reserves a region of contiguous memory for the nodes of level
//!   1 of its page table, and one for those of level 2, and makes each node at its place. Regions take memory
//!   (`page_table_bytes`): 4 KiB for each 2 MiB, and for each 1 GiB, of the area.
//! - A core has registers with the bounds of areas and the addresses of their regions. A miss of the second-level TLB in
//!   an area prefetches the lines of both entries, at base plus offset, as the walk begins.
//! - The walk proceeds as usual, through walk caches and from entry to entry, and only its result is used: a wrong or
//!   useless prefetch costs bandwidth and space in caches. Page tables, TLBs and the permissions of pages are those of
//!   x86-64.
//! - In a guest, both tables may be sorted. The walk of the guest's table prefetches its entries as it begins; the host
//!   has backed the guest's regions with contiguous memory, and the registers have host-physical addresses, so that a
//!   prefetch needs no walk of the host's table. Each walk of the host's table prefetches the host's entries. The
//!   memory of the virtual machine is one area of the host.
//!
//! **Time.** Both prefetches are sent with the first read of a walk, and their lines arrive as other lines do. The read
//! of a prefetched entry ends when its line has arrived, and no sooner than a hit in the cache from which walks read.
//! Without walk caches, with *L* cycles for memory and *h* for a hit, a walk of four entries thus takes 2 *L* + 2 *h*,
//! not 4 *L*. After a hit in the walk cache of level 2, which leaves the last entry, nothing is gained: prefetch and
//! read begin together. A prefetch that the walk does not use delays neither this walk nor a later one. Additive and
//! overlapped timing use this latency as that of any walk. Out of order, an idle memory gives the same latency. Lines
//! read from DRAM, including those of prefetches, use its banks and channels, and their waiting time there is added to
//! the walk, even for a prefetch whose wait would be hidden. Prefetches take none of the core's places for outstanding
//! misses.
//!
//! Assumptions: the paper's abstract and other authors' descriptions were available, its text was not. From memory are
//! the number of registers (the paper finds that sixteen areas cover nearly all memory of its programs), the prefetch
//! of both levels on each miss whatever the walk caches hold, and that guest and host can each have either level: the
//! paper compares P1g, P1g + P2g, P1g + P1h and all four. The smallest area is assumed. An area is a mapping when it is
//! made, or the part by which a mapping grows, and lasts until nothing is mapped there. It has a region for each level;
//! otherwise it is not an area. `mprotect` and `madvise`, which split a mapping, leave its area whole, as its entries
//! stay where they are; if the mapping was too large for an area, each part may become one, as may the parts that
//! `munmap` leaves. When `mremap` moves a mapping, the old area ends before the new one begins. A node that existed
//! before stays where it is, which leaves a hole in the region. A region takes at most a 64th of memory, so that a
//! mapping much larger than memory, which a program can hardly use, is not an area; and there are at most 1024 areas.
//! The registers have the largest areas of the running process, and change at no cost. If the guest has used memory of
//! a region before, so that the host has backed it page by page, the entries of the region are not prefetched;
//! otherwise the host maps it in pages of 4 KiB. Areas of pages of 2 MiB have places for nodes of level 1, too, and
//! prefetches of their entries are useless.

#[cfg(test)]
mod naive;
mod settings;

use octavo_config::{DesignTable, MachineConfig};
use octavo_os::page_table::{Format, SortedFormat};
use octavo_os::policy::OsConfig;
use octavo_types::PageSize;

use super::build::{self, Tables};
use super::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use settings::AsapSettings;

/// Page tables whose last entries are prefetched.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<AsapSettings>()),
    ..Family::new(
        &[TranslationHardware::new("asap", make)],
        &[NamedDesign { name: "asap", hardware: "asap", policy: "base", about: "ASAP: sorted page tables, whose last two entries are prefetched as a walk begins", figure: "translation" }],
    )
};

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let AsapSettings { registers, min_bytes, leaf, upper, host_leaf, host_upper } =
        *config.designs.get::<AsapSettings>();
    let format = |levels: [bool; 2]| {
        let sorted = SortedFormat {
            levels,
            min_pages: min_bytes / PageSize::BASE.bytes(),
            registers: registers as usize,
        };
        let is_used = registers > 0 && levels.contains(&true);
        Format { sorted: is_used.then_some(sorted), ..Format::default() }
    };
    let tables = Tables {
        format: format([leaf, upper]),
        host_format: Some(format([host_leaf, host_upper])),
        ..Tables::default()
    };
    build::conventional(config, setup, tables, os)
}
