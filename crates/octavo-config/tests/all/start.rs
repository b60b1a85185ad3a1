//! The initial state of memory, as the operating system builds it.

use std::fs;
use std::path::Path;

use crate::own_table::resolve;
use octavo_os::frames::Order;
use octavo_os::frames::fragmentation::{
    Faults, Fragmentation, HoleKind, HoleLayout, Holes, OrderMix,
};

fn start(fragmentation: &str) -> Result<Fragmentation, String> {
    let settings = ["memory.bytes=64MiB", &format!("memory.fragmentation={fragmentation}")];
    let machine = resolve("skylake", &settings).unwrap().into_config();
    let start = machine.memory.start().map_err(|error| error.to_string())?;
    let frames = start.build(machine.memory.shape().unwrap(), 1);
    assert!(frames.is_ok(), "{frames:?}");
    Ok(start)
}

#[test]
fn fragmentation_settings_round_trip() {
    let holes = "{kind = 'holes', portion = 0.5, fraction = 0.25, layout = 'dispersed', \
                 holes = 'unallocated'}";
    assert_eq!(
        start(holes),
        Ok(Fragmentation::Holes(Holes {
            portion: 0.5,
            fraction: 0.25,
            layout: HoleLayout::Dispersed,
            kind: HoleKind::Unallocated,
        }))
    );
    let mixed = "{kind = 'mixed-holes', groups = {a = {portion = 0.25, fraction = 0.5, \
                 layout = 'clustered', holes = 'immovable'}, b = {portion = 0.75, fraction = 1, \
                 layout = 'dispersed', holes = 'movable'}}}";
    let group = |portion, fraction, layout, kind| Holes { portion, fraction, layout, kind };
    assert_eq!(
        start(mixed),
        Ok(Fragmentation::MixedHoles(vec![
            group(0.25, 0.5, HoleLayout::Clustered, HoleKind::Immovable),
            group(0.75, 1.0, HoleLayout::Dispersed, HoleKind::Movable),
        ]))
    );
    let faults = "{kind = 'faults', portion = 0.055, layout = 'clustered', seed = 7}";
    let layout = HoleLayout::Clustered;
    assert_eq!(start(faults), Ok(Fragmentation::Faults(Faults { portion: 0.055, layout })));
    let mut free_blocks = [0; Order::COUNT];
    (free_blocks[0], free_blocks[9], free_blocks[10]) = (7, 2, 3);
    let mix = "{kind = 'order-mix', free_blocks = {4KiB = 7, '2097152' = 2, 4MiB = 3}, \
               movable_share = 1}";
    let movable_share = 1.0;
    assert_eq!(
        start(mix),
        Ok(Fragmentation::OrderMix(OrderMix { free_blocks, largest: Order::LINUX, movable_share }))
    );
}

#[test]
fn seed_defaults_to_1_and_is_shown() {
    let holes = "memory.fragmentation={kind = 'holes', portion = 0.5, fraction = 0.25, \
                 layout = 'dispersed', holes = 'movable'}";
    let resolved = |settings: &[&str]| resolve("skylake", settings).unwrap();
    let usual = resolved(&[holes]);
    assert!(usual.json().contains("\"seed\":1}"), "{}", usual.json());
    assert_eq!(usual.hash(), resolved(&[holes, "memory.fragmentation.seed=1"]).hash());
    let other = resolved(&[holes, "memory.fragmentation.seed=2"]);
    assert_ne!(usual.hash(), other.hash());
    assert_eq!((usual.into_config().memory.seed(), other.into_config().memory.seed()), (1, 2));
}

#[test]
fn every_key_in_bytes_may_be_a_size() {
    let written = ["cache.line_bytes=0.125KiB", "dram.row_bytes=4KiB", "memory.bytes=1GiB"];
    let counted = ["cache.line_bytes=128", "dram.row_bytes=4096", "memory.bytes=1073741824"];
    let machine = |settings: &[&str]| resolve("skylake", settings).unwrap().json();
    assert_eq!(machine(&written), machine(&counted));
    assert!(machine(&written).contains("\"line_bytes\":128"));
}

#[test]
fn snapshot_paths_are_relative_to_the_file() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("config-snapshots");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("mine.toml");
    let text = "extends = 'zen4'\nmemory.fragmentation = {kind = 'snapshot', file = 'a.octmem'}\n\
                [host]\nmemory.fragmentation = {kind = 'snapshot', file = '/b.octmem'}";
    fs::write(&file, text).unwrap();
    let machine = |settings: &[&str]| resolve(file.to_str().unwrap(), settings).unwrap().json();
    let beside = folder.join("a.octmem");
    assert!(machine(&[]).contains(&format!("{beside:?}")));
    assert!(machine(&[]).contains("\"/b.octmem\""));
    // In a setting, they are relative to the current directory.
    assert!(machine(&["memory.fragmentation.file=c.octmem"]).contains("\"c.octmem\""));
}

#[test]
fn invalid_snapshot_is_reported() {
    let error = start("{kind = 'snapshot', file = 'nothing.octmem'}").unwrap_err();
    assert!(error.contains("nothing.octmem"), "{error}");
}

#[test]
fn changing_the_kind_resets_its_settings() {
    let keys = ["kind=holes", "portion=0.5", "fraction=1", "layout=clustered", "holes=movable"];
    let mut settings = keys.map(|key| format!("memory.fragmentation.{key}")).to_vec();
    let holes = resolve("skylake", &settings).unwrap();
    assert!(holes.json().contains("\"kind\":\"holes\",\"portion\":0.5"));
    settings.push("memory.fragmentation.kind=empty".to_owned());
    assert_eq!(
        resolve("skylake", &settings).unwrap().hash(),
        resolve("skylake", &settings[..0]).unwrap().hash()
    );
}

#[test]
fn none_removes_optional_parts() {
    let machine = |setting| resolve("skylake", &[setting]).unwrap().into_config();
    assert_eq!(machine("tlb.l2=none").tlb.l2, None);
    assert!(machine("walker.caches=none").walker.walk_caches().is_empty());
    assert_eq!(machine("walker.caches.pde=none").walker.walk_caches().len(), 2);
    for again in ["walker.caches=none", "walker.caches={}"] {
        let none = resolve("skylake", &["walker.caches=none", again]).unwrap().into_config();
        assert!(none.walker.caches.is_empty());
        let host = ["host.walk_caches=none", &format!("host.{}", again.replace("er.", "_"))];
        let none = resolve("skylake", &host).unwrap().into_config();
        assert!(none.host.unwrap().walk_caches.is_empty());
    }
    let l1d = machine("tlb.l1d.2m=none").tlb.data().clone();
    assert_eq!(l1d.arrays.keys().collect::<Vec<_>>(), ["4k", "1g"]);
}
