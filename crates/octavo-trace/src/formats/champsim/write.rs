//! Writes references as records.

use std::collections::HashMap;

use octavo_types::{Dependences, Event, ItemKind, Segment, VirtAddr};

use super::registers::{FLAGS, INSTRUCTION_POINTER, STACK_POINTER, number_of, numbers_of, set_of};
use super::{BRANCH_TAKEN, CONTINUED, IS_BRANCH, Layout};
use crate::formats::executed::executed;
use crate::sink::{Output, ReferenceWriter};
use crate::source::TraceError;

/// Bytes that are handed on at once, and that an instruction may hold back: whether it jumps is
/// known only when the next one comes.
const BUFFER_BYTES: usize = 1 << 18;
/// How many instructions that jump are kept.
const MAX_JUMPS: usize = 1 << 20;
/// Registers that stand for values which no register holds after the superblock: xmm16 to xmm31,
/// as long as the trace does not use them itself.
const STAND_INS: std::ops::Range<u8> = 48..64;

/// Writes `output`.
pub(super) fn create(output: Output, layout: &'static Layout) -> Box<dyn ReferenceWriter> {
    Box::new(ChampsimWriter {
        output,
        layout,
        records: Vec::new(),
        handed_on: 0,
        open: None,
        ip: None,
        loads: 0,
        stores: 0,
        recent: [Recent::default(); 64],
        written_by: [0; 64],
        read_by: [0; 64],
        used: 0,
        instructions: 0,
        jumps: HashMap::new(),
        long: 0,
    })
}

struct ChampsimWriter {
    output: Output,
    layout: &'static Layout,
    records: Vec<u8>,
    /// How many bytes went before `records`.
    handed_on: u64,
    /// Where in `records` the last instruction begins, and where the next one would follow;
    /// none once it was handed on.
    open: Option<(usize, VirtAddr)>,
    /// The last instruction.
    ip: Option<VirtAddr>,
    /// How many slots of the last record are taken.
    loads: usize,
    stores: usize,
    /// The last 64 instructions, by their numbers modulo 64. The first one's number is 1.
    recent: [Recent; 64],
    /// The last instruction whose record names each register as written, or as read; 0 for none.
    written_by: [u64; 64],
    read_by: [u64; 64],
    /// All registers that the trace itself has named.
    used: u64,
    instructions: u64,
    /// The instructions that have jumped.
    jumps: HashMap<u64, Jump>,
    /// Instructions with so much data that they were handed on before the next one came.
    long: u64,
}

#[derive(Clone, Copy, Default)]
struct Recent {
    /// At which byte of the output its record begins.
    at: u64,
    /// The registers that its record names as written.
    written: u64,
}

#[derive(Clone, Copy)]
struct Jump {
    target: VirtAddr,
    /// It has also jumped elsewhere.
    moves: bool,
    /// It has since not jumped.
    falls: bool,
}

impl ChampsimWriter {
    fn fetch(&mut self, addr: VirtAddr, size_bytes: u16) -> Result<(), TraceError> {
        if let Some((at, next)) = self.open.take() {
            self.end(at, next, addr);
        }
        if self.records.len() >= BUFFER_BYTES {
            // Later instructions may still name what the last 64 have made.
            let oldest = self.recent[((self.instructions + 1) % 64) as usize].at;
            self.hand_on(oldest.saturating_sub(self.handed_on) as usize)?;
        }
        self.open = Some((self.records.len(), addr.wrapping_add(u64::from(size_bytes))));
        self.ip = Some(addr);
        self.begin_record(addr, [0, 0]);
        Ok(())
    }

    /// Marks the last instruction, whose record is at `at`, if it is known to be a branch: it jumps
    /// now, or looks like a conditional jump and has jumped before. `fall` is the address behind
    /// it, and `to` the next instruction.
    fn end(&mut self, at: usize, fall: VirtAddr, to: VirtAddr) {
        let Some(ip) = self.ip else { return };
        let record = &self.records[at..at + self.layout.bytes];
        let names = |slots| Layout::registers(record, slots).iter().any(|number| *number != 0);
        let plain = self.loads + self.stores == 0 && !names(self.layout.destination_registers);
        let jumps = to != fall;
        let jump = if jumps && self.jumps.len() < MAX_JUMPS {
            let first = Jump { target: to, moves: false, falls: false };
            Some(self.jumps.entry(ip.raw()).or_insert(first))
        } else {
            self.jumps.get_mut(&ip.raw())
        };
        let kind = match jump {
            Some(jump) if jumps => {
                jump.moves |= jump.target != to;
                *jump
            }
            None if jumps => Jump { target: to, moves: false, falls: false },
            Some(jump) if plain => {
                jump.falls = true;
                *jump
            }
            _ => return,
        };
        self.mark_branch(at, jumps, kind);
    }

    /// Marks a branch. ChampSim recognises the kinds of branches by their registers
    /// (`ooo_model_instr` in its `inc/instruction.h`), so these become those of the kind, as far
    /// as there are slots.
    fn mark_branch(&mut self, at: usize, jumps: bool, kind: Jump) {
        let layout = self.layout;
        let record = &mut self.records[at..at + layout.bytes];
        (record[IS_BRANCH], record[BRANCH_TAKEN]) = (1, u8::from(jumps));
        let (first, count) = layout.destination_registers;
        let written = &mut record[first..first + count];
        let moves_stack = written.contains(&STACK_POINTER);
        let calls = moves_stack && self.stores > 0;
        let returns = moves_stack && self.loads > 0 && !calls;
        if calls || returns {
            written.fill(0);
            written[0] = STACK_POINTER;
        }
        insert(written, INSTRUCTION_POINTER);
        let recent = &mut self.recent[(self.instructions % 64) as usize];
        recent.written = set_of(written);
        let (first, count) = layout.source_registers;
        let read = &mut record[first..first + count];
        let is_bare = read.iter().all(|number| *number == 0);
        // ChampSim takes a jump without a register for a direct one.
        let is_indirect = kind.moves && !kind.falls && !is_bare;
        // Flags may stand here for any value of the instruction that set them.
        let of_others = |number: &&mut u8| **number == number_of(FLAGS) || !is_indirect;
        if calls || returns || is_indirect {
            read.iter_mut().filter(of_others).for_each(|number| *number = 0);
        }
        if calls || returns {
            insert(read, STACK_POINTER);
        }
        if !returns && (calls || !is_indirect) {
            insert(read, INSTRUCTION_POINTER);
        }
        if kind.falls && is_bare {
            insert(read, number_of(FLAGS));
        }
    }

    fn begin_record(&mut self, ip: VirtAddr, branch: [u8; 2]) {
        let at = self.records.len();
        self.records.resize(at + self.layout.bytes, 0);
        self.records[at..at + 8].copy_from_slice(&ip.raw().to_le_bytes());
        self.records[at + IS_BRANCH..=at + BRANCH_TAKEN].copy_from_slice(&branch);
        (self.loads, self.stores) = (0, 0);
    }

    /// Writes the registers of the last instruction into its record: those of `dependences`, and a
    /// register of each earlier instruction that made a value for it.
    fn registers(&mut self, dependences: Dependences) {
        self.used |= dependences.registers_read() | dependences.writes;
        self.instructions += 1;
        let mut reads = dependences.registers_read();
        for back in (0..64).filter(|back| dependences.producers >> back & 1 != 0) {
            reads |= match self.instructions.checked_sub(back + 1) {
                None | Some(0) => 0,
                Some(maker) => self.made_by(maker),
            };
        }
        let at = self.records.len() - self.layout.bytes;
        let record = &mut self.records[at..];
        let mut named = [0; 2];
        for (place, (set, (at, count))) in [
            (reads, self.layout.source_registers),
            (dependences.writes, self.layout.destination_registers),
        ]
        .into_iter()
        .enumerate()
        {
            for (slot, number) in record[at..at + count].iter_mut().zip(numbers_of(set)) {
                *slot = number;
            }
            named[place] = set_of(&record[at..at + count]);
        }
        let [read, written] = named;
        for bit in 0..64 {
            if read >> bit & 1 != 0 {
                self.read_by[bit] = self.instructions;
            }
            if written >> bit & 1 != 0 {
                self.written_by[bit] = self.instructions;
            }
        }
        self.recent[(self.instructions % 64) as usize] =
            Recent { at: self.handed_on + at as u64, written };
    }

    /// A register that holds what instruction `maker` wrote: one that it names and nothing has
    /// written since, or a stand-in that its record gets now; none where neither is possible.
    fn made_by(&mut self, maker: u64) -> u64 {
        let recent = &mut self.recent[(maker % 64) as usize];
        let of_maker = |bit: &u8| self.written_by[usize::from(*bit)] == maker;
        let bits = |set: u64| (0..64u8).filter(move |bit| set >> bit & 1 != 0);
        if let Some(bit) = bits(recent.written).find(of_maker) {
            return 1 << bit;
        }
        let Some(at) = recent.at.checked_sub(self.handed_on) else { return 0 };
        let (first, count) = self.layout.destination_registers;
        let slots = &mut self.records[at as usize + first..at as usize + first + count];
        let Some(slot) = slots.iter_mut().find(|slot| **slot == 0) else { return 0 };
        // A register that was read or written since then would change the meaning of those
        // accesses.
        let is_free = |bit: &u8| {
            let [read, written] = [self.read_by, self.written_by].map(|by| by[usize::from(*bit)]);
            self.used >> bit & 1 == 0 && read <= maker && written < maker
        };
        let Some(bit) = STAND_INS.clone().find(is_free) else { return 0 };
        *slot = number_of(bit);
        recent.written |= 1 << bit;
        self.written_by[usize::from(bit)] = maker;
        1 << bit
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
                self.open = None;
                self.hand_on(self.records.len())?;
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

    /// Hands on the first bytes of the records.
    fn hand_on(&mut self, bytes: usize) -> Result<(), TraceError> {
        self.output.put(&self.records[..bytes])?;
        self.records.drain(..bytes);
        self.handed_on += bytes as u64;
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
            "branches before they first jump: they look like any other instruction".to_owned(),
            "which registers held values that their superblock overwrites: xmm16 to xmm31 stand \
             for them"
                .to_owned(),
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
        self.hand_on(self.records.len())?;
        Ok(self.output)
    }
}

/// Puts a register that no slot has into a free slot, or else into the last one.
fn insert(slots: &mut [u8], number: u8) {
    if !slots.contains(&number) {
        let free = slots.iter().position(|slot| *slot == 0).unwrap_or(slots.len() - 1);
        slots[free] = number;
    }
}
