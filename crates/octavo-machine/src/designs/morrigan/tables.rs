//! Markov tables: for pages that missed, the pages that missed next.

/// Tables: of entries with up to 1, 2, 4 and 8 successors.
pub const TABLES: usize = 4;
/// The most a successor's confidence can be: two bits.
const MAX_CONFIDENCE: u32 = 3;

/// A page that missed after another one.
struct Successor {
    page: u64,
    confidence: u32,
}

/// A page that missed, with its successors, the oldest first.
struct Entry {
    page: u64,
    /// Misses of the page, halved at each new phase.
    frequency: u64,
    successors: Vec<Successor>,
}

/// The tables, each fully associative.
pub struct Tables {
    /// The entries of each table, the oldest first.
    tables: [Vec<Entry>; TABLES],
    capacities: [usize; TABLES],
    phase_misses: u64,
    /// Misses since the phase began.
    misses: u64,
}

/// The most successors of an entry of a table.
fn slots(table: usize) -> usize {
    1 << table
}

impl Tables {
    pub fn new(capacities: [u64; TABLES], phase_misses: u64) -> Self {
        let capacities = capacities.map(|pages| pages as usize);
        Tables { tables: Default::default(), capacities, phase_misses, misses: 0 }
    }

    /// The most bytes of such tables.
    pub fn bytes(capacities: [u64; TABLES]) -> u64 {
        let bytes = |table| size_of::<Entry>() + slots(table) * size_of::<Successor>();
        (0..TABLES).map(|table| capacities[table] * bytes(table) as u64).sum()
    }

    /// The table and place of the entry of a page.
    fn find(&self, page: u64) -> Option<(usize, usize)> {
        (0..TABLES).find_map(|table| {
            let place = self.tables[table].iter().position(|entry| entry.page == page)?;
            Some((table, place))
        })
    }

    /// The first table from `table` on that has entries.
    fn next_table(&self, table: usize) -> Option<usize> {
        (table..TABLES).find(|table| self.capacities[*table] > 0)
    }

    /// Learns that a page missed directly after another one. An entry without room for the successor moves to the next
    /// table; in the last one, the successor replaces the one with the least confidence. Returns the number of entries
    /// that were evicted.
    pub fn learn(&mut self, page: u64, next: u64) -> u64 {
        let successor = Successor { page: next, confidence: 0 };
        let Some((table, place)) = self.find(page) else {
            let entry = Entry { page, frequency: 1, successors: vec![successor] };
            return self.next_table(0).map_or(0, |table| self.insert(table, entry));
        };
        let entry = &mut self.tables[table][place];
        if let Some(known) = entry.successors.iter_mut().find(|known| known.page == next) {
            known.confidence = (known.confidence + 1).min(MAX_CONFIDENCE);
            return 0;
        }
        if entry.successors.len() < slots(table) {
            entry.successors.push(successor);
            return 0;
        }
        match self.next_table(table + 1) {
            Some(larger) => {
                let mut entry = self.tables[table].remove(place);
                entry.successors.push(successor);
                self.insert(larger, entry)
            }
            None => {
                let successors = &mut self.tables[table][place].successors;
                let least = successors.iter().map(|known| known.confidence).min();
                let weakest = successors.iter().position(|known| Some(known.confidence) == least);
                successors.remove(weakest.expect("an entry has successors"));
                successors.push(successor);
                0
            }
        }
    }

    /// Inserts an entry. In a full table it evicts the one with the lowest frequency, of several the oldest. Returns the
    /// number of evicted entries.
    fn insert(&mut self, table: usize, entry: Entry) -> u64 {
        let entries = &mut self.tables[table];
        let is_full = entries.len() == self.capacities[table];
        if is_full {
            let least = entries.iter().map(|entry| entry.frequency).min();
            let victim = entries.iter().position(|entry| Some(entry.frequency) == least);
            entries.remove(victim.expect("a full table has entries"));
        }
        entries.push(entry);
        u64::from(is_full)
    }

    /// Counts a miss of a page, and predicts the pages that miss next: the successor with the most confidence first, of
    /// several the oldest.
    pub fn predict(&mut self, page: u64, predicted: &mut Vec<u64>) {
        self.misses += 1;
        if self.misses == self.phase_misses {
            self.misses = 0;
            self.tables.iter_mut().flatten().for_each(|entry| entry.frequency /= 2);
        }
        predicted.clear();
        let Some((table, place)) = self.find(page) else { return };
        let entry = &mut self.tables[table][place];
        entry.frequency += 1;
        for confidence in (0..=MAX_CONFIDENCE).rev() {
            let of_this = entry.successors.iter().filter(|known| known.confidence == confidence);
            predicted.extend(of_this.map(|known| known.page));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predicted(tables: &mut Tables, page: u64) -> Vec<u64> {
        let mut pages = Vec::new();
        tables.predict(page, &mut pages);
        pages
    }

    #[test]
    fn entry_moves_to_the_table_with_room_for_its_successors() {
        let mut tables = Tables::new([2; TABLES], 0);
        for (count, next) in (1..=9).zip(100..) {
            tables.learn(7, next);
            let sizes = [0, 1, 2, 3].map(|table| tables.tables[table].len());
            let table = [0, 1, 2, 2, 3, 3, 3, 3, 3][count - 1];
            assert_eq!((sizes[table], sizes.iter().sum::<usize>()), (1, 1), "{count}");
        }
        // The ninth has replaced the first, as none has any confidence.
        assert_eq!(predicted(&mut tables, 7), [101, 102, 103, 104, 105, 106, 107, 108]);
        tables.learn(7, 105);
        tables.learn(7, 100);
        assert_eq!(predicted(&mut tables, 7), [105, 102, 103, 104, 106, 107, 108, 100]);
    }

    #[test]
    fn least_frequent_entry_is_evicted_and_phases_forget() {
        let mut tables = Tables::new([2, 0, 0, 0], 6);
        assert_eq!(tables.learn(1, 10), 0);
        predicted(&mut tables, 1);
        predicted(&mut tables, 1);
        assert_eq!(tables.learn(2, 20), 0);
        assert_eq!(tables.learn(3, 30), 1, "2 has one miss, 1 has three");
        assert_eq!([1, 2, 3].map(|page| predicted(&mut tables, page).len()), [1, 0, 1]);
        // The sixth miss halves 4 and 2, and then counts itself: 2 and 2. The older one goes.
        predicted(&mut tables, 3);
        assert_eq!(tables.learn(4, 40), 1);
        assert_eq!([1, 3, 4].map(|page| predicted(&mut tables, page).len()), [0, 1, 1]);
    }
}
