//! Measures how many instructions are under way at once, by a load that misses, a growing number of
//! instructions of one kind, then another load that misses.
//!
//! As long as all instructions between the two find room, both loads are under way at once. Once
//! they do not, the second load starts when the first has ended, and a pair of loads takes twice as
//! long.

use std::ops::Range;
use std::ptr;

use serde::Serialize;

use crate::chase::Link;

/// The kind of the instructions between two loads that miss, and so the structure that they fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Filler {
    /// Additions to integer registers: the registers for renaming.
    Additions,
    /// Loads of one word: the load queue.
    Loads,
    /// Stores to one word: the store queue.
    Stores,
    /// Additions, vector shuffles and a few stores, so that no other structure is full first: the reorder buffer.
    Mixed,
}

impl Filler {
    /// All kinds.
    pub const ALL: [Filler; 4] = [Filler::Additions, Filler::Loads, Filler::Stores, Filler::Mixed];

    /// Numbers of instructions that are measured: around the limits of all known cores.
    pub fn counts(self) -> impl Iterator<Item = usize> {
        let (counts, step): (Range<usize>, usize) = match self {
            Filler::Additions => (32..420, 4),
            Filler::Loads => (16..264, 4),
            Filler::Stores => (16..160, 2),
            Filler::Mixed => (48..640, 8),
        };
        counts.step_by(step)
    }

    /// The machine code of one instruction, the `number`th between two loads. It changes `rax`, `r9`, `r10` and
    /// `xmm0` at most.
    fn instruction(self, number: usize) -> &'static [u8] {
        const ADDITIONS: [&[u8]; 3] = [
            &[0x4b, 0x8d, 0x04, 0x1b], // lea rax, [r11 + r11]
            &[0x4f, 0x8d, 0x0c, 0x1b], // lea r9, [r11 + r11]
            &[0x4f, 0x8d, 0x14, 0x1b], // lea r10, [r11 + r11]
        ];
        const LOAD: &[u8] = &[0x44, 0x8b, 0x09]; // mov r9d, [rcx]
        const STORE: &[u8] = &[0x44, 0x89, 0x19]; // mov [rcx], r11d
        const SHUFFLE: &[u8] = &[0x66, 0x0f, 0x70, 0xc1, 0x00]; // pshufd xmm0, xmm1, 0
        match self {
            Filler::Additions => ADDITIONS[number % 3],
            Filler::Loads => LOAD,
            Filler::Stores => STORE,
            Filler::Mixed => match number % 12 {
                11 => STORE,
                even if even % 2 == 0 => ADDITIONS[number % 3],
                _ => SHUFFLE,
            },
        }
    }
}

/// A loop over pairs of loads with a number of instructions behind each.
#[derive(Clone, Copy)]
struct Loop {
    filler: Filler,
    instructions: usize,
    /// Where it begins in the code.
    offset: usize,
}

/// The loops of all fillers, as machine code.
pub struct Windows {
    code: ptr::NonNull<u8>,
    bytes: usize,
    loops: Vec<Loop>,
}

impl Windows {
    /// None where the system allows no new machine code.
    pub fn new() -> Option<Self> {
        let mut code = Vec::new();
        let mut loops = Vec::new();
        for filler in Filler::ALL {
            for instructions in filler.counts() {
                code.resize(code.len().next_multiple_of(64), 0xcc);
                loops.push(Loop { filler, instructions, offset: code.len() });
                assemble(&mut code, filler, instructions);
            }
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where the kernel likes.
        let place = unsafe { libc::mmap(ptr::null_mut(), code.len(), writable, flags, -1, 0) };
        if place == libc::MAP_FAILED {
            return None;
        }
        let windows = Windows { code: ptr::NonNull::new(place.cast())?, bytes: code.len(), loops };
        // SAFETY: the mapping has as many bytes, and is this value's own.
        unsafe {
            ptr::copy_nonoverlapping(code.as_ptr(), windows.code.as_ptr(), code.len());
            let executable = libc::PROT_READ | libc::PROT_EXEC;
            (libc::mprotect(place, code.len(), executable) == 0).then_some(windows)
        }
    }

    /// The filler and the number of instructions of each loop.
    pub fn loops(&self) -> impl Iterator<Item = (Filler, usize)> {
        self.loops.iter().map(|body| (body.filler, body.instructions))
    }

    /// Follows two chases for `pairs` pairs of loads in the loop of this number. Returns where the
    /// chases end.
    pub fn follow<'a>(&self, number: usize, chases: [&'a Link; 2], pairs: usize) -> [&'a Link; 2] {
        assert!(pairs > 0, "the loop ends when none is left");
        let offset = self.loops[number].offset;
        let mut scratch = 0u64;
        let mut ends = chases;
        // SAFETY: the code at the offset is a function of this signature, which `assemble` made. Its loads follow
        // links of a cycle, which lie in memory that outlives the references, and it changes `scratch` and `ends`
        // only.
        unsafe {
            let function: extern "sysv64" fn(&Link, &Link, usize, &mut u64, &mut [&'a Link; 2]) =
                std::mem::transmute(self.code.as_ptr().add(offset));
            function(chases[0], chases[1], pairs, &mut scratch, &mut ends);
        }
        ends
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.code.as_ptr().cast(), self.bytes) };
    }
}

/// Appends a function of two links (`rdi`, `rsi`), a number of pairs (`rdx`), a word to load and store (`rcx`) and the
/// place of the ends (`r8`).
fn assemble(code: &mut Vec<u8>, filler: Filler, instructions: usize) {
    let fill = |code: &mut Vec<u8>| {
        (0..instructions).for_each(|number| code.extend(filler.instruction(number)));
    };
    let top = code.len();
    code.extend([0x48, 0x8b, 0x3f]); // mov rdi, [rdi]
    fill(code);
    code.extend([0x48, 0x8b, 0x36]); // mov rsi, [rsi]
    fill(code);
    code.extend([0x48, 0xff, 0xca]); // dec rdx
    code.extend([0x0f, 0x85]); // jnz top
    let distance = top as i64 - (code.len() as i64 + 4);
    code.extend((distance as i32).to_le_bytes());
    code.extend([0x49, 0x89, 0x38]); // mov [r8], rdi
    code.extend([0x49, 0x89, 0x70, 0x08]); // mov [r8 + 8], rsi
    code.push(0xc3); // ret
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;
    use crate::chase::Cycle;
    use crate::memory::Memory;

    #[test]
    fn every_loop_follows_both_chases() {
        let Some(windows) = Windows::new() else { return };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let (memory, _) = Memory::small(64 << 10, &mut random).unwrap();
        let cycle = Cycle::new(memory.all(64 << 10), &mut random);
        for (number, _) in windows.loops().enumerate() {
            let pairs = 1 + number % 7;
            let [first, second] = windows.follow(number, [cycle.place(3), cycle.place(600)], pairs);
            assert!(ptr::eq(first, cycle.place(3 + pairs)), "{number}");
            assert!(ptr::eq(second, cycle.place(600 + pairs)), "{number}");
        }
    }

    #[test]
    fn loops_have_as_many_instructions_as_they_say() {
        let mut code = Vec::new();
        assemble(&mut code, Filler::Stores, 16);
        let stores = code.windows(3).filter(|bytes| *bytes == [0x44, 0x89, 0x19]).count();
        assert_eq!(stores, 32);
        let kinds = |filler: Filler| (0..24).map(move |number| filler.instruction(number)[0]);
        assert_eq!(kinds(Filler::Mixed).filter(|first| *first == 0x44).count(), 2);
        assert_eq!(kinds(Filler::Mixed).filter(|first| *first == 0x66).count(), 10);
    }
}
