//! Utopia (Kanellopoulos, Bera, Stojiljkovic, Bostanci, Firtina, Ausavarungnirun, Kumar, Hajinazar, Sadrosadati,
//! Vijaykumar and Mutlu, "Utopia: Fast and Efficient Address Translation via Hybrid Restrictive & Flexible
//! Virtual-to-Physical Address Mappings", MICRO 2023): a part of memory is set-associative like a cache, so that a read of
//! tags finds a page there, in place of a walk of the page table.
//!
//! - The *restrictive segment* has sets of 16 frames. A page number modulo the number of sets gives the set of a page. At
//!   a page fault the page takes the first free frame of its set; if there is none, it takes any frame of memory. This is
//!   the policy `restseg`, which other designs may have, too.
//! - The *tags* of a set fill a line of memory, 4 bytes for each frame. The *filter* has a byte for each set, the
//!   number of its frames with data.
//! - After a miss of the TLBs, hardware reads the filter. If it is not zero, it reads the tags of the set. A page that is
//!   found there is translated. Otherwise the radix tree is walked, through the walk caches.
//! - In a guest, guest and host each have such a segment, if their policies make them. The host translates the addresses
//!   of the guest's tags.
//!
//! Assumptions: the paper's abstract and summaries of it by others were available, its text was not. Filter and tags are
//! read through the data caches; the paper has a cache of 2 KB for each beside the walker. The walk of the radix tree
//! begins after the tags are read; the paper also has a variant in which both begin together. There is one segment, of
//! base pages; the paper has a second one of 2 MiB pages. Pages neither move into the segment, as walks find them
//! costly, nor leave it for others. The radix tree has an entry for each page. Accessed and dirty bits of a page in the
//! segment are in its tag. Processes that share a frame after a fork share its tag. The segment is at the end of local
//! memory; where memory has no room for the tables, there is none. Frames there that are in use at the start take no
//! page. Where too few other frames are free, the free frames of the segment are used for any purpose. Writes of tags
//! and filter by the operating system take no time.

mod policy;
mod segment;

use octavo_config::MachineConfig;
use octavo_os::policy::{OsConfig, PolicyEntry};

use self::policy::{RESTRICTED_FRAMES, RestSegConfig};
use self::segment::Segment;
use crate::counters::Counters;
use crate::designs::build::{self, HardwareFormat, Tables};
use crate::designs::registry::{
    Family, MachineResult, NamedDesign, Requirement, Setup, TranslationHardware,
};
use crate::env::{WalkPlan, WalkRequest, Walker};

#[cfg(test)]
mod naive;

/// Pages in a set-associative part of memory.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    policies: &[PolicyEntry::new::<RestSegConfig>("restseg", "base pages, in a set-associative part of memory if their set has a free frame")],
    ..Family::new(
    &[TranslationHardware {
        needs: Some(&Requirement { capability: RESTRICTED_FRAMES, is_of_host: false }),
        ..TranslationHardware::new("utopia", make)
    }],
    &[NamedDesign { name: "utopia", hardware: "utopia", policy: "restseg", about: "Utopia: a part of memory is set-associative, and its tags take the place of a walk", figure: "translation" }],
)};

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    let walker = |_: &MachineConfig| -> Box<dyn Walker> { Box::new(TagWalker::default()) };
    let hardware = Some(HardwareFormat { table: None, walker });
    build::conventional(config, setup, Tables { hardware, ..Tables::default() }, os)
}

/// The walker of a core. It counts walks by where they have found the page.
#[derive(Default)]
struct TagWalker {
    in_segment: u64,
    outside_segment: u64,
    filtered: u64,
}

impl Walker for TagWalker {
    fn plan(&mut self, request: &WalkRequest<'_>, plan: &mut WalkPlan) {
        if let Some(segment) = request.memory.placement::<Segment>() {
            plan.probe(segment.filter(request.page));
            if segment.has_data(request.page, &request.memory.frames) {
                plan.wait();
                let leaf = request.table().leaf(request.page);
                let way = leaf.and_then(|leaf| segment.way(request.page, &leaf));
                let tag = segment.tag(request.page, way.unwrap_or(0));
                plan.probe(tag);
                if way.is_some() {
                    self.in_segment += 1;
                    plan.entry = Some(tag);
                    return;
                }
                self.outside_segment += 1;
            } else {
                self.filtered += 1;
            }
        }
        plan.walk_radix(request);
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        let walks = [
            ("in_segment", self.in_segment),
            ("outside_segment", self.outside_segment),
            ("filtered", self.filtered),
        ];
        for (name, count) in walks {
            counters.add(&format!("{component}.walks"), name, count);
        }
    }

    fn uses_walk_caches(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::designs::DesignSpec;

    #[test]
    fn other_policies_are_rejected_with_one_sentence() {
        assert_eq!(
            DesignSpec::parse("utopia+thp").unwrap_err().to_string(),
            "utopia+thp: utopia needs a set-associative part of memory, which the policy `thp` does not make: give \
             utopia with the policy restseg"
        );
        assert!(DesignSpec::parse("conventional+restseg").is_ok());
    }
}
