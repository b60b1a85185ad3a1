//! Counters by name: what a machine tells of itself.

use std::collections::BTreeMap;

/// Counts by component (a dotted path such as `tlb.l1d.4k`) and counter (a plain noun such as
/// `misses`), in order. Most only grow; *levels* (memory in use) go up and down.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters(BTreeMap<(String, &'static str), Counter>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counter {
    value: u64,
    is_level: bool,
}

impl Counters {
    /// Adds to a counter, which is 0 if it was not there.
    pub fn add(&mut self, component: &str, counter: &'static str, value: u64) {
        self.0.entry((component.to_owned(), counter)).or_default().value += value;
    }

    /// Says how much there is of something now.
    pub fn level(&mut self, component: &str, counter: &'static str, value: u64) {
        self.0.insert((component.to_owned(), counter), Counter { value, is_level: true });
    }

    /// The same of one of several, such as a core, where all are told of together.
    pub fn add_level(&mut self, component: &str, counter: &'static str, value: u64) {
        let of_all = self.0.entry((component.to_owned(), counter)).or_default();
        *of_all = Counter { value: of_all.value + value, is_level: true };
    }

    /// A counter, if it is there.
    pub fn get(&self, component: &str, counter: &'static str) -> Option<u64> {
        self.0.get(&(component.to_owned(), counter)).map(|counter| counter.value)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'static str, u64)> {
        self.0.iter().map(|((component, name), of)| (component.as_str(), *name, of.value))
    }

    /// What was counted since `before`, and levels as they are.
    pub fn since(&self, before: &Counters) -> Counters {
        let mut since = self.clone();
        for (key, counter) in &mut since.0 {
            if !counter.is_level {
                counter.value -= before.0.get(key).map_or(0, |before| before.value);
            }
        }
        since
    }
}

/// Look-ups that found what they looked for, and such that did not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lookups {
    /// Those that did.
    pub hits: u64,
    /// Those that did not.
    pub misses: u64,
}

impl Lookups {
    /// Adds `accesses`, `hits` and `misses` of a component.
    pub fn report(self, component: &str, counters: &mut Counters) {
        counters.add(component, "accesses", self.hits + self.misses);
        counters.add(component, "hits", self.hits);
        counters.add(component, "misses", self.misses);
    }
}
