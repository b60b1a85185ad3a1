//! A test of walks after second-level misses that were served without a walk.

use octavo_os::vmas::Pages;
use octavo_types::{Access, FrameNumber, ItemKind};

use super::build;
use super::registry::policies;
use super::twins::{counted, map, references, run, setup, tiny};
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::LineAccess;

const LOOKUP_CYCLES: u32 = 9;

/// Stores walk at once. Other accesses miss a second level, and are served without a walk if the page is there.
struct Unwalked;

impl Design for Unwalked {
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        if access.kind() == Access::Load {
            env.charge_l2_lookup(LOOKUP_CYCLES, false);
        }
        let leaf = env.table().leaf(page).filter(|_| access.kind() != Access::Store);
        if let Some(leaf) = leaf {
            return Some(leaf.frame_of(page));
        }
        Some(self.walk(env, page, access, false)?.frame_of(page))
    }

    fn invalidate(&mut self, _: AddressSpace, _: &Pages) {}

    fn flush(&mut self) {}

    fn report(&self, _: &mut Counters) {}
}

#[test]
fn walk_overlaps_no_lookup_of_an_earlier_access() {
    let config = tiny(&["walker.start=with-lookup"]);
    let page = 0x1000_0000_u64;
    let cycles = |kinds: &[ItemKind]| {
        let mut steps = vec![map(page, 1)];
        // Each reference has its own line, since references to one line are combined.
        let lines = (page..).step_by(64);
        steps.extend(
            kinds.iter().zip(lines).flat_map(|(kind, at)| references(*kind, [at].into_iter())),
        );
        let (setup, os) = (setup(&config), policies().parse("base").unwrap());
        let machine = build::machine(&config, &setup, &os, || Ok(Unwalked)).unwrap();
        let counters = counted(&config, vec![machine], &[(0, run(steps))]).remove(0);
        counters.get("core", "cycles_tlb_l2")
    };
    let (load, store) = (ItemKind::Load, ItemKind::Store);
    // The walk of the first load hides its look-up.
    assert_eq!(cycles(&[load, store]), Some(0));
    assert_eq!(cycles(&[store, load, store]), Some(u64::from(LOOKUP_CYCLES)));
}
