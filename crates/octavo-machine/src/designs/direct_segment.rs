//! Direct segments (Basu et al., ISCA 2013), as Tailored Page Sizes tells of them (section V): a base, a
//! limit and an offset translate one range of an address space, and cost nothing; pages and TLBs
//! translate the rest, as the machine has them.
//!
//! What is assumed: in that paper a program says at its start which memory is to be its segment. Here
//! nobody has to be told: whenever a page walk has found a page in a longer range of anonymous memory
//! than the segment of its address space is, the operating system makes that range the segment. (Its
//! pages are mapped all the same, and stay in TLBs until they age out.) So it is the longest range that
//! has been touched, after one walk in it. The ranges are those of eager paging, each inside one
//! mapping.
//!
//! Loads and stores go through the segment; instructions do not, and no walk of theirs makes one.
//!
//! A segment has the rights of its range: a store that they do not allow goes to the pages. It has no
//! accessed and dirty bits, and what goes through it sets none. Where any of its pages becomes stale
//! there is no segment any more, until a walk makes one. What switches processes without identifiers of
//! address spaces empties it as it does the TLBs.

use octavo_config::TlbConfig;
use octavo_hw::Asid;
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions, PageNumber};

use super::Conventional;
use crate::config::ConfigError;
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::{Kind, LineAccess};

/// A machine's TLBs, and a direct segment beside them.
pub struct DirectSegment {
    paged: Conventional,
    /// By address space; those that are not there have none.
    segments: Vec<Segment>,
    lookups: Lookups,
    /// How often there was a new segment.
    set: u64,
}

/// Pages that are translated at once; none, where there is no segment.
#[derive(Clone, Copy, Default)]
struct Segment {
    first: u64,
    pages: u64,
    frame: u64,
    is_writable: bool,
}

impl Segment {
    /// Where a page lies, if it is in the segment and may be used so.
    #[inline(always)]
    fn look_up(&self, page: PageNumber, stores: bool) -> Option<FrameNumber> {
        let number = page.raw().wrapping_sub(self.first);
        let serves = number < self.pages && (!stores || self.is_writable);
        serves.then(|| FrameNumber::new(self.frame + number))
    }
}

impl DirectSegment {
    /// One that knows nothing.
    pub fn new(config: &TlbConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        let paged = Conventional::new(config, instructions)?;
        Ok(DirectSegment { paged, segments: Vec::new(), lookups: Lookups::default(), set: 0 })
    }

    #[inline(always)]
    fn look_up(&mut self, asid: Asid, page: PageNumber, access: LineAccess) -> Option<FrameNumber> {
        let segment = self.segments.get(usize::from(asid.raw()))?;
        let frame = segment.look_up(page, access.kind() == Kind::Store)?;
        self.lookups.hits += u64::from(access.lookups());
        Some(frame)
    }

    /// The TLBs translate a fetch.
    #[inline(always)]
    fn fetch(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let frame = self.paged.translate(env, access)?;
        self.apply_pending(env);
        Some(frame)
    }

    /// Segments of pages that a walk has made stale, of which it has told the TLBs alone.
    #[inline(always)]
    fn apply_pending(&mut self, env: &Env) {
        for invalidation in env.pending_invalidations() {
            self.invalidate_segment(env.asid_of(invalidation.process), &invalidation.pages);
        }
    }

    /// A page has been walked.
    #[inline(never)]
    fn walked(&mut self, env: &Env, page: PageNumber) {
        self.apply_pending(env);
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

    fn invalidate_segment(&mut self, asid: Asid, pages: &Pages) {
        if let Some(segment) = self.segments.get_mut(usize::from(asid.raw()))
            && segment.first < pages.end
            && pages.start < segment.first + segment.pages
        {
            *segment = Segment::default();
        }
    }
}

impl Design for DirectSegment {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let (asid, page) = (env.asid(), env.page(access));
        if access.kind().is_fetch() {
            return self.fetch(env, access);
        }
        if let Some(frame) = self.look_up(asid, page, access) {
            return Some(frame);
        }
        // What repeats the reference may be served by the segment that its walk makes.
        let walks = env.walks();
        let (first, others) = access.split();
        let frame = self.paged.translate(env, first)?;
        self.lookups.misses += u64::from(first.lookups());
        if env.walks() != walks {
            self.walked(env, page);
        }
        if access.repeats() > 0 && self.look_up(asid, page, others).is_none() {
            self.lookups.misses += u64::from(others.lookups());
            self.paged.translate(env, others)?;
        }
        Some(frame)
    }

    fn invalidate(&mut self, of: AddressSpace, pages: &Pages) {
        self.paged.invalidate(of, pages);
        self.invalidate_segment(of.asid, pages);
    }

    fn flush(&mut self) {
        self.paged.flush();
        self.segments.clear();
    }

    fn report(&self, counters: &mut Counters) {
        self.paged.report(counters);
        self.lookups.report("segment", counters);
        counters.add("segment", "set", self.set);
    }
}
