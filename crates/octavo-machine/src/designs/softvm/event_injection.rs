//! Injects events that traces do not contain, at configured rates: changes of protection (section 5.4:
//! "page-protection modifications", mainly copy-on-write), and device transfers, before which the caches are
//! flushed of their pages (section 4.3, direct memory access).
//!
//! Events are spread evenly over the instructions. Each affects a pseudo-random data line in the second
//! level; the choice is the same in every run.

use super::settings::SoftvmRates;

/// An injected event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InjectedEvent {
    /// A page loses store permission.
    Protection,
    /// A device transfers a page.
    Dma,
}

/// The schedule of injected events.
pub struct EventInjector {
    per_billion: [(InjectedEvent, u64); 2],
    instructions: u64,
    done: [u64; 2],
}

impl EventInjector {
    /// A schedule without past events.
    pub fn new(rates: SoftvmRates) -> Self {
        let SoftvmRates { protections_per_billion, dma_pages_per_billion } = rates;
        EventInjector {
            per_billion: [
                (InjectedEvent::Protection, u64::from(protections_per_billion)),
                (InjectedEvent::Dma, u64::from(dma_pages_per_billion)),
            ],
            instructions: 0,
            done: [0; 2],
        }
    }

    /// Whether any rate is above 0.
    pub fn is_enabled(&self) -> bool {
        self.per_billion.iter().any(|(_, rate)| *rate > 0)
    }

    /// Counts executed instructions. (One that spans two pages counts twice.)
    pub fn execute(&mut self, instructions: u32) {
        self.instructions += u64::from(instructions);
    }

    /// The next due event, with a pseudo-random number.
    pub fn next(&mut self) -> Option<(InjectedEvent, u64)> {
        for ((event, rate), done) in self.per_billion.iter().zip(&mut self.done) {
            let due = u128::from(self.instructions) * u128::from(*rate) / 1_000_000_000;
            if u128::from(*done) < due {
                *done += 1;
                // The golden ratio spreads consecutive numbers far apart.
                return Some((*event, done.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32));
            }
        }
        None
    }
}
