//! Prefetches ahead of ascending and descending lines, by page.

use super::{Blocks, StreamerConfig};

/// Accesses to one page.
#[derive(Clone, Copy, Debug)]
struct Stream {
    page: u64,
    /// The line accessed last.
    line: u64,
    /// 1 upwards, -1 downwards.
    direction: i64,
    /// How many steps in succession went in this direction.
    count: u32,
    /// Lines ahead of `line` that have been requested.
    ahead: u64,
}

/// The pages followed, the most recently used first.
#[derive(Clone, Debug)]
pub struct Streamer {
    config: StreamerConfig,
    streams: Vec<Stream>,
}

impl Streamer {
    pub fn new(config: StreamerConfig) -> Self {
        Streamer { config, streams: Vec::with_capacity(config.streams as usize) }
    }

    /// Trains with an access to a line. Appends the lines to prefetch to `out`.
    pub fn train(&mut self, blocks: Blocks, line: u64, out: &mut Vec<u64>) {
        let StreamerConfig { streams, confirmations, distance, degree, bounds } = self.config;
        let page = line / blocks.lines(bounds);
        match self.streams.iter().position(|stream| stream.page == page) {
            Some(place) => {
                self.streams[..=place].rotate_right(1);
                let stream = &mut self.streams[0];
                let step = line.wrapping_sub(stream.line) as i64;
                if step == 0 {
                    return;
                }
                if step.signum() == stream.direction {
                    stream.count = stream.count.saturating_add(1);
                    stream.ahead = stream.ahead.saturating_sub(step.unsigned_abs());
                } else {
                    (stream.direction, stream.count, stream.ahead) = (step.signum(), 1, 0);
                }
                stream.line = line;
            }
            None => {
                self.streams.truncate(streams as usize - 1);
                self.streams.insert(0, Stream { page, line, direction: 1, count: 0, ahead: 0 });
            }
        }
        let stream = &mut self.streams[0];
        if stream.count < confirmations {
            return;
        }
        for _ in 0..degree {
            let ahead = stream.ahead + 1;
            if ahead > u64::from(distance) {
                break;
            }
            let by = stream.direction * ahead as i64;
            let Some(to) = blocks.reach(bounds, line, by) else { break };
            stream.ahead = ahead;
            out.push(to);
        }
    }
}
