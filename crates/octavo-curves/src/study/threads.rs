//! Counts by thread: the differences of a study's counts between switches of threads.

use octavo_trace::MOST_NAMED_THREADS;
use rustc_hash::FxHashSet;

/// The counts of a study at a moment, in an order of its own.
pub type Totals = Vec<u64>;

/// The counts of one thread.
#[derive(Clone, Debug)]
struct Thread {
    /// Its number in events; `None` if it has ended, or is not known yet.
    number: Option<u32>,
    /// How many threads had begun by an event, with this one.
    begun: u64,
    counts: Totals,
}

/// Threads that are counted together.
#[derive(Clone, Debug, Default)]
pub struct FurtherThreads {
    /// How many threads have counts.
    pub threads: u64,
    /// Their counts together.
    pub counts: Totals,
    /// The numbers of these threads in events, if they have not ended.
    counted: FxHashSet<u32>,
}

/// The counts of all threads.
#[derive(Clone, Debug)]
pub struct Threads {
    /// First the thread that runs before an event names one, then others as they begin.
    threads: Vec<Thread>,
    further: FurtherThreads,
    /// The thread that runs.
    running: Running,
    /// Threads that have begun by an event.
    begun: u64,
    /// The totals at the last switch.
    since: Totals,
    /// Whether counts are left out for now.
    warming: bool,
}

/// A thread that runs.
#[derive(Clone, Copy, Debug)]
enum Running {
    /// By its position.
    Single(usize),
    /// A further thread, by its number in events.
    Further(u32),
}

impl Default for Threads {
    fn default() -> Self {
        Threads {
            threads: vec![Thread { number: None, begun: 0, counts: Totals::new() }],
            further: FurtherThreads::default(),
            running: Running::Single(0),
            begun: 0,
            since: Totals::new(),
            warming: false,
        }
    }
}

fn add(to: &mut Totals, totals: &[u64], since: &[u64]) {
    to.resize(to.len().max(totals.len()), 0);
    for (at, (sum, now)) in to.iter_mut().zip(totals).enumerate() {
        *sum = sum.wrapping_add(now.wrapping_sub(since.get(at).copied().unwrap_or(0)));
    }
}

impl Threads {
    /// Adds what was counted since the last call to the thread that runs.
    fn attribute(&mut self, totals: Totals) {
        if !self.warming {
            match self.running {
                Running::Single(at) => add(&mut self.threads[at].counts, &totals, &self.since),
                Running::Further(number) => {
                    if totals != self.since && self.further.counted.insert(number) {
                        self.further.threads += 1;
                    }
                    add(&mut self.further.counts, &totals, &self.since);
                }
            }
        }
        self.since = totals;
    }

    fn at(&self, number: u32) -> Option<usize> {
        self.threads.iter().position(|thread| thread.number == Some(number))
    }

    /// A thread begins, and does not run yet.
    pub fn begin(&mut self, number: u32) {
        // An earlier thread with this number has ended.
        if let Some(at) = self.at(number) {
            self.threads[at].number = None;
        }
        self.further.counted.remove(&number);
        self.begun += 1;
        if self.threads.len() <= MOST_NAMED_THREADS {
            let begun = self.begun;
            self.threads.push(Thread { number: Some(number), begun, counts: Totals::new() });
        }
    }

    /// A thread runs from now on. `totals` are those of now.
    pub fn switch(&mut self, number: u32, totals: Totals) {
        self.attribute(totals);
        let knows_all = self.begun <= MOST_NAMED_THREADS as u64;
        let mut at = self.at(number);
        if at.is_none() && knows_all && self.threads[0].number.is_none() {
            // No event has begun it: the process was forked by it, or the trace has no such events.
            self.threads[0].number = Some(number);
            at = Some(0);
        }
        self.running = at.map_or(Running::Further(number), Running::Single);
    }

    /// Counts are left out from now on, or they count again. `totals` are those of now.
    pub fn set_warming(&mut self, warming: bool, totals: Totals) {
        self.attribute(totals);
        self.warming = warming;
    }

    /// The counts of each of the first threads, in the order in which they began, then of those
    /// after them. `totals` are those of now. `initial` is the number of threads that no event
    /// begins.
    pub fn results(&self, totals: Totals, initial: u64) -> (Vec<Totals>, FurtherThreads) {
        let mut now = self.clone();
        now.attribute(totals);
        let mut results = Vec::<Totals>::new();
        for thread in &now.threads {
            // The first thread runs before an event says so, but may have been begun by one.
            let place = (thread.begun + initial).saturating_sub(1) as usize;
            if place >= MOST_NAMED_THREADS {
                now.further.threads += u64::from(thread.counts.iter().any(|count| *count > 0));
                add(&mut now.further.counts, &thread.counts, &[]);
                continue;
            }
            if results.len() <= place {
                results.resize(place + 1, Totals::new());
            }
            add(&mut results[place], &thread.counts, &[]);
        }
        for counts in results.iter_mut().chain([&mut now.further.counts]) {
            counts.resize(now.since.len(), 0);
        }
        (results, now.further)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first count of each thread.
    fn counts(threads: &Threads, total: u64, initial: u64) -> Vec<u64> {
        let (threads, further) = threads.results(vec![total], initial);
        assert_eq!((further.threads, further.counts), (0, vec![0]));
        threads.iter().map(|counts| counts[0]).collect()
    }

    #[test]
    fn threads_get_what_was_counted_while_they_ran() {
        let mut threads = Threads::default();
        threads.begin(1);
        threads.begin(2);
        threads.switch(2, vec![10]);
        threads.switch(1, vec![14]);
        assert_eq!(counts(&threads, 15, 0), [11, 4]);
    }

    #[test]
    fn a_number_given_again_is_another_thread() {
        let mut threads = Threads::default();
        for number in [1, 2] {
            threads.begin(number);
        }
        threads.switch(2, vec![1]);
        threads.switch(1, vec![3]);
        threads.begin(2);
        threads.switch(2, vec![4]);
        assert_eq!(counts(&threads, 9, 0), [2, 2, 5]);
    }

    #[test]
    fn the_thread_that_forked_comes_first() {
        let mut threads = Threads::default();
        threads.begin(1);
        threads.switch(1, vec![2]);
        threads.switch(7, vec![5]);
        assert_eq!(counts(&threads, 9, 1), [6, 3]);
    }

    #[test]
    fn counts_of_a_warm_up_are_left_out() {
        let mut threads = Threads::default();
        threads.begin(1);
        threads.begin(2);
        threads.set_warming(true, vec![5]);
        threads.switch(2, vec![8]);
        // The study takes its counts back.
        threads.set_warming(false, vec![5]);
        assert_eq!(counts(&threads, 7, 0), [5, 2]);
    }

    const MOST: u32 = MOST_NAMED_THREADS as u32;

    /// Threads with these numbers begin one after another, and three are counted of each.
    fn run_each(numbers: impl IntoIterator<Item = u32>) -> (Threads, u64) {
        let (mut threads, mut total) = (Threads::default(), 0);
        for number in numbers {
            threads.begin(number);
            threads.switch(number, vec![total]);
            total += 3;
        }
        (threads, total)
    }

    #[test]
    fn further_threads_are_counted_together() {
        let (threads, total) = run_each(1..=MOST + 4);
        let (each, further) = threads.results(vec![total], 0);
        assert_eq!(each, vec![vec![3]; MOST_NAMED_THREADS]);
        assert_eq!((further.threads, further.counts), (4, vec![3 * 4]));
    }

    #[test]
    fn further_threads_with_one_number_are_several() {
        let (mut threads, mut total) = run_each((1..=MOST).chain([200, 201, 200]));
        // This thread has counts already.
        threads.switch(201, vec![total]);
        total += 1;
        // These two get none.
        threads.begin(202);
        threads.switch(202, vec![total]);
        threads.begin(203);
        let (_, further) = threads.results(vec![total], 0);
        assert_eq!((further.threads, further.counts), (3, vec![3 * 3 + 1]));
    }

    #[test]
    fn the_thread_that_forked_is_one_of_the_first() {
        let (threads, total) = run_each(1..=MOST);
        let (each, further) = threads.results(vec![total], 1);
        let mut expected = vec![vec![3]; MOST_NAMED_THREADS];
        expected[0] = vec![0];
        assert_eq!(each, expected);
        assert_eq!((further.threads, further.counts), (1, vec![3]));
    }
}
