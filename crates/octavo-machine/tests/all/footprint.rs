//! The footprint of machines bounds the memory allocated when they are built.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::{config, tiny, with_prefetchers};
use octavo_config::{MachineConfig, PrefetchConfig, RegionPrefetcher, preset_names};
use octavo_hw::Replacement;
use octavo_machine::designs::designs;
use octavo_machine::{Footprint, Sim, resolve};
use octavo_types::PageSize;
use octavo_types::host_memory::AvailableMemory;
use proptest::prelude::*;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

/// An allocator that counts the bytes that each thread has allocated and not freed.
struct Counting;

// SAFETY: delegates to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: the caller's promise is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        add(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

fn add(bytes: i64) {
    let _ = ALLOCATED.try_with(|all| all.set(all.get().wrapping_add_signed(bytes)));
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that building the machines allocates, and their footprint.
fn allocation_and_footprint(machine: MachineConfig, designs: &[&str]) -> (u64, u64) {
    let config = config(machine, designs);
    let footprint = Footprint::of(&config).unwrap().bytes();
    let before = ALLOCATED.get();
    let sim = Sim::new(&config).unwrap();
    let allocated = ALLOCATED.get().wrapping_sub(before);
    drop(sim);
    (allocated, footprint)
}

/// Settings that make state large: each key with some values.
const LARGE: [(&str, &[u64]); 14] = [
    ("tlb.l1d.4k.entries", &[1 << 16, 3 << 14]),
    ("tlb.l1i.4k.entries", &[1 << 16]),
    ("tlb.l2.main.entries", &[1 << 16, 1 << 15]),
    ("tlb.l2.main.ways", &[1, 2, 8, 16, 64]),
    ("tlb.l1d.4k.ways", &[1, 8, 16, 32]),
    ("walker.caches.pde.entries", &[1 << 14]),
    ("host.tlb.main.entries", &[1 << 15]),
    ("host.walk_caches.pde.entries", &[1 << 14]),
    ("cache.l1d.bytes", &[1 << 21]),
    ("cache.llc.bytes", &[1 << 24]),
    ("softvm.l1.bytes", &[1 << 21]),
    ("softvm.l2.bytes", &[1 << 22]),
    ("softvm.tlb.entries", &[1 << 14]),
    ("gtsm.bitmap_entries", &[1 << 14]),
];

proptest! {
    #![proptest_config(octavo_oracle::cases(40))]

    /// No design allocates more than its footprint, except for state of fixed size; designs with all parts allocate at
    /// least a third of it.
    #[test]
    fn footprint_bounds_allocation(
        design in 0..designs().len(),
        cores in 1u32..4,
        settings in prop::collection::vec((0..LARGE.len(), 0usize..5), 1..5),
        replacement in prop::sample::select(&Replacement::ALL[..]),
    ) {
        const FIXED: u64 = 1 << 20;
        let mut texts = vec![format!("core.count={cores}")];
        let written = settings.iter().map(|(at, value)| {
            let (key, values) = LARGE[*at];
            format!("{key}={}", values[value % values.len()])
        });
        texts.extend(written);
        for key in ["tlb.l2.main", "tlb.l1d.4k", "cache.llc", "softvm.l1"] {
            texts.push(format!("{key}.replacement={}", replacement.name()));
        }
        let mut machine = tiny();
        // Free memory is not touched until it is used.
        machine.memory.bytes = 64 << 20;
        if texts.iter().any(|text| text.starts_with("host.")) {
            texts.push("host.memory.bytes=64MiB".to_owned());
        }
        let Ok(machine) = machine.with_settings("--set", &texts) else { return Ok(()) };
        let design = designs()[design];
        if !design.supports(&machine) {
            return Ok(());
        }
        let (allocated, footprint) = allocation_and_footprint(machine, &[design.name]);
        let most = footprint + FIXED * u64::from(cores);
        prop_assert!(allocated <= most, "{texts:?}: {allocated} bytes, footprint {footprint}");
        if ["conventional", "gtsm", "mips_virtual"].contains(&design.hardware) {
            prop_assert!(footprint <= 3 * allocated, "{texts:?}: {allocated} bytes, footprint {footprint}");
        }
    }
}

#[test]
fn footprint_has_the_table_of_a_region_prefetcher() {
    let region = Some(RegionPrefetcher {
        entries: 1 << 16,
        confirmations: 16,
        visits: 1024,
        before: 31,
        after: 31,
        degree: 64,
        page: PageSize::BASE,
        cross_pages: false,
    });
    let prefetch = PrefetchConfig { region, ..PrefetchConfig::default() };
    let machine = |prefetch| {
        let mut machine = with_prefetchers(tiny(), [prefetch, prefetch]);
        machine.memory.bytes = 64 << 20;
        machine
    };
    let (allocated, footprint) = allocation_and_footprint(machine(prefetch), &["base4k"]);
    let (without, footprint_without) =
        allocation_and_footprint(machine(PrefetchConfig::default()), &["base4k"]);
    let (table, footprint) = (allocated - without, footprint - footprint_without);
    assert!(table > 16 << 20);
    assert!((table..2 * table).contains(&footprint), "{table} bytes, footprint {footprint}");
}

/// GTSM replaces the walk caches of the machine.
#[test]
fn settings_that_a_design_replaces_take_no_memory() {
    let footprint = |setting: &str| {
        let machine = tiny().with_settings("--set", &[setting]).unwrap();
        Footprint::of(&config(machine, &["gtsm"])).unwrap().bytes()
    };
    assert_eq!(
        footprint("walker.caches.pde.entries=16384"),
        footprint("walker.caches.pde.entries=2")
    );
}

#[test]
fn oversized_machines_are_rejected_with_one_sentence() {
    let huge = ["tlb.l2.main.entries=67108864", "tlb.l2.main.ways=1", "core.count=2"];
    let machine = resolve("skylake", &huge).unwrap().into_config();
    let footprint = Footprint::of(&config(machine, &["base4k", "tps"])).unwrap();
    let available = |bytes| AvailableMemory { bytes, limit: "limit of a test".to_owned() };
    assert_eq!(footprint.check(&available(footprint.bytes())), Ok(()));
    assert_eq!(
        footprint.check(&available(6 << 30)).unwrap_err().to_string(),
        "the simulated machines take up to 28.0 GiB of memory, of which tlb.l2.main.entries = 67108864 \
         takes 28.0 GiB, and 6.0 GiB is available (limit of a test): give less of that, fewer designs \
         (there are 2) or fewer cores (core.count = 2)"
    );
}

#[test]
fn every_shipped_machine_fits_into_a_gigabyte() {
    let names: Vec<&str> = designs().iter().map(|design| design.name).collect();
    for name in preset_names() {
        let machine = resolve(name, &["host=usual"]).unwrap().into_config();
        let bytes = Footprint::of(&config(machine, &names)).unwrap().bytes();
        assert!(bytes < 1 << 30, "{name}: {bytes}");
    }
}
