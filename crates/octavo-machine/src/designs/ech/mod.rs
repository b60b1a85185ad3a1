//! Elastic cuckoo page tables (Skarlatos, Kokolis, Xu and Torrellas, "Elastic Cuckoo Page Tables: Rethinking
//! Virtual Memory Translation for Parallelism", ASPLOS 2020; nested: Stojkovic et al., ASPLOS 2022): hashed page tables
//! with entries that a walk reads in parallel, not one after another.
//!
//! - Each process has a table for each page size, of [`WAYS`](tables::WAYS) ways. An entry is a line with eight
//!   consecutive pages. A key has one place in each way ([`cuckoo`]). A table more than 60% full grows to four
//!   times its size: each insertion moves one entry, and a key still has one place in each way.
//! - *Walk tables* say which page sizes a section of 2 MiB, and one of 1 GiB, has, and which way holds the page
//!   that fills it. A walker caches their entries, for 64 sections each: [`LOWER`] and [`UPPER`] of them.
//! - A walk is one group of parallel probes. The cached sections limit it: *direct*, one way of one size; *size*, all
//!   ways of one size; *partial*, all ways of two sizes; and *complete*, all ways of all sizes. If they rule out all
//!   sizes, they are stale, and the walk is complete. Any other walk that finds nothing probes all ways of all sizes in
//!   a second group, before a page fault.
//! - In a guest, both tables are elastic cuckoo tables: a walk is the host's group for the guest's entries, the
//!   guest's group, and the host's group for the page.
//!
//! Assumptions: tables of 4 KiB and 2 MiB pages begin with 16,384 entries a way, in a small memory with at most a
//! 2,048th of it, and walk tables with a fourth and an eighth of that; tables of 1 GiB pages begin with 64 entries, and
//! tables do not shrink. Ways are contiguous in memory if it has such blocks. Hashing and the look-up of cached
//! sections take [`START_CYCLES`] cycles together. An entry of a walk table that is not cached is read in the
//! background of the walk, in all its ways, and delays nothing; the same holds after a walk by stale sections. An
//! invalidation drops the cached sections of its pages. The operating system's work on the tables costs no cycles. In a
//! guest, the addresses of walk tables are translated like those of other tables, by the nested TLB.

mod cuckoo;
#[cfg(test)]
mod naive;
mod tables;

use std::sync::Arc;

use octavo_config::MachineConfig;
use octavo_hw::Asid;
use octavo_os::policy::OsConfig;
use octavo_types::{AddrRange, PageNumber, PageSize};

use self::tables::{Found, Section, Sections, Tables, section};
use crate::counters::{Counters, Lookups};
use crate::designs::build::{self, HardwareFormat};
use crate::designs::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use crate::env::{WalkPlan, WalkRequest, Walker};

/// Elastic cuckoo page tables behind conventional TLBs.
#[rustfmt::skip]
pub const FAMILY: Family = Family::new(
    &[TranslationHardware::new("ech", make)],
    &[NamedDesign { name: "ech", hardware: "ech", policy: "thp", about: "elastic cuckoo page tables: a walk is one group of parallel probes", figure: "cuckoo-tables" }],
);

/// Cached entries of the walk table for sections of 2 MiB.
pub const LOWER: usize = 16;
/// Cached entries of the walk table for sections of 1 GiB.
pub const UPPER: usize = 2;
/// Cycles before the first probe of a walk.
pub const START_CYCLES: u32 = 4;

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let hardware = HardwareFormat {
        table: Some(Arc::new(|_, frames| Box::new(Tables::new(frames)))),
        walker: |_| Box::new(CuckooWalker::default()),
    };
    let tables = build::Tables { hardware: Some(hardware), ..build::Tables::default() };
    build::conventional(config, setup, tables, os)
}

/// The walker of a core, with its caches of walk-table entries.
#[derive(Default)]
struct CuckooWalker {
    /// For sections of 2 MiB, and of 1 GiB.
    cached: [SectionCache; 2],
    counts: Counts,
}

/// Walks by their probes, and walks repeated because cached sections were stale.
#[derive(Clone, Copy, Default)]
struct Counts {
    direct: u64,
    size: u64,
    partial: u64,
    complete: u64,
    repeated: u64,
}

/// Entries of a walk table, the most recently used one at the end.
#[derive(Default)]
struct SectionCache {
    entries: Vec<(Asid, u64, Sections)>,
    lookups: Lookups,
}

/// The probes of a walk for one page size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Probed {
    No,
    Way(u8),
    All,
}

impl SectionCache {
    fn look_up(&mut self, asid: Asid, page: PageNumber, level: usize) -> Option<Section> {
        let (key, section) = section(page, level);
        let found = self.entries.iter().position(|entry| (entry.0, entry.1) == (asid, key));
        self.lookups.hits += u64::from(found.is_some());
        self.lookups.misses += u64::from(found.is_none());
        let entry = self.entries.remove(found?);
        self.entries.push(entry);
        Some(entry.2[section])
    }

    /// Replaces an entry by the current contents of the walk table.
    fn refill(&mut self, asid: Asid, key: u64, now: Option<Sections>, most: usize) {
        self.entries.retain(|entry| (entry.0, entry.1) != (asid, key));
        let Some(sections) = now else { return };
        if self.entries.len() == most {
            self.entries.remove(0);
        }
        self.entries.push((asid, key, sections));
    }

    fn invalidate(&mut self, asid: Asid, keys: std::ops::RangeInclusive<u64>) {
        self.entries.retain(|entry| entry.0 != asid || !keys.contains(&entry.1));
    }
}

impl Probed {
    /// Whether these probes read an entry.
    fn finds(probed: [Probed; 3], found: &Found) -> bool {
        match probed[found.size] {
            Probed::No => false,
            Probed::Way(way) => usize::from(way) == found.way,
            Probed::All => true,
        }
    }
}

impl CuckooWalker {
    /// The probes that the cached sections of a base page demand.
    fn probes(lower: Option<Section>, upper: Option<Section>) -> [Probed; 3] {
        use Probed::{All, No, Way};
        let all_if = |has| if has { All } else { No };
        let from_upper = match upper {
            Some(Section { way: 0, .. }) => No,
            Some(Section { way, .. }) => Way(way - 1),
            None => All,
        };
        match (lower, upper) {
            (Some(Section { has_base: true, .. }), _) => [All, No, No],
            (Some(Section { way: way @ 1.., .. }), _) => [No, Way(way - 1), No],
            (Some(_), _) => [No, No, from_upper],
            (None, Some(Section { way: 1.., .. })) => [No, No, from_upper],
            (None, Some(upper)) => [all_if(upper.has_base), all_if(upper.has_huge), No],
            (None, None) => [All; 3],
        }
    }

    fn count(&mut self, probed: [Probed; 3]) {
        let Counts { direct, size, partial, complete, .. } = &mut self.counts;
        let ways = probed.iter().any(|probes| matches!(probes, Probed::Way(_)));
        let sizes = probed.iter().filter(|probes| **probes == Probed::All).count();
        match (ways, sizes) {
            (true, _) => *direct += 1,
            (_, 1) => *size += 1,
            (_, 2) => *partial += 1,
            _ => *complete += 1,
        }
    }
}

impl Walker for CuckooWalker {
    fn plan(&mut self, request: &WalkRequest<'_>, plan: &mut WalkPlan) {
        let WalkRequest { asid, page, .. } = *request;
        let table = request.table().hardware::<Tables>();
        plan.start_cycles = START_CYCLES;
        let known = [0, 1].map(|level| self.cached[level].look_up(asid, page, level));
        let expected = Self::probes(known[0], known[1]);
        let is_unexpected = expected == [Probed::No; 3];
        let probed = if is_unexpected { [Probed::All; 3] } else { expected };
        self.count(probed);
        probe(table, page, probed, plan);
        let found = table.find(page);
        let is_found = found.is_some_and(|found| Probed::finds(probed, &found));
        let is_repeated = !is_found && probed != [Probed::All; 3];
        if is_repeated {
            self.counts.repeated += 1;
            plan.wait();
            probe(table, page, [Probed::All; 3], plan);
        }
        plan.entry = found.map(|found| found.at);
        for (level, most) in [LOWER, UPPER].into_iter().enumerate() {
            if is_repeated || is_unexpected || known[level].is_none() {
                plan.background.extend(table.walk_places(page, level));
                let (key, _) = section(page, level);
                self.cached[level].refill(asid, key, table.sections(page, level), most);
            }
        }
    }

    fn invalidate(&mut self, asid: Asid, range: AddrRange) {
        if range.is_empty() {
            return;
        }
        let base = |addr: u64| PageNumber::new(addr >> PageSize::BASE.log2());
        let (first, last) = (base(range.start().raw()), base(range.end().raw() - 1));
        for (level, cache) in self.cached.iter_mut().enumerate() {
            cache.invalidate(asid, section(first, level).0..=section(last, level).0);
        }
    }

    fn clear(&mut self) {
        self.cached.iter_mut().for_each(|cache| cache.entries.clear());
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        for (cache, name) in self.cached.iter().zip(["sections_2m", "sections_1g"]) {
            cache.lookups.report(&format!("{component}.{name}"), counters);
        }
        let Counts { direct, size, partial, complete, repeated } = self.counts;
        let walks = [
            ("direct", direct),
            ("size", size),
            ("partial", partial),
            ("complete", complete),
            ("repeated", repeated),
        ];
        for (name, count) in walks {
            counters.add(&format!("{component}.walks"), name, count);
        }
    }
}

/// Adds the probes of a walk, which are issued together.
fn probe(table: &Tables, page: PageNumber, probed: [Probed; 3], plan: &mut WalkPlan) {
    for (size, probes) in probed.into_iter().enumerate() {
        match probes {
            Probed::No => {}
            Probed::Way(way) => {
                table
                    .places(page, size)
                    .skip(usize::from(way))
                    .take(1)
                    .for_each(|at| plan.probe(at));
            }
            Probed::All => table.places(page, size).for_each(|at| plan.probe(at)),
        }
    }
}
