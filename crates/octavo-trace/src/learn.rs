//! Learns the segments of a trace that does not name them.
//!
//! All segments seen so far are kept as a tree: a node is a reference (a fetch, or a data item
//! whatever its address), its children are the references that have followed it within a segment,
//! and the roots are those that began one. Each node also remembers which two nodes came after it
//! last, in its own segment or at the root of the next. Programs repeat themselves, so the latest
//! of the two is mostly the right one again, and a reference costs one comparison; otherwise its
//! node is looked up or created. So engines run on such traces as fast as on traces with segments.

use std::collections::HashMap;

use octavo_types::{Dependences, Item, ItemKind, VirtAddr};

use crate::ring::WordWriter;

/// How many instructions a segment has at most.
pub(crate) const MAX_INSTRUCTIONS: u8 = 64;
/// How many data items follow one instruction, or none, at most; a further one begins another
/// segment. The widest gather and save instructions stay far below.
pub(crate) const MAX_DATA_ITEMS: u8 = 255;
/// Upper bound on nodes and items of segments. Past it all are dropped and learnt again,
/// so that memory stays bounded whatever the trace holds.
const MAX_KEPT: usize = if cfg!(test) { 1 << 8 } else { 1 << 22 };

/// The node before the first reference.
pub(crate) const START: u32 = 0;
/// In place of a segment where none ends.
const NO_SEGMENT: u32 = u32::MAX;

/// Architectural registers that an instruction reads and writes, as in [`Dependences`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Registers {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

/// One reference of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Reference {
    pub(crate) kind: ItemKind,
    pub(crate) addr: VirtAddr,
    /// 1 to 4096.
    pub(crate) size_bytes: u16,
    /// The dependences of a fetch, if the format has them.
    pub(crate) registers: Registers,
    /// Whether it is a branch, taken or not, as far as the format says: a segment ends there.
    pub(crate) is_branch: bool,
}

impl Reference {
    /// A reference of which no registers are known.
    pub(crate) fn new(kind: ItemKind, addr: VirtAddr, size_bytes: u16) -> Self {
        Reference { kind, addr, size_bytes, registers: Registers::default(), is_branch: false }
    }

    fn is_fetch(&self) -> bool {
        self.kind == ItemKind::Fetch
    }

    /// The part that identifies its node: the address only if it is a fetch.
    fn key(self) -> Self {
        if self.is_fetch() { self } else { Reference { addr: VirtAddr::NULL, ..self } }
    }
}

/// A reference of a segment, after certain others.
struct Node {
    /// The nodes that followed last, the latest first; [`START`] where fewer than two did. Two,
    /// since a branch has two ways to go.
    guesses: [u32; 2],
    /// The reference before in the same segment, [`START`] for a root.
    parent: u32,
    /// The segment that ends here.
    segment: u32,
    /// As [`Reference::key`] gives it.
    reference: Reference,
    /// Where its last instruction ends, unless it is a branch.
    next_fetch: VirtAddr,
    /// How many instructions the segment has up to here.
    instructions: u8,
    /// How many data items follow its last instruction up to here.
    data_items: u8,
}

/// The tree, and where in it the trace is.
pub(crate) struct Learner {
    nodes: Vec<Node>,
    /// The roots, and those children that are no longer among their parents' guesses: most nodes
    /// have one child or two, and are never looked up here.
    /// Hashed with a random key: a trace could otherwise be made to collide.
    children: HashMap<(u32, Reference), u32>,
    /// The items of all segments together.
    items: usize,
    /// How many segments are defined.
    segments: u32,
    /// The node of the last reference.
    pub(crate) here: u32,
    /// The data addresses of the segment that is being read.
    addresses: Vec<u64>,
    /// The segment that is being defined.
    scratch: (Vec<Item>, Vec<Registers>),
}

impl Learner {
    pub(crate) fn new() -> Self {
        let start = Node {
            guesses: [START; 2],
            parent: START,
            segment: NO_SEGMENT,
            reference: Reference::new(ItemKind::Fetch, VirtAddr::NULL, 0),
            next_fetch: VirtAddr::NULL,
            instructions: MAX_INSTRUCTIONS,
            data_items: MAX_DATA_ITEMS,
        };
        Learner {
            nodes: vec![start],
            children: HashMap::new(),
            items: 0,
            segments: 0,
            here: START,
            addresses: Vec::new(),
            scratch: Default::default(),
        }
    }

    /// Takes one reference. Where it begins a segment, the one before is written to `out`.
    #[inline]
    pub(crate) fn take(&mut self, reference: Reference, out: &mut WordWriter) {
        let key = reference.key();
        let guess = self.nodes[self.here as usize].guesses[0];
        // START's reference has size 0, which no reference has.
        if self.nodes[guess as usize].reference != key {
            return self.learn(reference, out);
        }
        if self.nodes[guess as usize].parent == START {
            self.finish(out);
        }
        if !reference.is_fetch() {
            self.addresses.push(reference.addr.raw());
        }
        self.here = guess;
    }

    /// Takes one reference that the first guess did not foresee.
    fn learn(&mut self, reference: Reference, out: &mut WordWriter) {
        let mut last = self.here;
        let continues = self.continues(&reference);
        let parent = if continues { last } else { START };
        if !continues {
            self.finish(out);
            if self.nodes.len() + self.items > MAX_KEPT {
                self.reset();
                last = START;
            }
        }
        if !reference.is_fetch() {
            self.addresses.push(reference.addr.raw());
        }
        let guesses = self.nodes[last as usize].guesses;
        let key = reference.key();
        let guessed = guesses.into_iter().find(|&guess| {
            let node = &self.nodes[guess as usize];
            guess != START && node.parent == parent && node.reference == key
        });
        self.here = guessed.unwrap_or_else(|| self.child(parent, key));
        if guesses[0] != self.here {
            self.nodes[last as usize].guesses = [self.here, guesses[0]];
            let left = &self.nodes[guesses[1] as usize];
            if guesses[1] != self.here && left.parent == last && last != START {
                self.children.insert((last, left.reference), guesses[1]);
            }
        }
    }

    /// Whether `reference` would go on with the segment that is being read.
    #[inline]
    fn continues(&self, reference: &Reference) -> bool {
        let before = &self.nodes[self.here as usize];
        if reference.is_fetch() {
            before.instructions < MAX_INSTRUCTIONS && before.next_fetch == reference.addr
        } else {
            before.data_items < MAX_DATA_ITEMS
        }
    }

    /// Writes the segment that ends at the last reference, if there is one.
    #[inline]
    pub(crate) fn finish(&mut self, out: &mut WordWriter) {
        if self.here == START {
            return;
        }
        let mut segment = self.nodes[self.here as usize].segment;
        if segment == NO_SEGMENT {
            segment = self.define(out);
        }
        out.execute(segment, &self.addresses);
        self.addresses.clear();
        self.here = START;
    }

    /// Drops all nodes but [`START`]: definitions are numbered from 0 again.
    fn reset(&mut self) {
        self.nodes.truncate(1);
        self.nodes[0].guesses = [START; 2];
        self.children.clear();
        (self.items, self.segments) = (0, 0);
    }

    /// Makes the segment that ends at the last reference.
    #[cold]
    fn define(&mut self, out: &mut WordWriter) -> u32 {
        let (items, registers) = &mut self.scratch;
        items.clear();
        registers.clear();
        let mut place = self.here;
        while place != START {
            let node = &self.nodes[place as usize];
            let Reference { kind, addr, size_bytes, .. } = node.reference;
            items.push(Item::new(kind, size_bytes, addr));
            if kind == ItemKind::Fetch {
                registers.push(node.reference.registers);
            }
            place = node.parent;
        }
        items.reverse();
        registers.reverse();
        self.items += items.len();
        let number = self.segments;
        out.define_items(number, items, &dependences_of(registers), &[]);
        self.segments += 1;
        self.nodes[self.here as usize].segment = number;
        number
    }

    /// The node of `reference`, a key, after `parent`, which is not among the latter's guesses;
    /// made if there is none.
    fn child(&mut self, parent: u32, reference: Reference) -> u32 {
        let number = self.nodes.len() as u32;
        let before = &self.nodes[parent as usize];
        let is_root = parent == START;
        // Only children that have left the guesses are in the table, and none leaves before all
        // guesses are used.
        if (is_root || before.guesses[1] != START)
            && let Some(&child) = self.children.get(&(parent, reference))
        {
            return child;
        }
        let is_fetch = reference.is_fetch();
        let (instructions, data_items) =
            if is_root { (0, 0) } else { (before.instructions, before.data_items) };
        let node = Node {
            guesses: [START; 2],
            parent,
            segment: NO_SEGMENT,
            reference,
            next_fetch: if reference.is_branch {
                // Nothing follows it in its segment.
                VirtAddr::NULL
            } else if is_fetch {
                reference.addr.wrapping_add(u64::from(reference.size_bytes))
            } else if is_root {
                // No instruction: whichever comes next begins a segment.
                VirtAddr::NULL
            } else {
                before.next_fetch
            },
            instructions: match (is_fetch, is_root) {
                (true, _) => instructions + 1,
                (false, true) => MAX_INSTRUCTIONS,
                (false, false) => instructions,
            },
            data_items: if is_fetch { 0 } else { data_items + 1 },
        };
        self.nodes.push(node);
        if is_root {
            self.children.insert((START, reference), number);
        }
        number
    }
}

/// The dependences of a segment's instructions, from the registers that each names: none where
/// none is known. A value made within the segment counts as a producer, not as a register read.
fn dependences_of(registers: &[Registers]) -> Vec<Dependences> {
    if registers.iter().all(|named| *named == Registers::default()) {
        return Vec::new();
    }
    let mut maker = [None; 64];
    let mut last_writes = [usize::MAX; 64];
    for (index, named) in registers.iter().enumerate() {
        bits(named.writes).for_each(|register| last_writes[register] = index);
    }
    let mut dependences = Vec::with_capacity(registers.len());
    for (index, named) in registers.iter().enumerate() {
        let mut made = Dependences::default();
        for register in bits(named.reads) {
            match maker[register] {
                Some(by) => made.producers |= 1u64 << (index - by - 1),
                None => made.reads |= 1 << register,
            }
        }
        for register in bits(named.writes) {
            maker[register] = Some(index);
            made.writes |= u64::from(last_writes[register] == index) << register;
        }
        dependences.push(made);
    }
    dependences
}

fn bits(set: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |bit| set >> bit & 1 != 0)
}

#[cfg(test)]
mod tests;
