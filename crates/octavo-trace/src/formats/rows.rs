//! The common part of tables of references, which come as CSV or as columns.

use std::collections::HashSet;

use octavo_types::{Event, ItemKind, PageSize, VirtAddr};

use super::lengths::{self, Fetch, Lengths};
use super::reader::Learning;
use crate::learn::Reference;
use crate::source::{ASSUMED_BYTES, Facts, Place};

/// The thread that runs before any row has named one.
pub(crate) const FIRST_THREAD: u32 = 1;
/// How many threads a trace may have.
const MAX_THREADS: usize = 1 << 16;

/// One row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) kind: ItemKind,
    pub(crate) addr: u64,
    /// None where the table has no sizes.
    pub(crate) size: Option<u64>,
    /// How many instructions have executed up to and including this reference.
    pub(crate) instructions: Option<u64>,
    pub(crate) thread: Option<u32>,
}

/// Turns rows into references, and into events where the thread changes.
pub(crate) struct Rows {
    lengths: Lengths,
    /// The threads that rows have named.
    threads: HashSet<u32>,
    thread: u32,
    rows: u64,
    fetches: u64,
    /// Whether a row without a size was seen.
    lacks_sizes: bool,
    /// The last number of instructions.
    instructions: Option<u64>,
}

impl Rows {
    pub(crate) fn new() -> Self {
        Rows {
            lengths: Lengths::new(),
            threads: HashSet::new(),
            thread: FIRST_THREAD,
            rows: 0,
            fetches: 0,
            lacks_sizes: false,
            instructions: None,
        }
    }

    /// How many rows there were.
    pub(crate) fn count(&self) -> u64 {
        self.rows
    }

    /// Takes the row that stands at `place`; the error says what is wrong with the row.
    #[inline]
    pub(crate) fn row(&mut self, row: Row, place: Place, out: &mut Learning) -> Result<(), String> {
        if let Some(thread) = row.thread
            && (thread != self.thread || self.threads.is_empty())
        {
            self.switch(thread, place, out)?;
        }
        if let Some(count) = row.instructions {
            if let Some(before) = self.instructions.filter(|&before| count < before) {
                return Err(format!("time travel: instruction {count} comes after {before}"));
            }
            self.instructions = Some(count);
        }
        self.rows += 1;
        let is_fetch = row.kind == ItemKind::Fetch;
        self.fetches += u64::from(is_fetch);
        let size = row.size.unwrap_or(u64::from(ASSUMED_BYTES));
        if size == 0 || size > PageSize::BASE.bytes() {
            return Err(format!("a size of {size} bytes is outside 1..=4096"));
        }
        let reference = Reference::new(row.kind, VirtAddr::new(row.addr), size as u16);
        if row.size.is_some() {
            out.reference(reference, place);
            return Ok(());
        }
        self.lacks_sizes = true;
        if is_fetch {
            self.lengths.fetch(Fetch { addr: row.addr, ..Fetch::default() }, place, out);
        } else {
            self.lengths.data(reference, place, out);
        }
        Ok(())
    }

    #[cold]
    fn switch(&mut self, thread: u32, place: Place, out: &mut Learning) -> Result<(), String> {
        if self.threads.insert(thread) {
            if self.threads.len() > MAX_THREADS {
                return Err(format!("more than {MAX_THREADS} threads"));
            }
            self.lengths.event(&Event::ThreadStart { thread }, place, out);
        }
        if thread != self.thread {
            self.lengths.event(&Event::ThreadSwitch { thread }, place, out);
            self.thread = thread;
        }
        Ok(())
    }

    /// Ends the table.
    pub(crate) fn finish(&mut self, out: &mut Learning) {
        self.lengths.finish(out);
    }

    /// The facts on the table.
    pub(crate) fn facts(&self, format: &'static str) -> Facts {
        let mut notes = Vec::new();
        if self.lacks_sizes && self.fetches > 0 {
            notes.push(lengths::NOTE.to_owned());
        }
        if let Some(instructions) = self.instructions.filter(|_| self.fetches == 0) {
            notes.push(format!(
                "the trace says that {instructions} instructions had executed by its end, but \
                 has no fetches: nothing is counted per instruction"
            ));
        }
        Facts {
            has_instructions: self.fetches > 0,
            has_sizes: !self.lacks_sizes,
            notes,
            ..Facts::of(format)
        }
    }
}

/// Follows the thread that runs, for writers.
pub(crate) struct Running(pub(crate) u32);

impl Running {
    /// Whether a table can hold the event: a thread appears in it when it first runs.
    pub(crate) fn event(&mut self, event: &Event) -> bool {
        if let Event::ThreadSwitch { thread } = event {
            self.0 = *thread;
        }
        matches!(event, Event::ThreadSwitch { .. } | Event::ThreadStart { .. })
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use octavo_oracle::Reference;
    use octavo_oracle::strategies::{RandomStream, Step};

    use super::*;
    use crate::formats::testing::{Drained, references_of};

    /// Each reference of `stream` with the thread that made it.
    pub(crate) fn threads_of(stream: &RandomStream) -> Vec<(Reference, u32)> {
        let mut thread = FIRST_THREAD;
        let mut all = Vec::new();
        for step in &stream.steps {
            match step {
                Step::Event(Event::ThreadSwitch { thread: next }) => thread = *next,
                Step::Event(_) => {}
                Step::Segment(..) => {
                    let one = RandomStream {
                        segments: stream.segments.clone(),
                        steps: vec![step.clone()],
                    };
                    all.extend(
                        references_of(&one).into_iter().map(|reference| (reference, thread)),
                    );
                }
            }
        }
        all
    }

    /// Each reference that was read with the thread that made it; threads start before they run.
    pub(crate) fn threads_read(drained: &Drained) -> Vec<(Reference, u32)> {
        let (mut thread, mut started) = (FIRST_THREAD, Vec::new());
        let mut events = drained.events.iter().peekable();
        let mut all = Vec::new();
        for (index, reference) in drained.references.iter().enumerate() {
            while let Some((_, event)) = events.next_if(|(before, _)| *before == index) {
                match event {
                    Event::ThreadStart { thread } => started.push(*thread),
                    Event::ThreadSwitch { thread: next } => thread = *next,
                    _ => panic!("{event:?}"),
                }
            }
            assert!(started.contains(&thread));
            all.push((*reference, thread));
        }
        all
    }
}
