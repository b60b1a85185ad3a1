//! The choice of a prefetcher. Each has a *fake queue* of the pages that it would have prefetched, and counters follow
//! which of these queues have the pages that miss.

use octavo_os::vmas::Pages;

use super::AtpSettings;
use super::predictors::Prefetcher;
use super::queue::Queue;

/// A saturating counter whose most significant bit decides.
struct Counter {
    value: u64,
    bits: u64,
}

impl Counter {
    /// A counter just below the value at which its most significant bit is set.
    fn new(bits: u64) -> Self {
        Counter { value: ((1u64 << bits) / 2).saturating_sub(1), bits }
    }

    /// Whether the most significant bit is set; always true without any bits.
    fn is_high(&self) -> bool {
        self.bits == 0 || self.value >> (self.bits - 1) == 1
    }

    fn count(&mut self, up: bool) {
        let most = (1 << self.bits) - 1;
        self.value = if up { most.min(self.value + 1) } else { self.value.saturating_sub(1) };
    }
}

/// Fake queues and counters.
pub struct Chooser {
    is_on: [bool; 3],
    queues: [Queue<()>; 3],
    /// Decides whether anything is prefetched.
    enable: Counter,
    /// Decides between H2P and the others.
    select_1: Counter,
    /// Decides between STP and MASP.
    select_2: Counter,
}

impl Chooser {
    /// Empty queues.
    pub fn new(settings: &AtpSettings) -> Self {
        Chooser {
            is_on: settings.prefetchers(),
            queues: [(); 3].map(|()| Queue::new(settings.fake_entries)),
            enable: Counter::new(settings.enable_bits),
            select_1: Counter::new(settings.select_1_bits),
            select_2: Counter::new(settings.select_2_bits),
        }
    }

    /// Removes a base page that missed from all queues, and counts which of them had it.
    pub fn learn(&mut self, page: u64) {
        let [h2p, masp, stp] = self.queues.each_mut().map(|queue| queue.take(page).is_some());
        self.enable.count(h2p || masp || stp);
        if h2p != (masp || stp) {
            self.select_1.count(h2p);
        }
        if masp != stp {
            self.select_2.count(stp);
        }
    }

    /// The prefetcher for this miss. A counter decides only where prefetchers of both its sides are on.
    pub fn choose(&self) -> Option<Prefetcher> {
        let [h2p, masp, stp] = self.is_on;
        if !self.enable.is_high() {
            None
        } else if h2p && (self.select_1.is_high() || !masp && !stp) {
            Some(Prefetcher::H2p)
        } else if stp && (self.select_2.is_high() || !masp) {
            Some(Prefetcher::Stp)
        } else {
            masp.then_some(Prefetcher::Masp)
        }
    }

    /// Adds a page that a prefetcher would prefetch to its queue.
    pub fn add(&mut self, prefetcher: Prefetcher, pages: Pages) {
        self.queues[prefetcher as usize].push(pages, ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H2P: usize = 0;
    const MASP: usize = 1;
    const STP: usize = 2;

    /// A chooser after misses, each in the fake queues of these prefetchers.
    fn after(misses: &[&[usize]]) -> Chooser {
        let mut chooser = Chooser::new(&AtpSettings::default());
        for right in misses {
            right.iter().for_each(|number| chooser.add(Prefetcher::ALL[*number], 5..6));
            chooser.learn(5);
        }
        chooser
    }

    #[test]
    fn counters_follow_the_table_of_the_paper() {
        for (right, [enable, select_1, select_2]) in [
            (&[][..], [126, 31, 1]),
            (&[STP], [128, 30, 2]),
            (&[MASP], [128, 30, 0]),
            (&[MASP, STP], [128, 30, 1]),
            (&[H2P], [128, 32, 1]),
            (&[H2P, STP], [128, 31, 2]),
            (&[H2P, MASP], [128, 31, 0]),
            (&[H2P, MASP, STP], [128, 31, 1]),
        ] {
            let chooser = after(&[right]);
            let values = [chooser.enable.value, chooser.select_1.value, chooser.select_2.value];
            assert_eq!(values, [enable, select_1, select_2], "{right:?}");
        }
    }

    #[test]
    fn the_most_significant_bits_choose() {
        assert_eq!(after(&[]).choose(), None);
        assert_eq!(after(&[&[H2P]]).choose(), Some(Prefetcher::H2p));
        assert_eq!(after(&[&[STP]]).choose(), Some(Prefetcher::Stp));
        assert_eq!(after(&[&[MASP]]).choose(), Some(Prefetcher::Masp));
        assert_eq!(after(&[&[STP], &[]]).choose(), None);
        assert_eq!(after(&[&[STP], &[H2P], &[H2P]]).choose(), Some(Prefetcher::H2p));
    }

    #[test]
    fn counters_saturate() {
        let many = |right: &'static [usize]| after(&vec![right; 300]);
        let chooser = many(&[H2P, STP]);
        assert_eq!((chooser.enable.value, chooser.select_2.value), (255, 3));
        assert_eq!(many(&[H2P]).select_1.value, 63);
        assert_eq!((many(&[]).enable.value, many(&[MASP]).select_2.value), (0, 0));
    }

    #[test]
    fn prefetchers_that_are_off_are_not_chosen() {
        let settings = AtpSettings { enable_bits: 0, ..AtpSettings::default() };
        let only =
            |h2p, masp, stp| Chooser::new(&AtpSettings { h2p, masp, stp, ..settings }).choose();
        assert_eq!(only(true, false, false), Some(Prefetcher::H2p));
        assert_eq!(only(false, true, false), Some(Prefetcher::Masp));
        assert_eq!(only(false, false, true), Some(Prefetcher::Stp));
        assert_eq!(only(true, true, true), Some(Prefetcher::Masp));
        assert_eq!(only(false, false, false), None);
    }
}
