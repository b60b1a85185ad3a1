//! Trident in a guest: the host exchanges the memory behind pages that become one, in place of copies.

use octavo_machine::designs::DesignSpec;
use octavo_machine::{Counters, Sim, SimConfig, Timing};
use octavo_trace::WordConsumer;
use octavo_types::{
    AddrRange, Event, Instructions, Item, ItemKind, MapSource, Protection, Segment, VirtAddr,
};

const GIB: u64 = 1 << 30;
const HUGE: u64 = 2 << 20;
/// A tick of background work.
const TICK: u64 = 1 << 20;
const PAGES: u64 = 300;

/// A guest of 3 GiB whose second and third GiB are pages, and whose other mapping gets 300 huge pages, as no GiB is free.
/// Then the third is unmapped, and promotion takes its place. Returns the counters of all of that, and of stores to all
/// 300 pages afterwards.
fn promoted(policy: &str, host_policy: &str) -> [Counters; 2] {
    let settings = [
        "memory.bytes=3GiB".to_owned(),
        "host.memory.bytes=8GiB".to_owned(),
        format!("host.policy={host_policy}"),
    ];
    let machine = octavo_machine::resolve("skylake", &settings).unwrap();
    let machine = machine.into_config();
    let designs = vec![DesignSpec::parse(policy).unwrap()];
    let mut config = SimConfig::new(machine, designs, Instructions::best()).unwrap();
    (config.setup.is_checked, config.timing) = (true, Timing::Additive);
    let mut sim = Sim::new(&config).unwrap();
    let range = |at: u64, bytes: u64| AddrRange::new(VirtAddr::new(at), bytes);
    let item = |kind, addr| Item::new(kind, 4, VirtAddr::new(addr));
    let code = 0x40_0000;
    let items = [item(ItemKind::Fetch, code), item(ItemKind::Store, 0)];
    let store = Segment::new(items.to_vec(), Vec::new()).unwrap();
    let map = |sim: &mut Sim, at, bytes| {
        sim.event(&Event::Map {
            range: range(at, bytes),
            protection: Protection::from_bits(3),
            source: MapSource::Anonymous,
            flags: 0x22,
        });
    };
    map(&mut sim, 4 * GIB, 2 * GIB);
    map(&mut sim, 8 * GIB, GIB);
    sim.execution(&store, &[0, 4 * GIB]);
    sim.execution(&store, &[0, 5 * GIB + 3 * HUGE]);
    let touch = |sim: &mut Sim| {
        (0..PAGES).for_each(|page| sim.execution(&store, &[0, 8 * GIB + page * HUGE]));
    };
    touch(&mut sim);
    sim.event(&Event::Unmap { range: range(5 * GIB, GIB) });
    (0..TICK).for_each(|_| sim.execution(&store, &[0, 4 * GIB]));
    sim.finish();
    let before = sim.machines()[0].counters();
    touch(&mut sim);
    sim.finish();
    let after = sim.machines()[0].counters().since(&before);
    [before, after]
}

fn get(counters: &Counters, names: [(&str, &'static str); 5]) -> [u64; 5] {
    names.map(|(component, counter)| counters.get(component, counter).unwrap_or_default())
}

/// The host has the memory of each guest page in one page of 2 MiB, or in a page of 4 KiB that was touched; with Trident
/// in pages of 1 GiB, of which no part is exchanged.
#[test]
fn host_exchanges_memory_of_pages_that_become_one() {
    const ALL: u64 = PAGES * HUGE;
    for (exchange, host, [copied, exchanged, hypercalls, invepts], host_faults) in [
        ("2MiB", "thp", [0, ALL, 1, 1], 0),
        ("2MiB", "base", [0, ALL, 1, 1], 0),
        ("2MiB", "trident", [ALL, 0, 1, 0], 0),
        ("2MiB", "trident:exchange=2MiB", [ALL, 0, 1, 0], 0),
        ("none", "thp", [ALL, 0, 0, 0], PAGES - 1),
        ("none", "base", [ALL, 0, 0, 0], PAGES - 1),
    ] {
        let policy = format!("trident:exchange={exchange}:scan_every_instructions=1");
        let [before, after] = promoted(&policy, host);
        let names = [
            ("os", "promotions"),
            ("os", "bytes_copied"),
            ("os", "bytes_exchanged"),
            ("os", "hypercalls"),
            ("host.os", "invepts"),
        ];
        let expected = [1, copied, exchanged, hypercalls, invepts];
        assert_eq!(get(&before, names), expected, "{exchange} {host}");
        assert_eq!(before.get("os.pages.1GiB", "mapped"), Some(2));
        assert_eq!(after.get("host.os", "faults"), Some(host_faults), "{exchange} {host}");
        // A host copies: no hypervisor exchanges its memory.
        assert_eq!(after.get("host.os", "bytes_exchanged"), None, "{exchange} {host}");
        assert_eq!(after.get("os", "faults"), Some(0));
    }
}
