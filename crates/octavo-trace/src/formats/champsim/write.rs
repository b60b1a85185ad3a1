//! Writes references as records.

use octavo_types::{Dependences, Event, ItemKind, Segment, VirtAddr};

use super::registers::{INSTRUCTION_POINTER, numbers_of};
use super::{BRANCH_TAKEN, CONTINUED, IS_BRANCH, Layout};
use crate::formats::executed::executed;
use crate::sink::{Output, ReferenceWriter};
use crate::source::TraceError;

/// How much is handed on at once, and how much an instruction may hold back: whether it jumps is
/// known only when the next one comes.
const BUFFER_BYTES: usize = 1 << 18;

/// Writes `output`.
pub(super) fn create(output: Output, layout: &'static Layout) -> Box<dyn ReferenceWriter> {
    Box::new(ChampsimWriter {
        output,
        layout,
        records: Vec::new(),
        open: None,
        ip: None,
        loads: 0,
        stores: 0,
        written: [0; 64],
        instructions: 0,
        long: 0,
    })
}

struct ChampsimWriter {
    output: Output,
    layout: &'static Layout,
    records: Vec<u8>,
    /// Where in `records` the last instruction begins, and where the next one would follow;
    /// none once it was handed on.
    open: Option<(usize, VirtAddr)>,
    /// The last instruction.
    ip: Option<VirtAddr>,
    /// How many slots of the last record are taken.
    loads: usize,
    stores: usize,
    /// The registers that each of the last 64 instructions wrote, by its number modulo 64.
    written: [u64; 64],
    instructions: u64,
    /// Instructions with so much data that they were handed on before the next one came.
    long: u64,
}

impl ChampsimWriter {
    fn fetch(&mut self, addr: VirtAddr, size_bytes: u16) -> Result<(), TraceError> {
        if let Some((at, next)) = self.open.take()
            && next != addr
        {
            self.mark_branch(at);
        }
        if self.records.len() >= BUFFER_BYTES {
            self.hand_on()?;
        }
        self.open = Some((self.records.len(), addr.wrapping_add(u64::from(size_bytes))));
        self.ip = Some(addr);
        self.begin_record(addr, [0, 0]);
        Ok(())
    }

    /// Marks the record at `at` as a branch. ChampSim recognises branches by their registers, so
    /// it reads and writes the instruction pointer, if there are free slots.
    fn mark_branch(&mut self, at: usize) {
        let record = &mut self.records[at..at + self.layout.bytes];
        (record[IS_BRANCH], record[BRANCH_TAKEN]) = (1, 1);
        for slots in [self.layout.destination_registers, self.layout.source_registers] {
            let slots = &mut record[slots.0..slots.0 + slots.1];
            if let Some(slot) = slots.iter_mut().find(|slot| **slot == 0) {
                *slot = INSTRUCTION_POINTER;
            }
        }
    }

    fn begin_record(&mut self, ip: VirtAddr, branch: [u8; 2]) {
        let at = self.records.len();
        self.records.resize(at + self.layout.bytes, 0);
        self.records[at..at + 8].copy_from_slice(&ip.raw().to_le_bytes());
        self.records[at + IS_BRANCH..=at + BRANCH_TAKEN].copy_from_slice(&branch);
        (self.loads, self.stores) = (0, 0);
    }

    /// The registers of the last instruction: those of `of`, and what the instructions wrote that
    /// made values for it, where these wrote a single register.
    fn registers(&mut self, of: Dependences) {
        let mut reads = of.reads;
        for back in (0..64).filter(|back| of.producers >> back & 1 != 0) {
            let made_by = self.instructions.checked_sub(back + 1);
            let made = made_by.map_or(0, |number| self.written[(number % 64) as usize]);
            if made.is_power_of_two() {
                reads |= made;
            }
        }
        self.written[(self.instructions % 64) as usize] = of.writes;
        self.instructions += 1;
        let at = self.records.len() - self.layout.bytes;
        let record = &mut self.records[at..];
        for (set, (at, count)) in
            [(reads, self.layout.source_registers), (of.writes, self.layout.destination_registers)]
        {
            for (slot, number) in record[at..at + count].iter_mut().zip(numbers_of(set)) {
                *slot = number;
            }
        }
    }

    fn data(&mut self, kind: ItemKind, addr: VirtAddr) -> Result<(), TraceError> {
        let Some(ip) = self.ip else {
            return Err(self.cannot(format!("data at {addr} comes before any instruction")));
        };
        if addr == VirtAddr::NULL {
            return Err(self.cannot(format!("the instruction at {ip} touches address 0")));
        }
        let is_load = kind != ItemKind::Store;
        let (_, load_slots) = self.layout.loads;
        let (_, store_slots) = self.layout.stores;
        let full = if is_load {
            self.loads == load_slots || self.stores > 0
        } else {
            self.stores == store_slots
        };
        if full {
            if self.records.len() >= BUFFER_BYTES {
                self.long += u64::from(self.open.is_some());
                self.hand_on()?;
            }
            self.begin_record(ip, CONTINUED);
        }
        let record = self.records.len() - self.layout.bytes;
        if is_load {
            self.put_address(record + self.layout.loads.0 + 8 * self.loads, addr);
            self.loads += 1;
        }
        if kind != ItemKind::Load {
            self.put_address(record + self.layout.stores.0 + 8 * self.stores, addr);
            self.stores += 1;
        }
        Ok(())
    }

    fn put_address(&mut self, at: usize, addr: VirtAddr) {
        self.records[at..at + 8].copy_from_slice(&addr.raw().to_le_bytes());
    }

    fn hand_on(&mut self) -> Result<(), TraceError> {
        self.output.put(&self.records)?;
        self.records.clear();
        self.open = None;
        Ok(())
    }

    fn cannot(&self, what: String) -> TraceError {
        TraceError::whole(self.output.name(), format!("{what}, which this format cannot hold"))
    }
}

impl ReferenceWriter for ChampsimWriter {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) -> Result<(), TraceError> {
        let mut dependences = segment.dependences().iter();
        for (item, addr) in executed(segment, addresses) {
            if item.kind == ItemKind::Fetch {
                self.fetch(addr, item.size_bytes)?;
                self.registers(dependences.next().copied().unwrap_or_default());
            } else {
                self.data(item.kind, addr)?;
            }
        }
        Ok(())
    }

    fn event(&mut self, _: &Event) -> Result<bool, TraceError> {
        Ok(false)
    }

    fn losses(&self) -> Vec<String> {
        let mut losses = vec![
            "the sizes of data".to_owned(),
            "the sizes of instructions that the next one does not follow".to_owned(),
            "branches that are not taken: they look like any other instruction".to_owned(),
            "which loads and stores are one modify: it is written as a load and a store".to_owned(),
            "registers past the slots that a record has".to_owned(),
            "which references are atomic".to_owned(),
        ];
        if self.long > 0 {
            losses.push(format!("whether {} instructions of very much data jump", self.long));
        }
        losses
    }

    fn finish(mut self: Box<Self>) -> Result<Output, TraceError> {
        self.hand_on()?;
        Ok(self.output)
    }
}
