//! Counters by component and name, as a machine reports them.

use std::collections::BTreeMap;

/// Values by component (a dotted path such as `tlb.l1d.4k`) and counter (a noun such as `misses`), in order.
/// Most counters only grow; *levels*, such as memory in use, rise and fall.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters(BTreeMap<(String, &'static str), Counter>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counter {
    value: u64,
    is_level: bool,
}

impl Counters {
    /// Adds to a counter, which starts at 0.
    pub fn add(&mut self, component: &str, counter: &'static str, value: u64) {
        self.0.entry((component.to_owned(), counter)).or_default().value += value;
    }

    /// Sets a level to its current value.
    pub fn level(&mut self, component: &str, counter: &'static str, value: u64) {
        self.0.insert((component.to_owned(), counter), Counter { value, is_level: true });
    }

    /// Adds one core's share to a level that is summed over cores.
    pub fn add_level(&mut self, component: &str, counter: &'static str, value: u64) {
        let sum = self.0.entry((component.to_owned(), counter)).or_default();
        *sum = Counter { value: sum.value + value, is_level: true };
    }

    /// The value of a counter, if it was reported.
    pub fn get(&self, component: &str, counter: &'static str) -> Option<u64> {
        self.0.get(&(component.to_owned(), counter)).map(|counter| counter.value)
    }

    /// All counters, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'static str, u64)> {
        self.0.iter().map(|((component, name), counter)| (component.as_str(), *name, counter.value))
    }

    /// The difference of counters since `before`; levels keep their current value.
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

/// Hits and misses of look-ups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lookups {
    /// Look-ups that hit.
    pub hits: u64,
    /// Look-ups that missed.
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
