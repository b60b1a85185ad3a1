//! The machine's memory as a design reaches it: frames reserved for its tables, read and written through the
//! caches, and lines of the second-level cache that hold translations in place of memory.
//!
//! Lines of translations belong to the second-level cache of a core. The environment drops them as it does entries of
//! walk caches: when mappings change, the lines of their pages on all cores; when the host's table changes, all lines;
//! and when a context switch flushes a core's TLBs, the lines of that core.

use octavo_hw::{
    Asid, Caches, MemoryTransfer, PrivateCaches, Served, ServedBy, TranslationLine,
    TranslationWords,
};
use octavo_types::{FrameNumber, PageSize, PhysAddr};

use super::Env;
use super::walk::line_of;

impl Env {
    /// The frames reserved for tables of the design ([`crate::designs::registry`]); in a guest, frames of the
    /// host's memory.
    pub fn reserved_frames(&self) -> &[FrameNumber] {
        let os = self.host.as_ref().map_or(&self.os, |host| &host.os);
        os.memory().frames.of_design()
    }

    /// Reads the line at an address of the machine's memory, from the cache level from which walks read.
    /// Returns the latency in cycles, which the caller charges.
    pub fn read_memory(&mut self, at: PhysAddr) -> u32 {
        self.caches.read_pte(line_of(at, self.lines)).latency_cycles
    }

    /// Writes to the line at an address of the machine's memory, at the same cache level. Returns the latency
    /// in cycles.
    pub fn write_memory(&mut self, at: PhysAddr) -> u32 {
        self.caches.write_pte(line_of(at, self.lines)).latency_cycles
    }

    /// Prefetches a physical line into the second-level cache of the running core. Nothing waits for it unless the caller
    /// charges that ([`Env::wait_for_line`]). `None` if that cache holds the line.
    pub(crate) fn prefetch_line(&mut self, line: u64) -> Option<Served> {
        let Caches { private, shared } = &mut self.caches;
        private.prefetch_into_l2(shared, line)
    }

    /// Number of lines of data that have missed the first-level cache of the running core.
    pub(crate) fn l1d_misses(&self) -> u64 {
        self.caches.private.counters().l1d.misses
    }

    /// Has the last access to data, which missed the first-level cache and was charged `charged` cycles for that, take
    /// this latency at least, as its prefetched line is still under way. Returns the cycles added.
    ///
    /// For a core that executes out of order, the access has the transfer of the line, and not the walk before it.
    pub(crate) fn wait_for_line(&mut self, line: u64, charged: u64, latency_cycles: u64) -> u64 {
        let Caches { private, shared } = &mut self.caches;
        let transfers = shared.transfers();
        // Those behind are of prefetchers.
        let prefetches = private.prefetches().and_then(|all| all.first());
        let own = prefetches.map_or(transfers.len(), |first| first.transfers_before);
        let is_read = |transfer: &MemoryTransfer| transfer.line() == line && !transfer.is_write();
        if let Some(place) = transfers[..own].iter().position(is_read) {
            transfers[place..own].rotate_left(1);
            self.served_by = ServedBy::Memory;
        }
        let beyond_l1 = latency_cycles.saturating_sub(u64::from(self.l1_latency_cycles[1]));
        let wait_cycles = beyond_l1.saturating_sub(charged);
        self.cycles.beyond_l1[1] += wait_cycles;
        wait_cycles
    }

    /// Lets second-level caches hold lines of translations, of `pages` pages each.
    pub(crate) fn with_translation_lines(mut self, pages: u64) -> Self {
        self.holds_translations = true;
        self.all_private_caches().for_each(|caches| caches.hold_translations(pages));
        self
    }

    /// The contents of a line of translations of the running process, by page size and number, if the second-level
    /// cache of the running core holds it. Does not count as a use of the line.
    pub fn translation_line(
        &mut self,
        size: PageSize,
        number: u64,
    ) -> Option<&mut TranslationWords> {
        let line = self.tag_of_translations(size, number);
        self.caches.private.translation_words(line)
    }

    /// Uses a line of translations that the second-level cache holds. Returns the latency in cycles, which the caller
    /// charges.
    pub fn use_translation_line(&mut self, size: PageSize, number: u64) -> u32 {
        let line = self.tag_of_translations(size, number);
        self.caches.private.use_translations(line)
    }

    /// Fills a line of translations that the second-level cache does not hold.
    pub fn fill_translation_line(&mut self, size: PageSize, number: u64, words: TranslationWords) {
        let line = self.tag_of_translations(size, number);
        self.caches.private.fill_translations(&mut self.caches.shared, line, words);
    }

    fn tag_of_translations(&self, size: PageSize, number: u64) -> TranslationLine {
        TranslationLine::new(self.asid, size.base_shift(), number)
    }

    /// Drops the lines of translations of base pages from `first` to `end` on all cores.
    pub(super) fn invalidate_translation_lines(&mut self, asid: Asid, first: u64, end: u64) {
        if self.holds_translations {
            let all = self.all_private_caches();
            all.for_each(|caches| caches.invalidate_translations(asid, first, end));
        }
    }

    /// Drops all lines of translations on all cores.
    pub(super) fn clear_translation_lines(&mut self) {
        if self.holds_translations {
            self.all_private_caches().for_each(PrivateCaches::clear_translations);
        }
    }

    fn all_private_caches(&mut self) -> impl Iterator<Item = &mut PrivateCaches> {
        let others = self.cores.iter_mut().flatten().map(|core| &mut core.caches);
        others.chain([&mut self.caches.private])
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use octavo_os::frames::{Frames, MemoryShape, Order};
    use octavo_os::page_table::Format;
    use octavo_os::{Memory, ProcessId};
    use octavo_types::{
        Access, AddrRange, Event, Instructions, MapSource, PageNumber, Protection, VirtAddr,
    };

    use super::*;
    use crate::config::resolve;
    use crate::core::{Costs, InBackground};
    use crate::counters::Counters;
    use crate::designs::registry::policies;
    use crate::tlb::Tlb;

    pub(crate) const FIRST: u64 = 0x1_0000;

    /// A machine whose process has 64 base pages from [`FIRST`] on.
    pub(crate) fn env(settings: &[&str]) -> Env {
        let config = resolve("skylake", settings).unwrap().into_config();
        let os = |frames| {
            let shape = MemoryShape::new(frames, Order::LINUX).unwrap();
            let memory = Memory::new(Frames::new(shape), &[PageSize::HUGE], Format::default());
            policies().parse("base").unwrap().build(memory)
        };
        let instructions = Instructions::PORTABLE;
        let mut env = Env::new(&config, os(1 << 16), instructions).unwrap();
        if let Some(host) = &config.host {
            env = env.in_guest(&config, host, os(1 << 17), instructions).unwrap();
        }
        let mut env = env.with_translation_lines(8);
        let process = env.with_os(|os| os.spawn()).unwrap();
        env.switch_to(0, process);
        let map = Event::Map {
            range: pages(0, 64),
            protection: Protection::from_bits(3),
            source: MapSource::Anonymous,
            flags: 0x22,
        };
        env.with_os(|os| os.event(process, &map)).unwrap();
        env
    }

    fn pages(first: u64, pages: u64) -> AddrRange {
        AddrRange::new(VirtAddr::new((FIRST + first) << 12), pages << 12)
    }

    /// The contents of the lines of the first 16 pages.
    fn lines(env: &mut Env) -> [Option<TranslationWords>; 2] {
        [0, 1].map(|line| env.translation_line(PageSize::BASE, FIRST / 8 + line).copied())
    }

    fn fill(env: &mut Env) {
        for line in [0, 1] {
            env.fill_translation_line(PageSize::BASE, FIRST / 8 + line, [line; 8]);
        }
    }

    #[test]
    fn changed_mappings_drop_translation_lines_on_all_cores() {
        let mut env = env(&["core.count=2"]);
        let process = env.process();
        env.walk(PageNumber::new(FIRST + 3), Access::Load, false).unwrap();
        fill(&mut env);
        env.switch_to(1, process);
        assert_eq!(lines(&mut env), [None, None]);
        fill(&mut env);
        let unmap = Event::Unmap { range: pages(3, 1) };
        env.with_os(|os| os.event(process, &unmap)).unwrap();
        for core in [1, 0] {
            env.switch_to(core, process);
            assert_eq!(lines(&mut env), [None, Some([1; 8])]);
        }
        let mut counters = Counters::default();
        env.report(&mut counters);
        let get = |counter| counters.get("cache.l2.translations", counter);
        let counts = ["fills", "evicted", "invalidated"].map(get);
        assert_eq!(counts, [Some(4), Some(0), Some(2)]);
    }

    /// A copy of the virtual machine makes its pages read-only, so that the next walk, which may write to page tables,
    /// changes the host's table.
    #[test]
    fn changed_host_table_drops_all_translation_lines() {
        let mut env = env(&["host.policy=base", "memory.bytes=256MiB", "host.memory.bytes=512MiB"]);
        let page = PageNumber::new(FIRST);
        env.walk(page, Access::Load, false).unwrap();
        fill(&mut env);
        env.walk(page, Access::Load, false).unwrap();
        assert_eq!(lines(&mut env), [Some([0; 8]), Some([1; 8])]);
        let host = env.host.as_mut().unwrap();
        let (copied, _) = host.os.change(|os| os.fork(ProcessId::default()));
        copied.unwrap();
        for nested in &mut host.cores {
            nested.tlb.iter_mut().for_each(Tlb::clear);
        }
        env.walk(page, Access::Load, false).unwrap();
        assert_eq!(lines(&mut env), [None, None]);
    }

    #[test]
    fn context_switch_drops_translation_lines_where_it_flushes() {
        for (spaces, kept) in [("tagged", Some([0; 8])), ("flushed", None)] {
            let mut env = env(&[&format!("core.address_spaces={spaces}")]);
            let process = env.process();
            fill(&mut env);
            let other = env.with_os(|os| os.spawn()).unwrap();
            env.switch_to(0, other);
            // Lines tagged with another address space, or flushed.
            assert_eq!(lines(&mut env), [None, None], "{spaces}");
            env.switch_to(0, process);
            assert_eq!(lines(&mut env)[0], kept, "{spaces}");
        }
    }

    #[test]
    fn walk_in_background_reads_entries_and_counts_no_walk() {
        let mut env = env(&["walker.caches.pde=none"]);
        let (page, unmapped) = (PageNumber::new(FIRST), PageNumber::new(FIRST + 1));
        env.walk(page, Access::Load, false).unwrap();
        let before = (env.walks(), env.charged(), env.entries_read_from_memory());
        let accesses = |env: &Env| env.caches.private.counters().l2.accesses();
        let accesses_before = accesses(&env);
        assert_eq!(env.walk_in_background(unmapped), None);
        assert_eq!(accesses(&env), accesses_before);
        // The walk cache of level 3 leaves entries of levels 2 and 1.
        assert_eq!(env.walk_in_background(page), Some(2));
        assert_eq!((env.walks(), env.charged(), env.entries_read_from_memory()), before);
        assert!(accesses(&env) > accesses_before || env.caches.private.counters().l1d.hits > 0);
    }

    #[test]
    fn background_walk_has_transfers_and_pages_of_its_own() {
        let mut env = env(&["walker.caches.pde=none"]).logging_transfers();
        let memory_cycles =
            resolve::<&str>("skylake", &[]).unwrap().into_config().cache.memory_latency_cycles;
        let (page, other) = (PageNumber::new(FIRST), PageNumber::new(FIRST + 8));
        env.walk(page, Access::Load, false).unwrap();
        let of_walk = env.entries_read_from_memory() as u32;
        // The walk caches leave two entries to read. The last one is in another line than the entry of the first page.
        assert_eq!(env.walk_to_prefetch(other), Some(2));
        env.keep_seen(other, PageSize::BASE);
        let mut costs = Costs::default();
        assert_eq!(env.take_transfers(&mut costs.transfers), of_walk as usize);
        env.take_background(&mut costs);
        let [InBackground::Walk { cycles, first_transfer, transfers }, of_page] =
            costs.background[..]
        else {
            panic!("{:?}", costs.background);
        };
        assert_eq!((first_transfer, transfers), (of_walk, 1));
        assert_eq!(costs.transfers.len(), of_walk as usize + 1);
        assert!((memory_cycles..2 * memory_cycles).contains(&cycles), "{cycles}");
        assert_eq!(of_page, InBackground::Page { first: other, size: PageSize::BASE });
        costs.clear();
        env.take_background(&mut costs);
        assert_eq!(costs.background, []);
    }
}
