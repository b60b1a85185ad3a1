//! The interface of a translation design.

use octavo_hw::ServedBy;
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, PageNumber};

use crate::core::Speculation;
use crate::counters::Counters;
pub use crate::env::AddressSpace;
use crate::env::{Charged, CompositePages, Env, Verified};
use crate::front::{Filter, LineAccess};
use crate::tlb::Translation;

/// The memory-management unit of one core: finds the frame of each reference's page. It reaches page walks,
/// the operating system and the caches only through its [`Env`].
pub trait Design: Send {
    /// The strongest filter of repeated references under which the counts of this design stay exact. A design
    /// in which a miss on one side (fetches or data) may change the outcome of the other side's references
    /// tolerates only [`Filter::Adjacent`] or less.
    const FILTER: Filter = Filter::BySide;
    /// Whether software of the design interrupts programs ([`Charged::handlers`]).
    const INTERRUPTS: bool = false;
    /// How its hardware translates composite pages, if it has any.
    const COMPOSITE: Option<&'static dyn CompositePages> = None;
    /// Whether a walk translates a single line, so that other lines of its page do not wait for it.
    const TRANSLATES_LINES: bool = false;

    /// Whether the design needs the instruction of a reference to data ([`Env::site`]).
    const FOLLOWS_INSTRUCTIONS: bool = false;

    /// Translates a reference and [its repeats](LineAccess::lookups). Returns the base frame of its base
    /// page, or `None` when memory has run out.
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber>;

    /// Drops all translations of these base pages.
    fn invalidate(&mut self, space: AddressSpace, pages: &Pages);

    /// Called when every core has received all pending invalidations. A design that reads the new mappings in
    /// order to apply an invalidation does so here.
    #[inline(always)]
    fn apply_invalidations(&mut self, _env: &Env) {}

    /// Checks that `frame` is the frame that the page tables give for the page of an access.
    ///
    /// # Panics
    /// If it is not.
    fn check(&self, env: &Env, access: LineAccess, frame: FrameNumber) {
        env.check(access, frame);
    }

    /// Drops all translations.
    fn flush(&mut self);

    /// Adds the counters of this core's unit to `counters`.
    fn report(&self, counters: &mut Counters);

    /// The cycles charged so far, by what they are for. Designs that count cycles of their own add them.
    #[inline(always)]
    fn charged(&self, env: &Env) -> Charged {
        env.charged()
    }

    /// The level that served the last line that missed a first-level cache. Designs with caches of their own
    /// override it.
    fn served_by(&self, env: &Env) -> ServedBy {
        env.served_by()
    }

    /// Plays one reference: translates its page, then accesses the caches by the physical line. Returns the
    /// result of [`Design::translate`]. Designs with virtual caches override it.
    #[inline(always)]
    fn access(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let frame = self.translate(env, access)?;
        env.access_line(access, frame)
    }

    /// Calls [`Env::walk`] and applies the invalidations that the walk causes to this design. The machine
    /// notifies the other cores.
    fn walk(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        is_clean: bool,
    ) -> Option<Translation> {
        env.delivering(
            |env| env.walk(page, access.kind(), is_clean),
            |space, pages| self.invalidate(space, pages),
        )
    }

    /// Walks ([`Design::walk`]) for a reference that continues at a predicted frame meanwhile. A wrong prediction costs
    /// a flush: `flush_cycles` where cycles are added up. The prediction for a page that faults counts as wrong but
    /// costs no flush, since the fault itself flushes.
    fn walk_speculatively(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        (predicted, flush_cycles): (FrameNumber, u32),
    ) -> Option<(Translation, Verified)> {
        let faults = env.faulted_walks();
        env.begin_speculation();
        let translation = self.walk(env, page, access, false);
        let has_faulted = env.faulted_walks() > faults;
        let is_right = !has_faulted && env.frame(page) == Some(predicted);
        let speculation = match (has_faulted, is_right) {
            (true, _) => Speculation::None,
            (_, true) => Speculation::Right,
            _ => Speculation::Wrong,
        };
        let walk_cycles = env.end_speculation(speculation, flush_cycles);
        Some((translation?, Verified { is_right, has_faulted, walk_cycles }))
    }

    /// Calls [`Env::walk_in_background`] and applies the invalidations that the walk causes to this design.
    fn walk_in_background(&mut self, env: &mut Env, page: PageNumber) -> Option<u64> {
        env.delivering(
            |env| env.walk_in_background(page),
            |space, pages| self.invalidate(space, pages),
        )
    }

    /// Calls [`Env::resolve`] and applies the invalidations that it causes to this design.
    fn resolve(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation> {
        env.delivering(
            |env| env.resolve(page, access.kind()),
            |space, pages| self.invalidate(space, pages),
        )
    }
}
