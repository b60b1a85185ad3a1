//! The hot loop: matches text against pieces that were seen before.

use super::super::super::reader::Learning;
#[cfg(target_arch = "x86_64")]
use super::super::machine::{Avx2, Avx512};
use super::super::machine::{Machine, ask_ahead};
use super::super::piece::{LINKS, NO_PIECE, Piece, TEXT_BYTES, Window, fetch_addr, key};
use super::{Paths, Table};
use crate::learn::{Learner, START};
use crate::source::Place;

impl Paths {
    /// [`Paths::run`] for processors with AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) fn run_avx2(
        &mut self,
        first: u32,
        text: &[u8],
        lines: u64,
        out: &mut Learning,
    ) -> (usize, u64) {
        self.run::<Avx2>(first, text, lines, out)
    }

    /// [`Paths::run`] for processors with AVX-512.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512bw,avx512vbmi,avx2,bmi1,bmi2")]
    pub(super) fn run_avx512(
        &mut self,
        first: u32,
        text: &[u8],
        lines: u64,
        out: &mut Learning,
    ) -> (usize, u64) {
        self.run::<Avx512>(first, text, lines, out)
    }

    /// Takes pieces of `text`, `first` and what follows, as long as they are known.
    #[inline(always)]
    pub(super) fn run<M: Machine>(
        &mut self,
        first: u32,
        text: &[u8],
        lines: u64,
        out: &mut Learning,
    ) -> (usize, u64) {
        let (pieces, table) = (&mut self.pieces[..], &self.table);
        let words = out.out.words_mut();
        let written = words.len();
        // No line that has an address is shorter than 7 bytes, no piece shorter than 14.
        words.reserve(text.len() / 4 + out.learner.addresses.len() + 16);
        let spare = words.spare_capacity_mut();
        // The current segment is at `slot`: its number, known from its last piece, and its
        // addresses up to `at`.
        let (mut slot, mut at) = (0, 0);
        if out.learner.here != START {
            spare[0].write(0);
            at = 1 + out.learner.addresses.len();
            for (word, &address) in spare[1..].iter_mut().zip(&out.learner.addresses) {
                word.write(address);
            }
        }
        let (mut used, mut taken) = (0, 0);
        let mut began = None;
        let (mut here, mut next) = (NO_PIECE, first);
        'text: while next != NO_PIECE {
            let Some(window) = text[used..].first_chunk::<TEXT_BYTES>() else { break };
            ask_ahead(window);
            let begins = pieces[next as usize].begins;
            let Some(to) = spare[at + usize::from(begins)..].first_chunk_mut() else { break };
            // SAFETY: the caller has seen to the processor.
            if !unsafe { M::take(&pieces[next as usize], window, to) } {
                // The first line does not distinguish these.
                let mut other = next;
                loop {
                    other = pieces[other as usize].other;
                    if other == next {
                        break 'text;
                    }
                    // SAFETY: as above.
                    if unsafe { M::take(&pieces[other as usize], window, to) } {
                        break;
                    }
                }
                if let Some(link) = pieces[here as usize].next.iter_mut().find(|n| **n == next) {
                    *link = other;
                }
                next = other;
            }
            let piece = &pieces[next as usize];
            slot = if begins { at } else { slot };
            began = if begins { Some(taken) } else { began };
            at += usize::from(begins) + usize::from(piece.data);
            spare[slot].write(u64::from(piece.segment));
            used += usize::from(piece.bytes);
            taken += u64::from(piece.lines);
            here = next;
            let Some(window) = text[used..].first_chunk::<TEXT_BYTES>() else { break };
            let key = key(window);
            if piece.keys[0] == key {
                next = piece.next[0];
            } else {
                let (keys, nexts) = (&piece.keys, &piece.next);
                next = NO_PIECE;
                for link in 1..LINKS {
                    next = std::hint::select_unpredictable(keys[link] == key, nexts[link], next);
                }
                if next == NO_PIECE {
                    let last = &mut pieces[here as usize];
                    next = look_up(last, table, window, &out.learner);
                    // It may only now be known.
                    spare[slot].write(u64::from(last.segment));
                }
            }
        }
        if here != NO_PIECE {
            let initialised = slot + 1..at;
            out.learner.here = pieces[here as usize].end;
            out.learner.addresses.clear();
            // SAFETY: each piece has written the addresses it counts, `take` says so.
            let addresses = spare[initialised].iter().map(|word| unsafe { word.assume_init() });
            out.learner.addresses.extend(addresses);
            // SAFETY: so is all that is before the open segment.
            unsafe { words.set_len(written + slot) };
            if let Some(began) = began {
                out.began_at = Place::Line(lines + began + 1);
            }
            self.last = here;
        }
        (used, taken)
    }
}

/// The piece that `window` begins with, by its first line, where no link of `last`, the piece
/// before, leads to it. It has one now.
#[inline(never)]
fn look_up(last: &mut Piece, table: &Table, window: &Window, learner: &Learner) -> u32 {
    let Some(addr) = fetch_addr(window) else { return NO_PIECE };
    let continues = learner.fetch_continues(last.end, addr);
    let after = if continues { last.end } else { START };
    let Some(&next) = table.get(&(after, addr)) else { return NO_PIECE };
    if !continues {
        let Some(segment) = learner.segment_at(last.end) else { return NO_PIECE };
        last.segment = segment;
    }
    last.link(key(window), next);
    next
}
