//! What a translation design is.

use octavo_hw::Asid;
use octavo_os::ProcessId;
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, PageNumber};

use crate::counters::Counters;
use crate::env::Env;
use crate::front::{Filter, LineAccess};
use crate::tlb::Translation;

/// Whose translations they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressSpace {
    /// As the operating system knows it: what has tables in software, too.
    pub process: ProcessId,
    /// As entries have it: the same for all where they are flushed at a switch.
    pub asid: Asid,
}

/// The memory-management unit of one core: how a reference finds where its page lies. It reaches
/// page walks, the operating system and the caches only through its [`Env`].
pub trait Design: Send {
    /// Which repeats may be left out for it at most. Where what one side misses may change what the other
    /// finds, only those right behind what they repeat.
    const FILTER: Filter = Filter::BySide;

    /// Translates a reference and [those that repeat it](LineAccess::lookups): the base frame in
    /// which its base page lies, or none where memory has run out.
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber>;

    /// Forgets all translations of these base pages.
    fn invalidate(&mut self, of: AddressSpace, pages: &Pages);

    /// All that has to be forgotten for now has been told: who has to see what pages are like since then
    /// does so here.
    #[inline(always)]
    fn apply_invalidations(&mut self, _env: &Env) {}

    /// That the page of an access lies in `frame` is what the operating system says, too.
    ///
    /// # Panics
    /// Where it does not.
    fn check(&self, env: &Env, access: LineAccess, frame: FrameNumber) {
        env.check(access, frame);
    }

    /// Forgets all translations.
    fn flush(&mut self);

    /// Adds what it counted.
    fn report(&self, counters: &mut Counters);

    /// A reference: here the page is translated before any cache is asked. Says what
    /// [`Design::translate`] does.
    #[inline(always)]
    fn access(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let frame = self.translate(env, access)?;
        env.access_line(access, frame)
    }

    /// [`Env::walk`]; what has become stale by it is forgotten here. The machine tells other cores.
    fn walk(&mut self, env: &mut Env, page: PageNumber, access: LineAccess) -> Option<Translation> {
        applying_invalidations(self, env, |env| env.walk(page, access.kind()))
    }

    /// [`Env::resolve`]; what has become stale by it is forgotten here.
    fn resolve(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation> {
        applying_invalidations(self, env, |env| env.resolve(page, access.kind()))
    }
}

/// Asks something of the rest of the machine; the design forgets what has become stale by that.
pub(crate) fn applying_invalidations<D: Design + ?Sized, T>(
    design: &mut D,
    env: &mut Env,
    ask: impl FnOnce(&mut Env) -> T,
) -> T {
    let told = env.pending_invalidations().len();
    let answer = ask(env);
    for invalidation in &env.pending_invalidations()[told..] {
        design.invalidate(env.address_space(invalidation.process), &invalidation.pages);
    }
    answer
}
