//! The references of one stream, with times in references of the whole program.

use octavo_trace::Stream;

use super::{Row, Touch, Touches};

/// References of a stream to one base page, with gaps of at most a given length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The page.
    pub row: Row,
    /// The time of the first reference, from 1. A run that continues in the next batch begins again there, with
    /// the last reference of this batch.
    pub first: u64,
    /// The time of the last reference.
    pub last: u64,
}

/// Finds the runs of a stream in the touches of the program, in which kinds are distinguished.
pub struct Runs {
    stream: Stream,
    /// The longest gap between references of a run.
    longest_gap_refs: u64,
    /// The page of the current touch, if it belongs to the stream.
    current: Option<Row>,
    runs: Vec<Run>,
}

impl Runs {
    /// No runs yet.
    pub fn new(stream: Stream, longest_gap_refs: u64) -> Self {
        Runs { stream, longest_gap_refs, current: None, runs: Vec::new() }
    }

    /// Whether a touch belongs to the stream.
    #[inline(always)]
    fn has(&self, touch: Touch) -> bool {
        match self.stream {
            Stream::Fetch => touch.is_fetch(),
            Stream::Data => !touch.is_fetch(),
            Stream::All => true,
        }
    }

    /// Ends the current touch at the end of the last batch.
    pub fn end_touch(&mut self) {
        self.current = None;
    }

    /// The runs of the next batch.
    pub fn of_batch(&mut self, batch: &Touches) -> &[Run] {
        self.runs.clear();
        let start = batch.start_refs + 1;
        let mut first = batch.start_refs;
        for touch in &batch.touches {
            self.end_run(first, start.wrapping_add_signed(touch.left_refs()));
            self.current = self.has(*touch).then_some(touch.row());
            first = start + u64::from(touch.at_refs());
        }
        self.end_run(first, batch.end_refs);
        &self.runs
    }

    #[inline(always)]
    fn end_run(&mut self, first: u64, last: u64) {
        let Some(row) = self.current else { return };
        match self.runs.last_mut() {
            Some(run) if run.row == row && first - run.last <= self.longest_gap_refs => {
                run.last = last;
            }
            _ => self.runs.push(Run { row, first, last }),
        }
    }
}
