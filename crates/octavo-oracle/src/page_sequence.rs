//! Random sequences of page numbers that include the patterns of programs.

use proptest::prelude::*;

/// Part of a sequence of page numbers.
#[derive(Clone, Debug)]
enum Part {
    /// Alternation between two pages: first, second, times.
    Alternate(u64, u64, usize),
    /// A loop over pages: first page, stride, number of pages, times.
    Sweep(u64, u64, usize, usize),
    /// A page.
    One(u64),
}

/// Up to some thousand page numbers: alternations, loops over more pages than sets hold, single pages.
pub fn page_sequence() -> impl Strategy<Value = Vec<u64>> {
    let page = || {
        prop_oneof![
            2 => 0u64..6,
            2 => 0u64..40,
            2 => 0u64..400,
            1 => 0u64..5000,
            1 => (0u64..30, 0u32..14).prop_map(|(page, log2)| page << log2),
            1 => 0u64..1 << 52,
        ]
    };
    let part = prop_oneof![
        2 => (page(), page(), 1usize..6).prop_map(|(a, b, times)| Part::Alternate(a, b, times)),
        1 => (page(), 0u32..11, 1usize..60, 1usize..4)
            .prop_map(|(from, log2, pages, times)| Part::Sweep(from, 1 << log2, pages, times)),
        6 => page().prop_map(Part::One),
    ];
    prop::collection::vec(part, 1..120).prop_map(|parts| {
        let pages = parts.into_iter().flat_map(|part| match part {
            Part::Alternate(a, b, times) => [a, b].repeat(times),
            Part::Sweep(from, stride, pages, times) => {
                (0..pages as u64).map(|n| from + n * stride).collect::<Vec<_>>().repeat(times)
            }
            Part::One(page) => vec![page],
        });
        pages.collect()
    })
}
