//! The pieces seen so far, and the ways from one to the next.
//!
//! Text that was seen before is compared piece by piece with what was seen. A piece begins at a
//! fetch, lies within one segment, and ends where that ends, where it is full, or where another
//! text went on differently: whenever one differs from what comes, at a fetch, it is cut there. So
//! pieces become the straight runs of the program. The text's next line selects the next piece
//! among the few that have followed before, so there is seldom anything to guess and seldom a
//! mispredicted branch. Pieces that differ only later (in the lengths of data addresses, or in
//! data that is skipped) are tried in turn.

use std::mem::MaybeUninit;

use octavo_types::{InstructionSet, Instructions, ItemKind, VirtAddr};
use rustc_hash::FxHashMap;

use super::super::reader::Learning;
use super::machine::{Machine, Portable};
use super::piece::{MAX_DATA, NO_PIECE, Piece, TEXT_BYTES, Window, fetch_addr, key};
use crate::learn::{Learner, Reference, START};
use crate::source::Place;

mod run;

/// Upper bound on pieces: past it all are dropped and made anew.
const MAX_PIECES: usize = if cfg!(test) { 1 << 6 } else { 1 << 18 };
/// How many most programs need, so that they are not moved as they grow in number.
const USUAL_PIECES: usize = 1 << 15;
/// How many pieces with one first line may follow a node.
const MAX_OTHERS: usize = 8;

type Table = FxHashMap<(u32, VirtAddr), u32>;

/// All pieces, and where the text is.
pub(super) struct Paths {
    instructions: Instructions,
    pieces: Vec<Piece>,
    /// By the node before (START where a segment begins) and the first line's address.
    table: Table,
    /// The learner's, when these pieces were made.
    resets: u64,
    /// The piece that the text has just passed, if it is at the end of one.
    last: u32,
    making: Option<Making>,
}

/// A piece in the making: places are in the text at hand.
#[derive(Clone, Copy)]
struct Making {
    start: usize,
    /// The node before it, START where it begins a segment.
    after: u32,
    data: usize,
    /// Where its last instruction begins, after which node and how many data lines.
    instruction: usize,
    instruction_after: u32,
    instruction_data: usize,
}

impl Paths {
    pub(super) fn new(instructions: Instructions) -> Self {
        let mut pieces = Vec::with_capacity(USUAL_PIECES);
        pieces.push(Piece::none());
        Paths {
            instructions,
            pieces,
            table: FxHashMap::default(),
            resets: 0,
            last: NO_PIECE,
            making: None,
        }
    }

    /// The text at hand is another, which goes on where the last one ended.
    pub(super) fn move_on(&mut self) {
        // The piece under construction refers to the last one.
        if self.making.is_some() {
            self.lose();
        }
    }

    /// A line came that belongs to no piece.
    pub(super) fn lose(&mut self) {
        self.last = NO_PIECE;
        self.making = None;
    }

    /// The text at `used` begins with the line of a fetch, `reference`: takes as many pieces as
    /// are known, and says how much text and how many lines that was. `lines` came before.
    pub(super) fn follow(
        &mut self,
        text: &[u8],
        used: usize,
        reference: &Reference,
        lines: u64,
        out: &mut Learning,
    ) -> (usize, u64) {
        let Some(window) = text[used..].first_chunk::<TEXT_BYTES>() else { return (0, 0) };
        self.keep_up(&out.learner);
        let continues = out.learner.continues(reference);
        if !continues {
            self.end_at(text, used, out.learner.here, &out.learner);
        }
        let after = if continues { out.learner.here } else { START };
        if continues && out.learner.nodes[after as usize].guesses[0] == START {
            // No piece has followed it so far.
            return (0, 0);
        }
        let key = key(window);
        let Some(&first) = self.table.get(&(after, reference.addr)) else { return (0, 0) };
        let Some(piece) = self.find(first, window, &out.learner) else { return (0, 0) };
        if continues {
            self.end_at(text, used, out.learner.here, &out.learner);
        } else {
            out.finish(Place::Line(lines + 1));
        }
        self.link(key, piece, &out.learner);
        let text = &text[used..];
        match self.instructions.set() {
            InstructionSet::Portable => self.run::<Portable>(piece, text, lines, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this processor has AVX2, or it would not have been chosen.
            InstructionSet::Avx2 => unsafe { self.run_avx2(piece, text, lines, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above, with AVX-512.
            InstructionSet::Avx512 => unsafe { self.run_avx512(piece, text, lines, out) },
        }
    }

    /// Drops all pieces if the learner was reset, or if there are too many.
    fn keep_up(&mut self, learner: &Learner) {
        if self.resets != learner.resets || self.pieces.len() > MAX_PIECES {
            self.pieces.truncate(1);
            self.table.clear();
            self.resets = learner.resets;
            self.lose();
        }
    }

    /// The piece that `window` begins with, out of the ring that `first` is in. One that differs
    /// only from some fetch on is cut there.
    fn find(&mut self, first: u32, window: &Window, learner: &Learner) -> Option<u32> {
        let takes = |piece: &Piece| {
            let mut addresses = [MaybeUninit::uninit(); MAX_DATA];
            // SAFETY: every processor will do.
            unsafe { Portable::take(piece, window, &mut addresses) }
        };
        let mut candidate = first;
        loop {
            if takes(&self.pieces[candidate as usize]) {
                return Some(candidate);
            }
            candidate = self.pieces[candidate as usize].other;
            if candidate == first {
                break;
            }
        }
        loop {
            let piece = &self.pieces[candidate as usize];
            let (start, line) = piece.differs_at(window);
            if line > 0 && window.get(start) == Some(&b'I') && piece.can_split(start) {
                self.split(candidate, start, line, learner);
                // The digits of its data may still be none.
                return takes(&self.pieces[candidate as usize]).then_some(candidate);
            }
            candidate = self.pieces[candidate as usize].other;
            if candidate == first {
                return None;
            }
        }
    }

    #[cold]
    fn split(&mut self, piece: u32, start: usize, line: usize, learner: &Learner) {
        let number = self.pieces.len() as u32;
        if self.last == piece {
            // The text is at the end of what is now the rest.
            self.last = number;
        }
        let piece = &mut self.pieces[piece as usize];
        let rest = piece.split(start, line);
        let mut node = piece.end;
        for _ in 0..rest.lines {
            node = learner.nodes[node as usize].parent;
        }
        piece.end = node;
        let key = key(&rest.text);
        piece.link(key, number);
        self.pieces.push(rest);
        // Within a segment instructions follow each other.
        self.enter(node, learner.nodes[node as usize].next_fetch, number);
    }

    /// Enters a new piece, unless there are too many like it.
    fn enter(&mut self, after: u32, addr: VirtAddr, number: u32) -> bool {
        let first = *self.table.entry((after, addr)).or_insert(number);
        let (mut ring, mut at) = (1, self.pieces[first as usize].other);
        while first != number && at != first {
            (ring, at) = (ring + 1, self.pieces[at as usize].other);
        }
        self.pieces[number as usize].other = number;
        if first != number && ring < MAX_OTHERS {
            self.pieces[number as usize].other = self.pieces[first as usize].other;
            self.pieces[first as usize].other = number;
        }
        ring < MAX_OTHERS
    }

    fn link(&mut self, key: u32, next: u32, learner: &Learner) {
        if self.last != NO_PIECE {
            let begins = self.pieces[next as usize].begins;
            let last = &mut self.pieces[self.last as usize];
            if begins {
                last.segment = learner.segment_at(last.end).expect("it was finished");
            }
            last.link(key, next);
        }
    }

    /// Takes note of a line that was read by itself, `length` bytes of `text` at `at`.
    pub(super) fn note(
        &mut self,
        text: &[u8],
        at: usize,
        length: usize,
        reference: &Reference,
        learner: &Learner,
    ) {
        self.keep_up(learner);
        let after = learner.nodes[learner.here as usize].parent;
        let end = at + length;
        let instruction = Making {
            start: at,
            after,
            data: 0,
            instruction: at,
            instruction_after: after,
            instruction_data: 0,
        };
        let making = self.making.take();
        if reference.kind == ItemKind::Fetch {
            self.making = Some(instruction);
            match making {
                Some(_) if after == START => self.last = NO_PIECE,
                Some(making) if end - making.start <= TEXT_BYTES => {
                    self.making = Some(Making {
                        instruction: at,
                        instruction_after: after,
                        instruction_data: making.data,
                        ..making
                    });
                }
                Some(making) => self.make(text, making, at, after, learner),
                None => {}
            }
            return;
        }
        let fits = |making: &Making| end - making.start <= TEXT_BYTES && making.data <= MAX_DATA;
        let Some(mut making) = making.filter(|_| after != START) else { return self.lose() };
        making.data += 1;
        if !fits(&making) && making.instruction > making.start {
            let (instruction, after) = (making.instruction, making.instruction_after);
            self.make(text, making, instruction, after, learner);
            making.data -= making.instruction_data;
            (making.start, making.after, making.instruction_data) = (instruction, after, 0);
        }
        if fits(&making) { self.making = Some(making) } else { self.lose() }
    }

    /// Ends the piece in the making before `at`, after the node `end`.
    fn end_at(&mut self, text: &[u8], at: usize, end: u32, learner: &Learner) {
        if let Some(making) = self.making.take() {
            self.make(text, making, at, end, learner);
        }
    }

    fn make(&mut self, text: &[u8], making: Making, at: usize, end: u32, learner: &Learner) {
        let text = &text[making.start..at];
        let Some(piece) = Piece::of(text) else { return self.last = NO_PIECE };
        let (mut window, mut addresses) = (piece.text, [MaybeUninit::uninit(); MAX_DATA]);
        window[..text.len()].copy_from_slice(text);
        // SAFETY: every processor will do.
        let taken = unsafe { Portable::take(&piece, &window, &mut addresses) };
        let (number, key) = (self.pieces.len() as u32, key(&window));
        self.pieces.push(Piece { end, begins: making.after == START, ..piece });
        let addr = fetch_addr(&window).filter(|_| taken);
        if addr.is_some_and(|addr| self.enter(making.after, addr, number)) {
            self.link(key, number, learner);
            self.last = number;
        } else {
            self.pieces.pop();
            self.last = NO_PIECE;
        }
    }
}
