//! The loop that makes the references: its instructions, and copies of it over as many pages as
//! its code is to have.

use octavo_types::values::WHOLE;
use octavo_types::{Item, ItemKind, Segment, VirtAddr};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::emit::Emitter;
use super::plan::{CodeOrder, Loop, Shape};
use super::zipf::Zipf;

/// Upper bound on code: readers of the trace keep each copy of the loop in memory.
pub(super) const MAX_CODE_BYTES: u64 = 64 << 20;
const PAGE_BYTES: u64 = 4096;
const INSTRUCTION_BYTES: u64 = 4;
/// A loop is unrolled as long as it has no more than this many accesses and instructions.
const MAX_ACCESSES: u64 = 16;
const UNROLLED_INSTRUCTIONS: u64 = 64;
/// Copies begin at cache lines.
const LINE_BYTES: u64 = 64;
const UNDEFINED: u32 = u32::MAX;

/// One copy of the loop.
///
/// An instruction either loads or stores, so where the stores are not a whole number in each round,
/// there are two bodies side by side, the second with one store more, and they run so often that
/// the fraction is met.
pub(super) struct Body {
    pub(super) accesses: u64,
    /// How many references an access makes.
    pub(super) access_references: u64,
    access_bytes: u16,
    instructions: u64,
    is_update: bool,
    /// In the first of the bodies.
    stores: u64,
    /// The fraction of a store left over after each round, in billionths.
    remainder: u64,
}

impl Body {
    pub(super) const MAX_INSTRUCTIONS: u64 = 256;

    /// The least code of a loop, in bytes.
    pub(super) fn least_bytes(instructions: u64, stores: u64) -> u64 {
        Self::bodies(1, stores) * instructions * INSTRUCTION_BYTES
    }

    fn bodies(accesses: u64, stores: u64) -> u64 {
        1 + u64::from(!(accesses * stores).is_multiple_of(WHOLE))
    }

    pub(super) fn new(plan: &Loop) -> Self {
        let room = plan.code_bytes.min(PAGE_BYTES);
        let fits = |accesses: &u64| {
            let instructions = accesses * plan.instructions;
            let bytes = Self::bodies(*accesses, plan.stores) * instructions * INSTRUCTION_BYTES;
            instructions <= UNROLLED_INSTRUCTIONS && bytes <= room
        };
        let accesses = (2..=MAX_ACCESSES).rev().find(fits).unwrap_or(1);
        let is_update = plan.shape == Shape::Gups;
        Body {
            accesses,
            access_references: 1 + u64::from(is_update),
            access_bytes: plan.access_bytes as u16,
            instructions: plan.instructions,
            is_update,
            stores: accesses * plan.stores / WHOLE,
            remainder: accesses * plan.stores % WHOLE,
        }
    }

    /// How many references a round makes.
    pub(super) fn references(&self) -> u64 {
        self.accesses * self.access_references
    }

    fn bytes(&self) -> u64 {
        self.accesses * self.instructions * INSTRUCTION_BYTES
    }

    /// The first or the second body of the copy at `addr`, with its first `references` references.
    fn segment(&self, addr: u64, second: bool, references: u64) -> Segment {
        let stores = self.stores + u64::from(second);
        let mut addr = addr + if second { self.bytes() } else { 0 };
        let mut items = Vec::new();
        for access in 0..references.div_ceil(self.access_references) {
            let before = access * stores / self.accesses;
            let kind = if self.is_update && references > 2 * access + 1 {
                ItemKind::Modify
            } else if (access + 1) * stores / self.accesses > before {
                ItemKind::Store
            } else {
                ItemKind::Load
            };
            for instruction in 0..self.instructions {
                items.push(item(ItemKind::Fetch, INSTRUCTION_BYTES as u16, addr));
                addr += INSTRUCTION_BYTES;
                if instruction == 0 {
                    items.push(item(kind, self.access_bytes, 0));
                }
            }
        }
        Segment::new(items, Vec::new()).expect("sizes are checked")
    }
}

fn item(kind: ItemKind, size_bytes: u16, addr: u64) -> Item {
    Item::new(kind, size_bytes, VirtAddr::new(addr))
}

/// The copies, and which of them runs next.
pub(super) struct Code {
    pub(super) body: Body,
    text: u64,
    copies: u64,
    /// The distance from one copy's place in its page to the place of the next copy.
    stagger_bytes: u64,
    next: u64,
    order: Option<(Zipf, Xoshiro256PlusPlus)>,
    /// Stores due, in billionths.
    due: u64,
    /// The numbers of the copies' segments, two for each, once defined.
    numbers: Vec<u32>,
    /// The segments of rounds that end early, all in the first copy.
    partial: Vec<u32>,
}

impl Code {
    /// The code of a loop, from `text` on.
    pub(super) fn new(plan: &Loop, text: u64) -> Self {
        let body = Body::new(plan);
        let copies = plan.code_bytes.div_ceil(PAGE_BYTES);
        let order = match plan.code_order {
            CodeOrder::Turn => None,
            // Another sequence than the data's.
            CodeOrder::Zipf(theta) => {
                Some((Zipf::new(copies, theta), Xoshiro256PlusPlus::seed_from_u64(!plan.seed)))
            }
        };
        let bytes = body.bytes() * (1 + u64::from(body.remainder > 0));
        Code {
            text,
            copies,
            stagger_bytes: bytes.next_multiple_of(LINE_BYTES),
            next: 0,
            order,
            due: 0,
            numbers: vec![UNDEFINED; 2 * copies as usize],
            partial: vec![UNDEFINED; body.references() as usize],
            body,
        }
    }

    /// The number of the segment that runs next, a whole round.
    #[inline]
    pub(super) fn round(&mut self, out: &mut Emitter) -> u32 {
        let copy = match &mut self.order {
            Some((zipf, random)) => zipf.draw(random),
            None => {
                let copy = self.next;
                self.next = if copy + 1 == self.copies { 0 } else { copy + 1 };
                copy
            }
        };
        self.due += self.body.remainder;
        let second = self.due >= WHOLE;
        if second {
            self.due -= WHOLE;
        }
        let number = self.numbers[2 * copy as usize + usize::from(second)];
        if number == UNDEFINED { self.define(copy, second, out) } else { number }
    }

    /// The number of the segment that makes `references` references, less than a round.
    pub(super) fn part(&mut self, references: u64, out: &mut Emitter) -> u32 {
        let known = &mut self.partial[references as usize];
        if *known == UNDEFINED {
            *known = out.define(&self.body.segment(self.text, false, references));
        }
        *known
    }

    #[cold]
    fn define(&mut self, copy: u64, second: bool, out: &mut Emitter) -> u32 {
        let places = (PAGE_BYTES / self.stagger_bytes).max(1);
        let addr = self.text + copy * PAGE_BYTES + copy % places * self.stagger_bytes;
        let number = out.define(&self.body.segment(addr, second, self.body.references()));
        self.numbers[2 * copy as usize + usize::from(second)] = number;
        number
    }
}
