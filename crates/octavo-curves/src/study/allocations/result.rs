//! Names the functions, files and lines of attributed misses.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use octavo_symbols::Symbols;
use octavo_trace::{CodeMap, RegionId};
use octavo_types::VirtAddr;

use super::{Attribution, MissColumn, Place};

/// A place in the code.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CodePlace {
    /// The function.
    pub function: Option<String>,
    /// The file that it was mapped from; `None` for code that was generated at run time.
    pub path: Option<String>,
    /// The source file.
    pub source: Option<String>,
    /// The line in the source file.
    pub line: Option<u32>,
}

/// All blocks that one caller has allocated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllocationSite {
    /// The caller: the first one that is not a wrapper.
    pub place: CodePlace,
    /// Its address, as traced.
    pub address: VirtAddr,
    /// Blocks allocated by the process, without blocks inherited by fork.
    pub blocks: u64,
    /// The most bytes live at one time.
    pub most_bytes: u64,
}

/// A stack that has misses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedStack {
    /// The number of its site.
    pub site: usize,
    /// The allocation function first, then its callers.
    pub frames: Vec<CodePlace>,
}

/// The misses of one source line in the blocks of one stack, or in a region outside blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttributedMisses {
    /// The index of the stack in [`Allocations::stacks`].
    pub stack: Option<usize>,
    /// The number of the region outside blocks.
    pub region: Option<usize>,
    /// The line that missed.
    pub place: CodePlace,
    /// The misses by column.
    pub counts: Vec<u64>,
}

/// Misses by allocation site and source line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Allocations {
    /// The columns of the counts.
    pub columns: Vec<MissColumn>,
    /// All sites that have allocated a block.
    pub sites: Vec<AllocationSite>,
    /// Stacks that have misses.
    pub stacks: Vec<NamedStack>,
    /// The misses.
    pub misses: Vec<AttributedMisses>,
    /// Blocks that were not tracked because there were too many.
    pub dropped_blocks: u64,
}

/// Finds the places of addresses.
struct Namer<'a> {
    code: &'a CodeMap,
    symbols: Symbols,
    known: HashMap<VirtAddr, CodePlace>,
}

impl Namer<'_> {
    fn place(&mut self, addr: VirtAddr) -> CodePlace {
        let (code, symbols) = (self.code, &mut self.symbols);
        let find = || {
            let Some((path, offset_bytes)) = code.file_at(addr) else {
                return CodePlace::default();
            };
            let found = symbols.function_at(Path::new(path), offset_bytes);
            let (function, source, line) = found.map_or((None, None, None), |function| {
                (Some(function.name), function.source, function.line)
            });
            CodePlace { function, path: Some(path.to_owned()), source, line }
        };
        self.known.entry(addr).or_insert_with(find).clone()
    }

    /// The place of a frame. The tracer's name of the function has precedence.
    fn frame(&mut self, frame: &octavo_types::Frame) -> CodePlace {
        let mut place = self.place(frame.addr);
        if !frame.function.is_empty() {
            place.function = Some(frame.function.clone());
        }
        place
    }
}

impl Attribution {
    /// The misses so far. `number` is the number of a region in the results.
    pub fn result(&self, number: impl Fn(RegionId) -> Option<usize>) -> Allocations {
        let mut namer =
            Namer { code: &self.code, symbols: Symbols::new(), known: HashMap::default() };
        let stacks = self.blocks.stacks();
        let mut site_numbers = vec![None; self.blocks.sites().len()];
        let mut sites = Vec::new();
        for stack in stacks {
            let counts = self.blocks.sites()[stack.site];
            if site_numbers[stack.site].is_none() && counts.most_bytes > 0 {
                site_numbers[stack.site] = Some(sites.len());
                let frame = stack.frames.get(stack.named);
                sites.push(AllocationSite {
                    place: frame.map(|frame| namer.frame(frame)).unwrap_or_default(),
                    address: frame.map_or(VirtAddr::NULL, |frame| frame.addr),
                    blocks: counts.allocated,
                    most_bytes: counts.most_bytes,
                });
            }
        }
        let mut stack_numbers = BTreeMap::new();
        let mut named_stacks = Vec::new();
        let mut misses: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for ((place, instruction), row) in &self.rows {
            let counts = &self.counts[*row as usize * self.columns.len()..][..self.columns.len()];
            let sums = misses.entry((*place, namer.place(*instruction)));
            let sums = sums.or_insert_with(|| vec![0; counts.len()]);
            sums.iter_mut().zip(counts).for_each(|(sum, more)| *sum += more);
        }
        let misses = misses.into_iter().map(|((place, line), counts)| {
            let (stack, region) = match place {
                Place::Region(region) => (None, number(region)),
                Place::Stack(stack) => {
                    let known = stack_numbers.entry(stack).or_insert_with(|| {
                        let stack = &stacks[stack as usize];
                        named_stacks.push(NamedStack {
                            site: site_numbers[stack.site].expect("a block that is missed exists"),
                            frames: stack.frames.iter().map(|frame| namer.frame(frame)).collect(),
                        });
                        named_stacks.len() - 1
                    });
                    (Some(*known), None)
                }
            };
            AttributedMisses { stack, region, place: line, counts }
        });
        let misses = misses.collect();
        Allocations {
            columns: self.columns.clone(),
            sites,
            misses,
            stacks: named_stacks,
            dropped_blocks: self.blocks.dropped(),
        }
    }
}
