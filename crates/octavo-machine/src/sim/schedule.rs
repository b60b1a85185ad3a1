//! What happens after so many instructions: warm-up, intervals, background work.

use octavo_trace::Counts;

use crate::front::ControlEvent;

/// How many instructions there are between two calls of the operating systems' background work.
const TICK_INSTRUCTIONS: u64 = 1 << 20;

/// When what is due, in instructions of all processes.
pub struct Schedule {
    instructions: u64,
    warm_up: u64,
    interval: Option<u64>,
    /// The soonest of all.
    next: u64,
    next_tick: u64,
    next_interval: u64,
    /// What the warm-up had, once it is over.
    warm: Option<Counts>,
}

impl Schedule {
    pub fn new(warm_up: u64, interval: Option<u64>) -> Self {
        let mut schedule = Schedule {
            instructions: 0,
            warm_up,
            interval,
            next: 0,
            next_tick: TICK_INSTRUCTIONS,
            next_interval: warm_up.saturating_add(interval.unwrap_or(u64::MAX)),
            warm: None,
        };
        schedule.plan();
        schedule
    }

    /// So many instructions have been executed, in all.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// More are executed.
    #[inline(always)]
    pub fn executed(&mut self, instructions: u32) {
        self.instructions += u64::from(instructions);
    }

    /// Whether anything is due before the next instruction.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.instructions >= self.next
    }

    /// Tells what is due; `total` is what there was so far.
    pub fn due(&mut self, total: &Counts, mut mark: impl FnMut(ControlEvent)) {
        let at = self.instructions;
        if self.warm.is_none() && at >= self.warm_up {
            self.warm = Some(total.clone());
            mark(ControlEvent::WarmUpEnd);
        }
        if at >= self.next_tick {
            mark(ControlEvent::Tick(at));
            self.next_tick = (at / TICK_INSTRUCTIONS + 1) * TICK_INSTRUCTIONS;
        }
        if let Some(every) = self.interval
            && at >= self.next_interval
        {
            mark(ControlEvent::IntervalEnd);
            let over = (at - self.warm_up) / every + 1;
            self.next_interval = self.warm_up.saturating_add(over.saturating_mul(every));
        }
        self.plan();
    }

    /// What counts of `total`: all but the warm-up. Nothing where that is not over.
    pub fn counted(&self, total: &Counts) -> Counts {
        match &self.warm {
            Some(warm) => total.since(warm),
            None => total.since(total),
        }
    }

    fn plan(&mut self) {
        let warm = if self.warm.is_none() { self.warm_up } else { u64::MAX };
        self.next = self.next_tick.min(self.next_interval).min(warm);
    }
}
