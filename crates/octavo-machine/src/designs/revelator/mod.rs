//! Revelator (Kanellopoulos, Sgouras, Kakolyris, Nitu, Konar, Bera and Mutlu, "Revelator: Rapid Data Fetching via
//! System-Software-Guided Hash-based Speculative Address Translation", arXiv:2508.02007, 2025): the operating system places
//! pages in frames that hash functions give, so that hardware fetches data and page-table entries from these frames before
//! a page walk has found them.
//!
//! - At a page fault the operating system tries the frames that three hash functions give for the page and its process,
//!   one after another, and takes the first one that is free. If none is free, the page takes any frame. This is the
//!   policy `hashed`, which other designs may have, too.
//! - A new node of level 1 of a page table takes the frame that a hash function gives for the number of the node (the
//!   page number without its last nine bits), if it is free, or else any frame.
//! - A miss of the second-level TLB by a load or store computes these frames, and prefetches the line of the access from
//!   each of them into the second-level cache while the page walk begins.
//! - Each page walk prefetches the line of the page's entry in the frame of its node.
//! - A *filter* limits the candidates to functions that are likely to have placed the page.
//! - In a guest, guest and host each have such a policy. Each candidate of the guest is a guest-physical page, whose
//!   candidates of the host are prefetched. The walks of both tables prefetch their last entries.
//!
//! Only the result of the walk is used: a wrong candidate costs bandwidth and space in caches. TLBs and page tables
//! have the format of x86-64.
//!
//! **Time.** All prefetches are sent when the hash functions have been computed, two cycles after the miss of the
//! second-level TLB. After the walk, the access reads its line as usual. If the line is still under way, the access waits
//! until it arrives; the earlier of both requests brings it. Additive and overlapped timing use these latencies. Out of
//! order, an idle memory gives the same latencies. Lines of prefetches use banks and channels of DRAM. A line that the
//! access uses waits there when the walk has ended; the waiting time of others, and of entries, is added to the walk. Prefetches take none of the
//! core's places for outstanding misses before their access does.
//!
//! Assumptions: the paper's abstract and summaries of it by others were available, its text was not. The three functions
//! and two cycles are those of the summaries. The filter follows the load of memory in the paper, whose rule was not
//! available: here it leaves out functions that have placed less than a tenth of all pages so far. The more frames are in
//! use, the more pages are placed by later functions, and the more candidates there are. The hash functions, of page and
//! process number, give frames of local memory. Hardware knows them, the process number and the counts at no cost. All pages are base pages;
//! pages of files, shared pages and pages that `mremap` has moved are elsewhere, and their prefetches are useless. Fetches have no
//! candidates. A walk prefetches one entry, also after a miss of the first level that does not permit a store. In a
//! guest, the frame of the entry is that which the host's first function gives. A line that the second-level cache
//! holds is not prefetched. A first touch prefetches a line of the frame that the page will have; its fault takes no time.

mod hashes;
#[cfg(test)]
mod naive;
mod policy;
mod settings;

use octavo_config::{DesignTable, MachineConfig};
use octavo_hw::ServedBy;
use octavo_os::page_table::ENTRIES;
use octavo_os::policy::{OsConfig, PolicyEntry};
use octavo_os::vmas::Pages;
use octavo_types::{Access, FrameNumber, PageNumber, PhysAddr};

use self::hashes::Hashes;
use self::policy::{HASHED_FRAMES, HashedConfig};
use self::settings::RevelatorSettings;
use super::Conventional;
use super::behind_tlbs::BehindTlbs;
use super::build::{self, HardwareFormat, Tables};
use super::registry::{
    Family, MachineResult, NamedDesign, Requirement, Setup, TranslationHardware,
};
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::env::{Env, WalkPlan, WalkRequest, Walker, guest_page};
use crate::front::LineAccess;
use crate::tlb::Lookup;

/// Data and page-table entries fetched from hashed frames.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<RevelatorSettings>()),
    policies: &[PolicyEntry::new::<HashedConfig>("hashed", "base pages, each in the first free frame of those that hash functions give")],
    ..Family::new(
        &[TranslationHardware {
            needs: Some(&Requirement { capability: HASHED_FRAMES, is_of_host: false }),
            ..TranslationHardware::new("revelator", make)
        }],
        &[NamedDesign { name: "revelator", hardware: "revelator", policy: "hashed", about: "Revelator: data and last entries fetched from hashed frames as a walk begins", figure: "translation" }],
    )
};

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let settings = *config.designs.get::<RevelatorSettings>();
    let walker = |config: &MachineConfig| -> Box<dyn Walker> {
        Box::new(EntryPrefetcher {
            hash_cycles: config.designs.get::<RevelatorSettings>().hash_cycles,
        })
    };
    let hardware = settings.entries.then_some(HardwareFormat { table: None, walker });
    let tables = Tables { hardware, ..Tables::default() };
    build::machine_with_tables(config, setup, tables, os, |_| {
        Ok(Revelator {
            tlbs: Conventional::new(&config.tlb, setup.instructions)?,
            settings,
            candidates: Vec::new(),
            under_way: Vec::new(),
            has_candidates: false,
            start_cycles: 0,
            counts: Counts::default(),
        })
    })
}

/// The walker of a core: each walk of a radix tree prefetches the last entry.
struct EntryPrefetcher {
    hash_cycles: u32,
}

impl Walker for EntryPrefetcher {
    fn plan(&mut self, request: &WalkRequest<'_>, plan: &mut WalkPlan) {
        if let Some(hashes) = request.memory.placement::<Hashes>() {
            let node = hashes.node(request.process, request.page);
            let entry = request.page.raw() % ENTRIES as u64 * ENTRY_BYTES;
            plan.prefetches[0] = Some(PhysAddr::new(node.start().raw() + entry));
            plan.prefetch_start_cycles = self.hash_cycles;
            plan.assumes_frames = true;
        }
        plan.walk_radix(request);
    }

    fn report(&self, _: &str, _: &mut Counters) {}

    fn uses_walk_caches(&self) -> bool {
        true
    }
}

const ENTRY_BYTES: u64 = 8;

/// Conventional TLBs whose misses prefetch lines of data.
struct Revelator {
    tlbs: Conventional,
    settings: RevelatorSettings,
    /// The candidate frames of the current access.
    candidates: Vec<FrameNumber>,
    /// The lines that the current access has prefetched, each with its latency in cycles.
    under_way: Vec<(u64, u32)>,
    /// Whether the current access has candidates.
    has_candidates: bool,
    /// Cycles of look-ups and walks before the walk of the current access.
    start_cycles: u64,
    counts: Counts,
}

/// Counters of one core.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Misses with candidates.
    predictions: u64,
    /// Predictions with the right frame among the candidates.
    right: u64,
    /// Candidates, and prefetches of their lines: the second-level cache did not hold these.
    candidates: u64,
    prefetches: u64,
    /// Prefetches that memory served.
    from_memory: u64,
    /// Prefetched lines that their access read.
    used: u64,
    /// Cycles of accesses that waited for lines under way.
    late_cycles: u64,
}

/// Cycles of look-ups and walks so far.
fn translation_cycles(env: &Env) -> u64 {
    let charged = env.charged();
    charged.lookups + charged.walks
}

impl BehindTlbs for Revelator {
    fn tlbs(&mut self) -> &mut Conventional {
        &mut self.tlbs
    }

    /// Finds nothing, but sends the prefetches.
    fn look_up_behind(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        in_second: &Lookup,
    ) -> Lookup {
        let is_miss = matches!(in_second, Lookup::Miss);
        if is_miss && self.settings.data && access.kind() != Access::Fetch {
            self.prefetch(env, page, access);
        }
        Lookup::Miss
    }
}

impl Revelator {
    /// Prefetches the line of an access from each candidate frame of its page.
    fn prefetch(&mut self, env: &mut Env, page: PageNumber, access: LineAccess) {
        self.find_candidates(env, page);
        self.has_candidates = !self.candidates.is_empty();
        self.counts.predictions += u64::from(self.has_candidates);
        self.counts.candidates += self.candidates.len() as u64;
        self.start_cycles = translation_cycles(env);
        for frame in &self.candidates {
            let line = env.physical_line(access, *frame);
            if let Some(served) = env.prefetch_line(line) {
                self.counts.prefetches += 1;
                self.counts.from_memory += u64::from(served.by == ServedBy::Memory);
                self.under_way.push((line, served.latency_cycles));
            }
        }
    }

    /// Finds the candidate frames of a page, in a guest those of the host.
    fn find_candidates(&mut self, env: &Env, page: PageNumber) {
        let min_percent = self.settings.min_percent;
        let Some(own) = env.os().memory().placement::<Hashes>() else { return };
        let frames = own.candidates(env.process(), page, min_percent);
        let Some((host, vm)) = env.host_memory() else {
            self.candidates.extend(frames);
            return;
        };
        let Some(host) = host.placement::<Hashes>() else { return };
        let backing = |frame| host.candidates(vm, guest_page(frame), min_percent);
        self.candidates.extend(frames.flat_map(backing));
    }

    /// Accesses a line after a miss with candidates.
    #[inline(never)]
    fn access_line(
        &mut self,
        env: &mut Env,
        access: LineAccess,
        frame: FrameNumber,
    ) -> Option<FrameNumber> {
        let (misses, cache_cycles) = (env.l1d_misses(), env.charged().caches);
        let frame = env.access_line(access, frame)?;
        self.counts.right += u64::from(self.candidates.contains(&frame));
        let line = env.physical_line(access, frame);
        let prefetch = self.under_way.iter().find(|(prefetched, _)| *prefetched == line);
        if let Some((_, latency_cycles)) = prefetch
            && env.l1d_misses() > misses
        {
            let since_cycles = translation_cycles(env) - self.start_cycles;
            let sent_cycles = since_cycles.min(u64::from(self.settings.hash_cycles));
            let arrival_cycles = sent_cycles + u64::from(*latency_cycles);
            let charged = env.charged().caches - cache_cycles;
            let late_cycles =
                env.wait_for_line(line, charged, arrival_cycles.saturating_sub(since_cycles));
            self.counts.used += 1;
            self.counts.late_cycles += late_cycles;
        }
        self.candidates.clear();
        self.under_way.clear();
        self.has_candidates = false;
        Some(frame)
    }
}

impl Design for Revelator {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        self.translate_behind_tlbs(env, access)
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.tlbs.invalidate(space, pages);
    }

    fn flush(&mut self) {
        self.tlbs.flush();
    }

    fn report(&self, counters: &mut Counters) {
        self.tlbs.report(counters);
        if !self.settings.data {
            return;
        }
        let Counts { predictions, right, candidates, prefetches, used, from_memory, late_cycles } =
            self.counts;
        for (counter, value) in [
            ("predictions", predictions),
            ("right", right),
            ("candidates", candidates),
            ("prefetches", prefetches),
            ("prefetches_memory", from_memory),
            ("prefetches_used", used),
            ("cycles_late", late_cycles),
        ] {
            counters.add("revelator", counter, value);
        }
    }

    #[inline(always)]
    fn access(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let frame = self.translate(env, access)?;
        match self.has_candidates {
            true => self.access_line(env, access, frame),
            false => env.access_line(access, frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::designs::DesignSpec;

    #[test]
    fn other_policies_are_rejected_with_one_sentence() {
        assert_eq!(
            DesignSpec::parse("revelator+thp").unwrap_err().to_string(),
            "revelator+thp: revelator needs frames that hash functions give, which the policy `thp` does not make: give \
             revelator with the policy hashed"
        );
        assert!(DesignSpec::parse("conventional+hashed").is_ok());
    }
}
