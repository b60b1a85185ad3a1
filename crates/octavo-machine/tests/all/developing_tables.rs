//! The example of docs/developing/page-tables.md: a page-table format with its walker, run against radix trees.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use octavo_machine::{Counters, WalkPlan, WalkRequest, Walker};
use octavo_oracle::strategies::stream;
use octavo_os::frames::{Frames, Order, OutOfMemory, Owner};
use octavo_os::page_table::{Format, HardwareTable};
use octavo_os::policy::{BaseConfig, PolicySettings};
use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr};
use proptest::prelude::*;

use crate::common::{bounds, tiny};

// The format of the page begins here.
/// A linear page table: a frame of entries for each 2 MiB of addresses with pages, for 4 KiB pages.
#[derive(Default)]
struct Linear {
    /// By number of the 2 MiB: the frame of the entries, and the pages that have one.
    parts: HashMap<u64, (FrameNumber, HashSet<PageNumber>)>,
    exhausted: Option<OutOfMemory>,
}

/// Entries of a frame.
const ENTRIES: u64 = 512;

impl Linear {
    /// The address of a page's entry, and whether the page is mapped; `None` where there is no frame of entries.
    fn entry(&self, page: PageNumber) -> Option<(PhysAddr, bool)> {
        let (frame, pages) = self.parts.get(&(page.raw() / ENTRIES))?;
        let at = frame.start().raw() + page.raw() % ENTRIES * 8;
        Some((PhysAddr::new(at), pages.contains(&page)))
    }
}

impl HardwareTable for Linear {
    fn map(&mut self, page: PageNumber, _size: PageSize, frames: &mut Frames) {
        let (_, pages) = match self.parts.entry(page.raw() / ENTRIES) {
            Entry::Occupied(part) => part.into_mut(),
            Entry::Vacant(part) => match frames.allocate(Order::BASE, Owner::PageTable) {
                Ok(frame) => part.insert((frame, HashSet::new())),
                Err(error) => {
                    self.exhausted = Some(error);
                    return;
                }
            },
        };
        pages.insert(page);
    }

    fn unmap(&mut self, page: PageNumber, _size: PageSize, frames: &mut Frames) {
        let part = page.raw() / ENTRIES;
        let Some((frame, pages)) = self.parts.get_mut(&part) else { return };
        pages.remove(&page);
        if pages.is_empty() {
            frames.free(*frame, Order::BASE);
            self.parts.remove(&part);
        }
    }

    fn frames(&self) -> u64 {
        self.parts.len() as u64
    }

    fn exhausted(&self) -> Option<OutOfMemory> {
        self.exhausted
    }

    fn free(self: Box<Self>, frames: &mut Frames) {
        self.parts.values().for_each(|(frame, _)| frames.free(*frame, Order::BASE));
    }
}

/// A walker that knows the frames of entries in registers, so that a walk is one read.
struct LinearWalker;

impl Walker for LinearWalker {
    fn plan(&mut self, request: &WalkRequest<'_>, plan: &mut WalkPlan) {
        if let Some((at, is_mapped)) = request.table().hardware::<Linear>().entry(request.page) {
            plan.probe(at);
            plan.entry = is_mapped.then_some(at);
        }
    }

    fn report(&self, _component: &str, _counters: &mut Counters) {}
}
// The format of the page ends here.

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    /// Every translation is checked against the operating system's record, and no frame is lost. Counts that
    /// do not depend on the format are as with radix trees; a walk reads one entry at most.
    #[test]
    fn linear_tables_take_one_read_for_a_walk(stream in stream(1..150)) {
        let config = tiny();
        let policy = || BaseConfig {}.build();
        let radix =
            bounds::machine(&config, Format::default(), policy(), bounds::conventional(&config));
        let linear = bounds::machine_with_tables(
            &config,
            Arc::new(|_, _| Box::new(Linear::default())),
            || Box::new(LinearWalker),
            policy(),
            bounds::conventional(&config),
        );
        let counted = bounds::play_checked(&config, &stream, vec![radix, linear]);
        let of = |component: &'static str, name| {
            [0, 1].map(|machine: usize| counted[machine].get(component, name).unwrap_or(0))
        };
        for (component, name) in [
            ("tlb.l1d", "misses"),
            ("tlb.l1i", "misses"),
            ("walker", "walks"),
            ("walker", "faulted"),
            ("os", "faults"),
            ("os", "resident_bytes"),
        ] {
            let [radix, linear] = of(component, name);
            prop_assert_eq!(radix, linear, "{} {}", component, name);
        }
        let [_, walks] = of("walker", "walks");
        let [_, faulted] = of("walker", "faulted");
        let [_, reads] = of("walker", "references");
        prop_assert!(walks - faulted <= reads && reads <= walks, "{walks} {faulted} {reads}");
    }
}

#[test]
fn page_shows_the_format_as_it_is_tested() {
    let (_, from) = include_str!("developing_tables.rs").split_once("begins here.\n").unwrap();
    let (code, _) = from.split_once("// The format of the page ends").unwrap();
    let page = include_str!("../../../../docs/developing/page-tables.md");
    assert!(
        page.contains(&format!("```rust\n{code}```")),
        "docs/developing/page-tables.md differs"
    );
}
