//! Sections: zstd frames of a length that is known before.

use super::CodecError;
use super::layout::SECTION_NAMES;

/// Decompresses one section after the other.
pub struct Unpacker {
    zstd: zstd::bulk::Decompressor<'static>,
    content: Vec<u8>,
}

impl Default for Unpacker {
    fn default() -> Self {
        let zstd = zstd::bulk::Decompressor::new().expect("memory for a zstd context");
        Unpacker { zstd, content: Vec::new() }
    }
}

impl Unpacker {
    /// The content of a section, which must have exactly `bytes` bytes. The caller has bounded
    /// `bytes`: this much is allocated, whatever was stored.
    pub fn unpack(
        &mut self,
        section: usize,
        stored: &[u8],
        bytes: usize,
    ) -> Result<&[u8], CodecError> {
        let name = SECTION_NAMES[section];
        if self.content.len() < bytes {
            self.content.resize(bytes, 0);
        }
        let content = &mut self.content[..bytes];
        let got = match stored {
            [] => 0,
            _ => self
                .zstd
                .decompress_to_buffer(stored, content)
                .map_err(|source| CodecError::Zstd { section: name, source })?,
        };
        if got != bytes {
            return Err(CodecError::SectionLength { section: name, expected: bytes, got });
        }
        Ok(content)
    }

    /// The content of a section of `count` numbers of 4 bytes.
    pub fn numbers(
        &mut self,
        section: usize,
        stored: &[u8],
        count: usize,
    ) -> Result<impl Iterator<Item = u32>, CodecError> {
        Ok(numbers_of(self.unpack(section, stored, 4 * count)?))
    }
}

/// Numbers of 4 bytes.
pub fn numbers_of(content: &[u8]) -> impl Iterator<Item = u32> {
    content.as_chunks::<4>().0.iter().map(|number| u32::from_le_bytes(*number))
}
