//! Epochs: times of a lane have 32 bits and count from its epoch, which moves on before they overflow.

use super::Pipeline;
use crate::core::calendar::IssueSlots;
use crate::core::lanes::Lanes;

/// The epochs move on once any lane commits after this time: half of the cycles whose slots [`IssueSlots`] keeps in an
/// array, so that instructions that are issued later find room there, too.
const EPOCH_END: u32 = if cfg!(test) { 1 << 12 } else { IssueSlots::<[u32; 1]>::NEAR_END / 2 };

/// [`EPOCH_END`] is checked after each entry of the general path, and on the fast path once in so many entries.
pub(super) const ENTRIES_PER_CHECK: u64 = 1 << 8;

impl<V: Lanes> Pipeline<V> {
    /// Moves the epochs on if a lane has come to [`EPOCH_END`].
    #[inline(always)]
    pub(super) fn move_epochs_if_due(&mut self) {
        if V::all(EPOCH_END).is_less_in_any(self.commit.cycle()) {
            self.move_epochs();
        }
    }

    #[cold]
    #[inline(never)]
    fn move_epochs(&mut self) {
        // An event this long before the fetch of an instruction cannot delay the instruction.
        let delay = self.config.mispredict_cycles.max(self.config.forward_cycles) + 1;
        let fetched = self.wrong_paths.earliest_request(self.fetch.cycle());
        let by = V::of_each(|lane| {
            let unneeded = fetched.get(lane).saturating_sub(delay);
            unneeded - unneeded % IssueSlots::<V>::EPOCH_STEP
        });
        let shift = |times: &mut V| *times = times.saturating_minus(by);
        for (epoch, by) in self.epochs.iter_mut().zip(by.as_slice()) {
            *epoch += u64::from(*by);
        }
        let of_entries = [&mut self.dispatched, &mut self.complete, &mut self.committed];
        let others = [
            &mut self.complete_on_wrong_paths,
            &mut self.register_ends,
            &mut self.load_ends,
            &mut self.store_ends,
        ];
        for ring in of_entries.into_iter().chain(others) {
            ring.times.iter_mut().for_each(shift);
        }
        for stage in [&mut self.fetch, &mut self.dispatch, &mut self.commit, &mut self.drain] {
            stage.move_epoch(by);
        }
        self.issue.move_epoch(by);
        self.wrong_paths.move_epoch(by);
        let ends = [
            &mut self.walks_end,
            &mut self.lines_end,
            &mut self.under_way_end,
            &mut self.refetch_from,
        ];
        ends.into_iter().for_each(shift);
        self.stacks.move_epoch();
    }

    /// A time of a lane, in cycles since the start of the program.
    #[inline(always)]
    pub(super) fn absolute(&self, lane: usize, time: u32) -> u64 {
        self.epochs[lane] + u64::from(time)
    }

    /// A time since the start of the program, in cycles since the epoch of a lane; 0 if it is before the epoch.
    #[inline(always)]
    pub(super) fn since_epoch(&self, lane: usize, time: u64) -> u32 {
        time.saturating_sub(self.epochs[lane]) as u32
    }
}
