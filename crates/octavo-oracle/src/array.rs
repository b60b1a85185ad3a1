//! A set-associative array with any replacement policy, as lists of ways.

use std::collections::HashMap;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A replacement policy: the entry of a full set that is evicted.
pub enum NaiveReplacement {
    /// The entry used least recently.
    Lru,
    /// The entry that the bits of a tree over the ways lead to.
    TreePlru,
    /// The way that the function draws, given the number of ways.
    Random(Box<dyn FnMut(usize) -> usize>),
    /// The entry filled first.
    Fifo,
    /// The first entry that predicts 3: static re-reference interval prediction with two bits and hit
    /// priority (Jaleel et al., ISCA 2010, figure 3c).
    Srrip,
}

impl NaiveReplacement {
    /// Random replacement with the generator of the engine's arrays, from a seed.
    pub fn random(seed: u64) -> Self {
        let mut numbers = Xoshiro256PlusPlus::seed_from_u64(seed);
        NaiveReplacement::Random(Box::new(move |ways| {
            ((u128::from(numbers.next_u64()) * ways as u128) >> 64) as usize
        }))
    }
}

/// One way of a set.
#[derive(Clone)]
struct Way<K, V> {
    entry: Option<(K, V)>,
    used_at: u64,
    filled_at: u64,
    prediction: u8,
}

/// The bits of a set's tree. The bit of the ways from `first` up to, but not including, `end` has the key
/// (`first`, `end`); if true, it points to their right half.
type Tree = HashMap<(usize, usize), bool>;

/// A set-associative array of keys with payloads. Free ways are filled first, the lowest one first; in a full
/// set the policy selects the entry to evict.
pub struct NaiveArray<K, V> {
    sets: Vec<(Vec<Way<K, V>>, Tree)>,
    replacement: NaiveReplacement,
    /// Counts uses and fills.
    now: u64,
}

impl<K: PartialEq + Clone, V: Clone> NaiveArray<K, V> {
    /// `sets` empty sets of `ways` ways, at least 1 of each.
    pub fn new(sets: usize, ways: usize, replacement: NaiveReplacement) -> Self {
        assert!(sets > 0 && ways > 0, "an array has at least one entry");
        let way = Way { entry: None, used_at: 0, filled_at: 0, prediction: 3 };
        NaiveArray { sets: vec![(vec![way; ways], Tree::new()); sets], replacement, now: 0 }
    }

    /// The payload of a key in a set. This does not count as a use.
    pub fn probe(&mut self, set: usize, key: &K) -> Option<&mut V> {
        let entries = self.sets[set].0.iter_mut().filter_map(|way| way.entry.as_mut());
        entries.filter(|(held, _)| held == key).map(|(_, value)| value).next()
    }

    /// The payload of a key in a set, which is used.
    pub fn look_up(&mut self, set: usize, key: &K) -> Option<&mut V> {
        let way = self.way(set, key)?;
        self.use_way(set, way);
        self.sets[set].0[way].prediction = 0;
        self.probe(set, key)
    }

    /// Inserts a key and returns the evicted entry. If the key is present, it is used and its payload replaced.
    pub fn insert(&mut self, set: usize, key: K, value: V) -> Option<(K, V)> {
        if let Some(held) = self.look_up(set, &key) {
            *held = value;
            return None;
        }
        let free = self.sets[set].0.iter().position(|way| way.entry.is_none());
        let way = free.unwrap_or_else(|| self.victim(set));
        self.use_way(set, way);
        let way = &mut self.sets[set].0[way];
        way.filled_at = self.now;
        way.prediction = 2;
        way.entry.replace((key, value))
    }

    /// Removes a key from a set and returns its payload.
    pub fn invalidate(&mut self, set: usize, key: &K) -> Option<V> {
        let way = self.way(set, key)?;
        self.sets[set].0[way].entry.take().map(|(_, value)| value)
    }

    /// Removes all entries for which `is_out` returns true, and returns their number.
    pub fn invalidate_if(&mut self, is_out: impl Fn(&K, &V) -> bool) -> usize {
        let mut count = 0;
        for way in self.sets.iter_mut().flat_map(|(ways, _)| ways) {
            if way.entry.as_ref().is_some_and(|(key, value)| is_out(key, value)) {
                way.entry = None;
                count += 1;
            }
        }
        count
    }

    /// Invalidates all entries and resets the replacement state.
    pub fn clear(&mut self) {
        self.invalidate_if(|_, _| true);
        for (_, tree) in &mut self.sets {
            tree.clear();
        }
    }

    /// All entries, by sets and ways.
    pub fn entries(&self) -> Vec<(usize, K, V)> {
        let mut all = Vec::new();
        for (set, (ways, _)) in self.sets.iter().enumerate() {
            for (key, value) in ways.iter().filter_map(|way| way.entry.clone()) {
                all.push((set, key, value));
            }
        }
        all
    }

    fn way(&self, set: usize, key: &K) -> Option<usize> {
        let has_key = |way: &Way<K, V>| way.entry.as_ref().is_some_and(|(held, _)| held == key);
        self.sets[set].0.iter().position(has_key)
    }

    /// Records a hit or fill of a way.
    fn use_way(&mut self, set: usize, used: usize) {
        self.now += 1;
        let (ways, tree) = &mut self.sets[set];
        ways[used].used_at = self.now;
        // Every bit on the path to the way is set to point to the other half.
        let (mut first, mut end) = (0, ways.len().next_power_of_two());
        while end - first > 1 {
            let middle = (first + end) / 2;
            tree.insert((first, end), used < middle);
            (first, end) = if used < middle { (first, middle) } else { (middle, end) };
        }
    }

    /// The way of a full set that is evicted.
    fn victim(&mut self, set: usize) -> usize {
        let (ways, tree) = &mut self.sets[set];
        let numbers = 0..ways.len();
        match &mut self.replacement {
            NaiveReplacement::Lru => numbers.min_by_key(|&way| ways[way].used_at).unwrap(),
            NaiveReplacement::Fifo => numbers.min_by_key(|&way| ways[way].filled_at).unwrap(),
            NaiveReplacement::Random(draw) => draw(ways.len()),
            NaiveReplacement::Srrip => loop {
                if let Some(way) = ways.iter().position(|way| way.prediction == 3) {
                    return way;
                }
                for way in ways.iter_mut() {
                    way.prediction += 1;
                }
            },
            NaiveReplacement::TreePlru => {
                let (mut first, mut end) = (0, ways.len().next_power_of_two());
                while end - first > 1 {
                    let middle = (first + end) / 2;
                    let points_right = tree.get(&(first, end)).copied().unwrap_or(false);
                    // A half without ways has nothing to replace.
                    let goes_right = points_right && middle < ways.len();
                    (first, end) = if goes_right { (middle, end) } else { (first, middle) };
                }
                first
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which key each insertion into a set of four evicts, after keys 0 to 3 and a use of 0.
    fn evicted(replacement: NaiveReplacement, inserted: &[u64]) -> Vec<u64> {
        let mut array = NaiveArray::new(1, 4, replacement);
        for key in 0..4 {
            assert_eq!(array.insert(0, key, ()), None);
        }
        assert_eq!(array.look_up(0, &0), Some(&mut ()));
        assert_eq!(array.look_up(0, &9), None);
        inserted.iter().map(|key| array.insert(0, *key, ()).unwrap().0).collect()
    }

    #[test]
    fn replacement_policies_by_hand() {
        assert_eq!(evicted(NaiveReplacement::Lru, &[4, 5, 6, 7]), [1, 2, 3, 0]);
        assert_eq!(evicted(NaiveReplacement::Fifo, &[4, 5, 6, 7]), [0, 1, 2, 3]);
        // The root points right, the bit of ways 2 and 3 left: 2 is evicted. Then the root points left, and 1 is
        // evicted.
        assert_eq!(evicted(NaiveReplacement::TreePlru, &[4, 5, 6, 7]), [2, 1, 3, 0]);
        // 0 predicts 0, the others 2: all age by one, and 1 is the first that predicts 3. Fills predict 2: next 2
        // and 3 are evicted, and after another ageing step (0: 2, others: 3) the first of the others, 4.
        assert_eq!(evicted(NaiveReplacement::Srrip, &[4, 5, 6, 7]), [1, 2, 3, 4]);
        let mut drawn = [3, 3, 0].into_iter();
        let random = NaiveReplacement::Random(Box::new(move |_| drawn.next().unwrap()));
        assert_eq!(evicted(random, &[4, 5, 6]), [3, 4, 0]);
    }

    #[test]
    fn tree_plru_of_three_ways_never_selects_a_fourth() {
        let mut array = NaiveArray::new(1, 3, NaiveReplacement::TreePlru);
        for key in 0..3 {
            array.insert(0, key, ());
        }
        let evicted = (3..9).map(|key| array.insert(0, key, ()).unwrap().0);
        // Every second victim is the only way of the right half.
        assert_eq!(evicted.collect::<Vec<_>>(), [0, 2, 1, 4, 3, 6]);
    }

    #[test]
    fn invalid_ways_are_filled_first() {
        let mut array = NaiveArray::new(2, 2, NaiveReplacement::Lru);
        array.insert(1, 7, 'a');
        array.insert(1, 8, 'b');
        assert_eq!(array.invalidate(1, &8), Some('b'));
        assert_eq!((array.invalidate(1, &8), array.invalidate(0, &7)), (None, None));
        assert_eq!(array.insert(1, 9, 'c'), None);
        assert_eq!(array.insert(1, 9, 'd'), None);
        assert_eq!(array.entries(), [(1, 7, 'a'), (1, 9, 'd')]);
        assert_eq!(array.insert(1, 6, 'e'), Some((7, 'a')));
        assert_eq!(array.invalidate_if(|key, _| *key == 6), 1);
        array.clear();
        assert!(array.entries().is_empty());
    }
}
