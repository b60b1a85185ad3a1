//! Random operations of programs.

use proptest::prelude::*;

/// Base pages that the processes use: twelve huge pages.
pub const PAGES: u64 = 12 * 512;

/// `MADV_DONTNEED`, `MADV_FREE`, `MADV_HUGEPAGE` and `MADV_NOHUGEPAGE`.
const ADVICE: [u64; 4] = [4, 8, 14, 15];

/// A random operation, in base pages.
#[derive(Clone, Debug)]
pub enum Op {
    Map { at: u64, pages: u64, file: bool, shared: bool },
    Unmap { at: u64, pages: u64 },
    Move { from: u64, pages: u64, to: u64, to_pages: u64 },
    Protect { at: u64, pages: u64, write: bool },
    Advise { at: u64, pages: u64, advice: u64 },
    Touch { at: u64, pages: u64, store: bool },
    Present { at: u64, pages: u64 },
    Fork,
    End,
    Background,
}

/// Random operations.
pub fn op() -> impl Strategy<Value = Op> {
    let aligned = |to| (0..(PAGES - 1100) / to).prop_map(move |at| at * to);
    // Many places are aligned for large pages.
    let at = move || prop_oneof![0..PAGES - 1100, aligned(64), aligned(512)];
    let pages = || prop_oneof![1u64..5, 500u64..1100, Just(512)];
    prop_oneof![
        6 => (at(), pages(), prop::bool::weighted(0.3), prop::bool::weighted(0.3))
            .prop_map(|(at, pages, file, shared)| Op::Map { at, pages, file, shared }),
        1 => (at(), pages()).prop_map(|(at, pages)| Op::Unmap { at, pages }),
        2 => (at(), pages(), at(), pages())
            .prop_map(|(from, pages, to, to_pages)| Op::Move { from, pages, to, to_pages }),
        2 => (at(), pages(), any::<bool>())
            .prop_map(|(at, pages, write)| Op::Protect { at, pages, write }),
        2 => (at(), pages(), prop::sample::select(&ADVICE[..]))
            .prop_map(|(at, pages, advice)| Op::Advise { at, pages, advice }),
        12 => (at(), 1u64..40, any::<bool>())
            .prop_map(|(at, pages, store)| Op::Touch { at, pages, store }),
        1 => (at(), pages()).prop_map(|(at, pages)| Op::Present { at, pages }),
        1 => Just(Op::Fork),
        1 => Just(Op::End),
        2 => Just(Op::Background),
    ]
}
