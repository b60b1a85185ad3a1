//! Direct segments (Basu et al., ISCA 2013), as described by Guvenilir and Patt (ISCA 2020, section V): base,
//! limit and offset registers translate one range of an address space at no cost; TLBs and page walks
//! translate the rest.
//!
//! Assumption: in that paper the program declares at its start which memory forms its segment. Here the
//! operating system chooses: when a page walk finds a page in a range of anonymous memory longer than the
//! current segment of its address space, that range becomes the segment. (Its pages stay mapped, and their
//! TLB entries age out.) The segment is thus the longest range touched so far, after one walk in it. Ranges
//! come from eager paging, each inside one mapping, which ends where permissions or the advice on huge pages differ.
//!
//! Loads and stores use the segment; fetches do not, and their walks create none.
//!
//! A segment has the permissions of its range: a store that they do not allow uses the pages. Accesses
//! through the segment set no accessed or dirty bits. An invalidation of any of its pages removes the segment
//! until a walk creates another. A context switch without address-space identifiers clears it as it flushes
//! the TLBs.

use octavo_config::{MachineConfig, TlbConfig};
use octavo_hw::Asid;
use octavo_os::policy::OsConfig;
use octavo_os::vmas::Pages;
use octavo_types::{Access, FrameNumber, Instructions, PageNumber};

use super::registry::{Family, MachineResult, NamedDesign, RANGES, Setup, TranslationHardware};
use super::{Conventional, build};
use crate::config::ConfigError;
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::LineAccess;

/// Direct segments.
#[rustfmt::skip]
pub const FAMILY: Family = Family::new(
    &[TranslationHardware {
        needs: Some(&RANGES),
        ..TranslationHardware::new("direct_segment", make)
    }],
    &[NamedDesign { name: "direct_segment", hardware: "direct_segment", policy: "eager", about: "a direct segment for the longest range, pages for the rest", figure: "direct-segment" }],
);

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    build::machine(config, setup, os, || DirectSegment::new(&config.tlb, setup.instructions))
}

/// A conventional design with a direct segment.
pub struct DirectSegment {
    conventional: Conventional,
    /// The segment of each address space, by identifier; empty if absent.
    segments: Vec<Segment>,
    lookups: Lookups,
    /// Number of segments created.
    set: u64,
}

/// A range of pages with its first frame; empty if there is no segment.
#[derive(Clone, Copy, Default)]
struct Segment {
    first: u64,
    pages: u64,
    frame: u64,
    is_writable: bool,
}

impl Segment {
    /// The frame of a page, if the segment holds it and permits the access.
    #[inline(always)]
    fn look_up(&self, page: PageNumber, stores: bool) -> Option<FrameNumber> {
        let number = page.raw().wrapping_sub(self.first);
        let serves = number < self.pages && (!stores || self.is_writable);
        serves.then(|| FrameNumber::new(self.frame + number))
    }
}

impl DirectSegment {
    /// A unit with empty TLBs and no segment.
    pub fn new(config: &TlbConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        let conventional = Conventional::new(config, instructions)?;
        Ok(DirectSegment {
            conventional,
            segments: Vec::new(),
            lookups: Lookups::default(),
            set: 0,
        })
    }

    #[inline(always)]
    fn look_up(&mut self, asid: Asid, page: PageNumber, access: LineAccess) -> Option<FrameNumber> {
        let segment = self.segments.get(usize::from(asid.raw()))?;
        let frame = segment.look_up(page, access.kind() == Access::Store)?;
        self.lookups.hits += u64::from(access.lookups());
        Some(frame)
    }

    /// Translates by the TLBs.
    #[inline(always)]
    fn translate_by_tlbs(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let frame = self.conventional.translate(env, access)?;
        self.invalidate_segments(env);
        Some(frame)
    }

    /// Applies the invalidations of walks to the segments: the TLBs have applied them to themselves only.
    #[inline(always)]
    fn invalidate_segments(&mut self, env: &Env) {
        env.repeat_delivery(|space, pages| {
            invalidate_segment(&mut self.segments, space.asid, pages);
        });
    }

    /// Considers the range of a walked page as a new segment.
    #[inline(never)]
    fn consider_range(&mut self, env: &Env, page: PageNumber) {
        let process = env.os().memory().process(env.process());
        let Some(range) = env.range(page) else { return };
        let Some((mapping, vma)) = process.vmas.find(page) else { return };
        let first = range.pages.start.max(mapping.start);
        let pages = range.pages.end.min(mapping.end) - first;
        let space = usize::from(env.asid().raw());
        if self.segments.len() <= space {
            self.segments.resize(space + 1, Segment::default());
        }
        let segment = &mut self.segments[space];
        if vma.is_anonymous() && pages > segment.pages {
            let frame = range.frame.raw() + (first - range.pages.start);
            *segment = Segment { first, pages, frame, is_writable: range.rights.write };
            self.set += 1;
        }
    }
}

/// Drops the segment of an address space if it has any of these pages.
fn invalidate_segment(segments: &mut [Segment], asid: Asid, pages: &Pages) {
    if let Some(segment) = segments.get_mut(usize::from(asid.raw()))
        && segment.first < pages.end
        && pages.start < segment.first + segment.pages
    {
        *segment = Segment::default();
    }
}

impl Design for DirectSegment {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let (asid, page) = (env.asid(), env.page(access));
        if access.kind().is_fetch() {
            return self.translate_by_tlbs(env, access);
        }
        if let Some(frame) = self.look_up(asid, page, access) {
            return Some(frame);
        }
        // The walk may create a segment that serves the repeats.
        let walks = env.walks();
        let (first, others) = access.split();
        let frame = self.conventional.translate(env, first)?;
        self.lookups.misses += u64::from(first.lookups());
        if env.walks() != walks {
            self.invalidate_segments(env);
            self.consider_range(env, page);
        }
        if access.repeats() > 0 && self.look_up(asid, page, others).is_none() {
            self.lookups.misses += u64::from(others.lookups());
            self.translate_by_tlbs(env, others)?;
        }
        Some(frame)
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.conventional.invalidate(space, pages);
        invalidate_segment(&mut self.segments, space.asid, pages);
    }

    fn flush(&mut self) {
        self.conventional.flush();
        self.segments.clear();
    }

    fn report(&self, counters: &mut Counters) {
        self.conventional.report(counters);
        self.lookups.report("segment", counters);
        counters.add("segment", "set", self.set);
    }
}
