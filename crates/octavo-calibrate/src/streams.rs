//! Reading and writing memory from its beginning to its end, as fast as one core can.

use std::arch::x86_64::{
    __m128i, _mm_load_si128, _mm_or_si128, _mm_setzero_si128, _mm_store_si128,
};

use crate::memory::Memory;

/// The direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Loads.
    Read,
    /// Stores, through the caches.
    Write,
}

const VECTOR_BYTES: usize = size_of::<__m128i>();

/// Reads the first `bytes` of the memory, or writes zeros to them: whole lines, and at most all of it.
pub fn stream(memory: &Memory, bytes: usize, direction: Direction) {
    let lines = memory.lines(bytes);
    let mut all = [zero(); 4];
    for line in lines {
        let vectors = line.cast::<__m128i>();
        for (number, into) in all.iter_mut().enumerate() {
            // SAFETY: a line is 64 bytes long and aligned to 64 bytes, and lies in the memory,
            // which one thread reads and writes; SSE2 is a part of x86-64.
            unsafe {
                let vector = vectors.add(number);
                match direction {
                    Direction::Read => *into = _mm_or_si128(*into, _mm_load_si128(vector)),
                    Direction::Write => _mm_store_si128(vector, *into),
                }
            }
        }
    }
    std::hint::black_box(all);
}

fn zero() -> __m128i {
    const { assert!(4 * VECTOR_BYTES == crate::plan::LINE_BYTES) };
    // SAFETY: SSE2 is a part of x86-64.
    unsafe { _mm_setzero_si128() }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;
    use crate::chase::Cycle;

    #[test]
    fn only_writing_changes_memory_and_all_of_it() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let (memory, _) = Memory::small(64 << 10, &mut random).unwrap();
        let cycle = Cycle::new(memory.all(memory.bytes()), &mut random);
        // SAFETY: the line lies in the memory.
        let is_zero = |line: *mut u8| unsafe { ptr::read(line.cast::<u64>()) == 0 };
        stream(&memory, memory.bytes(), Direction::Read);
        assert!(memory.lines(memory.bytes()).all(|line| !is_zero(line)));
        drop(cycle);
        stream(&memory, memory.bytes() / 2, Direction::Write);
        let zeroed = memory.lines(memory.bytes()).filter(|line| is_zero(*line)).count();
        assert_eq!(zeroed, memory.bytes() / 64 / 2);
    }
}
