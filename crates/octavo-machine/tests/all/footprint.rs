//! The footprint of machines bounds the memory that building them allocates.

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

/// Counts the bytes a thread has allocated and not freed.
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

/// The bytes allocated by building these machines, and their footprint.
fn allocated_and_said(machine: MachineConfig, designs: &[&str]) -> (u64, u64) {
    let config = config(machine, designs);
    let said = Footprint::of(&config).unwrap().bytes();
    let before = ALLOCATED.get();
    let sim = Sim::new(&config).unwrap();
    let allocated = ALLOCATED.get().wrapping_sub(before);
    drop(sim);
    (allocated, said)
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

    /// No design takes more than its footprint, except for state of fixed size; designs with all parts take
    /// at least a third of it.
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
        let (allocated, said) = allocated_and_said(machine, &[designs()[design].name]);
        let most = said + FIXED * u64::from(cores);
        prop_assert!(allocated <= most, "{texts:?}: {allocated} bytes, {said} said");
        if ["conventional", "gtsm", "mips_virtual"].contains(&designs()[design].hardware) {
            prop_assert!(said <= 3 * allocated, "{texts:?}: {allocated} bytes, {said} said");
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
    let machine = |of| {
        let mut machine = with_prefetchers(tiny(), [of, of]);
        machine.memory.bytes = 64 << 20;
        machine
    };
    let (allocated, said) = allocated_and_said(machine(prefetch), &["base4k"]);
    let (without, said_without) =
        allocated_and_said(machine(PrefetchConfig::default()), &["base4k"]);
    let (table, said) = (allocated - without, said - said_without);
    assert!(table > 16 << 20);
    assert!((table..2 * table).contains(&said), "{table} bytes, {said} said");
}

/// GTSM has walk caches of its own in place of the machine's.
#[test]
fn settings_that_a_design_replaces_take_no_memory() {
    let said = |setting: &str| {
        let machine = tiny().with_settings("--set", &[setting]).unwrap();
        Footprint::of(&config(machine, &["gtsm"])).unwrap().bytes()
    };
    assert_eq!(said("walker.caches.pde.entries=16384"), said("walker.caches.pde.entries=2"));
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
