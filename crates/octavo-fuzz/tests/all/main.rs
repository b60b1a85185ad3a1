//! Runs the fuzz targets without a fuzzer, on their corpus and on some thousand mutations of it.

mod mutations;

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use mutations::Mutations;
use octavo_fuzz::{TARGETS, run};

/// How many changed inputs each target is given.
const CHANGED: u32 = 3000;
/// The number for a target that runs all designs, or all kernels.
const CHANGED_OF_ENGINES: u32 = 10;

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

/// Gives bytes to a target. Bytes on which it fails are written to a file, to be kept.
fn try_bytes(target: &str, bytes: &[u8], origin: &str) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(target, bytes))) {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("failing-{target}"));
        fs::write(&file, bytes).unwrap();
        eprintln!(
            "{target} fails on {origin}; the bytes are in {file:?}: keep them in fuzz/corpus/"
        );
        resume_unwind(panic);
    }
}

/// Gives a target every file of its corpus, and changed inputs.
fn replay(target: &str) {
    let folder = fuzz_folder().join("corpus").join(target);
    let names: Vec<String> = names_in(&folder).into_iter().collect();
    let seeds: Vec<Vec<u8>> =
        names.iter().map(|name| fs::read(folder.join(name)).unwrap()).collect();
    assert!(!seeds.is_empty(), "{folder:?} has no seeds");
    for (name, seed) in names.iter().zip(&seeds) {
        try_bytes(target, seed, &format!("fuzz/corpus/{target}/{name}"));
    }
    let mut mutations = Mutations::new(&seeds);
    let changed = if target.starts_with("engine_") { CHANGED_OF_ENGINES } else { CHANGED };
    for number in 0..changed * octavo_oracle::factor().unwrap_or(1) {
        try_bytes(target, &mutations.next_input(), &format!("changed input {number}"));
    }
}

/// A test of each target, and the list of them all.
macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                replay(stringify!($name));
            }
        )*
        const TESTED: &[&str] = &[$(stringify!($name)),*];
    };
}

targets! {
    champsim champsim_cloudsuite csv din drmemtrace engine_curves engine_run engine_sim gem5 input lackey machine_config native perf
    pinatrace ring snapshot synthetic xdin
}

/// The list of targets is written in four places: it is the same in all of them.
#[test]
fn every_target_has_a_corpus_a_fuzzer_and_a_test() {
    let names: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names, TESTED.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(names, names_in(&fuzz_folder().join("corpus")));
    let sources = names_in(&fuzz_folder().join("fuzz_targets"));
    assert_eq!(sources, names.iter().map(|name| format!("{name}.rs")).collect());
    for name in &names {
        let source = fuzz_folder().join("fuzz_targets").join(format!("{name}.rs"));
        assert!(fs::read_to_string(source).unwrap().contains(&format!("run(\"{name}\", bytes)")));
    }
    let manifest = fs::read_to_string(fuzz_folder().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let binaries = manifest["bin"].as_array().unwrap().iter();
    assert_eq!(names, binaries.map(|binary| binary["name"].as_str().unwrap().to_owned()).collect());
}
