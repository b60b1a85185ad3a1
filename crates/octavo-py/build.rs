//! Names the versions of the engines by two hashes: one of the sources that determine the counters
//! of a given machine, and one of the sources of all engines and of the machines that ship with
//! them.

use std::fs;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_128;

/// The crates between a trace and the counters of a machine.
const MODEL: [&str; 6] =
    ["octavo-types", "octavo-trace", "octavo-hw", "octavo-os", "octavo-config", "octavo-machine"];
/// The further crates between a trace and the rows of `octavo run` and `octavo curves`.
const CURVES: [&str; 2] = ["octavo-curves", "octavo-symbols"];
/// The machines.
const PRESETS: &str = "python/octavo/presets";

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    let sources = |names: &[&str]| names.iter().map(|name| format!("crates/{name}/src")).collect();
    let model: Vec<String> = sources(&MODEL);
    println!("cargo::rustc-env=OCTAVO_MODEL={version}-{}", hash_of(&model));
    let engines = [model, sources(&CURVES), vec![PRESETS.to_owned()]].concat();
    println!("cargo::rustc-env=OCTAVO_ENGINES={version}-{}", hash_of(&engines));
}

/// Hashes the sources in folders, and the versions of their dependencies.
fn hash_of(folders: &[String]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("Cargo.lock")];
    for folder in folders {
        let folder = root.join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        add_sources(&folder, &mut files);
    }
    println!("cargo::rerun-if-changed={}", files[0].display());
    files.sort();
    let mut all = Vec::new();
    for file in &files {
        let name = file.strip_prefix(&root).expect("it is below the root");
        all.extend_from_slice(name.to_string_lossy().as_bytes());
        all.push(0);
        all.extend(fs::read(file).expect("a source can be read"));
        all.push(0);
    }
    format!("{:032x}", XxHash3_128::oneshot(&all))[..12].to_owned()
}

fn add_sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry of a folder").path();
        if path.is_dir() {
            add_sources(&path, files);
        } else if path.extension().is_some_and(|suffix| suffix == "rs" || suffix == "toml") {
            files.push(path);
        }
    }
}
