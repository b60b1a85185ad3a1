//! Pages with gaps of a host: that there are any where machines are compared, and what is read for them.

use octavo_config::TlbsHold;

use super::machines::{Kind, Translates};
use super::policies::HostPolicy;
use super::{compare, heap_kind, makes_of, through_a_heap};

/// Nothing that is compared of them is always 0.
#[test]
fn compared_gtsm_events_occur() {
    let (stream, asides) = through_a_heap();
    let makes = |policy, tlbs_hold, what: &[(&str, &'static str)]| {
        let kind = Kind { has_faults: true, ..heap_kind(policy, false, tlbs_hold) };
        makes_of(Translates::Gapped("gtsm"), kind, &stream, &asides, what);
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

/// Where nothing is cached of guest-physical memory, and all of it lies in pages with gaps, a bitmap is read
/// for every entry of the guest's table that is read, and for every page of it that is walked to: of a base page
/// by the host's walker, of 2 MiB by that of the design, if it does not have it.
#[test]
fn bitmaps_are_read_for_every_access_to_gapped_pages() {
    let (stream, _) = through_a_heap();
    let kind = Kind {
        host: 0,
        has_faults: true,
        ..heap_kind(HostPolicy::GapsAlone, false, TlbsHold::Final)
    };
    for policy in ["gtsm", "base"] {
        let of = compare(Translates::Gapped(policy), kind, &stream, &Vec::new()).unwrap();
        let get = |component, counter| of.get(component, counter).unwrap();
        let entries = get("walker.guest", "references");
        let found = get("walker", "walks") - get("walker", "faulted");
        let read = get("walker.host", "bitmap_references");
        let asked = get("walker.cache.bitmap", "accesses");
        assert_eq!(get("walker", "splintered"), 0);
        match policy {
            "base" => assert_eq!((read - entries, asked), (found, 0)),
            // All is huge but the code.
            _ => assert!(read == entries + get("walker.cache.bitmap", "misses") && asked > found),
        }
        assert!(entries > 0 && found > 0);
    }
}
