//! Names the regions and functions of the misses in [`PlaceCounts`].

use std::collections::BTreeMap;
use std::path::Path;

use octavo_symbols::{Function, Symbols};
use octavo_trace::{AddressSpace, CodeMap, Region};

use super::{ClassCounts, ClassesConfig, PlaceCounts};

/// A function that misses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionMisses {
    /// Its name; `None` without a file or without symbols.
    pub name: Option<String>,
    /// The file that it was mapped from; `None` for code that was generated at run time.
    pub path: Option<String>,
    /// The source file and line of its instruction with most misses, if known.
    pub source: Option<(String, u32)>,
    /// Its misses.
    pub counts: ClassCounts,
}

/// The misses of one TLB by class, region and function.
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
    /// Attributes the misses in `places` to the regions of `space` and the functions of `code`.
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
            let total: &mut FunctionTotal = functions.entry((path, name)).or_default();
            total.add(function, counts);
        }
        let mut functions: Vec<FunctionMisses> = functions
            .into_iter()
            .map(|((path, name), total)| FunctionMisses {
                name,
                path,
                source: total.source,
                counts: total.counts,
            })
            .collect();
        functions.sort_by_key(|function| std::cmp::Reverse(function.counts.misses()));
        MissClasses { config, total, regions, functions }
    }
}

/// The sum over the instructions of a function.
#[derive(Default)]
struct FunctionTotal {
    counts: ClassCounts,
    /// The source of the instruction with most misses.
    source: Option<(String, u32)>,
    most: u64,
}

impl FunctionTotal {
    fn add(&mut self, function: Option<Function>, counts: &ClassCounts) {
        self.counts.add(counts);
        if counts.misses() > self.most {
            self.most = counts.misses();
            self.source = function.and_then(|function| function.source.zip(function.line));
        }
    }
}
