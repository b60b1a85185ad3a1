//! The conventional design: first-level TLBs for instructions and data, with arrays per page size; a unified
//! second-level TLB; and a page walk on a miss of both.

use std::sync::Arc;

use octavo_config::{MachineConfig, TlbConfig};
use octavo_hw::Asid;
use octavo_os::policy::OsConfig;
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions, PageNumber};

use crate::config::ConfigError;
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::LineAccess;
use crate::tlb::{
    Entry, EntrySettings, Evicted, KnownPartBits, L1Tlb, Lookup, Tlb, TlbEntry, Translation,
};

use super::build;
use super::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};

/// The machine as it is, with the page sizes of x86-64, and the bound without fragmentation.
#[rustfmt::skip]
pub const FAMILY: Family = Family::new(
    &[
        TranslationHardware::new("conventional", make),
        TranslationHardware {
            is_bound: true,
            ..TranslationHardware::new("unfragmented", make_unfragmented)
        },
    ],
    &[
        NamedDesign { name: "base4k", hardware: "conventional", policy: "base", about: "4 KiB pages on demand", figure: "translation" },
        NamedDesign { name: "thp", hardware: "conventional", policy: "thp", about: "Linux's transparent huge pages of 2 MiB", figure: "huge-pages" },
        NamedDesign { name: "reserved_thp", hardware: "conventional", policy: "reserved_thp", about: "huge pages by reservation, as FreeBSD has them", figure: "reservation" },
        NamedDesign { name: "ideal2m", hardware: "unfragmented", policy: "thp", about: "a bound: huge pages of 2 MiB in unfragmented memory", figure: "huge-pages" },
    ],
);

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    build::machine(config, setup, os, || Conventional::new(&config.tlb, setup.instructions))
}

fn make_unfragmented(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    make(config, &Setup { start: Arc::default(), host_start: None, ..setup.clone() }, os)
}

/// Entries that walks fill.
pub trait OfWalk: Entry {
    /// The entry of a walked page, with what the walk has seen of its neighbours.
    fn of_walk(
        settings: EntrySettings<Self>,
        env: &Env,
        page: PageNumber,
        walked: Translation,
    ) -> Translation<Self>;
}

impl OfWalk for TlbEntry {
    #[inline(always)]
    fn of_walk((): (), _env: &Env, _page: PageNumber, walked: Translation) -> Translation {
        walked
    }
}

/// The conventional design, with entries of the format `E` in the first level and `F` in the second.
pub struct Conventional<E: Entry = TlbEntry, F: Entry = E> {
    l1: L1Tlb<E>,
    l2: Option<Tlb<F>>,
    /// Settings of the entries that walks fill.
    settings: EntrySettings<F>,
    /// Whether a second-level hit on a part of a page fills the whole page into the first level.
    fills_whole_pages: bool,
    /// Vector bits known to first-level entries, if pages have parts with bits of their own.
    parts: Option<Box<KnownPartBits>>,
    /// The page that the last fill of the second level evicted.
    evicted_from_l2: Option<Evicted<F>>,
}

impl Conventional {
    /// A unit with empty TLBs.
    ///
    /// # Errors
    /// If an array's entries and ways do not fit.
    pub fn new(config: &TlbConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        Self::with_settings(config, (), (), instructions)
    }
}

impl<E: Entry + From<F>, F: OfWalk + From<E>> Conventional<E, F> {
    /// A unit with empty TLBs and these settings of the entries of the first and the second level.
    ///
    /// # Errors
    /// If an array's entries and ways do not fit.
    pub fn with_settings(
        config: &TlbConfig,
        first: EntrySettings<E>,
        second: EntrySettings<F>,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let l1 = L1Tlb::new(&config.first, first, instructions)?;
        let l2 = config.l2.as_ref().map(|config| Tlb::new(config, second, instructions));
        let l2 = l2.transpose().map_err(|error| ConfigError::Tlb { level: "l2", error })?;
        let l2 = l2.map(|l2| l2.with_additional(second));
        Ok(Conventional {
            l1,
            l2,
            settings: second,
            fills_whole_pages: false,
            parts: None,
            evicted_from_l2: None,
        })
    }

    /// Makes second-level hits fill whole pages into the first level.
    pub fn filling_whole_pages(self) -> Self {
        Conventional { fills_whole_pages: true, ..self }
    }

    /// Gives parts of pages of intermediate sizes accessed and dirty bits of their own, at most `vector_bits` each; 0 for
    /// none.
    pub fn with_vectors(self, vector_bits: u8) -> Self {
        let parts = (vector_bits > 0).then(|| Box::new(KnownPartBits::new(vector_bits)));
        Conventional { parts, ..self }
    }

    /// Updates the vectors after a first-level hit.
    #[inline(always)]
    fn mark_part(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        translation: &Translation<E>,
        access: LineAccess,
    ) {
        if let Some(parts) = &mut self.parts
            && parts.record_use(
                self.l1.side(access),
                env.asid(),
                page,
                &translation.page(),
                access.is_store(),
            )
        {
            env.mark_part(page, access.is_store(), false);
        }
    }

    /// Updates the vectors after a fill of the first level.
    fn mark_filled(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        translation: Translation<E>,
        (access, has_walked): (LineAccess, bool),
    ) {
        let Some(parts) = &mut self.parts else { return };
        let (side, asid) = (self.l1.side(access), env.asid());
        let is_new = match self.l1.entry_size(access, translation.size) {
            Some(size) => {
                parts.remove_entry(side, asid, page, size);
                let part = translation.part(page, size).page();
                parts.record_use(side, asid, page, &part, access.is_store())
            }
            None => parts.has_parts(translation.whole().size),
        };
        if is_new {
            env.mark_part(page, access.is_store(), has_walked);
        }
    }

    /// Serves a first-level miss.
    #[inline(never)]
    fn serve_l1_miss(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation<E>> {
        let in_second = self.look_up_l2(env, page, access);
        if let Lookup::Hit(translation) = in_second {
            self.mark_filled(env, page, translation, (access, false));
            return Some(translation);
        }
        let translation = self.walk_and_fill_l2(env, page, access, in_second)?;
        self.fill_l1(env.asid(), page, translation, access);
        self.mark_filled(env, page, translation, (access, true));
        Some(translation)
    }

    /// Replaces a first-level entry that does not permit the access by the result of a walk.
    #[inline(never)]
    fn serve_permission_miss(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        in_first: Lookup<E>,
    ) -> Option<Translation<E>> {
        // The second level may hold the page, too.
        let translation = self.walk_and_fill_l2(env, page, access, in_first)?;
        self.replace_l1(env.asid(), page, translation, access);
        self.mark_filled(env, page, translation, (access, true));
        Some(translation)
    }

    fn walk_and_fill_l2(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        held: Lookup<E>,
    ) -> Option<Translation<E>> {
        let translation = self.walk(env, page, access, held.is_clean())?;
        let translation = F::of_walk(self.settings, env, page, translation);
        self.fill_l2(env.asid(), page, translation, held);
        Some(translation.in_format())
    }

    /// The first level.
    pub(super) fn l1(&self) -> &L1Tlb<E> {
        &self.l1
    }

    /// Looks a page up in the first level.
    #[inline(always)]
    pub(super) fn look_up_l1(
        &mut self,
        env: &Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Lookup<E> {
        self.l1.look_up(env.asid(), page, access)
    }

    /// Looks a page up in the second level after a first-level miss. A hit fills the first level.
    pub(super) fn look_up_l2(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Lookup<E> {
        let asid = env.asid();
        let Some(l2) = &mut self.l2 else { return Lookup::Miss };
        let lookup = Lookup::of(env.look_up_l2(l2, page), access.is_store());
        let translation: Translation<E> = match lookup {
            Lookup::Hit(translation) => translation.in_format(),
            Lookup::PermissionMiss { is_clean } => return Lookup::PermissionMiss { is_clean },
            Lookup::Miss => return Lookup::Miss,
        };
        if l2.holds_victims() {
            l2.remove(asid, page);
        }
        let translation = if self.fills_whole_pages { translation.whole() } else { translation };
        self.fill_l1(asid, page, translation, access);
        Lookup::Hit(translation)
    }

    /// Latency of a second-level look-up, in addition to the first.
    pub(super) fn l2_latency_cycles(&self) -> u32 {
        self.l2.as_ref().map_or(0, Tlb::hit_latency_cycles)
    }

    /// Fills a walked page into the second level, unless that holds victims; an entry that did not permit the
    /// access is removed.
    pub(super) fn fill_l2(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation<F>,
        in_second: Lookup<E>,
    ) {
        if let Some(l2) = &mut self.l2 {
            if !matches!(in_second, Lookup::Miss) {
                l2.remove(asid, page);
            }
            if !l2.holds_victims() {
                self.evicted_from_l2 = l2.fill(asid, page, translation, 1);
            }
        }
    }

    /// The second level, if there is one.
    pub(super) fn l2(&mut self) -> Option<&mut Tlb<F>> {
        self.l2.as_mut()
    }

    /// Returns, once, the page that the last fill of the second level evicted.
    pub fn take_evicted_from_l2(&mut self) -> Option<Evicted<F>> {
        self.evicted_from_l2.take()
    }

    /// Fills a page into the first level after a miss.
    pub(super) fn fill_l1(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation<E>,
        access: LineAccess,
    ) {
        let evicted = self.l1.fill(asid, page, translation, access);
        self.handle_eviction(evicted, access);
    }

    /// Replaces a first-level entry that did not permit the access.
    pub(super) fn replace_l1(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation<E>,
        access: LineAccess,
    ) {
        if let Some(parts) = &mut self.parts {
            parts.remove_page(self.l1.side(access), asid, page);
        }
        let evicted = self.l1.replace(asid, page, translation, access);
        self.handle_eviction(evicted, access);
    }

    /// Drops the known vector bits of an evicted first-level entry, and fills it into a second level that holds
    /// victims.
    fn handle_eviction(&mut self, evicted: Option<Evicted<E>>, access: LineAccess) {
        if let (Some(parts), Some((asid, page, translation))) = (&mut self.parts, evicted) {
            parts.remove_entry(self.l1.side(access), asid, page, translation.size);
        }
        if let (Some(l2), Some((asid, page, translation))) = (&mut self.l2, evicted)
            && l2.holds_victims()
        {
            self.evicted_from_l2 = l2.fill(asid, page, translation.in_format(), 1);
        }
    }
}

impl<E: Entry + From<F>, F: OfWalk + From<E>> Design for Conventional<E, F> {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let translation = match self.look_up_l1(env, page, access) {
            Lookup::Hit(translation) => {
                self.mark_part(env, page, &translation, access);
                translation
            }
            Lookup::Miss => self.serve_l1_miss(env, page, access)?,
            held => self.serve_permission_miss(env, page, access, held)?,
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.l1.invalidate(space.asid, pages);
        if let Some(parts) = &mut self.parts {
            parts.invalidate(space.asid, pages);
        }
        if let Some(l2) = &mut self.l2 {
            l2.invalidate(space.asid, pages);
        }
    }

    fn flush(&mut self) {
        self.l1.clear();
        if let Some(parts) = &mut self.parts {
            parts.clear();
        }
        if let Some(l2) = &mut self.l2 {
            l2.clear();
        }
    }

    fn report(&self, counters: &mut Counters) {
        self.l1.report(counters);
        if let Some(l2) = &self.l2 {
            l2.report("tlb.l2", counters);
        }
    }
}
