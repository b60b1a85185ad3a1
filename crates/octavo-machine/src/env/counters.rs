//! Reports the counters of the parts of a machine outside its design.

use std::collections::BTreeMap;

use octavo_os::RunningOs;
use octavo_os::frames::Owner;
use octavo_os::page_table::DesignCounter;
use octavo_types::PageSize;

use super::{CompositePages, Cycles, Env, Host, Overlap, PageWalker, WalkerCounters};
use crate::counters::{Counters, Lookups};

impl Env {
    /// The reason why the machine stopped, if it did.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// Stops the machine for this reason.
    pub(crate) fn stop(&mut self, why: String) {
        self.stopped = Some(why);
    }

    /// Adds all counters.
    pub(crate) fn report(&self, counters: &mut Counters) {
        self.report_walker(counters);
        self.report_caches(counters);
        let Cycles { tlb_l2, tlb_nested, walks, hidden_walks, flushes, beyond_l1 } = self.cycles;
        let [fetches, data] = beyond_l1;
        counters.add("core", "cycles_tlb_l2", tlb_l2);
        counters.add("core", "cycles_walks", walks - hidden_walks + flushes);
        let overlapped: u64 = self.overlaps.iter().map(Overlap::cycles).sum();
        // Not under `core`, whose cycle counters add up.
        counters.add("walker", "cycles_overlapped", overlapped);
        counters.add("core", "cycles_fetches", fetches);
        counters.add("core", "cycles_data", data);
        counters.add("os", "cores_interrupted", self.interrupted);
        report_os("os", &self.os, self.composite, counters);
        self.report_vectors(counters);
        if let Some(host) = &self.host {
            counters.add("core", "cycles_tlb_nested", tlb_nested);
            host.report(counters);
        }
    }

    fn report_walker(&self, counters: &mut Counters) {
        let own = self.walker;
        let WalkerCounters { walks, walks_dirty, faulted, .. } = own;
        counters.add("walker", "walks", walks);
        counters.add("walker", "walks_dirty", walks_dirty);
        counters.add("walker", "faulted", faulted);
        own.report_entries("walker", &self.os, counters);
        if let Some(composite) = self.composite {
            composite.report_walks(self, counters);
        }
        if let Some(host) = &self.host {
            own.report_entries("walker.guest", &self.os, counters);
            host.walker.report_entries("walker", &host.os, counters);
        }
        let others = self.cores.iter().flatten().map(|core| &core.page_walker);
        report_walk_caches("walker.cache", others.chain([&self.page_walker]), counters);
    }

    fn report_caches(&self, counters: &mut Counters) {
        let others = self.cores.iter().flatten().map(|core| &core.caches);
        for caches in others.chain([&self.caches.private]) {
            let levels = caches.counters();
            for (name, level) in [("l1i", levels.l1i), ("l1d", levels.l1d), ("l2", levels.l2)] {
                let component = format!("cache.{name}");
                Lookups { hits: level.hits, misses: level.misses }.report(&component, counters);
                counters.add(&component, "write_backs", level.write_backs);
            }
            if let Some(lines) = caches.translation_counters() {
                counters.add("cache.l2.translations", "fills", lines.fills);
                counters.add("cache.l2.translations", "evicted", lines.evicted);
                counters.add("cache.l2.translations", "invalidated", lines.invalidated);
            }
        }
        let llc = self.caches.shared.llc();
        Lookups { hits: llc.hits, misses: llc.misses }.report("cache.llc", counters);
        counters.add("cache.llc", "write_backs", llc.write_backs);
        if let Some(lines) = self.caches.shared.filled_by_others() {
            counters.add("cache.llc", "filled_by_others", lines);
        }
        if self.prefetches {
            self.report_prefetchers(counters);
        }
        let memory = self.caches.shared.memory();
        counters.add("memory", "reads", memory.reads);
        counters.add("memory", "writes", memory.writes);
        let mut local = memory;
        for (name, tier) in self.tiers.iter().zip(self.caches.shared.memory_tiers()) {
            let component = format!("memory.tier.{name}");
            counters.add(&component, "reads", tier.reads);
            counters.add(&component, "writes", tier.writes);
            (local.reads, local.writes) = (local.reads - tier.reads, local.writes - tier.writes);
        }
        if !self.tiers.is_empty() {
            counters.add("memory.tier.local", "reads", local.reads);
            counters.add("memory.tier.local", "writes", local.writes);
        }
    }

    fn report_prefetchers(&self, counters: &mut Counters) {
        let others = self.cores.iter().flatten().map(|core| &core.caches);
        for caches in others.chain([&self.caches.private]) {
            let levels = caches.prefetch_counters().into_iter().flatten();
            for (component, prefetches) in ["prefetch.l1d", "prefetch.l2"].into_iter().zip(levels) {
                counters.add(component, "issued", prefetches.issued());
                for (name, lines) in
                    ["from_l2", "from_llc", "from_memory"].into_iter().zip(prefetches.served_by)
                {
                    counters.add(component, name, lines);
                }
                counters.add(component, "useful", prefetches.useful);
                counters.add(component, "unused", prefetches.unused);
                counters.add(component, "dropped", prefetches.dropped);
            }
        }
    }
}

impl WalkerCounters {
    /// Adds the counters of page-table entries read, written and prefetched.
    fn report_entries(&self, component: &str, os: &RunningOs, counters: &mut Counters) {
        counters.add(component, "references", self.reads);
        counters.add(component, "marked", self.marked);
        let places = ["references_l1", "references_l2", "references_llc", "references_memory"];
        for (name, value) in places.into_iter().zip(self.reads_by) {
            counters.add(component, name, value);
        }
        let prefetches: u64 = self.prefetches_by.iter().sum();
        if prefetches > 0 || os.memory().sorted_areas().is_some() {
            counters.add(component, "prefetches", prefetches);
            counters.add(component, "prefetches_used", self.prefetches_used);
            let places = ["prefetches_l1", "prefetches_l2", "prefetches_llc", "prefetches_memory"];
            for (name, value) in places.into_iter().zip(self.prefetches_by) {
                counters.add(component, name, value);
            }
        }
    }
}

impl Host {
    fn report(&self, counters: &mut Counters) {
        counters.add("walker", "walks", self.lone_walks);
        counters.add("walker", "walks_dirty", self.lone_walks_dirty);
        counters.add("walker", "splintered", self.splintered);
        counters.add("walker.host", "walks", self.walker.walks);
        counters.add("walker.host", "walks_dirty", self.walker.walks_dirty);
        counters.add("walker.host", "faulted", self.walker.faulted);
        self.walker.report_entries("walker.host", &self.os, counters);
        let walkers = self.cores.iter().map(|core| &core.page_walker);
        report_walk_caches("walker.host.cache", walkers, counters);
        for tlb in self.cores.iter().filter_map(|core| core.tlb.as_ref()) {
            tlb.report("tlb.nested", counters);
        }
        counters.add("host.os", "invepts", self.invepts);
        counters.add("host.os", "cores_interrupted", self.interrupted);
        report_os("host.os", &self.os, self.composite, counters);
    }
}

fn report_walk_caches<'c>(
    component: &str,
    walkers: impl Iterator<Item = &'c PageWalker>,
    counters: &mut Counters,
) {
    let mut levels = BTreeMap::<u8, Lookups>::new();
    for walker in walkers {
        if let Some(own) = walker.own() {
            own.report(component, counters);
            if !own.uses_walk_caches() {
                continue;
            }
        }
        for (level, counts) in walker.caches.counters() {
            let sum = levels.entry(level).or_default();
            sum.hits += counts.hits;
            sum.misses += counts.misses;
        }
    }
    for (level, lookups) in levels {
        lookups.report(&format!("{component}.l{level}"), counters);
    }
}

fn report_os(
    component: &str,
    os: &RunningOs,
    composite: Option<&'static dyn CompositePages>,
    counters: &mut Counters,
) {
    let memory = os.memory();
    // Exhaustive, so that a new counter does not compile until it is reported.
    let octavo_os::Counters {
        faults,
        faults_unmapped,
        copy_on_write_faults,
        bytes_zeroed,
        bytes_zeroed_ahead,
        bytes_copied,
        bytes_exchanged,
        hypercalls,
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
        bytes_present,
        pages_merged,
        pages_unmerged,
        folds,
        unfolds,
        anchors_written,
        anchor_distance_changes,
        // Counters of composite pages are reported by designs that have them.
        gapped: _,
        pages_with_holes: _,
        punches: _,
        patches: _,
        hole_shootdowns: _,
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
    let merging = [("pages_merged", pages_merged), ("pages_unmerged", pages_unmerged)];
    let merging = merging.into_iter().filter(|_| memory.tracks_stores());
    let blocks = [("folds", folds), ("unfolds", unfolds)];
    let blocks = blocks.into_iter().filter(|_| memory.block_pages().is_some());
    let anchors = [
        ("anchors_written", anchors_written),
        ("anchor_distance_changes", anchor_distance_changes),
    ];
    let anchors = anchors.into_iter().filter(|_| memory.anchor_distance().is_some());
    let cleared = [("bytes_zeroed_ahead", bytes_zeroed_ahead)];
    let cleared = cleared.into_iter().filter(|_| memory.clears_ahead);
    let exchanges = [("bytes_exchanged", bytes_exchanged), ("hypercalls", hypercalls)];
    let exchanges = exchanges.into_iter().filter(|_| memory.exchange_from.is_some());
    let optional = merging.chain(blocks).chain(anchors).chain(cleared).chain(exchanges);
    for (name, value) in counts.into_iter().chain(optional) {
        counters.add(component, name, value);
    }
    if let Some(composite) = composite {
        composite.report_memory(component, memory, counters);
    }
    let bytes = |frames: u64| frames * PageSize::BASE.bytes();
    let held = |owner| bytes(memory.frames.used_frames(owner));
    counters.level(component, "resident_bytes", held(Owner::Data));
    counters.level(component, "page_table_bytes", held(Owner::PageTable));
    counters.level(component, "reserved_bytes", held(Owner::Reserved));
    counters.level(component, "shadow_bytes", held(Owner::Shadow));
    let others = [true, false].map(|movable| held(Owner::Background { movable }));
    counters.level(component, "foreign_bytes", others.iter().sum());
    if held(Owner::Faulty) > 0 {
        counters.level(component, "faulty_bytes", held(Owner::Faulty));
    }
    if held(Owner::DesignTable) > 0 {
        counters.level(component, "design_table_bytes", held(Owner::DesignTable));
    }
    if memory.frames.sets_aside() {
        counters.level(component, "set_aside_bytes", held(Owner::SetAside));
    }
    if memory.tracks_stores() {
        let saved = memory.merged_pages().saturating_sub(1);
        counters.level(component, "merged_bytes", bytes(saved));
    }
    // A level, since a warm-up may begin afterwards.
    if bytes_present > 0 {
        counters.level(component, "present_bytes", bytes_present);
    }
    counters.level(component, "free_bytes", bytes(memory.frames.free_frames()));
    if memory.block_pages().is_some() {
        counters.level(component, "folded_bytes", bytes(memory.folded_entries()));
    }
    if let Some(pages) = memory.anchor_distance() {
        counters.level(component, "anchor_distance", pages);
    }
    if let Some(areas) = memory.sorted_areas() {
        counters.level(component, "sorted_areas", areas);
    }
    for DesignCounter { name, value, is_level } in memory.design_counters() {
        match is_level {
            true => counters.level(component, name, value),
            false => counters.add(component, name, value),
        }
    }
    if let Some(ranges) = memory.ranges() {
        counters.level(component, "ranges", ranges);
    }
    let peak = |owner| bytes(memory.frames.peak_frames(owner));
    counters.level(component, "peak_resident_bytes", peak(Owner::Data));
    counters.level(component, "peak_page_table_bytes", peak(Owner::PageTable));
    for size in memory.sizes() {
        counters.level(&format!("{component}.pages.{size}"), "mapped", memory.pages(*size));
    }
}
