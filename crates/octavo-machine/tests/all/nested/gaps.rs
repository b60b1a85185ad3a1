//! Gapped host pages: they occur in the comparisons, and their bitmaps are read.

use octavo_config::TlbsHold;

use super::machines::{Kind, NestedDesign};
use super::policies::HostPolicy;
use super::{compare, heap_kind, makes_of, through_a_heap};

/// No compared counter of gapped pages is always 0.
#[test]
fn compared_gtsm_events_occur() {
    let (stream, asides) = through_a_heap();
    let makes = |policy, tlbs_hold, what: &[(&str, &'static str)]| {
        let kind = Kind { has_faults: true, ..heap_kind(policy, false, tlbs_hold) };
        makes_of(NestedDesign::Gapped("gtsm"), kind, &stream, &asides, what);
    };
    let of_all = [
        ("host.os", "gapped"),
        ("tlb.l2.gapped", "hits"),
        ("tlb.nested", "hits"),
        ("walker.cache.bitmap", "hits"),
        ("walker.host", "bitmap_references"),
    ];
    for holds in [TlbsHold::Final, TlbsHold::Halves] {
        makes(HostPolicy::Gaps, holds, &of_all);
        makes(HostPolicy::GapsAlone, holds, &of_all);
        let promoted = [("host.os", "invepts"), ("host.os", "promotions"), of_all[1]];
        makes(HostPolicy::MakesGaps, holds, &promoted);
        let split = [("host.os", "invepts"), ("host.os", "splits"), of_all[1]];
        makes(HostPolicy::GappedSnapshots, holds, &split);
        makes(HostPolicy::Base, holds, &[("walker", "splintered")]);
    }
}

/// Without cached guest-physical translations, and with all memory in gapped pages, a bitmap is read for
/// every guest entry read and for every page walked to: by the host's walker for a base page, by the design's
/// on a bitmap-cache miss for 2 MiB.
#[test]
fn bitmaps_are_read_for_every_access_to_gapped_pages() {
    let (stream, _) = through_a_heap();
    let kind = Kind {
        host: 0,
        has_faults: true,
        ..heap_kind(HostPolicy::GapsAlone, false, TlbsHold::Final)
    };
    for policy in ["gtsm", "base"] {
        let of = compare(NestedDesign::Gapped(policy), kind, &stream, &Vec::new()).unwrap();
        let get = |component, counter| of.get(component, counter).unwrap();
        let entries = get("walker.guest", "references");
        let found = get("walker", "walks") - get("walker", "faulted");
        let read = get("walker.host", "bitmap_references");
        let asked = get("walker.cache.bitmap", "accesses");
        assert_eq!(get("walker", "splintered"), 0);
        match policy {
            "base" => assert_eq!((read - entries, asked), (found, 0)),
            // All pages but the code's are huge.
            _ => assert!(read == entries + get("walker.cache.bitmap", "misses") && asked > found),
        }
        assert!(entries > 0 && found > 0);
    }
}
