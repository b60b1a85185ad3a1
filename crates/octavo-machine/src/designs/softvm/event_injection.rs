//! What happens at a rate to pages that a program uses, as its trace does not tell it: changes of protection
//! (section 5.4: "page-protection modifications", in copies on writing above all), and transfers of devices,
//! before which the caches are flushed of their pages (section 4.3, direct memory access).
//!
//! Each is spread evenly over the instructions, and each befalls a line of data that is in the second level:
//! one by chance, the same each time a program runs.

use octavo_config::SoftvmRates;

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InjectedEvent {
    /// Something loses the right to be stored to.
    Protection,
    /// A device transfers a page.
    Dma,
}

/// What is due.
pub struct EventInjector {
    per_billion: [(InjectedEvent, u64); 2],
    instructions: u64,
    done: [u64; 2],
}

impl EventInjector {
    /// Nothing has happened yet.
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

    /// Whether anything happens ever.
    pub fn is_enabled(&self) -> bool {
        self.per_billion.iter().any(|(_, rate)| *rate > 0)
    }

    /// So many instructions more are executed. (One that spans two pages is told twice.)
    pub fn execute(&mut self, instructions: u32) {
        self.instructions += u64::from(instructions);
    }

    /// The next thing that is due, with a number by chance.
    pub fn next(&mut self) -> Option<(InjectedEvent, u64)> {
        for ((what, rate), done) in self.per_billion.iter().zip(&mut self.done) {
            let due = u128::from(self.instructions) * u128::from(*rate) / 1_000_000_000;
            if u128::from(*done) < due {
                *done += 1;
                // The golden ratio: numbers one after the other come to lie far apart.
                return Some((*what, done.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32));
            }
        }
        None
    }
}
