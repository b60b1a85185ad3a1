//! Registers as ChampSim's traces number them: Pin's numbers, as its tracer writes them
//! (`champsim::reg_names` in ChampSim's `inc/trace_instruction.h` lists them).
//!
//! Every part of a general register counts as the whole. An `xmm`, `ymm` or `zmm` register of some
//! number is one register; `mm` and `st` registers are the x87 stack; segment registers and bases
//! are one; the instruction pointer is left out; all others (masks, control registers, `mxcsr`) are
//! [`OTHER`].

/// The flags' bit in the sets of [`octavo_types::Dependences`].
pub(super) const FLAGS: u8 = 16;
const X87: u8 = 17;
const SEGMENTS: u8 = 18;
const OTHER: u8 = 19;
/// The bit of vector register 0.
const VECTORS: u8 = 32;
/// In place of a bit, for numbers that are no register.
const NONE: u8 = 64;

/// The instruction pointer's number; ChampSim recognises branches by it.
pub(super) const INSTRUCTION_POINTER: u8 = 26;
/// rsp's number; ChampSim recognises calls and returns by it.
pub(super) const STACK_POINTER: u8 = 6;

/// For each number, the set of its register alone.
static SETS: [u64; 256] = {
    let mut sets = [0; 256];
    let mut number = 0;
    while number < 256 {
        let bit = bit_of(number as u8);
        if bit != NONE {
            sets[number] = 1 << bit;
        }
        number += 1;
    }
    sets
};

/// The set of some registers' numbers.
#[inline]
pub(super) fn set_of(numbers: &[u8]) -> u64 {
    numbers.iter().fold(0, |set, &number| set | SETS[usize::from(number)])
}

/// The numbers of a set's registers, as the tracer would write them.
pub(super) fn numbers_of(set: u64) -> impl Iterator<Item = u8> {
    (0..64).filter(move |bit| set >> bit & 1 != 0).map(number_of)
}

const fn bit_of(number: u8) -> u8 {
    /// rcx for `cl`, `ch`, `cx`, and so on.
    const BYTES_AND_WORDS: [u8; 16] = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 4];
    /// `edi`, `dil`, `esi`, `sil`, `ebp`, `bpl`, `esp`, `spl`, `ebx`, `edx`, `ecx`, `eax`.
    const DOUBLES: [u8; 12] = [7, 7, 6, 6, 5, 5, 4, 4, 3, 2, 1, 0];
    match number {
        // "Invalid", "none" and "first".
        0..=2 => NONE,
        // rdi, rsi, rbp, rsp, rbx, rdx, rcx, rax.
        3..=10 => 10 - number,
        // r8 to r15.
        11..=18 => number - 3,
        19..=24 | 238 | 239 => SEGMENTS,
        25 | 43 | 57 | 236 | 237 => FLAGS,
        INSTRUCTION_POINTER | 44 | 58 => NONE,
        27..=42 => BYTES_AND_WORDS[number as usize - 27],
        45..=56 => DOUBLES[number as usize - 45],
        // r8b, r8w, r8d, to r15d.
        59..=82 => 8 + (number - 59) / 3,
        83..=90 | 207..=214 => X87,
        91..=186 => VECTORS + (number - 91) % 32,
        _ => OTHER,
    }
}

/// The number of a bit's register.
pub(super) const fn number_of(bit: u8) -> u8 {
    match bit {
        0..=7 => 10 - bit,
        8..=15 => bit + 3,
        FLAGS => 25,
        // st0, fs, xmm0 and its like.
        X87 => 207,
        SEGMENTS => 23,
        VECTORS..=63 => 91 + (bit - VECTORS),
        // mxcsr.
        _ => 195,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_by_name() {
        for (number, bit) in [
            (6, 4),    // rsp
            (10, 0),   // rax
            (18, 15),  // r15
            (25, 16),  // rflags
            (27, 0),   // al
            (32, 1),   // cx
            (38, 3),   // bx
            (39, 5),   // bp
            (41, 7),   // di
            (42, 4),   // sp
            (46, 7),   // dil
            (56, 0),   // eax
            (59, 8),   // r8b
            (82, 15),  // r15d
            (91, 32),  // xmm0
            (122, 63), // xmm31
            (123, 32), // ymm0
            (186, 63), // zmm31
            (187, 19), // k0
            (207, 17), // st0
            (238, 18), // gs_base
        ] {
            assert_eq!(set_of(&[number]), 1 << bit, "{number}");
        }
        assert_eq!(set_of(&[0, 1, 2, 26, 44, 58]), 0);
    }

    #[test]
    fn written_registers_are_read_back() {
        for bit in (0..=19).chain(32..64) {
            let numbers: Vec<u8> = numbers_of(1 << bit).collect();
            assert_eq!(set_of(&numbers), 1 << bit);
        }
    }
}
