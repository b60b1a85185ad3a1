//! Counts by thread: the differences of a study's counts between switches of threads.

/// The most threads that events begin and that are counted one by one.
const MOST_THREADS: usize = 96;

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

/// The counts of all threads.
#[derive(Clone, Debug)]
pub struct Threads {
    /// First the thread that runs before an event names one, then others as they begin.
    threads: Vec<Thread>,
    /// The sum of further threads.
    others: Totals,
    /// Position of the thread that runs; `None` for a further thread.
    running: Option<usize>,
    /// Threads that have begun by an event.
    begun: u64,
    /// The totals at the last switch.
    since: Totals,
    /// Whether counts are left out for now.
    warming: bool,
}

impl Default for Threads {
    fn default() -> Self {
        Threads {
            threads: vec![Thread { number: None, begun: 0, counts: Totals::new() }],
            others: Totals::new(),
            running: Some(0),
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
            let running = self.running.map(|at| &mut self.threads[at].counts);
            add(running.unwrap_or(&mut self.others), &totals, &self.since);
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
        self.begun += 1;
        if self.threads.len() <= MOST_THREADS {
            let begun = self.begun;
            self.threads.push(Thread { number: Some(number), begun, counts: Totals::new() });
        }
    }

    /// A thread runs from now on. `totals` are those of now.
    pub fn switch(&mut self, number: u32, totals: Totals) {
        self.attribute(totals);
        self.running = self.at(number);
        let knows_all = self.begun <= MOST_THREADS as u64;
        if self.running.is_none() && knows_all && self.threads[0].number.is_none() {
            // No event has begun it: the process was forked by it, or the trace has no such events.
            self.threads[0].number = Some(number);
            self.running = Some(0);
        }
    }

    /// Counts are left out from now on, or they count again. `totals` are those of now.
    pub fn set_warming(&mut self, warming: bool, totals: Totals) {
        self.attribute(totals);
        self.warming = warming;
    }

    /// The counts of each thread in the order in which they began, then the sum of further threads,
    /// if there are any. `totals` are those of now. `initial` is the number of threads that no
    /// event begins.
    pub fn results(&self, totals: Totals, initial: u64) -> (Vec<Totals>, Option<Totals>) {
        let mut now = self.clone();
        now.attribute(totals);
        let mut results = Vec::<Totals>::new();
        for thread in &now.threads {
            // The first thread runs before an event says so, but may have been begun by one.
            let place = (thread.begun + initial).saturating_sub(1) as usize;
            if results.len() <= place {
                results.resize(place + 1, Totals::new());
            }
            add(&mut results[place], &thread.counts, &[]);
        }
        for counts in &mut results {
            counts.resize(now.since.len(), 0);
        }
        (results, (!now.others.is_empty()).then_some(now.others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first count of each thread.
    fn counts(threads: &Threads, total: u64, initial: u64) -> (Vec<u64>, Option<u64>) {
        let (threads, others) = threads.results(vec![total], initial);
        (threads.iter().map(|counts| counts[0]).collect(), others.map(|counts| counts[0]))
    }

    #[test]
    fn threads_get_what_was_counted_while_they_ran() {
        let mut threads = Threads::default();
        threads.begin(1);
        threads.begin(2);
        threads.switch(2, vec![10]);
        threads.switch(1, vec![14]);
        assert_eq!(counts(&threads, 15, 0), (vec![11, 4], None));
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
        assert_eq!(counts(&threads, 9, 0), (vec![2, 2, 5], None));
    }

    #[test]
    fn the_thread_that_forked_comes_first() {
        let mut threads = Threads::default();
        threads.begin(1);
        threads.switch(1, vec![2]);
        threads.switch(7, vec![5]);
        assert_eq!(counts(&threads, 9, 1), (vec![6, 3], None));
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
        assert_eq!(counts(&threads, 7, 0), (vec![5, 2], None));
    }

    #[test]
    fn further_threads_are_counted_together() {
        let mut threads = Threads::default();
        let numbers = 1..=MOST_THREADS as u32 + 4;
        let mut total = 0;
        for number in numbers {
            threads.begin(number);
            threads.switch(number, vec![total]);
            total += 3;
        }
        let (each, others) = counts(&threads, total, 0);
        assert_eq!(each, vec![3; MOST_THREADS]);
        assert_eq!(others, Some(3 * 4));
    }
}
