//! Background work at an interval of instructions.

/// An interval, and the time of its next end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    every_instructions: u64,
    next_instructions: u64,
}

impl Interval {
    /// An interval that begins with the first instruction; of 0 instructions, it never ends.
    pub fn new(every_instructions: u64) -> Self {
        Interval { every_instructions, next_instructions: every_instructions }
    }

    /// Whether the interval has ended; if so, the next one begins.
    pub fn is_due(&mut self, instructions: u64) -> bool {
        let every = self.every_instructions;
        let is_due = every > 0 && instructions >= self.next_instructions;
        if is_due {
            // This end replaces all that have passed.
            let missed = (instructions - self.next_instructions) / every;
            self.next_instructions += (missed + 1) * every;
        }
        is_due
    }
}
