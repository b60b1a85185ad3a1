//! Schedules control events by instruction count: end of warm-up, intervals, background work.

use octavo_trace::Counts;

use crate::front::ControlEvent;

/// Instructions between two calls of the operating systems' background work.
const TICK_INSTRUCTIONS: u64 = 1 << 20;

/// Next due events, in instructions of all processes together.
pub struct Schedule {
    instructions: u64,
    warm_up: u64,
    interval: Option<u64>,
    /// The earliest due event.
    next: u64,
    next_tick: u64,
    next_interval: u64,
    /// Reference counts as of the end of the warm-up, once it has ended.
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

    /// Instructions executed by all processes so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Counts executed instructions.
    #[inline(always)]
    pub fn executed(&mut self, instructions: u32) {
        self.instructions += u64::from(instructions);
    }

    /// Whether an event is due before the next instruction.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.instructions >= self.next
    }

    /// Emits the due events through `emit`; `total` holds the reference counts so far.
    pub fn emit_due(&mut self, total: &Counts, mut emit: impl FnMut(ControlEvent)) {
        let at = self.instructions;
        if self.warm.is_none() && at >= self.warm_up {
            self.warm = Some(total.clone());
            emit(ControlEvent::WarmUpEnd);
        }
        if at >= self.next_tick {
            emit(ControlEvent::Tick(at));
            self.next_tick = (at / TICK_INSTRUCTIONS + 1) * TICK_INSTRUCTIONS;
        }
        if let Some(every) = self.interval
            && at >= self.next_interval
        {
            emit(ControlEvent::IntervalEnd);
            let number = (at - self.warm_up) / every + 1;
            self.next_interval = self.warm_up.saturating_add(number.saturating_mul(every));
        }
        self.plan();
    }

    /// The part of `total` after the warm-up; zero before the warm-up has ended.
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
