//! The pages that may have lines in the caches, and the permissions of those lines.
//!
//! Cache lines hold permissions of their page, so that a change of the page has to *sweep* the caches for its
//! lines (section 5.4). A frame mapped at several global addresses could have lines at each, *synonyms*, of
//! which only one would see a store (section 3.1). As operating systems do on such caches, synonyms are
//! handled page by page: a frame that is stored to has lines at one address only, and a frame with lines at
//! several addresses is not stored to. An access that would break this sweeps the lines of the other
//! addresses first. With [`Aliasing::Refuse`] it is an error, as if the operating system forbade such
//! mappings.
//!
//! Memory shared by global address has lines at one address for all processes. The lines stay as long as one
//! process still maps the page that has missed a line of it.

use std::collections::hash_map::Entry;

use super::settings::Aliasing;
use octavo_hw::{Change, GlobalAddr, Swept, VirtualCaches};
use octavo_os::ProcessId;
use octavo_os::vmas;
use octavo_types::{FrameNumber, PageNumber, PageSize};
use rustc_hash::{FxHashMap, FxHashSet};

use super::DATA;
use super::sweeps::{AllSweeps, Kind};
use crate::tlb::Translation;

/// Grants or revokes store permission of lines.
const WRITABLE: Change = Change::Rights { may_store: true };
const READ_ONLY: Change = Change::Rights { may_store: false };

/// A base page of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageOf {
    /// The process.
    pub process: ProcessId,
    /// The page number.
    pub page: PageNumber,
}

/// State of a page of the global space with cached lines.
#[derive(Clone, PartialEq, Eq, Debug)]
struct CachedPage {
    frame: FrameNumber,
    /// Whether any of its lines has store permission. If not, none is dirty.
    may_store: bool,
    /// Whether it was fetched from, and whether it was loaded or stored.
    sides: [bool; 2],
    /// The mapped process pages that have missed lines of it: one, unless its memory is shared.
    users: Vec<PageOf>,
}

/// The pages that may have lines in the caches.
pub struct Pages {
    /// Bytes per unit of protection: a page, or less.
    protection_bytes: u64,
    kept: FxHashMap<GlobalAddr, CachedPage>,
    /// The cached pages of each frame.
    by_frame: FxHashMap<FrameNumber, Vec<GlobalAddr>>,
    /// The cached page of each process page.
    by_user: FxHashMap<PageOf, GlobalAddr>,
    /// Counts of sweeps.
    pub sweeps: AllSweeps,
}

/// A use of a synonym that is [refused](Aliasing::Refuse).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SynonymRefused;

impl Pages {
    /// No pages. Protection applies to units of `protection_bytes`.
    pub fn new(protection_bytes: u64) -> Self {
        Pages {
            protection_bytes,
            kept: FxHashMap::default(),
            by_frame: FxHashMap::default(),
            by_user: FxHashMap::default(),
            sweeps: AllSweeps::default(),
        }
    }

    /// Prepares to fill or store to a line of a page: sweeps the lines of other addresses of its frame.
    /// Returns whether the line may have store permission, given that the page table's is `may_store`.
    pub fn claim(
        &mut self,
        caches: &mut VirtualCaches,
        (page, at): (PageOf, GlobalAddr),
        (frame, may_store): (FrameNumber, bool),
        (side, stores): (usize, bool),
        aliases: Aliasing,
    ) -> Result<bool, SynonymRefused> {
        let synonyms: Vec<(GlobalAddr, Change)> = self
            .synonyms(frame, at)
            .filter_map(|other| match stores {
                true => Some((other, Change::Drop)),
                false => self.kept[&other].may_store.then_some((other, READ_ONLY)),
            })
            .collect();
        if aliases == Aliasing::Refuse && !synonyms.is_empty() {
            return Err(SynonymRefused);
        }
        self.add_user(page, at, frame);
        for (other, change) in synonyms {
            self.change(caches, other, change, Kind::Synonym);
        }
        let may_store = may_store && (stores || self.by_frame[&frame].len() == 1);
        let kept = self.kept.get_mut(&at).expect("it was put there");
        debug_assert_eq!(kept.frame, frame, "a page that has moved was swept");
        kept.sides[side] = true;
        kept.may_store |= may_store;
        Ok(may_store)
    }

    /// Writes dirty lines of a frame back, before the operating system reads the frame by another address.
    pub fn write_back_frame(&mut self, caches: &mut VirtualCaches, frame: FrameNumber) {
        let pages = self.by_frame.get(&frame).into_iter().flatten();
        let open: Vec<GlobalAddr> =
            pages.copied().filter(|page| self.kept[page].may_store).collect();
        for page in open {
            self.change(caches, page, READ_ONLY, Kind::Synonym);
        }
    }

    /// A process page that maps a cached page.
    pub fn user(&self, addr: GlobalAddr) -> PageOf {
        self.kept[&page_of(addr)].users[0]
    }

    /// The other cached addresses of a frame.
    fn synonyms(
        &self,
        frame: FrameNumber,
        at: GlobalAddr,
    ) -> impl Iterator<Item = GlobalAddr> + '_ {
        let pages = self.by_frame.get(&frame).into_iter().flatten().copied();
        pages.filter(move |page| *page != at)
    }

    /// Records that a process page maps a page of the global space.
    fn add_user(&mut self, user: PageOf, at: GlobalAddr, frame: FrameNumber) {
        let Entry::Vacant(vacant) = self.by_user.entry(user) else { return };
        vacant.insert(at);
        let kept = self.kept.entry(at).or_insert_with(|| {
            self.by_frame.entry(frame).or_default().push(at);
            CachedPage { frame, may_store: false, sides: [false; 2], users: Vec::new() }
        });
        kept.users.push(user);
    }

    /// Grants store permission after a [claim](Self::claim): to the line if `is_lazy`, else to all lines of
    /// its unit of protection.
    pub fn grant_store(&mut self, caches: &mut VirtualCaches, line: GlobalAddr, is_lazy: bool) {
        if is_lazy {
            self.sweeps.add(Kind::Lazy, caches.sweep(DATA, line, 1, WRITABLE));
        } else {
            self.protect(caches, line, WRITABLE);
        }
    }

    /// Revokes store permission of a line's unit of protection. A later store asks again.
    pub fn revoke_store(&mut self, caches: &mut VirtualCaches, line: GlobalAddr) {
        self.protect(caches, line, READ_ONLY);
    }

    /// Flushes the page of a line before a device transfer, which sees memory only.
    pub fn flush(&mut self, caches: &mut VirtualCaches, line: GlobalAddr) {
        self.change(caches, page_of(line), Change::Drop, Kind::Dma);
    }

    /// Changes a line's unit of protection.
    fn protect(&mut self, caches: &mut VirtualCaches, line: GlobalAddr, change: Change) {
        let bytes = self.protection_bytes;
        if bytes == PageSize::BASE.bytes() {
            self.change(caches, page_of(line), change, Kind::Protection);
            return;
        }
        // Other lines of the page may keep store permission.
        let from = GlobalAddr::new(line.raw() / bytes * bytes);
        let sides = self.kept[&page_of(line)].sides;
        let swept = sweep(caches, sides, (from, bytes), change);
        self.sweeps.add(Kind::Protection, swept);
    }

    /// The lowest second-level data line of a cached page in the first set, from set `from` on, that has one.
    pub fn line_in_use(&self, caches: &VirtualCaches, from: u64) -> Option<GlobalAddr> {
        let sets = caches.second_level_sets(DATA);
        let from = (from % sets as u64) as usize;
        let is_here = |line: &GlobalAddr| self.kept.contains_key(&page_of(*line));
        let mut places = (from..sets).chain(0..from);
        places.find_map(|set| caches.second_level_set(DATA, set).filter(is_here).min())
    }

    /// Applies an invalidation of a range of process pages: updates their lines to the translation of each
    /// page, which `translation` gives as `None` if unmapped.
    pub fn apply_invalidations(
        &mut self,
        caches: &mut VirtualCaches,
        invalidation: (ProcessId, &vmas::Pages),
        translation: impl Fn(PageOf) -> Option<Translation>,
        is_lazy: bool,
    ) {
        let (mut touched, mut is_touched) = (Vec::new(), FxHashSet::default());
        for user in self.pages_in(invalidation) {
            let at = self.by_user[&user];
            let kept = self.kept.get_mut(&at).expect("it has a user");
            if translation(user)
                .is_none_or(|translation| translation.frame_of(user.page) != kept.frame)
            {
                kept.users.retain(|other| *other != user);
                self.by_user.remove(&user);
            }
            if is_touched.insert(at) {
                touched.push(at);
            }
        }
        let (mut unmapped, mut protected) = (Vec::new(), Vec::new());
        for at in touched {
            let CachedPage { frame, may_store, users, .. } = &self.kept[&at];
            let allows = |user: &PageOf| {
                translation(*user).is_some_and(|translation| translation.entry.is_writable())
            };
            let allowed = users.iter().any(allows);
            let is_alone = self.by_frame[frame].len() == 1;
            if users.is_empty() {
                unmapped.push((at, Change::Drop));
            } else if *may_store && !allowed {
                protected.push((at, READ_ONLY));
            } else if !may_store && allowed && is_alone && !is_lazy {
                protected.push((at, WRITABLE));
            }
        }
        self.change_all(caches, &unmapped, Kind::Unmapped);
        self.change_all(caches, &protected, Kind::Protection);
    }

    /// The cached process pages of a range, in order.
    fn pages_in(&self, (process, range): (ProcessId, &vmas::Pages)) -> Vec<PageOf> {
        let asked = range.end - range.start;
        let mut found: Vec<PageOf> = if asked > self.by_user.len() as u64 {
            let is_in = |user: &PageOf| user.process == process && range.contains(&user.page.raw());
            self.by_user.keys().copied().filter(is_in).collect()
        } else {
            let pages = range.clone().map(|page| PageOf { process, page: PageNumber::new(page) });
            pages.filter(|page| self.by_user.contains_key(page)).collect()
        };
        found.sort_unstable();
        found
    }

    /// Changes pages. If the pages of a side have more lines than its second level, the whole side is swept
    /// once ("sweeping through the entire cache", section 3.1). A side that none of them has used is not
    /// swept.
    fn change_all(
        &mut self,
        caches: &mut VirtualCaches,
        pages: &[(GlobalAddr, Change)],
        kind: Kind,
    ) {
        let lines = caches.lines_of(PageSize::BASE.bytes());
        let there = [0, 1].map(|side| {
            let on_side = pages.iter().filter(|(at, _)| self.kept[at].sides[side]).count() as u64;
            (on_side * lines > caches.entries(side)[1]).then(|| pages_there(caches, side))
        });
        for (side, _) in there.iter().enumerate().filter(|(_, there)| there.is_some()) {
            self.sweeps.begin_whole(kind, caches.entries(side));
        }
        for (at, change) in pages {
            let mut swept = Swept::default();
            for side in (0..2).filter(|side| self.kept[at].sides[*side]) {
                swept = swept.plus(match &there[side] {
                    None => caches.sweep(side, *at, PageSize::BASE.bytes(), *change),
                    Some(there) if there.contains(at) => Swept {
                        checked: [0; 2],
                        ..caches.sweep(side, *at, PageSize::BASE.bytes(), *change)
                    },
                    Some(_) => Swept::default(),
                });
            }
            self.sweeps.add(kind, swept);
            self.changed(*at, *change);
        }
    }

    /// Sweeps the caches for the lines of a page.
    fn change(&mut self, caches: &mut VirtualCaches, at: GlobalAddr, change: Change, kind: Kind) {
        let swept = sweep(caches, self.kept[&at].sides, (at, PageSize::BASE.bytes()), change);
        self.sweeps.add(kind, swept);
        self.changed(at, change);
    }

    /// Records a change of the lines of a page.
    fn changed(&mut self, at: GlobalAddr, change: Change) {
        match change {
            Change::Rights { may_store } => {
                self.kept.get_mut(&at).expect("it has lines").may_store = may_store;
            }
            Change::Drop => {
                let CachedPage { frame, users, .. } = self.kept.remove(&at).expect("it has lines");
                for user in users {
                    self.by_user.remove(&user);
                }
                let pages = self.by_frame.get_mut(&frame).expect("a page of it has lines");
                pages.retain(|other| *other != at);
                if pages.is_empty() {
                    self.by_frame.remove(&frame);
                }
            }
        }
    }
}

/// The page that holds an address.
fn page_of(addr: GlobalAddr) -> GlobalAddr {
    let bytes = PageSize::BASE.bytes();
    GlobalAddr::new(addr.raw() / bytes * bytes)
}

/// Sweeps `bytes` from an address on, on the sides that may have lines.
fn sweep(
    caches: &mut VirtualCaches,
    sides: [bool; 2],
    (from, bytes): (GlobalAddr, u64),
    change: Change,
) -> Swept {
    let sides = (0..2).filter(|side| sides[*side]);
    let swept = sides.map(|side| caches.sweep(side, from, bytes, change));
    swept.fold(Swept::default(), Swept::plus)
}

/// The pages that have lines on a side.
fn pages_there(caches: &VirtualCaches, side: usize) -> FxHashSet<GlobalAddr> {
    let lines = caches.lines(side, 0).chain(caches.lines(side, 1));
    lines.map(|(at, _)| page_of(at)).collect()
}
