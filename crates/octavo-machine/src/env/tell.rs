//! What a machine counted beside its design.

use std::collections::BTreeMap;

use octavo_os::Os;
use octavo_os::frames::Holder;
use octavo_types::PageSize;

use super::{Cycles, Env, WalkerCounters};
use crate::counters::{Counters, Lookups};

impl Env {
    /// Adds what was counted.
    pub(crate) fn tell(&self, counters: &mut Counters) {
        self.tell_walker(counters);
        self.tell_caches(counters);
        let Cycles { tlb_l2, walks, beyond_l1: [fetches, data] } = self.cycles;
        counters.add("core", "cycles_tlb_l2", tlb_l2);
        counters.add("core", "cycles_walks", walks);
        counters.add("core", "cycles_fetches", fetches);
        counters.add("core", "cycles_data", data);
        counters.add("os", "cores_interrupted", self.interrupted);
        tell_os(&self.os, counters);
    }

    fn tell_walker(&self, counters: &mut Counters) {
        let WalkerCounters { walks, faulted, reads, reads_by, marked } = self.walker;
        counters.add("walker", "walks", walks);
        counters.add("walker", "faulted", faulted);
        counters.add("walker", "references", reads);
        counters.add("walker", "marked", marked);
        let places = ["references_l1", "references_l2", "references_llc", "references_memory"];
        for (name, value) in places.into_iter().zip(reads_by) {
            counters.add("walker", name, value);
        }
        let mut levels = BTreeMap::<u8, Lookups>::new();
        let others = self.cores.iter().flatten().map(|core| &core.walk_caches);
        for caches in others.chain([&self.walk_caches]) {
            for (level, of) in caches.counters() {
                let sum = levels.entry(level).or_default();
                sum.hits += of.hits;
                sum.misses += of.misses;
            }
        }
        for (level, lookups) in levels {
            lookups.tell(&format!("walker.cache.l{level}"), counters);
        }
    }

    fn tell_caches(&self, counters: &mut Counters) {
        let others = self.cores.iter().flatten().map(|core| &core.caches);
        for caches in others.chain([&self.caches.private]) {
            let of = caches.counters();
            for (name, level) in [("l1i", of.l1i), ("l1d", of.l1d), ("l2", of.l2)] {
                let component = format!("cache.{name}");
                Lookups { hits: level.hits, misses: level.misses }.tell(&component, counters);
                counters.add(&component, "write_backs", level.write_backs);
            }
        }
        let llc = self.caches.shared.llc();
        Lookups { hits: llc.hits, misses: llc.misses }.tell("cache.llc", counters);
        counters.add("cache.llc", "write_backs", llc.write_backs);
        let memory = self.caches.shared.memory();
        counters.add("memory", "reads", memory.reads);
        counters.add("memory", "writes", memory.writes);
    }
}

fn tell_os(os: &Os, counters: &mut Counters) {
    let memory = os.memory();
    // Every counter has to be told: a new one does not compile until it is.
    let octavo_os::Counters {
        faults,
        faults_unmapped,
        copy_on_write_faults,
        bytes_zeroed,
        bytes_copied,
        bytes_read,
        promotions,
        splits,
        shootdowns,
        entries_written,
        out_of_memory,
        grown_by_order: _,
        bytes_mapped_untouched,
        fallbacks,
        compactions,
        frames_compacted,
        perforations,
        punches,
        patches,
        hole_shootdowns,
    } = memory.counters;
    let counts = [
        ("faults", faults),
        ("faults_unmapped", faults_unmapped),
        ("copy_on_write_faults", copy_on_write_faults),
        ("bytes_zeroed", bytes_zeroed),
        ("bytes_copied", bytes_copied),
        ("bytes_read", bytes_read),
        ("promotions", promotions),
        ("splits", splits),
        ("shootdowns", shootdowns),
        ("entries_written", entries_written),
        ("out_of_memory", out_of_memory),
        ("bytes_mapped_untouched", bytes_mapped_untouched),
        ("fallbacks", fallbacks),
        ("compactions", compactions),
        ("frames_compacted", frames_compacted),
    ];
    let of_holes = [
        ("perforations", perforations),
        ("punches", punches),
        ("patches", patches),
        ("hole_shootdowns", hole_shootdowns),
    ];
    // What only perforated pages have, only machines with them tell.
    let of_holes = of_holes.into_iter().filter(|_| memory.frames.hole_bitmaps().are_there());

    for (name, value) in counts.into_iter().chain(of_holes) {
        counters.add("os", name, value);
    }
    let bytes = |frames: u64| frames * PageSize::BASE.bytes();
    let held = |holder| bytes(memory.frames.used_frames(holder));
    counters.level("os", "resident_bytes", held(Holder::Data));
    counters.level("os", "page_table_bytes", held(Holder::PageTable));
    counters.level("os", "reserved_bytes", held(Holder::Reserved));
    counters.level("os", "shadow_bytes", held(Holder::Shadow));
    let others = [true, false].map(|movable| held(Holder::Foreign { movable }));
    counters.level("os", "foreign_bytes", others.iter().sum());
    if memory.frames.hole_bitmaps().are_there() {
        counters.level("os", "bitmap_bytes", held(Holder::HoleBitmap));
        counters.level("os.pages.perforated", "mapped", memory.perforated_pages());
    }
    counters.level("os", "free_bytes", bytes(memory.frames.free_frames()));
    let peak = bytes(memory.frames.peak_frames(Holder::Data));
    counters.level("os", "peak_resident_bytes", peak);
    for size in memory.sizes() {
        counters.level(&format!("os.pages.{size}"), "mapped", memory.pages(*size));
    }
}
