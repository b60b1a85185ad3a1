//! The traces of the ChampSim simulator.
//!
//! One record for each instruction, little-endian, without a header (`inc/trace_instruction.h` of
//! ChampSim): `input_instr` of 64 bytes, and `cloudsuite_instr` of 96, which has room for more
//! stores. [`Layout`] says where everything stands. A register or address of 0 is an empty slot.
//! There are no sizes: those of instructions are deduced ([`super::lengths`]), data is taken to be
//! one byte long. Within an instruction loads come before stores; the format does not mark a load
//! and a store as one modify.
//!
//! **Continued instructions.** Data that one record cannot hold (more loads or stores than slots, a
//! store before a load, data that a later segment adds to the instruction) is written as further
//! records of the same address with `is_branch` 0 and `branch_taken` 1, a pair that no tracer
//! writes, and read as data of the previous instruction. ChampSim itself takes each such record for
//! another instruction.

use super::{Format, Likeness};
use crate::source::Input;

mod read;
mod registers;
mod write;

/// ChampSim's own format.
pub static FORMAT: Format = Format {
    name: "champsim",
    about: "ChampSim's instruction records of 64 bytes, without sizes",
    suffixes: &["champsimtrace", "champsim"],
    recognise: |head| recognise(head, &INPUT),
    open: |input: Input| Ok(Box::new(read::source(input, &INPUT))),
    create: Some(|output| write::create(output, &INPUT)),
};

/// The format of the CloudSuite traces.
pub static CLOUDSUITE: Format = Format {
    name: "champsim-cloudsuite",
    about: "ChampSim's instruction records of 96 bytes, as its CloudSuite traces have them",
    suffixes: &["cloudsuite"],
    recognise: |head| recognise(head, &CLOUD),
    open: |input: Input| Ok(Box::new(read::source(input, &CLOUD))),
    create: Some(|output| write::create(output, &CLOUD)),
};

/// Where a record's fields stand: the byte at which they begin, and how many there are.
struct Layout {
    name: &'static str,
    bytes: usize,
    destination_registers: (usize, usize),
    source_registers: (usize, usize),
    stores: (usize, usize),
    loads: (usize, usize),
}

static INPUT: Layout = Layout {
    name: "champsim",
    bytes: 64,
    destination_registers: (10, 2),
    source_registers: (12, 4),
    stores: (16, 2),
    loads: (32, 4),
};

/// Bytes 18 to 23 are padding, and so are the bytes behind the address space's number, two bytes at
/// 88.
static CLOUD: Layout = Layout {
    name: "champsim-cloudsuite",
    bytes: 96,
    destination_registers: (10, 4),
    source_registers: (14, 4),
    stores: (24, 4),
    loads: (56, 4),
};

/// Whether the instruction branches; in both layouts the instruction's address stands at byte 0.
const IS_BRANCH: usize = 8;
/// Whether it jumps.
const BRANCH_TAKEN: usize = 9;
/// Both flags of a record that continues the instruction before.
const CONTINUED: [u8; 2] = [0, 1];

impl Layout {
    fn registers(record: &[u8], (at, count): (usize, usize)) -> &[u8] {
        &record[at..at + count]
    }

    fn addresses(record: &[u8], (at, count): (usize, usize)) -> impl Iterator<Item = u64> {
        record[at..at + 8 * count].as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

fn ip_of(record: &[u8]) -> u64 {
    u64::from_le_bytes(*record.first_chunk().expect("a record is longer"))
}

/// There is no magic number: a trace may be ChampSim's as long as nothing of its first bytes
/// contradicts.
fn recognise(head: &[u8], layout: &Layout) -> Likeness {
    // Up to 57 bits, or down from the top, where kernels are.
    let is_address = |addr: u64| matches!(addr >> 57, 0 | 0x7f);
    let fits = |record: &[u8]| {
        record[IS_BRANCH] <= 1
            && record[BRANCH_TAKEN] <= 1
            && ip_of(record) != 0
            && is_address(ip_of(record))
            && Layout::addresses(record, layout.loads).all(is_address)
            && Layout::addresses(record, layout.stores).all(is_address)
    };
    let mut records = head.chunks_exact(layout.bytes);
    if records.len() > 0 && records.all(fits) { Likeness::Maybe } else { Likeness::No }
}

#[cfg(test)]
mod tests;
