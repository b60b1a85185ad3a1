//! Accesses with a TLB look-up before the caches.

use octavo_hw::GlobalAddr;
use octavo_types::FrameNumber;

use super::tlb::Entry;
use super::translator::Translator;
use super::{Counts, Softvm};
use crate::env::Env;
use crate::front::LineAccess;

impl<T: Translator> Softvm<T> {
    /// Plays an access and its repeats with a TLB look-up before each cache access. Each repeat sees the
    /// changes of the one before.
    #[inline(always)]
    pub(super) fn access_with_tlb(
        &mut self,
        env: &mut Env,
        mut access: LineAccess,
        addr: GlobalAddr,
    ) -> Option<FrameNumber> {
        let side = access.side();
        loop {
            let one = access.split().0;
            let before = self.changes(side);
            let frame = match self.translator.look_up(side, addr, one.lookups()) {
                true => self.access_caches(env, one, addr)?,
                false => self.access_refilled(env, one, addr)?,
            };
            if access.repeats() == 0 {
                return Some(frame);
            }
            if self.changes(side) == before {
                self.translator.look_up(side, addr, access.repeats());
                self.caches.repeat(side, access.repeats());
                return Some(frame);
            }
            access = access.repeat();
        }
    }

    /// A count that grows whenever a side may have lost entries of the TLB or the first-level cache.
    fn changes(&self, side: usize) -> u64 {
        let Counts { events, missed, denied, .. } = &self.counts;
        events.data_misses + events.fetch_misses + missed[side][0] + denied
    }

    /// Refills the TLB for an access, then accesses the caches.
    #[inline(never)]
    fn access_refilled(
        &mut self,
        env: &mut Env,
        access: LineAccess,
        addr: GlobalAddr,
    ) -> Option<FrameNumber> {
        self.refill(env, access, addr)?;
        let side = access.side();
        let before = self.counts.missed[side];
        let frame = self.access_caches(env, access, addr)?;
        let after = self.counts.missed[side];
        self.counts.table1.add(side, before, after);
        Some(frame)
    }

    /// Refills the TLB with the page of an access.
    #[inline(never)]
    fn refill(&mut self, env: &mut Env, access: LineAccess, addr: GlobalAddr) -> Option<()> {
        let ((page, _), frame, may_store) = self.resolve_page(env, access)?;
        let entry = Entry::new(page, frame, may_store);
        let parts = (&mut self.caches, &self.handler, &mut self.counts.events);
        self.translator.refill(parts, access.side(), addr, entry);
        self.write_back(env);
        Some(())
    }
}
