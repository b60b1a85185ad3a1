//! The arrays that a machine's pages go to, from its description.

use octavo_config::{Fill, FirstLevel, PageSizes, TlbArray, TlbConfig, TlbLevel};
use octavo_hw::Replacement;
use octavo_types::PageSize;

use super::{ArrayShape, MachineTlbs, TlbsOfSize};

/// A machine that the study cannot model; `octavo sim` can.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotModelled {
    /// The key of the machine that cannot be modelled, such as `tlb.l1d.main.replacement`.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The machines that can be modelled.
    pub allowed: &'static str,
}

impl std::error::Error for NotModelled {}

impl std::fmt::Display for NotModelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NotModelled { key, value, allowed } = self;
        write!(f, "`{key}` is `{value}`: octavo run models {allowed}, octavo sim models all")
    }
}

impl MachineTlbs {
    /// The TLBs of a machine at each page size that any of its arrays holds. A page goes to the array that holds the
    /// largest size up to the page's own, whole or in parts.
    ///
    /// # Errors
    /// If the machine has one first level for code and data, arrays that are not LRU or that hold any size, or a
    /// victim level.
    pub fn of(config: &TlbConfig) -> Result<Self, NotModelled> {
        let FirstLevel::Split { l1i, l1d } = &config.first else {
            return Err(NotModelled {
                key: "tlb.l1".to_owned(),
                value: "one for code and data".to_owned(),
                allowed: "a first level for each (tlb.l1i and tlb.l1d)",
            });
        };
        let levels =
            [("tlb.l1i", Some(l1i)), ("tlb.l1d", Some(l1d)), ("tlb.l2", config.l2.as_ref())];
        let mut sizes = vec![PageSize::BASE];
        for (name, level) in levels.iter().filter_map(|(name, level)| Some((name, (*level)?))) {
            if level.fill != Fill::All {
                let (key, value) = (format!("{name}.fill"), "victim".to_owned());
                return Err(NotModelled { key, value, allowed: "`all`" });
            }
            for (array, config) in &level.arrays {
                sizes.extend(check(&format!("{name}.{array}"), config)?);
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        let tlbs = |page_size| {
            Ok(TlbsOfSize {
                page_size,
                fetch: place(l1i, page_size).ok_or_else(|| no_place("tlb.l1i"))?,
                data: place(l1d, page_size).ok_or_else(|| no_place("tlb.l1d"))?,
                second: match &config.l2 {
                    Some(l2) => Some(place(l2, page_size).ok_or_else(|| no_place("tlb.l2"))?),
                    None => None,
                },
            })
        };
        Ok(MachineTlbs { sizes: sizes.into_iter().map(tlbs).collect::<Result<_, _>>()? })
    }
}

/// The page sizes of an array, if it can be modelled.
fn check<'a>(name: &str, array: &'a TlbArray) -> Result<&'a [PageSize], NotModelled> {
    if array.replacement != Replacement::Lru {
        let (key, value) = (format!("{name}.replacement"), array.replacement.to_string());
        return Err(NotModelled { key, value, allowed: "`lru`" });
    }
    match &array.page_sizes {
        PageSizes::List(sizes) => Ok(sizes),
        PageSizes::Any => {
            let (key, value) = (format!("{name}.page_sizes"), "any".to_owned());
            Err(NotModelled { key, value, allowed: "lists of sizes" })
        }
    }
}

fn no_place(level: &str) -> NotModelled {
    let (key, value) = (level.to_owned(), "without an array for 4KiB".to_owned());
    NotModelled { key, value, allowed: "levels that hold pages of 4KiB" }
}

/// The array of a level that a page goes to.
fn place(level: &TlbLevel, page_size: PageSize) -> Option<ArrayShape> {
    let mut best: Option<(PageSize, &TlbArray)> = None;
    for array in level.arrays.values() {
        let PageSizes::List(sizes) = &array.page_sizes else { continue };
        let largest = sizes.iter().filter(|size| **size <= page_size).max();
        if let Some(size) = largest
            && best.is_none_or(|(before, _)| before < *size)
        {
            best = Some((*size, array));
        }
    }
    let (entry_size, array) = best?;
    let ways = array.ways.of(array.entries);
    Some(ArrayShape { entry_size, sets: (array.entries / ways) as u32, ways: ways as u32 })
}
