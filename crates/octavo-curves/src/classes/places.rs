//! Names the regions and functions of the misses in [`PlaceCounts`].

use std::collections::BTreeMap;
use std::path::Path;

use octavo_symbols::{Function, Symbols};
use octavo_trace::{AddressSpace, CodeMap, Region};

use super::{ClassCounts, ClassesConfig, PlaceCounts};

/// A function that misses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionMisses {
    /// Its name; none where the file has no symbols, or there is no file.
    pub name: Option<String>,
    /// The file that it was mapped from; none for code that was made at run time.
    pub path: Option<String>,
    /// Where its source is, if that is known: that of the instruction that misses most.
    pub source: Option<(String, u32)>,
    /// Its misses.
    pub counts: ClassCounts,
}

/// Why one TLB misses, and where.
#[derive(Clone, Debug)]
pub struct MissClasses {
    /// The TLB.
    pub config: ClassesConfig,
    /// All misses.
    pub total: ClassCounts,
    /// By the region of the page missed, most misses first.
    pub regions: Vec<(Region, ClassCounts)>,
    /// By the function that missed, most misses first.
    pub functions: Vec<FunctionMisses>,
}

impl MissClasses {
    /// The classified misses of a TLB, in a process whose address space is `space` and whose code
    /// is from the files of `code`.
    pub fn new(
        config: ClassesConfig,
        places: &PlaceCounts,
        space: &AddressSpace,
        code: &CodeMap,
    ) -> Self {
        let mut total = ClassCounts::default();
        let mut regions = vec![ClassCounts::default(); space.regions().len()];
        let mut origins = BTreeMap::new();
        for ((origin, region), counts) in places {
            total.add(counts);
            regions[usize::from(region.0)].add(counts);
            origins.entry(*origin).or_insert_with(ClassCounts::default).add(counts);
        }
        let regions = space.regions().iter().cloned().zip(regions);
        let mut regions: Vec<_> = regions.filter(|(_, counts)| counts.misses() > 0).collect();
        regions.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.misses()));
        let mut symbols = Symbols::new();
        let mut functions = BTreeMap::new();
        for (origin, counts) in &origins {
            let file = code.file_at(*origin);
            let function = file.and_then(|(path, at)| symbols.function_at(Path::new(path), at));
            let path = file.map(|(path, _)| path.to_owned());
            let name = function.as_ref().map(|function| function.name.clone());
            let misses: &mut AddedUp = functions.entry((path, name)).or_default();
            misses.add(function, counts);
        }
        let mut functions: Vec<FunctionMisses> = functions
            .into_iter()
            .map(|((path, name), found)| FunctionMisses {
                name,
                path,
                source: found.source,
                counts: found.counts,
            })
            .collect();
        functions.sort_by_key(|function| std::cmp::Reverse(function.counts.misses()));
        MissClasses { config, total, regions, functions }
    }
}

/// A function's instructions added up.
#[derive(Default)]
struct AddedUp {
    counts: ClassCounts,
    source: Option<(String, u32)>,
    most: u64,
}

impl AddedUp {
    fn add(&mut self, function: Option<Function>, counts: &ClassCounts) {
        self.counts.add(counts);
        if counts.misses() > self.most {
            self.most = counts.misses();
            self.source = function.and_then(|function| function.source.zip(function.line));
        }
    }
}
