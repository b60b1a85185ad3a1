//! The program, assembled from the records of all files.

use std::collections::HashMap;

use octavo_types::{Event, ItemKind, PhysAddr, VirtAddr};

use super::super::pieces::pieces;
use super::super::reader::Learning;
use super::record::{Record, check_version, file_type, kind, marker};
use crate::learn::Reference;
use crate::source::{Facts, Place};

/// The longest instruction that DynamoRIO knows.
const MAX_INSTRUCTION_BYTES: u16 = 17;
/// How many threads may be named.
const MAX_THREADS: usize = 1 << 16;
/// The number of threads whose identifiers the notes name.
const MAX_NAMED: usize = 32;

/// Where in one file its reader stands.
#[derive(Default)]
pub(super) struct Cursor {
    /// The thread that the next records are of.
    thread: u64,
    /// An event has announced that this thread runs.
    pub(super) announced: bool,
    /// The physical address whose virtual one comes next.
    physical: Option<u64>,
    /// Where the last instruction ends.
    next_fetch: Option<u64>,
    /// The address of the last instruction that was fetched.
    last_fetch: Option<u64>,
}

/// The program that a trace records.
#[derive(Default)]
pub(super) struct Program {
    threads: HashMap<u64, Thread>,
    /// The identifiers of the first threads that ran.
    named: Vec<u64>,
    started: u32,
    /// The thread that runs, by its number.
    running: u32,
    process: Option<u64>,
    file_types: u64,
    last_window: u64,
    counts: Counts,
}

/// One thread.
#[derive(Default)]
struct Thread {
    process: Option<u64>,
    /// Once it has run.
    number: Option<u32>,
}

/// Counts that become notes.
#[derive(Default)]
struct Counts {
    prefetches: u64,
    flushes: u64,
    unfetched: u64,
    sizeless: u64,
    split: u64,
    unplaced: u64,
    kernel: u64,
}

impl Program {
    /// Takes the record that stands at byte `at` of the file whose reader is `cursor`. Returns the
    /// timestamp, if the record holds one.
    #[inline]
    pub(super) fn record(
        &mut self,
        record: Record,
        at: u64,
        cursor: &mut Cursor,
        out: &mut Learning,
    ) -> Result<Option<u64>, String> {
        match record.kind {
            kind::READ => self.data(ItemKind::Load, record, at, cursor, out)?,
            kind::WRITE => self.data(ItemKind::Store, record, at, cursor, out)?,
            kind::ENCODING => {}
            kind::INSTR..=kind::INSTR_RETURN
            | kind::INSTR_TAKEN_JUMP
            | kind::INSTR_UNTAKEN_JUMP
            | kind::INSTR_SYSENTER => {
                self.fetch(record.value, record.size, at, cursor, out)?;
            }
            _ => return self.rare(record, at, cursor, out),
        }
        Ok(None)
    }

    #[inline]
    fn data(
        &mut self,
        kind: ItemKind,
        record: Record,
        at: u64,
        cursor: &mut Cursor,
        out: &mut Learning,
    ) -> Result<(), String> {
        self.announce(cursor, at, out)?;
        let Record { value, mut size, .. } = record;
        if size.wrapping_sub(1) >= 4096 {
            self.counts.sizeless += u64::from(size == 0);
            self.counts.split += u64::from(size != 0);
            size = size.max(1);
        }
        for (addr, size_bytes) in pieces(value, size.into()) {
            out.reference(Reference::new(kind, addr, size_bytes), Place::Byte(at));
        }
        Ok(())
    }

    #[inline]
    fn fetch(
        &mut self,
        addr: u64,
        size: u16,
        at: u64,
        cursor: &mut Cursor,
        out: &mut Learning,
    ) -> Result<(), String> {
        if size == 0 {
            // The record only names the instruction that touches the following data: its fetch was
            // filtered.
            return Ok(());
        }
        if size > MAX_INSTRUCTION_BYTES {
            return Err(format!("an instruction has {size} bytes"));
        }
        self.announce(cursor, at, out)?;
        let reference = Reference::new(ItemKind::Fetch, VirtAddr::new(addr), size);
        out.reference(reference, Place::Byte(at));
        cursor.next_fetch = Some(addr.wrapping_add(u64::from(size)));
        cursor.last_fetch = Some(addr);
        Ok(())
    }

    #[cold]
    fn rare(
        &mut self,
        record: Record,
        at: u64,
        cursor: &mut Cursor,
        out: &mut Learning,
    ) -> Result<Option<u64>, String> {
        let Record { size, value, .. } = record;
        match record.kind {
            kind::MARKER => return self.marker(size, value, at, cursor, out),
            kind::INSTR_BUNDLE => {
                let lengths = value.to_le_bytes();
                let lengths = lengths.get(..usize::from(size)).filter(|all| !all.is_empty());
                let lengths = lengths.ok_or(format!("a bundle has {size} instructions"))?;
                for &length in lengths {
                    let addr = cursor.next_fetch.ok_or("a bundle follows no instruction")?;
                    if length == 0 {
                        return Err("an instruction of a bundle has no bytes".to_owned());
                    }
                    self.fetch(addr, u16::from(length), at, cursor, out)?;
                }
            }
            kind::INSTR_MAYBE_FETCH if cursor.last_fetch != Some(value) => {
                self.fetch(value, size, at, cursor, out)?;
            }
            kind::INSTR_NO_FETCH | kind::INSTR_MAYBE_FETCH => {
                self.counts.unfetched += 1;
                cursor.next_fetch = Some(value.wrapping_add(u64::from(size)));
            }
            kind::INSTR_FLUSH | kind::DATA_FLUSH => self.counts.flushes += 1,
            kind::INSTR_FLUSH_END | kind::DATA_FLUSH_END | kind::FOOTER => {}
            // The numbers between those above: kinds of prefetches, by instructions or hardware.
            2..=9 | kind::HARDWARE_PREFETCH | 32..=46 => self.counts.prefetches += 1,
            kind::THREAD => {
                cursor.thread = value;
                cursor.announced = false;
            }
            kind::THREAD_EXIT => self.exit(value, at, out),
            kind::PID => self.thread(cursor.thread)?.process = Some(value),
            // Traces may be put one after the other.
            kind::HEADER => check_version(value)?,
            unknown => return Err(format!("a record is of an unknown type, {unknown}")),
        }
        Ok(None)
    }

    fn marker(
        &mut self,
        marker: u16,
        value: u64,
        at: u64,
        cursor: &mut Cursor,
        out: &mut Learning,
    ) -> Result<Option<u64>, String> {
        match marker {
            marker::TIMESTAMP => return Ok(Some(value)),
            marker::VERSION => check_version(value)?,
            marker::FILE_TYPE => self.file_types |= value,
            marker::WINDOW => self.last_window = self.last_window.max(value),
            marker::PHYSICAL_ADDRESS => cursor.physical = Some(value),
            marker::VIRTUAL_ADDRESS => {
                let phys = cursor.physical.take();
                let phys = phys.ok_or("a virtual address comes without its physical one")?;
                let (virt, phys) = (VirtAddr::new(value), PhysAddr::new(phys));
                out.event(&Event::Translation { virt, phys }, Place::Byte(at));
            }
            marker::NO_PHYSICAL_ADDRESS => self.counts.unplaced += 1,
            marker::SYSCALL_TRACE_START | marker::CONTEXT_SWITCH_START => self.counts.kernel += 1,
            _ => {}
        }
        Ok(None)
    }

    /// Announces that the cursor's thread runs, unless that was done.
    #[inline]
    fn announce(&mut self, cursor: &mut Cursor, at: u64, out: &mut Learning) -> Result<(), String> {
        if cursor.announced { Ok(()) } else { self.switch(cursor, at, out) }
    }

    #[cold]
    fn switch(&mut self, cursor: &mut Cursor, at: u64, out: &mut Learning) -> Result<(), String> {
        cursor.announced = true;
        let next = self.started + 1;
        let thread = self.thread(cursor.thread)?;
        let process = thread.process;
        let number = *thread.number.get_or_insert(next);
        let place = Place::Byte(at);
        if number == next {
            self.started = next;
            if self.named.len() < MAX_NAMED {
                self.named.push(cursor.thread);
            }
            out.event(&Event::ThreadStart { thread: number }, place);
        }
        if number != self.running && number.max(self.running) > 1 {
            out.event(&Event::ThreadSwitch { thread: number }, place);
        }
        self.running = number;
        match (self.process, process) {
            (Some(known), Some(other)) if known != other => {
                return Err(format!(
                    "the process {other} begins after {known}: the trace of one process is read"
                ));
            }
            _ => self.process = self.process.or(process),
        }
        Ok(())
    }

    fn exit(&mut self, thread: u64, at: u64, out: &mut Learning) {
        let number = self.threads.get_mut(&thread).and_then(|thread| thread.number.take());
        if let Some(thread) = number {
            out.event(&Event::ThreadEnd { thread }, Place::Byte(at));
        }
    }

    fn thread(&mut self, identifier: u64) -> Result<&mut Thread, String> {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&identifier) {
            return Err(format!("more than {MAX_THREADS} threads are named"));
        }
        Ok(self.threads.entry(identifier).or_default())
    }

    /// The facts on the trace.
    pub(super) fn facts(&self) -> Facts {
        let filtered = self.file_types & file_type::FILTERED != 0;
        let mut notes = Vec::new();
        if filtered {
            notes.push("references that hit a cache were left out when it was traced".to_owned());
        }
        if self.last_window > 0 {
            let windows = self.last_window.saturating_add(1);
            notes.push(format!("the trace has {windows} windows, with gaps between"));
        }
        if self.file_types & file_type::INSTRUCTION_ONLY != 0 {
            notes.push("the trace has instructions only, no data references".to_owned());
        }
        if self.file_types & file_type::WHOLE_SYSTEM != 0 {
            notes.push("the trace is of a whole system, the kernel included".to_owned());
        }
        if self.started > 1 {
            let named: Vec<_> =
                self.named.iter().map(|thread| (*thread as i64).to_string()).collect();
            let more = if self.started as usize > named.len() { " …" } else { "" };
            notes.push(format!(
                "the threads 1 to {} are, by the system's numbers, {}{more}",
                self.started,
                named.join(", ")
            ));
        }
        let Counts { prefetches, flushes, unfetched, sizeless, split, unplaced, kernel } =
            self.counts;
        for (count, what) in [
            (prefetches, "prefetches were left out"),
            (flushes, "cache flushes were left out"),
            (unfetched, "iterations of string instructions fetched nothing"),
            (sizeless, "references of unknown size were taken to be of one byte"),
            (split, "references of more than 4096 bytes were split"),
            (unplaced, "physical addresses were not known"),
            (kernel, "system calls and context switches have their kernel's references with them"),
        ] {
            if count > 0 {
                notes.push(format!("{count} {what}"));
            }
        }
        Facts { exact: !filtered && self.last_window == 0, notes, ..Facts::of(super::FORMAT.name) }
    }
}
