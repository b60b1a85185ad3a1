//! Resources of the slow core, as plain lists of reservations.

/// Ascending times, at most `width` of them equal.
pub(super) struct InOrder {
    width: u32,
    pub(super) times: Vec<u64>,
}

impl InOrder {
    pub(super) fn new(width: u32) -> Self {
        InOrder { width, times: Vec::new() }
    }

    /// The first cycle from `from` on that the next time may have.
    pub(super) fn first(&self, from: u64) -> u64 {
        let mut at = from.max(self.times.last().copied().unwrap_or(0));
        while self.times.iter().rev().take_while(|time| **time == at).count() >= self.width as usize
        {
            at += 1;
        }
        at
    }

    pub(super) fn take(&mut self, from: u64) -> u64 {
        let at = self.first(from);
        self.times.push(at);
        at
    }
}

/// `width` slots in each cycle, taken in any order of cycles.
pub(super) struct Slots {
    width: u32,
    /// The number of slots taken, by cycle.
    taken: Vec<u32>,
}

impl Slots {
    pub(super) fn new(width: u32) -> Self {
        Slots { width, taken: Vec::new() }
    }

    pub(super) fn is_free(&self, at: u64) -> bool {
        self.taken.get(at as usize).is_none_or(|taken| *taken < self.width)
    }

    pub(super) fn take(&mut self, at: u64) {
        let at = at as usize;
        self.taken.resize(self.taken.len().max(at + 1), 0);
        self.taken[at] += 1;
    }
}

/// Numbered places: walkers, outstanding misses, a bank or a channel. Each is taken for intervals: start, end.
pub(super) struct Places {
    taken: Vec<Vec<(u64, u64)>>,
}

impl Places {
    pub(super) fn new(count: u32) -> Self {
        Places { taken: vec![Vec::new(); count as usize] }
    }

    /// The first place that is free for `cycles` from a time on.
    fn free(&self, from: u64, cycles: u64) -> Option<usize> {
        let is_free = |interval: &&(u64, u64)| interval.1 <= from || from + cycles <= interval.0;
        self.taken.iter().position(|times| times.iter().filter(is_free).count() == times.len())
    }

    /// Takes the first place that is free for `cycles`, from a time until another.
    pub(super) fn take(&mut self, from: u64, cycles: u64, to: u64) {
        let place = self.free(from, cycles).expect("a free place");
        self.taken[place].extend((from < to).then_some((from, to)));
    }
}

/// The first time from `from` on at which all have a place that is free for `cycles`: `from`, or the end of an
/// interval.
pub(super) fn first_free(all: &[&Places], from: u64, cycles: u64) -> u64 {
    let taken = all.iter().flat_map(|places| places.taken.iter().flatten());
    let mut times: Vec<u64> =
        taken.map(|interval| interval.1).filter(|end| *end > from).chain([from]).collect();
    times.sort_unstable();
    let is_free = |at: &u64| all.iter().all(|places| places.free(*at, cycles).is_some());
    times.into_iter().find(is_free).expect("all places are free after the last interval")
}
