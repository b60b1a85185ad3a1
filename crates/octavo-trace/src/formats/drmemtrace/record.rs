//! Records, by their numbers in DynamoRIO's `trace_entry.h`.

/// How long a record is: a type, a size and a value, packed.
pub(super) const RECORD_BYTES: usize = 12;
/// The newest version that is known.
pub(super) const NEWEST_VERSION: u64 = 7;

/// Types of records.
pub(super) mod kind {
    pub(in super::super) const READ: u16 = 0;
    pub(in super::super) const WRITE: u16 = 1;
    pub(in super::super) const INSTR: u16 = 10;
    pub(in super::super) const INSTR_RETURN: u16 = 16;
    pub(in super::super) const INSTR_BUNDLE: u16 = 17;
    pub(in super::super) const INSTR_FLUSH: u16 = 18;
    pub(in super::super) const INSTR_FLUSH_END: u16 = 19;
    pub(in super::super) const DATA_FLUSH: u16 = 20;
    pub(in super::super) const DATA_FLUSH_END: u16 = 21;
    pub(in super::super) const THREAD: u16 = 22;
    pub(in super::super) const THREAD_EXIT: u16 = 23;
    pub(in super::super) const PID: u16 = 24;
    pub(in super::super) const HEADER: u16 = 25;
    pub(in super::super) const FOOTER: u16 = 26;
    pub(in super::super) const HARDWARE_PREFETCH: u16 = 27;
    pub(in super::super) const MARKER: u16 = 28;
    pub(in super::super) const INSTR_NO_FETCH: u16 = 29;
    pub(in super::super) const INSTR_MAYBE_FETCH: u16 = 30;
    pub(in super::super) const INSTR_SYSENTER: u16 = 31;
    pub(in super::super) const ENCODING: u16 = 47;
    pub(in super::super) const INSTR_TAKEN_JUMP: u16 = 48;
    pub(in super::super) const INSTR_UNTAKEN_JUMP: u16 = 49;
}

/// Types of markers, in the size of a [`kind::MARKER`].
pub(super) mod marker {
    pub(in super::super) const TIMESTAMP: u16 = 2;
    pub(in super::super) const FILE_TYPE: u16 = 9;
    pub(in super::super) const VERSION: u16 = 12;
    pub(in super::super) const WINDOW: u16 = 14;
    pub(in super::super) const PHYSICAL_ADDRESS: u16 = 15;
    pub(in super::super) const NO_PHYSICAL_ADDRESS: u16 = 16;
    pub(in super::super) const VIRTUAL_ADDRESS: u16 = 17;
    pub(in super::super) const SYSCALL_TRACE_START: u16 = 27;
    pub(in super::super) const CONTEXT_SWITCH_START: u16 = 35;
}

/// Bits of a file's type.
pub(super) mod file_type {
    pub(in super::super) const INSTRUCTION_ONLY: u64 = 0x04;
    /// Filtered by a cache while it was traced, in any way.
    pub(in super::super) const FILTERED: u64 = 0x01 | 0x80 | 0x100;
    pub(in super::super) const WHOLE_SYSTEM: u64 = 0x4_0000;
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    /// One of [`kind`].
    pub(super) kind: u16,
    /// The bytes that a reference touches, or the kind of a marker (one of [`marker`]).
    pub(super) size: u16,
    /// An address, an identifier, or a marker's value.
    pub(super) value: u64,
}

impl Record {
    /// The record in `bytes`, of which there are [`RECORD_BYTES`].
    #[inline(always)]
    pub(super) fn read(bytes: &[u8]) -> Self {
        let bytes: &[u8; RECORD_BYTES] = bytes.try_into().expect("a record's bytes");
        let [k0, k1, s0, s1, value @ ..] = *bytes;
        Record {
            kind: u16::from_le_bytes([k0, k1]),
            size: u16::from_le_bytes([s0, s1]),
            value: u64::from_le_bytes(value),
        }
    }
}

/// Whether a header may carry `value`.
pub(super) fn is_version(value: u64) -> bool {
    (1..=NEWEST_VERSION).contains(&value)
}

/// The error of a header that carries `value`, if its version is not supported.
pub(super) fn check_version(value: u64) -> Result<(), String> {
    // Records are 8 bytes there: the next one's type (a marker) and size (the version) follow.
    if value >> 32 == 12 << 16 | 28 {
        return Err("was written for a 32-bit program, whose records are not read".to_owned());
    }
    if !is_version(value) {
        return Err(format!("is of version {value}; versions 1 to {NEWEST_VERSION} are read"));
    }
    Ok(())
}
