//! Deduces instruction lengths in formats that do not record them.
//!
//! An instruction ends where the next one begins, unless it jumps. So a fetch waits, with its data,
//! until the next one is known. Its length is the distance to the next one if this is 1 to 15
//! bytes; else its last known length; else [`UNKNOWN_BYTES`].

use octavo_types::{Event, ItemKind, VirtAddr};

use super::reader::Learning;
use crate::learn::{Reference, Registers};
use crate::source::Place;

/// The longest instruction of x86.
const MAX_BYTES: u64 = 15;
/// The assumed length of an instruction of which nothing is known.
const UNKNOWN_BYTES: u16 = 4;
/// How many lengths are cached; each address has one slot, which a newer one may take.
const REMEMBERED: usize = if cfg!(fuzzing) { 1 << 8 } else { 1 << 16 };
/// How much data waits with its instruction; more than this emits the instruction early.
const MAX_WAITING: usize = 4096;

/// For [`crate::source::Facts::notes`].
pub(crate) const NOTE: &str = "instructions have no sizes in this format: each is taken to reach \
                               up to the next where that is 1 to 15 bytes away, else to be as \
                               long as it was before, else 4 bytes";

/// The fetch that waits, and what has been learnt.
pub(crate) struct Lengths {
    waiting: Option<(Fetch, Place)>,
    data: Vec<(Reference, Place)>,
    /// Addresses and lengths; a length of 0 where there is none.
    known: Box<[(u64, u8)]>,
}

/// An instruction of unknown length.
#[derive(Clone, Copy, Default)]
pub(crate) struct Fetch {
    pub(crate) addr: u64,
    pub(crate) registers: Registers,
    /// Whether it is a branch, taken or not.
    pub(crate) is_branch: bool,
    /// Whether the next instruction does not follow it.
    pub(crate) jumps: bool,
}

impl Lengths {
    pub(crate) fn new() -> Self {
        let known = vec![(0, 0); REMEMBERED].into_boxed_slice();
        Lengths { waiting: None, data: Vec::new(), known }
    }

    /// Takes an instruction.
    #[inline]
    pub(crate) fn fetch(&mut self, fetch: Fetch, place: Place, out: &mut Learning) {
        self.emit(Some(fetch.addr), out);
        self.waiting = Some((fetch, place));
    }

    /// Takes a data reference of the last instruction.
    #[inline]
    pub(crate) fn data(&mut self, reference: Reference, place: Place, out: &mut Learning) {
        if self.waiting.is_none() {
            return out.reference(reference, place);
        }
        self.data.push((reference, place));
        if self.data.len() == MAX_WAITING {
            self.emit(None, out);
        }
    }

    /// Takes an event, after all references so far.
    pub(crate) fn event(&mut self, event: &Event, place: Place, out: &mut Learning) {
        self.emit(None, out);
        out.event(event, place);
    }

    /// Ends the stream, or a part of it after which the next fetch says nothing about this one.
    pub(crate) fn finish(&mut self, out: &mut Learning) {
        self.emit(None, out);
    }

    #[inline]
    fn emit(&mut self, next: Option<u64>, out: &mut Learning) {
        let Some((fetch, place)) = self.waiting.take() else { return };
        let Fetch { addr, registers, is_branch, jumps } = fetch;
        let hash = addr.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let known = &mut self.known[(hash >> (64 - REMEMBERED.ilog2())) as usize];
        let distance = next
            .map(|next| next.wrapping_sub(addr))
            .filter(|distance| !jumps && *distance <= MAX_BYTES);
        let size_bytes = match distance {
            Some(distance @ 1..) => {
                *known = (addr, distance as u8);
                distance as u16
            }
            _ if known.0 == addr && known.1 > 0 => u16::from(known.1),
            _ => UNKNOWN_BYTES,
        };
        let addr = VirtAddr::new(addr);
        let fetch =
            Reference { is_branch, registers, ..Reference::new(ItemKind::Fetch, addr, size_bytes) };
        out.reference(fetch, place);
        for (reference, place) in self.data.drain(..) {
            out.reference(reference, place);
        }
    }
}
