//! Random programs that make only allowed references, or only forbidden ones.

use octavo_types::{Event, ItemKind, Protection};
use proptest::prelude::*;

use super::script::{CODE, DATA, Writer, map, range};

/// An action of a random program, on pages of a small universe.
#[derive(Clone, Debug)]
enum Act {
    Map(u64, u64, u64),
    Unmap(u64, u64),
    Protect(u64, u64, u64),
    Remap(u64, u64, u64),
    /// The index of the page among those that allow the access.
    Load(usize, u64),
    Store(usize, u64),
    Fetch(usize, u64),
}

fn act() -> impl Strategy<Value = Act> {
    let (page, pages, bits) = (|| 0u64..64, || 1u64..9, || 0u64..8);
    prop_oneof![
        2 => (page(), pages(), bits()).prop_map(|(page, pages, bits)| Act::Map(page, pages, bits)),
        1 => (page(), pages()).prop_map(|(page, pages)| Act::Unmap(page, pages)),
        1 => (page(), pages(), bits()).prop_map(|(page, pages, bits)| Act::Protect(page, pages, bits)),
        1 => (page(), page(), pages()).prop_map(|(from, to, pages)| Act::Remap(from, to, pages)),
        5 => (any::<usize>(), 0u64..4096).prop_map(|(which, offset)| Act::Load(which, offset)),
        5 => (any::<usize>(), 0u64..4096).prop_map(|(which, offset)| Act::Store(which, offset)),
        5 => (any::<usize>(), 0u64..4096).prop_map(|(which, offset)| Act::Fetch(which, offset)),
    ]
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    /// A program that makes only allowed references has no findings, and each forbidden reference
    /// is found.
    #[test]
    fn legal_streams_have_no_findings(acts in prop::collection::vec(act(), 0..120), illegal: bool) {
        const BASE: u64 = 0x7000_0000;
        let address = |page: u64| BASE + (page << 12);
        let mut pages = [None; 80];
        let mut writer = Writer::new();
        let mut expected = 0;
        // The `which`-th page of those that `allows` accepts, or with `illegal` does not.
        let pick = |pages: &[Option<u64>], which: usize, allows: fn(u64) -> bool| {
            let fits = |page: &usize| pages[*page].is_some_and(allows) != illegal;
            let fitting: Vec<usize> = (0..pages.len()).filter(fits).collect();
            fitting.get(which % fitting.len().max(1)).map(|page| *page as u64)
        };
        for act in acts {
            match act {
                Act::Map(page, count, bits) => {
                    pages[page as usize..(page + count) as usize].fill(Some(bits));
                    writer.event(&map(address(page), count << 12, Protection::from_bits(bits)));
                }
                Act::Unmap(page, count) => {
                    pages[page as usize..(page + count) as usize].fill(None);
                    writer.event(&Event::Unmap { range: range(address(page), count << 12) });
                }
                Act::Protect(page, count, bits) => {
                    let changed = &mut pages[page as usize..(page + count) as usize];
                    if changed.iter().all(Option::is_some) {
                        changed.fill(Some(bits));
                        let protection = Protection::from_bits(bits);
                        writer.event(&Event::Protect { range: range(address(page), count << 12), protection });
                    }
                }
                Act::Remap(from, to, count) => {
                    if let Some(bits) = pages[from as usize] {
                        pages[from as usize] = None;
                        pages[to as usize..(to + count) as usize].fill(Some(bits));
                        writer.event(&Event::Remap {
                            from: range(address(from), 4096),
                            to: range(address(to), count << 12),
                        });
                    }
                }
                Act::Load(which, offset) => {
                    if let Some(page) = pick(&pages, which, |bits| bits != 0) {
                        writer.at(CODE, ItemKind::Load, address(page) + offset, 1);
                        expected += u64::from(illegal);
                    }
                }
                Act::Store(which, offset) => {
                    if let Some(page) = pick(&pages, which, |bits| bits & 2 != 0) {
                        let kind = if offset % 2 == 0 { ItemKind::Store } else { ItemKind::Modify };
                        writer.at(CODE, kind, address(page) + offset / 8 * 8, 8);
                        expected += u64::from(illegal);
                    }
                }
                Act::Fetch(which, offset) => {
                    if let Some(page) = pick(&pages, which, |bits| bits & 4 != 0) {
                        writer.at(address(page) + offset / 4 * 4, ItemKind::Load, DATA, 8);
                        expected += u64::from(illegal);
                    }
                }
            }
        }
        let report = writer.report();
        prop_assert_eq!(report.counts.values().sum::<u64>(), expected, "{:#?}", report.findings);
    }

    /// Random words make the checker neither panic nor hang.
    #[test]
    fn any_words_are_checked(words in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..32, (1u64..17, 0u64..8).prop_map(|(kind, count)| 1 << 63 | kind << 48 | count)], 0..80)) {
        let mut writer = Writer::new();
        writer.out.words_mut().extend(words);
        writer.report();
    }
}
