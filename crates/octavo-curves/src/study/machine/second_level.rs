//! The second level of one page size.

use std::ops::Range;

use octavo_hw::{Geometry, Replacement, SetArray};
use octavo_types::Instructions;

use super::ArrayShape;

/// From this many keys on, an invalidation scans all entries.
const FEW_KEYS: u64 = 16;

/// A set-associative LRU array. The payload is whether the page may be stored to without a walk.
pub struct SecondLevel {
    shift: u8,
    geometry: Geometry,
    ready: SetArray<bool>,
}

impl SecondLevel {
    /// An empty array.
    ///
    /// # Panics
    /// If the shape has no entries, or too many.
    pub fn new(shape: &ArrayShape) -> Self {
        let geometry = Geometry::new(shape.sets.into(), shape.ways.into());
        let geometry = geometry.expect("an array has entries, and not too many");
        let ready = SetArray::new(geometry, Replacement::Lru, Instructions::best());
        SecondLevel { shift: shape.entry_size.base_shift(), geometry, ready }
    }

    /// Looks up a base page, and uses its entry. Returns whether the page may be stored to without a walk.
    #[inline(always)]
    pub fn look_up(&mut self, page: u64) -> Option<bool> {
        let key = page >> self.shift;
        self.ready.look_up(self.geometry.set_of(key), key).copied()
    }

    /// Inserts an absent base page.
    #[inline(always)]
    pub fn insert_missed(&mut self, page: u64, is_ready: bool) {
        let key = page >> self.shift;
        self.ready.insert_missed(self.geometry.set_of(key), key, is_ready);
    }

    /// Inserts a base page, or uses its entry.
    pub fn insert(&mut self, page: u64, is_ready: bool) {
        let key = page >> self.shift;
        self.ready.insert(self.geometry.set_of(key), key, is_ready);
    }

    /// Invalidates the entries that cover any of these base pages. Returns whether there were any.
    pub fn invalidate(&mut self, pages: Range<u64>) -> bool {
        if pages.is_empty() {
            return false;
        }
        let keys = pages.start >> self.shift..=(pages.end - 1) >> self.shift;
        if keys.end() - keys.start() >= FEW_KEYS {
            return self.ready.invalidate_if(|key, _| keys.contains(&key)) > 0;
        }
        let mut any = false;
        for key in keys {
            any |= self.ready.invalidate(self.geometry.set_of(key), key).is_some();
        }
        any
    }
}
