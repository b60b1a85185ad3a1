//! Learns the segments of a text that does not name them.
//!
//! All segments seen so far are kept as a tree: a node is a line (a fetch, or a data item whatever
//! its address), its children are the lines that have followed it within a segment, and the
//! roots are first fetches. Each node also remembers which two nodes came after it last, in its own
//! segment or at the root of the next. As programs repeat themselves, that guess is mostly right:
//! then the line is only compared with the one expected, and a whole segment costs nothing more.
//! Where the guess fails the line is parsed and its node looked up, or made.

use octavo_types::{Consumer, Item, ItemKind, Segment, VirtAddr};
use rustc_hash::FxHashMap;

use super::line::{Fault, Reference, Shape};
use super::{LackeyCounts, Sink, WINDOW_BYTES};

/// How many instructions a segment has at most.
const MAX_INSTRUCTIONS: u8 = 64;
/// How many data items one instruction has at most; the widest gather and save instructions stay
/// far below.
const MAX_DATA_ITEMS: u8 = 255;
/// How many nodes, and items of segments, are kept. Past that all is forgotten and learnt anew,
/// so that memory stays bounded whatever the text holds.
const MAX_KEPT: usize = if cfg!(test) { 1 << 8 } else { 1 << 22 };

/// The node before the first line.
const START: u32 = 0;
/// In place of a segment where none ends.
const NO_SEGMENT: u32 = u32::MAX;

/// A line of a segment, after certain others: one cache line.
#[repr(align(64))]
struct Node {
    shape: Shape,
    /// The nodes that followed last, the latest first; [`START`], which looks like no line,
    /// where fewer than two did. Two, for a branch has two ways to go.
    guesses: [u32; 2],
    /// The line before in the same segment, [`START`] for a root.
    parent: u32,
    /// The segment that ends here.
    segment: u32,
    size_bytes: u16,
    /// How many instructions the segment has up to here.
    instructions: u8,
    /// How many data items its last instruction has up to here.
    data_items: u8,
    /// Where its last instruction ends.
    next_fetch: VirtAddr,
}

const _: () = assert!(size_of::<Node>() == 64);

/// The tree, and where in it the text is.
pub(super) struct Learner {
    nodes: Vec<Node>,
    children: FxHashMap<(u32, Reference), u32>,
    segments: Vec<Segment>,
    /// How many items these have together.
    items: usize,
    /// The node of the last line.
    here: u32,
    /// The data addresses of the segment that is being read.
    addresses: Vec<VirtAddr>,
}

impl Learner {
    pub(super) fn new() -> Self {
        let start = Node {
            shape: Shape::NONE,
            guesses: [START; 2],
            parent: START,
            segment: NO_SEGMENT,
            size_bytes: 0,
            instructions: MAX_INSTRUCTIONS,
            data_items: 0,
            next_fetch: VirtAddr::NULL,
        };
        Learner {
            nodes: vec![start],
            children: FxHashMap::default(),
            segments: Vec::new(),
            items: 0,
            here: START,
            addresses: Vec::new(),
        }
    }

    /// Takes lines of `text` as long as they are those expected, and says how many bytes they
    /// were.
    #[inline]
    pub(super) fn follow<C, S>(&mut self, text: &[u8], sink: &mut Sink<'_, C, S>) -> usize
    where
        C: Consumer + ?Sized,
        S: FnMut(&LackeyCounts) -> bool,
    {
        let mut used = 0;
        let mut here = self.here;
        while let Some(window) = text[used..].first_chunk::<WINDOW_BYTES>() {
            let [mut guess, second] = self.nodes[here as usize].guesses;
            let mut line = self.nodes[guess as usize].shape.read(window);
            if line.is_none() {
                self.nodes[here as usize].guesses = [second, guess];
                guess = second;
                line = self.nodes[guess as usize].shape.read(window);
            }
            let Some((bytes, addr)) = line else { break };
            let node = &self.nodes[guess as usize];
            if node.shape.kind != ItemKind::Fetch {
                self.addresses.push(addr);
            } else if node.parent == START {
                self.here = here;
                self.finish(sink);
                if sink.stopped {
                    return used;
                }
            }
            here = guess;
            used += bytes;
            sink.counts.lines += 1;
        }
        self.here = here;
        used
    }

    /// Takes one line, expected or not: what it says, and its text without the newline.
    pub(super) fn learn<C, S>(
        &mut self,
        reference: Reference,
        line: &[u8],
        sink: &mut Sink<'_, C, S>,
    ) -> Result<(), Fault>
    where
        C: Consumer + ?Sized,
        S: FnMut(&LackeyCounts) -> bool,
    {
        let mut last = self.here;
        let before = &self.nodes[last as usize];
        let parent = if reference.kind != ItemKind::Fetch {
            if last == START {
                return Err(Fault::DataBeforeFetch);
            }
            if before.data_items == MAX_DATA_ITEMS {
                return Err(Fault::TooMuchData);
            }
            self.addresses.push(reference.addr);
            last
        } else if before.instructions < MAX_INSTRUCTIONS && before.next_fetch == reference.addr {
            last
        } else {
            self.finish(sink);
            if sink.stopped {
                return Ok(());
            }
            if self.nodes.len() + self.items > MAX_KEPT {
                *self = Learner::new();
                last = START;
            }
            START
        };
        self.here = self.child(parent, reference, line);
        // Where both guesses were wrong, `follow` has left the older one first.
        let guesses = &mut self.nodes[last as usize].guesses;
        if !guesses.contains(&self.here) {
            *guesses = [self.here, guesses[1]];
        }
        Ok(())
    }

    /// Delivers the segment that ends at the last line, if there is one.
    #[inline]
    pub(super) fn finish<C, S>(&mut self, sink: &mut Sink<'_, C, S>)
    where
        C: Consumer + ?Sized,
        S: FnMut(&LackeyCounts) -> bool,
    {
        if self.here == START {
            return;
        }
        let mut segment = self.nodes[self.here as usize].segment;
        if segment == NO_SEGMENT {
            segment = self.define();
        }
        sink.deliver(&self.segments[segment as usize], &self.addresses);
        self.addresses.clear();
        self.here = START;
    }

    /// Makes the segment that ends at the last line.
    #[cold]
    fn define(&mut self) -> u32 {
        let mut items = Vec::new();
        let mut place = self.here;
        while place != START {
            let node = &self.nodes[place as usize];
            let addr = match node.shape.kind {
                ItemKind::Fetch => {
                    node.next_fetch.wrapping_add(u64::from(node.size_bytes).wrapping_neg())
                }
                _ => VirtAddr::NULL,
            };
            items.push(Item {
                kind: node.shape.kind,
                guarded: false,
                atomic: false,
                size_bytes: node.size_bytes,
                addr,
            });
            place = node.parent;
        }
        items.reverse();
        self.items += items.len();
        let segment = Segment::new(items, Vec::new()).expect("it begins with a fetch, sizes fit");
        let number = self.segments.len() as u32;
        self.segments.push(segment);
        self.nodes[self.here as usize].segment = number;
        number
    }

    /// The node of `reference`, which `line` says, after `parent`; made if there is none.
    fn child(&mut self, parent: u32, reference: Reference, line: &[u8]) -> u32 {
        let Reference { kind, addr, size_bytes } = reference;
        let is_fetch = kind == ItemKind::Fetch;
        let addr_key = if is_fetch { addr } else { VirtAddr::NULL };
        let number = self.nodes.len() as u32;
        let child = *self
            .children
            .entry((parent, Reference { addr: addr_key, ..reference }))
            .or_insert(number);
        if child == number {
            let before = &self.nodes[parent as usize];
            let instructions = if parent == START { 0 } else { before.instructions };
            let node = Node {
                shape: Shape::of(kind, line),
                guesses: [START; 2],
                parent,
                segment: NO_SEGMENT,
                size_bytes,
                instructions: instructions + u8::from(is_fetch),
                data_items: if is_fetch { 0 } else { before.data_items + 1 },
                next_fetch: if is_fetch {
                    addr.wrapping_add(u64::from(size_bytes))
                } else {
                    before.next_fetch
                },
            };
            self.nodes.push(node);
        }
        child
    }
}
