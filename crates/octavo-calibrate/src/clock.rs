//! Time: the time-stamp counter, and how many cycles of the core one tick is.

use std::arch::asm;
use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::time::Instant;

/// The time-stamp counter, read after every instruction before it has completed and before any
/// instruction after it starts.
pub fn ticks() -> u64 {
    // SAFETY: both instructions exist on every x86-64 processor and have no effect on memory.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

/// Ticks that `work` takes.
pub fn time<T>(work: impl FnOnce() -> T) -> u64 {
    let start = ticks();
    std::hint::black_box(work());
    ticks().wrapping_sub(start)
}

const UNROLLED: u64 = 64;
const ITERATIONS: u64 = 1000;

/// Cycles of the core during one tick: a chain of dependent additions takes one cycle each.
///
/// The shortest of three chains counts, since an interrupt can only make one longer.
pub fn core_cycles_per_tick() -> f64 {
    let shortest = (0..3).map(|_| time(dependent_additions)).min().unwrap_or(1);
    (UNROLLED * ITERATIONS) as f64 / shortest.max(1) as f64
}

fn dependent_additions() -> u64 {
    let mut sum = 0u64;
    // Two registers: some cores execute additions of a constant without any latency.
    // SAFETY: arithmetic on registers that the compiler gives, and nothing else.
    unsafe {
        asm!(
            "2:",
            ".rept 64",
            "add {sum}, {one}",
            ".endr",
            "dec {left}",
            "jnz 2b",
            sum = inout(reg) sum,
            one = in(reg) 1u64,
            left = inout(reg) ITERATIONS => _,
            options(nomem, nostack),
        );
    }
    sum
}

/// Measures the rate of the time-stamp counter against the system's monotonic clock.
pub struct Stopwatch {
    tick: u64,
    started: Instant,
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Stopwatch { tick: ticks(), started: Instant::now() }
    }

    /// Ticks per second since the start.
    pub fn ticks_per_second(&self) -> f64 {
        let seconds = self.started.elapsed().as_secs_f64();
        ticks().wrapping_sub(self.tick) as f64 / seconds.max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_addition_is_executed() {
        assert_eq!(dependent_additions(), UNROLLED * ITERATIONS);
    }
}
