//! Processes that map, touch, unmap, move, protect and fork at random, with much memory and with
//! little: every page holds what a plain model says, no frame is lost, none is held by two that
//! should not share it, and what TLBs and walk caches were not told to drop is right.

mod machine;

use machine::{Machine, Op, Setup, op, play};
use octavo_os::frames::OutOfMemory;
use octavo_os::page_table::{Aliases, Format, SizeEncoding};
use octavo_os::policy::{BasePages, Fault, Policy, Thp, ThpConfig};
use octavo_os::{CopyOnWrite, Memory, around};
use octavo_types::{PageNumber, PageSize};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// So that memory is never short.
const ROOMY: u64 = 1 << 16;

/// Pages of all sizes up to 4 MiB at places drawn at random, made larger at random, too.
struct AnySize {
    state: u64,
}

impl AnySize {
    fn draw(&mut self, below: u64) -> u64 {
        // The constants are those of Knuth's MMIX.
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
            let page = PageNumber::new(self.draw(machine::PAGES));
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

fn sizes(log2: &[u8]) -> Vec<PageSize> {
    log2.iter().map(|log2| PageSize::from_log2(*log2).unwrap()).collect()
}

fn conventional(frames: u64, copy_on_write: CopyOnWrite) -> Setup {
    Setup { frames, sizes: sizes(&[21]), format: Format::default(), copy_on_write }
}

fn tailored(frames: u64, copy_on_write: CopyOnWrite, aliases: Aliases) -> Setup {
    let format = Format { levels: 5, encoding: SizeEncoding::OneBit, aliases };
    Setup { frames, sizes: sizes(&[13, 14, 16, 19, 21, 22]), format, copy_on_write }
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

/// From where next to nothing fits to where now and then something does not.
fn short() -> impl Strategy<Value = u64> {
    prop_oneof![10u64..200, 500u64..4000]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn base_pages_hold_what_was_stored(ops in ops(), how in copies()) {
        let failures = play(&conventional(ROOMY, how), Box::new(BasePages), &ops);
        prop_assert_eq!(failures, 0);
    }

    #[test]
    fn transparent_huge_pages_hold_what_was_stored(ops in ops(), how in copies()) {
        prop_assert_eq!(play(&conventional(ROOMY, how), thp(), &ops), 0);
    }

    #[test]
    fn pages_of_any_size_hold_what_was_stored(
        ops in ops(), how in copies(), aliases in aliases(), state in any::<u64>(),
    ) {
        let setup = tailored(ROOMY, how, aliases);
        prop_assert_eq!(play(&setup, Box::new(AnySize { state }), &ops), 0);
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

/// Steps of one machine in a long run: then there is a new one, since in little memory there is no
/// large block any more after a while.
const STEPS_OF_A_MACHINE: u64 = 2500;

/// All policies by turns, each machine with so many steps, in much memory and in so little that it
/// runs out now and then; everything is looked at once in `every` steps.
fn run(steps: u64, every: u64) {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let ops = op();
    let mut failures = [0; 6];
    for number in 0..steps / STEPS_OF_A_MACHINE {
        let short = number % 2 == 1;
        let frames = if short { 600 + number * 397 % 1200 } else { ROOMY };
        let how = [CopyOnWrite::Split, CopyOnWrite::Whole][(number / 6 % 2) as usize];
        let mut machine = match number / 2 % 3 {
            0 => Machine::new(&conventional(frames, how), Box::new(BasePages)),
            1 => Machine::new(&conventional(frames, how), thp()),
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
        failures[(number % 6) as usize] += machine.failures;
        println!(
            "{number}: {} without memory, {:?}",
            machine.failures,
            machine.os().memory().counters
        );
        machine.finish();
    }
    assert_eq!(failures.map(|count| count > 0), [false, true, false, true, false, true]);
}

#[test]
fn thousands_of_steps() {
    run(12 * STEPS_OF_A_MACHINE, 250);
}

/// Three million, or as many as `OCTAVO_FUZZ_STEPS` says.
#[test]
#[ignore = "takes minutes"]
fn millions_of_steps() {
    let steps = std::env::var("OCTAVO_FUZZ_STEPS").ok().map(|text| text.parse().unwrap());
    run(steps.unwrap_or(3_000_000), 500);
}
