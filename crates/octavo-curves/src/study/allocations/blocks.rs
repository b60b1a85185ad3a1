//! The live blocks of a process, and the sites that allocated them.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use octavo_types::{AddrRange, Frame, VirtAddr};

/// Maximum number of live blocks tracked: some 300 MB.
const MOST_BLOCKS: usize = 8 << 20;
/// Maximum number of stacks. Later stacks count as stack 0, the unknown one.
const MOST_STACKS: usize = 1 << 16;
/// Maximum number of frames kept of a stack.
const MOST_FRAMES: usize = 32;

/// Counts of the blocks of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockCounts {
    /// Blocks allocated by the process, without blocks inherited by fork.
    pub allocated: u64,
    /// Bytes live now.
    pub live_bytes: u64,
    /// The most bytes live at one time.
    pub most_bytes: u64,
}

/// A stack, and the frame that names its site.
#[derive(Clone)]
pub struct Stack {
    /// The allocation function first, then its callers.
    pub frames: Vec<Frame>,
    /// The frame that names the site.
    pub named: usize,
    /// The number of the site.
    pub site: usize,
}

#[derive(Clone, Copy)]
struct Block {
    end: u64,
    stack: u32,
}

/// The live blocks by first address. An address belongs to the last block that begins at or before it, if that
/// block extends to the address.
#[derive(Clone)]
pub struct Blocks {
    live: BTreeMap<u64, Block>,
    stacks: Vec<Stack>,
    sites: Vec<BlockCounts>,
    site_at: HashMap<VirtAddr, usize, RandomState>,
    wrappers: Vec<String>,
    dropped: u64,
}

impl Blocks {
    /// No blocks. `wrappers` are patterns of functions that name no site.
    pub fn new(wrappers: Vec<String>) -> Self {
        Blocks {
            live: BTreeMap::new(),
            stacks: Vec::new(),
            sites: Vec::new(),
            site_at: HashMap::default(),
            wrappers,
            dropped: 0,
        }
    }

    /// The stacks by number.
    pub fn stacks(&self) -> &[Stack] {
        &self.stacks
    }

    /// The counts of each site.
    pub fn sites(&self) -> &[BlockCounts] {
        &self.sites
    }

    /// Blocks that were not tracked.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Adds the next stack. Other numbers are ignored.
    pub fn define(&mut self, number: u32, frames: &[Frame]) {
        if number as usize != self.stacks.len() || self.stacks.len() == MOST_STACKS {
            return;
        }
        let frames = frames[..frames.len().min(MOST_FRAMES)].to_vec();
        let named = self.named(&frames);
        let at = frames.get(named).map_or(VirtAddr::NULL, |frame| frame.addr);
        let next = self.sites.len();
        let site = *self.site_at.entry(at).or_insert(next);
        if site == next {
            self.sites.push(BlockCounts::default());
        }
        self.stacks.push(Stack { frames, named, site });
    }

    /// The frame that names the site: the first one behind the wrappers that follow the allocation function.
    /// Functions without a name between wrappers are wrappers, too.
    fn named(&self, frames: &[Frame]) -> usize {
        let is_wrapper = |frame: &Frame| {
            let name = plain_name(&frame.function);
            self.wrappers.iter().any(|wrapper| matches(wrapper, &name))
        };
        let mut named = 1;
        for (index, frame) in frames.iter().enumerate().skip(1) {
            if is_wrapper(frame) {
                named = index + 1;
            } else if !frame.function.is_empty() {
                break;
            }
        }
        named.min(frames.len().saturating_sub(1))
    }

    /// Adds a block, which replaces blocks that begin in its range.
    pub fn allocate(&mut self, block: AddrRange, stack: u32, inherited: bool) {
        let (start, end) = (block.start().raw(), block.end().raw());
        if self.stacks.is_empty() || start >= end {
            return;
        }
        self.release_in(start, end);
        if self.live.len() == MOST_BLOCKS {
            self.dropped += 1;
            return;
        }
        let stack = if (stack as usize) < self.stacks.len() { stack } else { 0 };
        self.live.insert(start, Block { end, stack });
        let counts = &mut self.sites[self.stacks[stack as usize].site];
        counts.allocated += u64::from(!inherited);
        counts.live_bytes += end - start;
        counts.most_bytes = counts.most_bytes.max(counts.live_bytes);
    }

    /// Frees a block.
    pub fn release(&mut self, start: VirtAddr) {
        if let Some(block) = self.live.remove(&start.raw()) {
            self.give_back(block.stack, block.end - start.raw());
        }
    }

    /// Records that a range is unmapped or mapped again: removes blocks that begin there, and cuts off a block that
    /// extends into it.
    pub fn cut(&mut self, range: AddrRange) {
        let (start, end) = (range.start().raw(), range.end().raw());
        if start >= end {
            return;
        }
        self.release_in(start, end);
        if let Some((_, block)) = self.live.range_mut(..start).next_back()
            && block.end > start
        {
            let (stack, bytes) = (block.stack, block.end - start);
            block.end = start;
            self.give_back(stack, bytes);
        }
    }

    /// The stack that allocated the block of an address.
    pub fn stack_at(&self, addr: VirtAddr) -> Option<u32> {
        let (_, block) = self.live.range(..=addr.raw()).next_back()?;
        (addr.raw() < block.end).then_some(block.stack)
    }

    /// The counts without the blocks, if only results are read from now on.
    pub fn results_only(&self) -> Self {
        Blocks {
            live: BTreeMap::new(),
            stacks: self.stacks.clone(),
            sites: self.sites.clone(),
            site_at: HashMap::default(),
            wrappers: Vec::new(),
            dropped: self.dropped,
        }
    }

    fn release_in(&mut self, start: u64, end: u64) {
        while let Some((&first, _)) = self.live.range(start..end).next() {
            self.release(VirtAddr::new(first));
        }
    }

    fn give_back(&mut self, stack: u32, bytes: u64) {
        self.sites[self.stacks[stack as usize].site].live_bytes -= bytes;
    }
}

/// A function's name without parameters and template arguments.
fn plain_name(function: &str) -> String {
    let name = function.replace("(anonymous namespace)", "{anonymous}");
    let end = name.find(['(', '<']).filter(|end| *end > 0).unwrap_or(name.len());
    name[..end].to_owned()
}

/// Whether a pattern, in which `*` stands for any text, matches a whole name.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_is_behind_the_wrappers() {
        for (names, expected) in [
            (vec![], 0),
            (vec!["malloc"], 0),
            (vec!["malloc", "f", "main"], 1),
            (vec!["malloc", "zmalloc", "f", "main"], 2),
            (vec!["malloc", "zmalloc", "xmalloc"], 2),
            (vec!["malloc", "", "f"], 1),
            (vec!["malloc", "", "zmalloc", "", "f"], 3),
            (vec!["malloc", "f", "zmalloc", "g"], 1),
            (vec!["malloc", "void std::vector<int>::push(int)", "f(std::list<int>&)"], 2),
            (vec!["malloc", "(anonymous namespace)::zalloc(int)", "f"], 2),
        ] {
            let wrappers = ["zmalloc", "xmalloc", "* std::*", "*::zalloc"];
            let blocks = Blocks::new(wrappers.map(str::to_owned).to_vec());
            let frame = |name: &&str| Frame { addr: VirtAddr::NULL, function: (*name).to_owned() };
            let frames: Vec<Frame> = names.iter().map(frame).collect();
            assert_eq!(blocks.named(&frames), expected, "{names:?}");
        }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("zmalloc", "zmalloc", true),
            ("zmalloc", "zmalloc2", false),
            ("z*alloc", "zcalloc", true),
            ("z*alloc", "alloc", false),
            ("*alloc*", "ztrymalloc_usable", true),
            ("std::*", "std::vector<int>::reserve", true),
            ("std::*", "mystd::f", false),
            ("a*a", "a", false),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c", false),
            ("*", "", true),
            ("", "", true),
            ("", "f", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
