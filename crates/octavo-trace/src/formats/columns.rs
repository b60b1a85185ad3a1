//! Tables of references as columns in memory, for formats that another language reads and writes,
//! such as Parquet.
//!
//! Batches of rows go through a bounded channel, so that neither side runs far ahead. Columns have
//! the meanings of the CSV format. If a side goes away before it has finished, the other one gets
//! an error, so that an incomplete trace is never taken for a complete one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use octavo_types::{Event, ItemKind, Segment, VirtAddr};

use super::executed::{ATOMIC_AND_REGISTERS, executed};
use super::reader::{Learning, Reader, ReaderSource};
use super::rows::{FIRST_THREAD, Row, Rows, Running};
use crate::sink::{Output, ReferenceWriter};
use crate::source::{Batch, Facts, Place, Progress, Source, Step, TraceError};

/// The format's name in [`Facts`]: columns come from Parquet alone so far.
const NAME: &str = "parquet";
/// How many batches wait in a channel.
const CHANNEL_BATCHES: usize = 4;
/// The most rows of a batch that is written.
const BATCH_ROWS: usize = 64 * 1024;
/// How many rows are read at once.
const ROWS_AT_ONCE: usize = 16 * 1024;

/// Some rows, by column; all columns that are there have one entry a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnBatch {
    /// 0 fetch, 1 load, 2 store, 3 modify.
    pub kinds: Vec<u8>,
    /// First bytes.
    pub addresses: Vec<u64>,
    /// In bytes, 1 to 4096.
    pub sizes: Option<Vec<u16>>,
    /// The thread that makes each reference.
    pub threads: Option<Vec<u32>>,
}

impl ColumnBatch {
    fn check(&self) -> Result<(), String> {
        let rows = self.kinds.len();
        let columns = [
            ("addresses", Some(self.addresses.len())),
            ("sizes", self.sizes.as_ref().map(Vec::len)),
            ("threads", self.threads.as_ref().map(Vec::len)),
        ];
        for (name, length) in columns {
            if let Some(length) = length.filter(|length| *length != rows) {
                return Err(format!("a batch has {rows} kinds but {length} {name}"));
            }
        }
        Ok(())
    }

    /// The row at `index`; an error if its kind is unknown.
    #[inline]
    fn row(&self, index: usize) -> Result<Row, String> {
        let kind = match self.kinds[index] {
            0 => ItemKind::Fetch,
            1 => ItemKind::Load,
            2 => ItemKind::Store,
            3 => ItemKind::Modify,
            code => return Err(format!("{code} is not a kind of reference: these are 0 to 3")),
        };
        Ok(Row {
            kind,
            addr: self.addresses[index],
            size: self.sizes.as_ref().map(|sizes| u64::from(sizes[index])),
            instructions: None,
            thread: self.threads.as_ref().map(|threads| threads[index]),
        })
    }
}

/// The other side of a channel is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reader of the columns has closed")]
pub struct Gone;

/// The end of a channel where batches go in.
#[derive(Debug)]
pub struct ColumnFeed {
    sender: SyncSender<Result<ColumnBatch, String>>,
    complete: Arc<AtomicBool>,
}

impl ColumnFeed {
    /// Sends a batch; waits while the channel is full.
    pub fn send(&self, batch: ColumnBatch) -> Result<(), Gone> {
        self.sender.send(Ok(batch)).map_err(|_| Gone)
    }

    /// Ends the columns: all rows were sent.
    pub fn finish(self) {
        self.complete.store(true, Ordering::Release);
    }

    /// Ends the columns with the error `what`.
    pub fn fail(self, what: impl Into<String>) {
        // A closed reader needs no error.
        drop(self.sender.send(Err(what.into())));
    }
}

/// The end of a channel where batches come out.
#[derive(Debug)]
pub struct ColumnDrain {
    receiver: Receiver<Result<ColumnBatch, String>>,
    complete: Arc<AtomicBool>,
}

impl ColumnDrain {
    /// The next batch, `None` at the end; an error if the other side has failed or stopped early.
    pub fn receive(&self) -> Result<Option<ColumnBatch>, String> {
        match self.receiver.recv() {
            Ok(batch) => batch.map(Some),
            Err(_) if self.complete.load(Ordering::Acquire) => Ok(None),
            Err(_) => Err("ends early: the writer of the columns has stopped".to_owned()),
        }
    }
}

fn channel() -> (ColumnFeed, ColumnDrain) {
    let (sender, receiver) = sync_channel(CHANNEL_BATCHES);
    let complete = Arc::new(AtomicBool::new(false));
    (ColumnFeed { sender, complete: complete.clone() }, ColumnDrain { receiver, complete })
}

/// A trace named `name` that is fed by batches.
pub fn column_channel(name: &str) -> (ColumnFeed, ColumnSource) {
    let (feed, drain) = channel();
    let reader = ColumnReader {
        name: name.to_owned(),
        drain,
        batch: ColumnBatch::default(),
        next: 0,
        rows: Rows::new(),
    };
    (feed, ColumnSource(ReaderSource::new(reader)))
}

/// A trace of columns.
pub struct ColumnSource(ReaderSource<ColumnReader>);

impl Source for ColumnSource {
    fn facts(&self) -> Facts {
        self.0.facts()
    }

    fn next(&mut self, batch: &mut Batch) -> Result<Option<Step>, TraceError> {
        self.0.next(batch)
    }

    fn progress(&self) -> Progress {
        self.0.progress()
    }

    fn place(&self) -> Place {
        self.0.place()
    }
}

struct ColumnReader {
    name: String,
    drain: ColumnDrain,
    batch: ColumnBatch,
    /// The first row of the batch that is not read.
    next: usize,
    rows: Rows,
}

impl ColumnReader {
    fn wrong(&self, what: String) -> TraceError {
        TraceError::at(&self.name, self.place(), what)
    }

    fn rows(&mut self, out: &mut Learning) -> Result<bool, TraceError> {
        if self.next == self.batch.kinds.len() {
            let batch = self.drain.receive().map_err(|what| self.wrong(what))?;
            let Some(batch) = batch else { return Ok(false) };
            batch.check().map_err(|what| self.wrong(what))?;
            (self.batch, self.next) = (batch, 0);
        }
        let end = self.batch.kinds.len().min(self.next + ROWS_AT_ONCE);
        while self.next < end {
            let place = Place::Row(self.rows.count());
            let row = self.batch.row(self.next);
            row.and_then(|row| self.rows.row(row, place, out))
                .map_err(|what| TraceError::at(&self.name, place, what))?;
            self.next += 1;
        }
        Ok(true)
    }
}

impl Reader for ColumnReader {
    fn read_some(&mut self, out: &mut Learning) -> Result<bool, TraceError> {
        let more = self.rows(out);
        if !matches!(more, Ok(true)) {
            self.rows.finish(out);
        }
        if matches!(more, Ok(false)) && self.rows.count() == 0 {
            return Err(TraceError::whole(&self.name, "is empty"));
        }
        more
    }

    fn facts(&self) -> Facts {
        self.rows.facts(NAME)
    }

    fn progress(&self) -> Progress {
        Progress { done: self.rows.count(), total: None }
    }

    fn place(&self) -> Place {
        Place::Row(self.rows.count())
    }
}

/// A writer whose batches come out at the drain, each of up to 64 Ki rows, with all columns.
pub fn column_writer(name: &str) -> (ColumnWriter, ColumnDrain) {
    let (feed, drain) = channel();
    let batch = ColumnBatch::default();
    (ColumnWriter { name: name.to_owned(), feed, batch, running: Running(FIRST_THREAD) }, drain)
}

/// Writes columns.
pub struct ColumnWriter {
    name: String,
    feed: ColumnFeed,
    batch: ColumnBatch,
    running: Running,
}

impl ColumnWriter {
    fn send(&mut self) -> Result<(), TraceError> {
        let batch = std::mem::take(&mut self.batch);
        self.feed.send(batch).map_err(|gone| TraceError::unwritable(&self.name, gone))
    }
}

impl ReferenceWriter for ColumnWriter {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) -> Result<(), TraceError> {
        for (item, addr) in executed(segment, addresses) {
            self.batch.kinds.push(match item.kind {
                ItemKind::Fetch => 0,
                ItemKind::Load => 1,
                ItemKind::Store => 2,
                ItemKind::Modify => 3,
            });
            self.batch.addresses.push(addr.raw());
            self.batch.sizes.get_or_insert_default().push(item.size_bytes);
            self.batch.threads.get_or_insert_default().push(self.running.0);
            if self.batch.kinds.len() == BATCH_ROWS {
                self.send()?;
            }
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<bool, TraceError> {
        Ok(self.running.event(event))
    }

    fn losses(&self) -> Vec<String> {
        vec![ATOMIC_AND_REGISTERS.to_owned()]
    }

    fn finish(mut self: Box<Self>) -> Result<Output, TraceError> {
        if !self.batch.kinds.is_empty() {
            self.send()?;
        }
        let ColumnWriter { name, feed, .. } = *self;
        feed.finish();
        // The drain's side writes the columns to a file of its own.
        Ok(Output::to_writer(&name, Box::new(std::io::sink())))
    }
}

#[cfg(test)]
mod tests;
