//! Direct memory translation (DMT; Zhang, Jia, Chai, Liu, Kim and Xu, "Direct Memory Translation for Virtualized Clouds",
//! ASPLOS 2024): the last-level entries of a large mapping are contiguous, so that hardware computes the address of a
//! page's entry, and a walk is one read.
//!
//! - Page tables are the radix trees of x86-64. For a large mapping the operating system reserves a *translation entry
//!   area* (TEA), contiguous memory with a place for each node of level 1: 4 KiB for each 2 MiB. The distance of an
//!   entry from the first is 8 bytes for each page between them. Pages of 2 MiB have an area of their own, for nodes of
//!   level 2.
//! - A core has registers, each with the bounds of a part of the address space and the first entries of its areas. On a
//!   miss of the second-level TLB in such a part, hardware reads the entries of both sizes together, if the part has
//!   areas for both; the slower read counts. An address in no part is *uncovered*: the radix tree is walked, through
//!   the walk caches.
//! - Mappings share an area and a register if they occupy nearly all addresses from the first to the last. Addresses
//!   between mappings that share one already count as occupied, as in the authors' kernel. Small mappings have no area,
//!   nor has a mapping for which no register is left.
//! - A mapping that grows beyond its area gets a new one, twice as long, into which the nodes move. Each move copies
//!   512 entries.
//! - In a guest, both tables have areas. A walk reads the guest's entry and the host's entry of the page: two reads, if
//!   the guest has made its area contiguous in the host's memory by a hypercall (*pvDMT*, `dmt.paravirtual`). Otherwise
//!   it takes three reads, as the host's table must translate the address of the guest's entry.
//!
//! If the reads in an area do not find the page, the walk continues in the radix tree, which finds it elsewhere or ends
//! in a page fault. A reference to a covered page that is not mapped yet thus costs one more read than on a machine
//! without areas, unless the area has no place for the entry.
//!
//! Assumptions: the paper's abstract and the authors' kernel and evaluation (`xlab-uiuc/dmt`, commit 80328c2) were
//! available, the text of the paper was not. From the kernel are the number of registers, the smallest mapping, the
//! share of addresses for mappings to share an area, that registers go to mappings as their pages are first used, that
//! an area is made then, for the whole mapping, and that it doubles as it grows. From the evaluation are the reads of a
//! walk: one entry, two for pvDMT, three for DMT in a guest. The kernel has no areas of level 2; these, and that both
//! sizes are read together, are from other authors' accounts of the paper. Here an area of level 2 is made with the
//! first page of 2 MiB, and one of level 1 with the first node, so that a part with pages of one size has a single
//! read. The walk after a read that finds nothing is assumed. The kernel grows an area in place if the frames after it
//! are free; here all nodes always move. Existing nodes move into a new area, too; the kernel leaves them outside.
//! Nodes of level 2 that are in the area of another mapping stay there. If an area needs a single node, that node is
//! the area, wherever it is, and mappings share it. An area takes a 64th of memory at most, and lasts until nothing is
//! mapped in its part; the kernel frees it with its last node. A mapping is a mapping of Linux: `mprotect` and
//! `madvise` split it, and each part counts by its own size from its next node on, as does a mapping that grows. A part
//! stays in the area that it is in; the kernel places later nodes of a part below the least size elsewhere. When
//! `mremap` moves a mapping, the old one has left its area before the pages move, so that a register that it alone had
//! is free for the new one. Registers are those of the running process, and change at no cost. Moving a node flushes no
//! TLB, as it changes no translation, and walk caches follow a moved node at no cost; the kernel flushes the TLB
//! entries of the mapping. The operating system's work takes no time. The host backs an area of a guest contiguously if
//! the guest has used none of its frames before, and if the host has the memory. Pages of 1 GiB have no area. Nested
//! guests, in which DMT reads three entries, are left out.

mod areas;
#[cfg(test)]
mod naive;
mod nodes;
mod settings;
mod tables;

use std::sync::Arc;

use octavo_config::{DesignTable, MachineConfig};
use octavo_os::policy::OsConfig;

use self::settings::DmtSettings;
use self::tables::{Tables, Way};
use crate::counters::Counters;
use crate::designs::build::{self, HardwareFormat};
use crate::designs::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use crate::env::{WalkPlan, WalkRequest, Walker};

/// Page tables whose last-level entries hardware finds without a walk.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<DmtSettings>()),
    ..Family::new(
        &[TranslationHardware::new("dmt", make)],
        &[NamedDesign { name: "dmt", hardware: "dmt", policy: "base", about: "DMT: last-level entries of large mappings side by side, found without a walk", figure: "translation" }],
    )
};

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let rules = *config.designs.get::<DmtSettings>();
    let hardware = HardwareFormat {
        table: Some(Arc::new(move |levels, frames| Box::new(Tables::new(rules, levels, frames)))),
        walker: |_| Box::new(DirectWalker::default()),
    };
    let hardware = (rules.registers > 0).then_some(hardware);
    build::conventional(config, setup, build::Tables { hardware, ..build::Tables::default() }, os)
}

/// The walker of a core. It counts walks by where they have found the entry.
#[derive(Default)]
struct DirectWalker {
    in_area: u64,
    outside_area: u64,
    uncovered: u64,
}

impl Walker for DirectWalker {
    fn plan(&mut self, request: &WalkRequest<'_>, plan: &mut WalkPlan) {
        let (table, page) = (request.table().hardware::<Tables>(), request.page);
        plan.entry = table.nodes().entry(page);
        let way = table.way(page);
        if let Way::InArea(places) | Way::OutsideArea(places) = &way {
            for at in places.iter().flatten() {
                match table.rules.paravirtual {
                    true => plan.probe_in_run(*at),
                    false => plan.probe(*at),
                }
            }
        }
        let count = match way {
            Way::InArea(_) => {
                self.in_area += 1;
                return;
            }
            Way::OutsideArea(_) => &mut self.outside_area,
            Way::Uncovered => &mut self.uncovered,
        };
        *count += 1;
        plan.radix(table.nodes().walk(page));
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        let walks = [
            ("in_area", self.in_area),
            ("outside_area", self.outside_area),
            ("uncovered", self.uncovered),
        ];
        for (name, count) in walks {
            counters.add(&format!("{component}.walks"), name, count);
        }
    }

    fn uses_walk_caches(&self) -> bool {
        true
    }
}
