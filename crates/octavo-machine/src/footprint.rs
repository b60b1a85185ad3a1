//! Estimates the memory of this computer that the state of the simulated machines needs, before any of it is
//! allocated.

use std::fmt;

use octavo_config::{
    CacheLevel, FragmentationConfig, MachineConfig, MemoryConfig, PrefetchConfig, TlbLevel,
    WalkCache,
};
use octavo_hw::Geometry;
use octavo_types::PageSize;
use octavo_types::host_memory::AvailableMemory;
use octavo_types::values::size_text;

use crate::config::ConfigError;
use crate::designs::TranslationHardware;
use crate::sim::SimConfig;
use crate::state::Part;

/// Settings with a smaller share of the total are not named in errors.
const LEAST_NAMED: f64 = 0.1;

/// An upper bound on the state of the machines, by the settings that determine it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Footprint {
    parts: Vec<Part>,
    designs: usize,
    cores: u32,
}

/// The machines need more memory than is available.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TooLarge(String);

impl Footprint {
    /// The footprint of all designs of a simulation.
    ///
    /// # Errors
    ///
    /// As [`crate::designs::DesignSpec::machine`].
    pub fn of(config: &SimConfig) -> Result<Self, ConfigError> {
        let SimConfig { machine, designs, .. } = config;
        let (designs_count, cores) = (designs.len(), machine.core.count);
        let mut all = Footprint { parts: Vec::new(), designs: designs_count, cores };
        for spec in designs {
            all.add_machine(&spec.machine(machine)?, spec.hardware());
        }
        Ok(all)
    }

    /// The total in bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// # Errors
    ///
    /// If the total exceeds the available memory: one sentence that names the largest settings.
    pub fn check(&self, available: &AvailableMemory) -> Result<(), TooLarge> {
        let AvailableMemory { bytes, limit } = available;
        if self.bytes() <= *bytes {
            return Ok(());
        }
        Err(TooLarge(format!(
            "{self}, and {} is available ({limit}): give less of that, fewer designs (there are {}) or \
             fewer cores (core.count = {})",
            size_with_unit(*bytes),
            self.designs,
            self.cores
        )))
    }

    fn add_machine(&mut self, given: &MachineConfig, hardware: &TranslationHardware) {
        let machine = &(hardware.adapt)(given);
        let cores = u64::from(machine.core.count);
        if !hardware.replaces_tlbs {
            for (name, level) in machine.tlb.levels() {
                self.add_level(&format!("tlb.{name}"), level, cores);
            }
        }
        for part in (hardware.own_state)(machine) {
            self.add(Part { bytes: part.bytes * cores, ..part });
        }
        self.add_caches(machine, cores);
        for (name, cache) in &machine.walker.caches {
            self.add_walk_cache(&format!("walker.caches.{name}"), cache, cores);
        }
        self.add_memory("memory", &machine.memory);
        if let Some(host) = &machine.host {
            if let Some(tlb) = &host.tlb {
                self.add_level("host.tlb", tlb, cores);
            }
            for (name, cache) in &host.walk_caches {
                self.add_walk_cache(&format!("host.walk_caches.{name}"), cache, cores);
            }
            self.add_memory("host.memory", &host.memory);
        }
    }

    fn add_level(&mut self, key: &str, level: &TlbLevel, cores: u64) {
        for (name, array) in &level.arrays {
            let key = format!("{key}.{name}.entries");
            self.add_entries(&key, array.entries, array.geometry().ok(), cores);
        }
    }

    fn add_walk_cache(&mut self, key: &str, cache: &WalkCache, cores: u64) {
        let geometry = Geometry::of_entries(cache.entries, cache.ways.of(cache.entries));
        self.add_entries(&format!("{key}.entries"), cache.entries, geometry.ok(), cores);
    }

    fn add_entries(&mut self, key: &str, entries: u64, geometry: Option<Geometry>, times: u64) {
        self.add(Part::of_entries(key, entries, geometry, times));
    }

    fn add_caches(&mut self, machine: &MachineConfig, cores: u64) {
        let caches = &machine.cache;
        let data: [(&str, &CacheLevel, u64); 4] = [
            ("l1i", &caches.l1i, cores),
            ("l1d", &caches.l1d, cores),
            ("l2", &caches.l2, cores),
            ("llc", &caches.llc, 1),
        ];
        for (name, level, times) in data {
            let mut bytes = level.with_lines(caches.line_bytes).most_bytes();
            if matches!(name, "l1d" | "l2") && !machine.prefetchers().is_empty() {
                // Unused prefetched lines, in a hash table, and the tables of instructions, pages and visits.
                let PrefetchConfig { stride, streamer, region } = level.prefetch;
                let entries = stride.map_or(0, |stride| stride.entries)
                    + streamer.map_or(0, |streamer| streamer.streams)
                    + region.map_or(0, |region| region.visits);
                bytes += 32 * level.bytes / caches.line_bytes + 64 * u64::from(entries);
                // A count of each distance, in `confirmations` words of bits.
                bytes += region
                    .map_or(0, |region| 8 * u64::from(region.entries * (2 + region.confirmations)));
            }
            let key = format!("cache.{name}.bytes = \"{}\"", size_text(level.bytes));
            self.add(Part { setting: key, bytes: bytes * times });
        }
    }

    /// Memory with an initial occupation stores an owner per frame and, over all orders of the allocator, two
    /// bits per frame. Initially free memory stores nothing until it is used.
    fn add_memory(&mut self, key: &str, memory: &MemoryConfig) {
        if memory.fragmentation != FragmentationConfig::Empty {
            let frames = memory.bytes / PageSize::BASE.bytes();
            let setting = format!("{key}.bytes = \"{}\"", size_text(memory.bytes));
            self.add(Part { setting, bytes: frames * 21 / 16 });
        }
    }

    fn add(&mut self, new: Part) {
        match self.parts.iter_mut().find(|part| part.setting == new.setting) {
            Some(part) => part.bytes += new.bytes,
            None => self.parts.push(new),
        }
    }
}

impl fmt::Display for Footprint {
    /// `the simulated machines take up to 12.3 GiB of memory, of which tlb.l2.main.entries = 67108864
    /// takes 12.2 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.bytes();
        write!(f, "the simulated machines take up to {} of memory, of which", size_with_unit(all))?;
        let mut parts: Vec<&Part> = self
            .parts
            .iter()
            .filter(|part| part.bytes as f64 >= LEAST_NAMED * all as f64)
            .collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        for (place, part) in parts.iter().enumerate() {
            let before = if place == 0 { "" } else { " and" };
            write!(f, "{before} {} takes {}", part.setting, size_with_unit(part.bytes))?;
        }
        Ok(())
    }
}

/// A size in the largest fitting unit, with one decimal.
fn size_with_unit(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let (shift, unit) =
        units.into_iter().find(|(shift, _)| bytes >> shift > 0).unwrap_or((10, "KiB"));
    format!("{:.1} {unit}", bytes as f64 / f64::from(1u32 << shift))
}
