//! `v2p.textproto`: where a trace's pages lay in physical memory.
//!
//! Text of a protocol buffer: groups with a `page_size`, each with `address_mapping`s of a
//! `virtual_address` (0 if it is missing) and a `physical_address`, decimal or after `0x`.

use std::path::Path;

use octavo_types::{Event, PageSize, PhysAddr, VirtAddr};

use super::super::lines::{Lines, quoted};
use super::super::numbers::number;
use super::super::reader::Learning;
use crate::source::{Input, InputOptions, Place, TraceError};

/// The map on its way in.
pub(super) struct V2p {
    lines: Lines,
    map: Map,
}

/// The map, as far as it was read.
#[derive(Default)]
struct Map {
    virt: u64,
    page_bytes: Option<u64>,
    mappings: u64,
    /// The field whose value comes next.
    field: Option<Field>,
    nested: u32,
}

#[derive(Clone, Copy)]
enum Field {
    Virtual,
    Physical,
    PageSize,
    Other,
}

impl V2p {
    pub(super) fn open(path: &Path, options: InputOptions) -> Result<Self, TraceError> {
        Ok(V2p { lines: Lines::new(Input::open(path, options)?), map: Map::default() })
    }

    /// Reads some of it; false at its end.
    pub(super) fn read_some(&mut self, out: &mut Learning) -> Result<bool, TraceError> {
        let more = self.lines.read_some(|line, place| self.map.line(line, place, out))?;
        if !more && (self.map.nested != 0 || self.map.field.is_some()) {
            return Err(self.lines.wrong("the map is cut off"));
        }
        Ok(more)
    }

    pub(super) fn place(&self) -> Place {
        self.lines.place()
    }

    /// The note for the user.
    pub(super) fn note(&self) -> String {
        let Map { mappings, page_bytes, .. } = self.map;
        let size = page_bytes.map_or(String::new(), |bytes| format!(" of {bytes} bytes"));
        let first = match page_bytes {
            Some(bytes) if bytes > PageSize::BASE.bytes() => {
                "; of each, the place of its first address is given"
            }
            _ => "",
        };
        format!("v2p.textproto places {mappings} pages{size}{first}")
    }
}

impl Map {
    fn line(&mut self, line: &[u8], place: Place, out: &mut Learning) -> Result<(), String> {
        let line = line.split(|&byte| byte == b'#').next().unwrap_or(line);
        let mut rest = line;
        loop {
            rest = rest.trim_ascii_start();
            let Some(&first) = rest.first() else { return Ok(()) };
            let length = match first {
                b'{' | b'}' | b':' | b',' | b';' => 1,
                _ => rest.iter().position(|byte| b"{}:,; \t".contains(byte)).unwrap_or(rest.len()),
            };
            let (word, after) = rest.split_at(length);
            self.word(word, place, out).ok_or_else(|| {
                format!("`{}` is not what a virtual to physical map has", quoted(word))
            })?;
            rest = after;
        }
    }

    fn word(&mut self, word: &[u8], place: Place, out: &mut Learning) -> Option<()> {
        match word {
            b":" => return self.field.map(drop),
            b"," | b";" => {}
            b"{" => {
                self.nested = self.nested.checked_add(1)?;
                (self.virt, self.field) = (0, None);
            }
            b"}" => self.nested = self.nested.checked_sub(1)?,
            value if self.field.is_some() => match self.field.take()? {
                Field::Virtual => self.virt = number(value)?,
                Field::PageSize => self.page_bytes = Some(number(value)?),
                Field::Physical => {
                    let phys = PhysAddr::new(number(value)?);
                    let virt = VirtAddr::new(std::mem::take(&mut self.virt));
                    self.mappings += 1;
                    out.event(&Event::Translation { virt, phys }, place);
                }
                Field::Other => {}
            },
            b"virtual_address" => self.field = Some(Field::Virtual),
            b"physical_address" => self.field = Some(Field::Physical),
            b"page_size" => self.field = Some(Field::PageSize),
            name if name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') => {
                self.field = Some(Field::Other);
            }
            _ => return None,
        }
        Some(())
    }
}
