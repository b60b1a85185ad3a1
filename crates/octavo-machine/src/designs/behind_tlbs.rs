//! Hardware behind conventional TLBs: what serves a miss of both levels.

use octavo_types::{FrameNumber, PageNumber};

use super::Conventional;
use crate::design::Design;
use crate::env::Env;
use crate::front::LineAccess;
use crate::tlb::{Lookup, Translation};

/// A design with conventional TLBs that does more than walk when they miss.
pub trait BehindTlbs: Design {
    /// The TLBs.
    fn tlbs(&mut self) -> &mut Conventional;

    /// Looks a page up after the second level, which has missed or does not permit the access.
    fn look_up_behind(
        &mut self,
        _env: &mut Env,
        _page: PageNumber,
        _access: LineAccess,
        _in_second: &Lookup,
    ) -> Lookup {
        Lookup::Miss
    }

    /// Walks to a page, and fills the second level. `held` is the entry of a level that does not permit the access, if
    /// there is one; `is_clean` says whether the walk is made to set a dirty bit.
    fn walk_and_fill_l2(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        (held, is_clean): (Lookup, bool),
    ) -> Option<Translation> {
        let translation = self.walk(env, page, access, is_clean)?;
        self.tlbs().fill_l2(env.asid(), page, translation, held);
        Some(translation)
    }

    /// Serves a first-level miss.
    #[inline(never)]
    fn serve_l1_miss(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation> {
        let in_second = self.tlbs().look_up_l2(env, page, access);
        if let Lookup::Hit(translation) = in_second {
            return Some(translation);
        }
        let translation = match self.look_up_behind(env, page, access, &in_second) {
            Lookup::Hit(translation) => {
                self.tlbs().fill_l2(env.asid(), page, translation, in_second);
                translation
            }
            behind => {
                let is_clean = in_second.is_clean() || behind.is_clean();
                self.walk_and_fill_l2(env, page, access, (in_second, is_clean))?
            }
        };
        self.tlbs().fill_l1(env.asid(), page, translation, access);
        Some(translation)
    }

    /// Replaces a first-level entry that does not permit the access.
    #[inline(never)]
    fn serve_permission_miss(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        in_first: Lookup,
    ) -> Option<Translation> {
        let is_clean = in_first.is_clean();
        let translation = self.walk_and_fill_l2(env, page, access, (in_first, is_clean))?;
        self.tlbs().replace_l1(env.asid(), page, translation, access);
        Some(translation)
    }

    /// Called after the TLBs have been filled. `None` when memory has run out.
    fn after_fill(&mut self, _env: &mut Env) -> Option<()> {
        Some(())
    }

    /// [`Design::translate`].
    #[inline(always)]
    fn translate_behind_tlbs(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let translation = match self.tlbs().look_up_l1(env, page, access) {
            Lookup::Hit(translation) => return Some(translation.frame_of(page)),
            Lookup::Miss => self.serve_l1_miss(env, page, access)?,
            held => self.serve_permission_miss(env, page, access, held)?,
        };
        self.after_fill(env)?;
        Some(translation.frame_of(page))
    }
}
