//! Dispatch: in order, when the reorder buffer, the registers and the queues have room.

use super::Pipeline;
use super::references::EntryReference;
use super::waits::Waits;
use crate::core::lanes::Lanes;

impl<V: Lanes> Pipeline<V> {
    /// Dispatches an entry when it is fetched, the store queue has room (`store_room`), and all else has (`room`).
    #[inline(always)]
    pub(super) fn dispatch_entry(&mut self, room: V, store_room: V, waits: &mut Waits<V>) -> V {
        let fetched = self.fetch.take_next().plus(V::all(self.config.front_end_cycles));
        let earliest = fetched.max(room);
        waits.stores = store_room.saturating_minus(earliest.max(self.dispatch.cycle()));
        self.dispatch.take(earliest.max(store_room))
    }

    /// When there is room for the next entry: in the reorder buffer, registers and load queue, and in the store queue.
    #[inline(always)]
    pub(super) fn room_for(&self, writes: bool, references: &[EntryReference<V>]) -> (V, V) {
        let (mut room, mut store_room) = (self.room_in_buffers(writes), V::all(0));
        let (mut loads, mut stores) = (self.loads, self.stores);
        for EntryReference { word, .. } in references {
            if word.is_fetch() {
                continue;
            }
            if word.is_store() {
                let number = stores.wrapping_sub(u64::from(self.config.store_queue));
                store_room = store_room.max(*self.store_ends.get(number));
                stores += 1;
            } else {
                let number = loads.wrapping_sub(u64::from(self.config.load_queue));
                room = room.max(*self.load_ends.get(number));
                loads += 1;
            }
        }
        (room, store_room)
    }

    /// When the reorder buffer has room for the next entry, and the registers for the one that it `writes`.
    #[inline(always)]
    pub(super) fn room_in_buffers(&self, writes: bool) -> V {
        let committed = *self.committed.get(self.entry_before(self.config.reorder_buffer));
        if !writes {
            return committed;
        }
        let freed = self.registers.wrapping_sub(u64::from(self.config.rename_registers));
        committed.max(*self.register_ends.get(freed))
    }
}
