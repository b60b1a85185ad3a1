//! The hash of a stream's words.

use twox_hash::xxhash3_128::Hasher;

/// Hashes the words of a stream as bytes by XXH3-128, however they are cut into pieces. Every word
/// is hashed, by a crate that uses AVX2 where the processor has it.
#[derive(Default)]
pub struct WordsHash(Hasher);

impl WordsHash {
    /// Adds words behind those before.
    ///
    /// Never inlined, so that there is one compiled loop, which was inspected: some of the copies
    /// in other crates kept the sums in memory, and took three times as long.
    #[inline(never)]
    pub fn write(&mut self, words: &[u64]) {
        self.0.write(bytemuck::cast_slice(words));
    }

    /// The hash of all words so far.
    pub fn value(&self) -> u128 {
        self.0.finish_128()
    }
}
