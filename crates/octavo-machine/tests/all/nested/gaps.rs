//! Gapped host pages: they occur in the comparisons, and their bitmaps are read.

use octavo_config::TlbsHold;

use super::machines::{Kind, NestedDesign};
use super::policies::HostPolicy;
use super::{check_occur_with, compare, heap_kind, heap_passes};

/// No compared counter of gapped pages is always 0.
#[test]
fn compared_gtsm_events_occur() {
    let (stream, asides) = heap_passes();
    let check_occur = |policy, tlbs_hold, counters: &[(&str, &'static str)]| {
        let kind = Kind { has_faults: true, ..heap_kind(policy, false, tlbs_hold) };
        check_occur_with(NestedDesign::Gapped("gtsm"), kind, &stream, &asides, counters);
    };
    let all_kinds = [
        ("host.os", "gapped"),
        ("tlb.l2.gapped", "hits"),
        ("tlb.nested", "hits"),
        ("walker.cache.bitmap", "hits"),
        ("walker.host", "bitmap_references"),
    ];
    for holds in [TlbsHold::Final, TlbsHold::Halves] {
        check_occur(HostPolicy::Gaps, holds, &all_kinds);
        check_occur(HostPolicy::GapsAlone, holds, &all_kinds);
        let promoted = [("host.os", "invepts"), ("host.os", "promotions"), all_kinds[1]];
        check_occur(HostPolicy::MakesGaps, holds, &promoted);
        let split = [("host.os", "invepts"), ("host.os", "splits"), all_kinds[1]];
        check_occur(HostPolicy::GappedSnapshots, holds, &split);
        check_occur(HostPolicy::Base, holds, &[("walker", "splintered")]);
    }
}

/// Without a nested TLB and with all host memory in gapped pages, a bitmap is read for every guest entry that is read
/// and for every page that is walked to: by the host's walker for a base page, and by the design's on a miss of the
/// bitmap cache for a 2 MiB page.
#[test]
fn bitmaps_are_read_for_every_access_to_gapped_pages() {
    let (stream, _) = heap_passes();
    let kind = Kind {
        host: 0,
        has_faults: true,
        ..heap_kind(HostPolicy::GapsAlone, false, TlbsHold::Final)
    };
    for policy in ["gtsm", "base"] {
        let counters = compare(NestedDesign::Gapped(policy), kind, &stream, &Vec::new()).unwrap();
        let get = |component, counter| counters.get(component, counter).unwrap();
        let entries = get("walker.guest", "references");
        let found = get("walker", "walks") - get("walker", "faulted");
        let read = get("walker.host", "bitmap_references");
        let lookups = get("walker.cache.bitmap", "accesses");
        assert_eq!(get("walker", "splintered"), 0);
        match policy {
            "base" => assert_eq!((read - entries, lookups), (found, 0)),
            // All pages except those of the code are huge.
            _ => assert!(read == entries + get("walker.cache.bitmap", "misses") && lookups > found),
        }
        assert!(entries > 0 && found > 0);
    }
}
