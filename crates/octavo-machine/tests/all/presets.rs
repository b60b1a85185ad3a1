//! The machines that ship with Octavo.

use std::fs;
use std::path::Path;

use octavo_config::{FirstLevel, MachineConfig, PageSizes, Ways, preset_names};
use octavo_hw::{Caches, PteEntry, Replacement, WalkCaches};
use octavo_machine::{resolve, resolve_text};
use octavo_os::frames::fragmentation::Fragmentation;
use octavo_types::{Instructions, PageSize};

const NO_SETTINGS: [&str; 0] = [];

fn preset(name: &str) -> MachineConfig {
    resolve(name, &NO_SETTINGS).unwrap().into_config()
}

/// All values of a machine as settings.
fn settings_of(machine: &MachineConfig) -> Vec<String> {
    fn collect(value: &serde_json::Value, key: &str, settings: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(table) => {
                for (name, inner) in table {
                    let dot = if key.is_empty() { "" } else { "." };
                    collect(inner, &format!("{key}{dot}{name}"), settings);
                }
            }
            serde_json::Value::Null => settings.push(format!("{key}=none")),
            value => settings.push(format!("{key}={value}")),
        }
    }
    let mut settings = Vec::new();
    collect(&serde_json::from_str(&machine.to_json()).unwrap(), "", &mut settings);
    settings
}

#[test]
fn preset_files_are_listed_and_named_as_their_machine() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/octavo/presets/machines");
    let mut files: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let mut names: Vec<&str> = preset_names().collect();
    files.sort();
    names.sort();
    assert_eq!(files, names);
    for name in names {
        let machine = preset(name);
        assert_eq!(machine.name, name);
        assert!(!machine.description.is_empty() && !machine.source.is_empty(), "{name}");
    }
}

#[test]
fn every_preset_number_names_its_source() {
    for name in preset_names() {
        let resolved = resolve(name, &NO_SETTINGS).unwrap();
        let text_keys = ["#", "name", "description", "source"];
        for line in resolved.toml().lines().filter(|line| line.contains(" = ")) {
            let is_text = text_keys.iter().any(|start| line.starts_with(start));
            assert!(is_text || line.contains("  # "), "{name}: {line}");
        }
    }
}

#[test]
fn every_preset_can_be_built() {
    let instructions = Instructions::all()[0];
    for name in preset_names() {
        let machine = preset(name);
        machine.check().unwrap();
        Caches::new(&machine.private_caches(), &machine.shared_cache(), instructions).unwrap();
        WalkCaches::<u64>::new(&machine.walker.walk_caches(), instructions).unwrap();
        for (_, level) in machine.tlb.levels() {
            for array in level.arrays.values() {
                assert_eq!(array.geometry().unwrap().entries() as u64, array.entries);
            }
        }
        let shape = machine.memory.shape().unwrap();
        assert_eq!(shape.frames() * 4096, machine.memory.bytes);
        assert_eq!(machine.memory.start().unwrap(), Fragmentation::Empty);
    }
}

#[test]
fn presets_round_trip_through_their_texts() {
    for name in preset_names() {
        let resolved = resolve(name, &NO_SETTINGS).unwrap();
        let machine = resolved.config();
        for text in [resolved.toml(), &machine.to_toml()] {
            let again = resolve_text("again.toml", text, &NO_SETTINGS).unwrap();
            assert_eq!(again.config(), machine, "{name}");
            // The JSON text also shows the order of arrays, which `==` ignores.
            assert_eq!(again.json(), resolved.json(), "{name}");
        }
    }
}

#[test]
fn setting_every_key_to_its_value_changes_nothing() {
    for name in preset_names() {
        let machine = preset(name);
        let settings = settings_of(&machine);
        assert!(settings.len() > 40, "{settings:?}");
        for setting in &settings {
            let set = resolve(name, &[setting]).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(set.json(), machine.to_json(), "{name}: {setting}");
        }
        let set = resolve(name, &settings).unwrap();
        assert_eq!(set.json(), machine.to_json(), "{name}");
    }
}

#[test]
fn skylake_is_the_baseline_of_the_papers() {
    let machine = preset("skylake");
    let sizes_of = |sizes: &[&str]| {
        PageSizes::List(sizes.iter().map(|size| size.parse::<PageSize>().unwrap()).collect())
    };
    let arrays = |level: usize| {
        let (_, level) = machine.tlb.levels().nth(level).unwrap();
        let array = |(name, array): (&String, &octavo_config::TlbArray)| {
            (name.clone(), array.entries, array.ways, array.page_sizes.clone())
        };
        level.arrays.iter().map(array).collect::<Vec<_>>()
    };
    let array = |name: &str, entries, ways, sizes: &[&str]| {
        (name.to_owned(), entries, ways, sizes_of(sizes))
    };
    assert_eq!(
        arrays(0),
        [array("4k", 128, Ways::Of(8), &["4KiB"]), array("2m", 8, Ways::Full, &["2MiB"])]
    );
    assert_eq!(
        arrays(1),
        [
            array("4k", 64, Ways::Of(4), &["4KiB"]),
            array("2m", 32, Ways::Of(4), &["2MiB"]),
            array("1g", 4, Ways::Full, &["1GiB"])
        ]
    );
    assert_eq!(
        arrays(2),
        [
            array("main", 1536, Ways::Of(12), &["4KiB", "2MiB"]),
            array("1g", 16, Ways::Of(4), &["1GiB"])
        ]
    );
    assert_eq!(machine.tlb.l2.as_ref().unwrap().hit_latency_cycles, 9);
    assert_eq!(machine.walker.pte_entry, PteEntry::L1d);
    assert_eq!(machine.cache.llc.bytes, 2 << 20);
    assert_eq!(machine.cache.l1d.with_lines(64).ways, 8);
}

#[test]
fn the_r3000_has_one_tlb() {
    let machine = preset("r3000");
    let FirstLevel::Unified { l1 } = &machine.tlb.first else { panic!("it is not split") };
    assert_eq!(machine.tlb.fetch(), l1);
    assert_eq!(machine.tlb.data(), l1);
    assert_eq!(machine.tlb.l2, None);
    assert_eq!(l1.arrays["main"].replacement, Replacement::Random { seed: 0 });
    assert_eq!(machine.tlb.levels().count(), 1);
}
