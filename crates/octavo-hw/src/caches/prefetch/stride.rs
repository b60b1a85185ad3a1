//! Prefetches by the stride of each instruction, in lines.

use super::{Blocks, StrideConfig};

/// The last access of an instruction, and its stride.
#[derive(Clone, Copy, Debug)]
struct Entry {
    site: u64,
    /// The line of its last access that trained.
    line: u64,
    /// The last step from one line to the next; 0 before the second access.
    stride: i64,
    /// How often in succession the step was `stride`.
    count: u32,
}

/// The table of instructions.
#[derive(Clone, Debug)]
pub struct Stride {
    config: StrideConfig,
    entries: Box<[Option<Entry>]>,
}

impl Stride {
    pub fn new(config: StrideConfig) -> Self {
        Stride { config, entries: vec![None; config.entries as usize].into() }
    }

    /// Trains with an access of the instruction at `site`. Appends the lines to prefetch to `out`.
    pub fn train(&mut self, blocks: Blocks, site: u64, line: u64, out: &mut Vec<u64>) {
        let StrideConfig { confirmations, distance, degree, bounds, .. } = self.config;
        let entry = &mut self.entries[(site % u64::from(self.config.entries)) as usize];
        let Some(known) = entry.as_mut().filter(|entry| entry.site == site) else {
            *entry = Some(Entry { site, line, stride: 0, count: 0 });
            return;
        };
        let step = line.wrapping_sub(known.line) as i64;
        if step == 0 {
            return;
        }
        known.count = if step == known.stride { known.count.saturating_add(1) } else { 1 };
        (known.line, known.stride) = (line, step);
        if known.count < confirmations {
            return;
        }
        for ahead in (i64::from(distance)..).take(degree as usize) {
            let Some(to) = blocks.reach(bounds, line, step.saturating_mul(ahead)) else { break };
            out.push(to);
        }
    }
}
