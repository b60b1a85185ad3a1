//! Processes that map, touch, unmap, move, protect and fork at random, with much memory and with little: page
//! contents match a plain model, frames are neither lost nor wrongly shared, and cached translations that
//! were not invalidated are correct.

use crate::machine::{GappedPages, Machine, Op, Setup, op, play};
use octavo_os::frames::fragmentation::{Faults, Fragmentation, HoleLayout};
use octavo_os::frames::{CompactionLimits, Compactor, Order, OutOfMemory, Owner};
use octavo_os::page_table::{
    Aliases, AnchorFormat, Format, Holes, Leaf, SizeEncoding, SortedFormat,
};
use octavo_os::policy::{BasePages, Fault, Mthp, MthpConfig, Policy, Thp, ThpConfig};
use octavo_os::{CopyOnWrite, Memory, SamePages, around};
use octavo_types::{PageNumber, PageSize};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Enough memory for every operation.
const ROOMY: u64 = 1 << 16;

/// Pages of random sizes up to 4 MiB at random places, and random promotions.
struct AnySize {
    state: u64,
}

impl AnySize {
    fn draw(&mut self, below: u64) -> u64 {
        // Constants of Knuth's MMIX.
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.state >> 33) % below
    }
}

impl Policy for AnySize {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let sizes = memory.sizes();
        let size = sizes[self.draw(sizes.len() as u64) as usize];
        let pages = around(fault.page, size);
        let fits = fault.mapping.start <= pages.start && pages.end <= fault.mapping.end;
        if fits && memory.is_untouched(fault.process, &pages) {
            let first = PageNumber::new(pages.start);
            if memory.place_new(fault.process, first, size, fault.vma.rights).is_ok() {
                return Ok(());
            }
        }
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }

    fn background(&mut self, memory: &mut Memory, _instructions: u64) {
        let live: Vec<_> = memory.live().collect();
        for process in live {
            let page = PageNumber::new(self.draw(crate::machine::PAGES));
            let sizes = memory.sizes();
            let size = sizes[self.draw(sizes.len() as u64) as usize];
            let pages = around(page, size);
            let Some((mapping, vma)) = memory.process(process).vmas.find(page) else { continue };
            let inside = mapping.start <= pages.start && pages.end <= mapping.end;
            let leaves = memory.leaves(process, &pages);
            let own = leaves.iter().all(|leaf| !memory.is_shared(leaf));
            if inside && vma.is_anonymous() && own {
                let _ = memory.collapse(process, page, size, vma.rights);
            }
        }
    }
}

/// Pages with holes at random places, which are punched, patched, made whole and split.
struct PunchingHoles {
    random: AnySize,
    compactor: Compactor,
}

impl PunchingHoles {
    fn new(state: u64) -> Self {
        PunchingHoles { random: AnySize { state }, compactor: Compactor::default() }
    }

    /// Tries to make a page with holes around a private page.
    fn map_with_holes(&mut self, memory: &mut Memory, fault: &Fault) -> Option<()> {
        let block = memory.frames.allocate_free(Order::HUGE, Owner::Data).ok()?;
        let mut holes = Holes::default();
        let most = [1, 8, 64, 400][self.random.draw(4) as usize];
        for _ in 0..self.random.draw(most) {
            holes.insert(self.random.draw(512));
        }
        let made =
            memory.map_with_holes(fault.process, fault.page, block, &holes, fault.vma.rights);
        let is_made = made.unwrap_or(false);
        for at in (0..512).filter(|at| !is_made || holes.contains(*at)) {
            memory.frames.free(block.plus(at), Order::BASE);
        }
        is_made.then_some(())
    }
}

impl Policy for PunchingHoles {
    fn start(&mut self, memory: &mut Memory) {
        memory.punches = true;
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let pages = around(fault.page, PageSize::HUGE);
        let fits = fault.mapping.start <= pages.start && pages.end <= fault.mapping.end;
        let is_new = memory.is_untouched(fault.process, &pages);
        match self.random.draw(3) {
            0 if fits && is_new => {
                let first = PageNumber::new(pages.start);
                let rights = fault.vma.rights;
                if memory.place_new(fault.process, first, PageSize::HUGE, rights).is_ok() {
                    return Ok(());
                }
            }
            1 if fits && is_new => {
                let made = self.map_with_holes(memory, fault);
                let table = &memory.process(fault.process).table;
                if made.is_some() && table.leaf(fault.page).is_some() {
                    return Ok(());
                }
            }
            _ => {}
        }
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }

    fn background(&mut self, memory: &mut Memory, _instructions: u64) {
        let live: Vec<_> = memory.live().collect();
        let action = self.random.draw(6);
        if action == 5 {
            let limits = CompactionLimits::ONE_BLOCK;
            memory.compact_for(&mut self.compactor, Order::HUGE, limits, |_| false);
            return;
        }
        for process in live {
            for (region, before) in memory.pages_with_holes_in(process, &(0..u64::MAX)) {
                let pages = around(region.page, PageSize::HUGE);
                match action {
                    0 => {
                        memory.split_with_holes(process, region.page);
                    }
                    1 => {
                        for page in pages {
                            memory.move_into_place(process, PageNumber::new(page));
                        }
                        memory.make_whole(process, region.page);
                    }
                    _ => {
                        let patched = memory.patch_holes(process, &pages);
                        let after = memory.process(process).table.holes_of(region.page);
                        let (_, after) = after.expect("only `make_whole` makes it whole");
                        assert_eq!(u64::from(before.count() - after.count()), patched);
                        memory.make_whole(process, region.page);
                    }
                }
            }
            let page = PageNumber::new(self.random.draw(crate::machine::PAGES));
            let Some((mapping, vma)) = memory.process(process).vmas.find(page) else { continue };
            let pages = around(page, PageSize::HUGE);
            let inside = mapping.start <= pages.start && pages.end <= mapping.end;
            let leaves = memory.leaves(process, &pages);
            let is_own = |leaf: &Leaf| leaf.size == PageSize::BASE && !memory.is_shared(leaf);
            let has_holes = memory.process(process).table.holes_of(page).is_some();
            if inside && vma.is_anonymous() && leaves.iter().all(is_own) && !has_holes {
                self.map_with_holes(memory, &Fault { process, page, mapping, vma });
            }
        }
    }
}

fn sizes(log2: &[u8]) -> Vec<PageSize> {
    log2.iter().map(|log2| PageSize::from_log2(*log2).unwrap()).collect()
}

fn conventional(frames: u64, copy_on_write: CopyOnWrite) -> Setup {
    Setup {
        frames,
        start: Fragmentation::Empty,
        sizes: sizes(&[21]),
        format: Format::default(),
        copy_on_write,
        same_pages: SamePages::Never,
    }
}

fn tailored(frames: u64, copy_on_write: CopyOnWrite, aliases: Aliases) -> Setup {
    let format = Format { levels: 5, encoding: SizeEncoding::OneBit, aliases, ..Format::default() };
    let sizes = sizes(&[13, 14, 16, 19, 21, 22]);
    Setup { sizes, format, ..conventional(frames, copy_on_write) }
}

/// A filter with a bit for each eighth of a page, set if it has a hole.
fn eighths(holes: &Holes) -> u8 {
    (0..8).filter(|eighth| holes.0[*eighth] != 0).map(|eighth| 1 << eighth).sum()
}

fn with_holes(frames: u64, copy_on_write: CopyOnWrite, levels: u8) -> Setup {
    let format = Format { levels, holes: Some(eighths), ..Format::default() };
    Setup { format, ..conventional(frames, copy_on_write) }
}

/// Gapped pages, in memory with `faults` per thousand.
fn gapped(frames: u64, faults: u64, copy_on_write: CopyOnWrite) -> Setup {
    let format = Format { has_gapped: true, ..Format::default() };
    let (portion, layout) = (faults as f64 / 1000.0, HoleLayout::Dispersed);
    let start = Fragmentation::Faults(Faults { portion, layout });
    Setup { start, format, ..conventional(frames, copy_on_write) }
}

/// Page tables with the contiguous hint for blocks of 2^`block_log2` entries.
fn contiguous(frames: u64, copy_on_write: CopyOnWrite, block_log2: u8) -> Setup {
    let format = Format { block_log2, ..Format::default() };
    Setup { format, ..conventional(frames, copy_on_write) }
}

/// Page tables whose levels are merged where blocks are free.
fn merged(frames: u64, copy_on_write: CopyOnWrite, levels: u8) -> Setup {
    let format = Format { levels, merges: [true; 2], ..Format::default() };
    Setup { format, ..conventional(frames, copy_on_write) }
}

/// Page tables whose nodes are sorted in areas of at least `min_pages` base pages.
fn sorted(frames: u64, copy_on_write: CopyOnWrite, (levels, min_pages): ([bool; 2], u64)) -> Setup {
    let sorted = SortedFormat { levels, min_pages, registers: 2 };
    let format = Format { sorted: Some(sorted), ..Format::default() };
    Setup { format, ..conventional(frames, copy_on_write) }
}

/// Page tables with anchors, whose distance is chosen at each tick or stays the same.
fn anchored(frames: u64, copy_on_write: CopyOnWrite, first_log2: u8, is_chosen: bool) -> Setup {
    let every = u64::from(is_chosen);
    let anchors = AnchorFormat { first_log2, largest_log2: 12, choose_every_instructions: every };
    let format = Format { anchors: Some(anchors), ..Format::default() };
    Setup { format, ..conventional(frames, copy_on_write) }
}

fn mthp() -> Box<dyn Policy> {
    Box::new(Mthp::new(MthpConfig { scan_every_instructions: 1, ..MthpConfig::default() }))
}

fn gapped_pages(whole_blocks: bool) -> Box<dyn Policy> {
    Box::new(GappedPages::new(whole_blocks))
}

fn thp() -> Box<dyn Policy> {
    Box::new(Thp::new(ThpConfig { scan_every_instructions: 1, ..ThpConfig::default() }))
}

fn copies() -> impl Strategy<Value = CopyOnWrite> {
    prop_oneof![Just(CopyOnWrite::Split), Just(CopyOnWrite::Whole)]
}

fn aliases() -> impl Strategy<Value = Aliases> {
    prop_oneof![Just(Aliases::Pointers), Just(Aliases::Copies)]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..80)
}

/// From nearly no memory to occasional shortage.
fn short() -> impl Strategy<Value = u64> {
    prop_oneof![10u64..200, 500u64..4000]
}

proptest! {
    #![proptest_config(octavo_oracle::cases(200))]

    #[test]
    fn base_pages_preserve_contents(ops in ops(), how in copies()) {
        let failures = play(&conventional(ROOMY, how), Box::new(BasePages), &ops);
        prop_assert_eq!(failures, 0);
    }

    #[test]
    fn transparent_huge_pages_preserve_contents(ops in ops(), how in copies()) {
        prop_assert_eq!(play(&conventional(ROOMY, how), thp(), &ops), 0);
    }

    #[test]
    fn pages_of_any_size_preserve_contents(
        ops in ops(), how in copies(), aliases in aliases(), state in any::<u64>(),
    ) {
        let setup = tailored(ROOMY, how, aliases);
        prop_assert_eq!(play(&setup, Box::new(AnySize { state }), &ops), 0);
    }

    #[test]
    fn pages_with_holes_preserve_contents(
        ops in ops(), how in copies(), levels in 4u8..=5, state in any::<u64>(),
    ) {
        prop_assert_eq!(play(&with_holes(ROOMY, how, levels), Box::new(PunchingHoles::new(state)), &ops), 0);
    }

    #[test]
    fn pages_with_holes_survive_without_memory(
        ops in ops(), frames in short(), how in copies(), state in any::<u64>(),
    ) {
        play(&with_holes(frames, how, 4), Box::new(PunchingHoles::new(state)), &ops);
    }

    #[test]
    fn gapped_pages_preserve_contents(
        ops in ops(), how in copies(), faults in 0u64..40, whole_blocks in any::<bool>(),
    ) {
        let failures = play(&gapped(ROOMY, faults, how), gapped_pages(whole_blocks), &ops);
        prop_assert_eq!(failures, 0);
    }

    #[test]
    fn gapped_pages_survive_without_memory(
        ops in ops(), frames in prop_oneof![10u64..200, 1000u64..6000], how in copies(),
        faults in 0u64..60, whole_blocks in any::<bool>(),
    ) {
        play(&gapped(frames, faults, how), gapped_pages(whole_blocks), &ops);
    }

    #[test]
    fn blocks_with_the_contiguous_hint_preserve_contents(
        ops in ops(), how in copies(), block_log2 in 1u8..=6, has_runs in any::<bool>(),
    ) {
        let policy = if has_runs { mthp() } else { thp() };
        prop_assert_eq!(play(&contiguous(ROOMY, how, block_log2), policy, &ops), 0);
    }

    #[test]
    fn blocks_with_the_contiguous_hint_survive_without_memory(
        ops in ops(), frames in short(), how in copies(), has_runs in any::<bool>(),
    ) {
        play(&contiguous(frames, how, 4), if has_runs { mthp() } else { thp() }, &ops);
    }

    #[test]
    fn merged_nodes_preserve_contents(ops in ops(), how in copies(), levels in 4u8..=5) {
        prop_assert_eq!(play(&merged(ROOMY, how, levels), thp(), &ops), 0);
    }

    #[test]
    fn merged_nodes_survive_without_memory(
        ops in ops(), frames in short(), how in copies(), levels in 4u8..=5,
    ) {
        play(&merged(frames, how, levels), thp(), &ops);
    }

    #[test]
    fn sorted_nodes_preserve_contents(
        ops in ops(), how in copies(), levels in any::<[bool; 2]>(), min_pages in 1u64..600, has_huge in any::<bool>(),
    ) {
        let policy: Box<dyn Policy> = if has_huge { thp() } else { Box::new(BasePages) };
        prop_assert_eq!(play(&sorted(ROOMY, how, (levels, min_pages)), policy, &ops), 0);
    }

    #[test]
    fn sorted_nodes_survive_without_memory(
        ops in ops(), frames in short(), how in copies(), min_pages in 1u64..600,
    ) {
        play(&sorted(frames, how, ([true; 2], min_pages)), thp(), &ops);
    }

    #[test]
    fn anchors_follow_changes(
        ops in ops(), how in copies(), first_log2 in 0u8..=12, is_chosen in any::<bool>(), has_huge in any::<bool>(),
    ) {
        let policy: Box<dyn Policy> = if has_huge { thp() } else { Box::new(BasePages) };
        prop_assert_eq!(play(&anchored(ROOMY, how, first_log2, is_chosen), policy, &ops), 0);
    }

    #[test]
    fn anchors_follow_changes_without_memory(
        ops in ops(), frames in short(), how in copies(), first_log2 in 0u8..=12, is_chosen in any::<bool>(),
    ) {
        play(&anchored(frames, how, first_log2, is_chosen), thp(), &ops);
    }

    /// Zero pages are merged meanwhile; a store gives a merged page a frame of its own again.
    #[test]
    fn merged_pages_preserve_contents(
        ops in ops(), how in copies(), which in 0usize..4, state in any::<u64>(),
        same_pages in prop_oneof![Just(SamePages::Base), Just(SamePages::All)],
        frames in prop_oneof![Just(ROOMY), 500u64..4000],
    ) {
        let setup = |setup: Setup| Setup { same_pages, ..setup };
        let failures = match which {
            0 => play(&setup(with_holes(frames, how, 4)), Box::new(PunchingHoles::new(state)), &ops),
            1 => play(&setup(conventional(frames, how)), thp(), &ops),
            2 => play(&setup(gapped(frames, 20, how)), gapped_pages(state.is_multiple_of(2)), &ops),
            _ => {
                let tailored = tailored(frames, how, Aliases::Pointers);
                play(&setup(tailored), Box::new(AnySize { state }), &ops)
            }
        };
        prop_assert!(frames < ROOMY || failures == 0);
    }

    #[test]
    fn base_pages_survive_without_memory(ops in ops(), frames in short(), how in copies()) {
        play(&conventional(frames, how), Box::new(BasePages), &ops);
    }

    #[test]
    fn transparent_huge_pages_survive_without_memory(
        ops in ops(), frames in short(), how in copies(),
    ) {
        play(&conventional(frames, how), thp(), &ops);
    }

    #[test]
    fn pages_of_any_size_survive_without_memory(
        ops in ops(), frames in short(), how in copies(), aliases in aliases(), state in any::<u64>(),
    ) {
        play(&tailored(frames, how, aliases), Box::new(AnySize { state }), &ops);
    }
}

/// Steps per machine in a long run: small memories lose their large blocks after a while.
const STEPS_OF_A_MACHINE: u64 = 2500;

/// All policies in turn, `steps` per machine, with much memory and with so little that it runs out;
/// everything is checked every `every` steps.
fn run(steps: u64, every: u64) {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let ops = op();
    let mut failures = [0; 10];
    for number in 0..steps / STEPS_OF_A_MACHINE {
        let short = number % 2 == 1;
        let frames = if short { 600 + number * 397 % 1200 } else { ROOMY };
        let how = [CopyOnWrite::Split, CopyOnWrite::Whole][(number / 10 % 2) as usize];
        let mut machine = match number / 2 % 5 {
            0 => Machine::new(&conventional(frames, how), Box::new(BasePages)),
            1 => Machine::new(&conventional(frames, how), thp()),
            2 => Machine::new(&with_holes(frames, how, 4), Box::new(PunchingHoles::new(number))),
            3 => {
                // Each with both copy-on-write settings.
                let whole_blocks = (number / 10 + number / 20) % 2 == 1;
                Machine::new(&gapped(2 * frames, 20, how), gapped_pages(whole_blocks))
            }
            _ => {
                let setup = tailored(frames, how, Aliases::Pointers);
                Machine::new(&setup, Box::new(AnySize { state: number }))
            }
        };
        for step in 0..STEPS_OF_A_MACHINE {
            machine.step(&ops.new_tree(&mut runner).unwrap().current());
            if step % every == 0 {
                machine.check();
            }
        }
        failures[(number % 10) as usize] += machine.failures;
        println!(
            "{number}: {} without memory, {:?}",
            machine.failures,
            machine.os().memory().counters
        );
        machine.finish();
    }
    let is_short = std::array::from_fn(|number| number % 2 == 1);
    assert_eq!(failures.map(|count| count > 0), is_short);
}

#[test]
fn random_steps_match_the_model() {
    run(20 * STEPS_OF_A_MACHINE, 250);
}

/// Three million steps, or `OCTAVO_FUZZ_STEPS`.
#[test]
#[ignore = "takes minutes"]
fn millions_of_random_steps_match_the_model() {
    let steps = std::env::var("OCTAVO_FUZZ_STEPS").ok().map(|text| text.parse().unwrap());
    run(steps.unwrap_or(3_000_000), 500);
}
