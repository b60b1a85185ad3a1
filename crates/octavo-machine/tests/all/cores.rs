//! Several cores, and processes that alternate on them.

use crate::common::{config, identity, tiny};
use octavo_config::AddressSpaces;
use octavo_machine::{Counters, Sim};
use octavo_trace::{StreamEnd, TimeSlicedConsumer, WordConsumer};
use octavo_types::{AddrRange, Event, Item, ItemKind, MapSource, Protection, Segment, VirtAddr};

/// A segment of one instruction with these items.
fn segment(kinds: &[ItemKind]) -> Segment {
    let item = |kind, addr| Item::new(kind, 4, VirtAddr::new(addr));
    let mut items = vec![item(ItemKind::Fetch, 0x40_0000)];
    items.extend(kinds.iter().map(|kind| item(*kind, 0)));
    Segment::new(items, Vec::new()).unwrap()
}

fn touch(sim: &mut Sim, number: u64, segment: &Segment, addr: u64) {
    sim.execution(segment, &[number, addr]);
}

fn map(sim: &mut Sim, start: u64, pages: u64) {
    sim.event(&Event::Map {
        range: AddrRange::new(VirtAddr::new(start), pages << 12),
        protection: Protection::from_bits(7),
        source: MapSource::Anonymous,
        flags: 0x22,
    });
}

fn get(counters: &Counters, component: &str, counter: &'static str) -> u64 {
    counters.get(component, counter).unwrap()
}

/// Two threads on two cores load the same page: each core walks for itself; an unmapping on one core interrupts the
/// other.
#[test]
fn cores_have_private_tlbs_and_receive_shootdowns() {
    let mut machine = tiny();
    machine.core.count = 2;
    let mut sim = Sim::new(&config(machine, &["base4k"])).unwrap();
    let load = segment(&[ItemKind::Load]);
    map(&mut sim, 0x40_0000, 1);
    map(&mut sim, 0x1000_0000, 4);
    touch(&mut sim, 0, &load, 0x1000_0000);
    sim.event(&Event::ThreadSwitch { thread: 2 });
    touch(&mut sim, 0, &load, 0x1000_0000);
    touch(&mut sim, 0, &load, 0x1000_0008);
    let range = AddrRange::new(VirtAddr::new(0x1000_0000), 0x1000);
    sim.event(&Event::Unmap { range });
    sim.finish();
    let counters = sim.machines()[0].counters();
    assert_eq!(get(&counters, "tlb.l1d", "misses"), 2);
    assert_eq!(get(&counters, "tlb.l1i", "misses"), 2);
    // Two pages fault on the first core; the second walks once for each.
    assert_eq!(get(&counters, "os", "faults"), 2);
    assert_eq!(get(&counters, "walker", "walks"), 6);
    assert_eq!(get(&counters, "os", "shootdowns"), 1);
    assert_eq!(get(&counters, "os", "cores_interrupted"), 1);
    assert_eq!(sim.machines()[0].check(), Ok(()));
}

/// A child shares its parent's page until it stores to it; without address-space identifiers, each context
/// switch flushes the TLBs.
#[test]
fn forked_children_copy_pages_on_store() {
    for address_spaces in [AddressSpaces::Tagged, AddressSpaces::Flushed] {
        let mut machine = tiny();
        machine.core.address_spaces = address_spaces;
        let mut sim = Sim::new(&config(machine, &["base4k"])).unwrap();
        let (load, store) = (segment(&[ItemKind::Load]), segment(&[ItemKind::Store]));
        sim.begun(&identity(0, None));
        sim.switch_to(0);
        map(&mut sim, 0x40_0000, 1);
        map(&mut sim, 0x1000_0000, 4);
        touch(&mut sim, 0, &store, 0x1000_0000);
        sim.begun(&identity(1, Some(0)));
        sim.switch_to(1);
        // The child's stream repeats its parent's mappings.
        map(&mut sim, 0x1000_0000, 4);
        touch(&mut sim, 0, &load, 0x1000_0000);
        touch(&mut sim, 1, &store, 0x1000_0000);
        sim.switch_to(0);
        touch(&mut sim, 1, &load, 0x1000_0000);
        let counts = sim.process_ended(&identity(1, Some(0)), &StreamEnd::PLAIN);
        assert_eq!((counts.instructions, counts.stores), (2, 1));
        sim.switch_to(0);
        touch(&mut sim, 1, &load, 0x1000_0000);
        sim.finish();
        let counters = sim.machines()[0].counters();
        assert_eq!(get(&counters, "os", "copy_on_write_faults"), 1, "{address_spaces:?}");
        assert_eq!(get(&counters, "os", "bytes_copied"), 4096);
        assert_eq!(get(&counters, "os", "resident_bytes"), 2 * 4096);
        // Parent: code and data; child: code and data, and data again for its own copy; the invalidation by the fork;
        // with flushes also code and data after each of three switches.
        let misses = get(&counters, "tlb.l1d", "misses");
        assert_eq!(misses, if address_spaces == AddressSpaces::Tagged { 3 } else { 4 });
        assert_eq!(sim.machines()[0].check(), Ok(()));
        assert_eq!(sim.counts().instructions, 5);
    }
}

/// The child's stream repeats its parent's mappings and `Present` events before its first instruction.
#[test]
fn present_events_of_a_forked_child_are_not_counted_twice() {
    let mut sim = Sim::new(&config(tiny(), &["base4k"])).unwrap();
    let store = segment(&[ItemKind::Store]);
    let present = |sim: &mut Sim| {
        let range = AddrRange::new(VirtAddr::new(0x1000_0000), 2 << 12);
        sim.event(&Event::Present { range, known: true, first: true });
    };
    sim.begun(&identity(0, None));
    sim.switch_to(0);
    map(&mut sim, 0x40_0000, 1);
    map(&mut sim, 0x1000_0000, 4);
    present(&mut sim);
    touch(&mut sim, 0, &store, 0x1000_0000);
    sim.begun(&identity(1, Some(0)));
    sim.switch_to(1);
    map(&mut sim, 0x1000_0000, 4);
    present(&mut sim);
    present(&mut sim);
    touch(&mut sim, 0, &store, 0x1000_0000);
    sim.finish();
    let counters = sim.machines()[0].counters();
    assert_eq!(get(&counters, "os", "faults"), 1, "of the code alone");
    assert_eq!(get(&counters, "os", "copy_on_write_faults"), 0);
    assert_eq!(get(&counters, "os", "resident_bytes"), 5 * 4096);
    assert_eq!(get(&counters, "os", "present_bytes"), 4 * 4096, "named twice, there once");
}

/// Counters of a core's own structures are summed over cores.
#[test]
fn segments_are_counted_over_all_cores() {
    let mut machine = tiny();
    machine.core.count = 2;
    let mut sim = Sim::new(&config(machine, &["softvm"])).unwrap();
    let load = segment(&[ItemKind::Load]);
    map(&mut sim, 0x40_0000, 1);
    map(&mut sim, 0x1000_0000, 4);
    let used = |sim: &mut Sim| {
        sim.finish();
        get(&sim.machines()[0].counters(), "softvm.segments", "used")
    };
    touch(&mut sim, 0, &load, 0x1000_0000);
    // The segments of code and data.
    assert_eq!(used(&mut sim), 2);
    sim.event(&Event::ThreadSwitch { thread: 2 });
    touch(&mut sim, 0, &load, 0x1000_0000);
    assert_eq!(used(&mut sim), 4);
}
