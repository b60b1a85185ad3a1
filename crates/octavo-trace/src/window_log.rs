//! The windows of a stream that was traced in parts, each with its counts.

use octavo_types::{Event, WindowPlace};

use crate::observer::{Observer, StreamProgress};

/// How many windows of a stream are kept; at this number every other one is dropped.
const MAX_WINDOWS: usize = 1 << 16;

/// A part of an execution that was traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedWindow {
    /// Where it began.
    pub begin: WindowPlace,
    /// Where it ended; the first window of a stream that goes on, and the last one, may have no
    /// end.
    pub end: Option<WindowPlace>,
    /// Its instructions that counted.
    pub instructions: u64,
    /// Its references that counted.
    pub references: u64,
    /// The counts of the engine in it: see [`Observer::window_counts`].
    pub counts: Vec<u64>,
}

/// The windows of one stream. A stream begins in a window, which it never leaves if it is traced as
/// a whole.
#[derive(Clone, Debug)]
pub struct WindowLog {
    windows: Vec<TracedWindow>,
    /// How many windows there were.
    total: u64,
    /// The open window: where it began, and the counts at that place.
    open: Option<(WindowPlace, StreamProgress, Vec<u64>)>,
    /// Where the last window began or ended, or the stream ended; `None` for a stream that is
    /// traced as a whole.
    last: Option<WindowPlace>,
}

impl Default for WindowLog {
    fn default() -> Self {
        let start = WindowPlace { instructions: Some(0), milliseconds: Some(0) };
        let open = Some((start, StreamProgress::default(), Vec::new()));
        WindowLog { windows: Vec::new(), total: 0, open, last: None }
    }
}

impl WindowLog {
    /// Takes an event of the stream; the engine has consumed everything before the event.
    #[inline]
    pub fn event(&mut self, event: &Event, engine: &impl Observer) {
        match event {
            Event::WindowBegin { at } => self.begin(*at, engine),
            Event::WindowEnd { at } => self.end(Some(*at), engine),
            _ => {}
        }
    }

    fn begin(&mut self, at: WindowPlace, engine: &impl Observer) {
        self.last = Some(at);
        self.open = Some((at, engine.progress(), engine.window_counts()));
    }

    fn end(&mut self, at: Option<WindowPlace>, engine: &impl Observer) {
        self.last = at.or(self.last);
        let Some((begin, progress, counts)) = self.open.take() else { return };
        let all = engine.progress();
        let instructions = all.instructions - progress.instructions;
        let references = all.references - progress.references;
        // Nothing in the window counted: a process began between windows, or the region was closed.
        if references == 0 {
            return;
        }
        let before = counts.iter().chain(std::iter::repeat(&0));
        let now = engine.window_counts();
        let counts = now.iter().zip(before).map(|(now, then)| now - then).collect();
        self.windows.push(TracedWindow { begin, end: at, instructions, references, counts });
        self.total += 1;
        if self.windows.len() == MAX_WINDOWS {
            let mut index = 0;
            self.windows.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }

    /// Ends the open window, at the stream's end or for a snapshot.
    pub fn finish(&mut self, engine: &impl Observer) {
        if self.last.is_some() {
            self.end(None, engine);
        }
    }

    /// The windows, or a part of them if there were too many; empty for a stream that was traced as
    /// a whole.
    pub fn windows(&self) -> &[TracedWindow] {
        if self.last.is_some() { &self.windows } else { &[] }
    }

    /// Where the last window began or ended, or the stream if it ended between windows.
    pub fn last(&self) -> Option<WindowPlace> {
        self.last
    }

    /// How many windows there were; 0 for a stream that was traced as a whole.
    pub fn total(&self) -> u64 {
        if self.last.is_some() { self.total } else { 0 }
    }
}
