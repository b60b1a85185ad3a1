//! Composite pages: large pages whose base pages need not be contiguous in memory, so that a base page is not found by
//! the page's entry alone. Page tables mark them; a design says how its hardware translates them ([`CompositePages`]).

use octavo_hw::WalkCaches;
use octavo_os::Memory;
use octavo_os::frames::OutOfMemory;
use octavo_os::page_table::PageTable;
use octavo_types::{AddrRange, PageNumber, PhysAddr};

use super::Env;
use super::nested::{Host, Port};
use crate::counters::{Counters, Lookups};
use crate::tlb::Translation;

/// How the hardware of a design translates composite pages.
pub trait CompositePages: Sync {
    /// The composite page of a table that holds a base page, as TLBs hold it; `None` for any other page.
    fn entry(&self, table: &PageTable, page: PageNumber) -> Option<Translation>;

    /// Whether a translation is a composite page.
    fn is_composite(&self, translation: &Translation) -> bool;

    /// Whether more than the entry of the page is needed to find a base page. Only for composite pages.
    fn is_undecided(&self, translation: &Translation, page: PageNumber) -> bool;

    /// Whether the entry of a page does not decide if an access to a base page is permitted. A native walk then ends at
    /// that entry, and a nested one does where the base page is [undecided](Self::is_undecided).
    fn ends_walks(&self) -> bool;

    /// A composite page as a plain page of its size; any other page unchanged.
    fn plain(&self, translation: &Translation) -> Translation;

    /// A plain 2 MiB page that has been composed of a guest page and the host page that backs it, as a composite page if
    /// either of them is one.
    fn compose(&self, page: Translation, guest: &Translation, backing: &Translation)
    -> Translation;

    /// Finds the base page of a guest-physical page in a composite page of the host: the base page, and whether more
    /// than the page's entry was needed. `None` after a page fault: the host's table must be walked again.
    ///
    /// # Errors
    /// If host memory has run out.
    fn find_in_host(
        &self,
        host: &mut Host,
        access: &HostAccess<'_>,
        port: &mut Port<'_>,
        latency_cycles: &mut u32,
    ) -> Result<Option<(Translation, bool)>, OutOfMemory>;

    /// The addresses by which walk caches tag further entries for a range, if the design has such entries.
    fn further_tags(&self, _range: AddrRange) -> Option<AddrRange> {
        None
    }

    /// Adds the counters of walks.
    fn report_walks(&self, env: &Env, counters: &mut Counters);

    /// Adds the counters of an operating system, under components that begin with `component`.
    fn report_memory(&self, component: &str, memory: &Memory, counters: &mut Counters);
}

/// An access to a guest-physical page in a composite page of the host.
pub struct HostAccess<'a> {
    /// The guest-physical page.
    pub page: PageNumber,
    /// The composite page.
    pub translation: &'a Translation,
    /// Whether the access stores.
    pub stores: bool,
    /// Whether no walk has been made for this access yet.
    pub is_new: bool,
}

/// Counters of the hardware for the host's composite pages.
#[derive(Clone, Copy, Default)]
pub struct HostCounts {
    /// Walks for base pages that the page's entry does not lead to.
    pub part_walks: u64,
    /// Look-ups of the registers that hold the place of a guest table of the design.
    pub register: Lookups,
}

impl Env {
    /// Sets how the design translates composite pages, if it has any.
    pub(crate) fn with_composite(mut self, composite: Option<&'static dyn CompositePages>) -> Self {
        self.composite = composite;
        if let Some(host) = &mut self.host {
            host.composite = composite;
        }
        self
    }

    /// Whether programs run in a guest.
    pub(crate) fn is_guest(&self) -> bool {
        self.host.is_some()
    }

    /// The host of the guest that programs run in.
    ///
    /// # Panics
    /// If they run in none.
    pub(crate) fn host(&self) -> &Host {
        self.host.as_ref().expect("a guest has a host")
    }

    /// Counts a walk that the design makes itself. Returns the fixed cost of a walk in cycles.
    pub(crate) fn begin_walk(&mut self) -> u32 {
        self.walker.walks += 1;
        self.walk_overhead_cycles
    }

    /// The walk caches of the running core.
    pub(crate) fn walk_caches(&mut self) -> &mut WalkCaches<()> {
        &mut self.page_walker.caches
    }

    /// Reads the line of a table of the design at a host-physical address, through the data caches. Returns the latency
    /// in cycles.
    pub(crate) fn read_table(&mut self, at: PhysAddr) -> u32 {
        let Env { walker, caches, lines, .. } = self;
        walker.read_table(caches, *lines, at)
    }

    /// Writes an entry if its accessed or dirty bit was set, and charges the latency to the last walk.
    pub(crate) fn write_if(&mut self, is_marked: bool, at: PhysAddr) {
        let Env { walker, caches, lines, .. } = self;
        let latency_cycles = walker.write_if(is_marked, caches, *lines, at);
        self.extend_walk(latency_cycles);
    }

    /// Adds the lines read of the design's tables, as the counter `name`.
    pub(crate) fn report_table_reads(&self, name: &'static str, counters: &mut Counters) {
        counters.add("walker", name, self.walker.table_reads);
        if let Some(host) = &self.host {
            counters.add("walker", name, host.walker.table_reads);
            counters.add("walker.guest", name, self.walker.table_reads);
            counters.add("walker.host", name, host.walker.table_reads);
        }
    }
}
