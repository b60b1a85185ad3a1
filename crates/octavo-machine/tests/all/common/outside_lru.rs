//! The example of docs/developing/python-designs.md in Rust: the second level of the machine `skylake` as an outside
//! level, which is called by the simulator. `tests/python/test_python_designs.py` compares the example in Python with
//! the native design.

use std::sync::Arc;

use octavo_hw::Asid;
use octavo_machine::designs::{Called, DesignSpec, OutsideLevel};
use octavo_os::vmas::Pages;
use octavo_types::{PageNumber, PageSize};

const WAYS: usize = 12;
const SETS: u64 = 128;
const SIZES: [PageSize; 2] = [PageSize::BASE, PageSize::HUGE];

/// The design under a policy of page sizes.
pub fn spec(policy: &str) -> DesignSpec {
    let make = Arc::new(|| Ok(Box::new(Lru::default()) as Box<dyn OutsideLevel>));
    DesignSpec::outside(&format!("outside_{policy}"), policy, make).unwrap()
}

/// A page by address space, size and number in pages of this size.
type Key = (Asid, PageSize, u64);

/// Entries by set, in LRU order: the last one was used most recently.
struct Lru(Vec<Vec<Key>>);

impl Default for Lru {
    fn default() -> Self {
        Lru(vec![Vec::new(); SETS as usize])
    }
}

impl Lru {
    fn place(&mut self, asid: Asid, page: PageNumber, size: PageSize) -> (&mut Vec<Key>, Key) {
        let number = page.raw() >> size.base_shift();
        (&mut self.0[(number % SETS) as usize], (asid, size, number))
    }
}

impl OutsideLevel for Lru {
    fn look_up(&mut self, asid: Asid, page: PageNumber) -> Called<Option<PageSize>> {
        for size in SIZES {
            let (entries, key) = self.place(asid, page, size);
            if let Some(at) = entries.iter().position(|entry| *entry == key) {
                entries[at..].rotate_left(1);
                return Ok(Some(size));
            }
        }
        Ok(None)
    }

    fn fill(&mut self, asid: Asid, page: PageNumber, size: PageSize) -> Called<()> {
        let (entries, key) = self.place(asid, page, size);
        if entries.len() == WAYS {
            entries.remove(0);
        }
        entries.push(key);
        Ok(())
    }

    fn invalidate(&mut self, asid: Asid, pages: &Pages) -> Called<()> {
        for entries in &mut self.0 {
            entries.retain(|(entry_asid, size, number)| {
                let (first, end) = (number << size.base_shift(), (number + 1) << size.base_shift());
                *entry_asid != asid || end <= pages.start || first >= pages.end
            });
        }
        Ok(())
    }

    fn flush(&mut self) -> Called<()> {
        *self = Lru::default();
        Ok(())
    }
}
