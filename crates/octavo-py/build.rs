//! Names the versions of the engines: a hash of the sources that decide what a simulation counts, and one of those
//! of all engines.

use std::fs;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_128;

/// The crates between a trace and the counters of a machine.
const MODEL: [&str; 6] =
    ["octavo-types", "octavo-trace", "octavo-hw", "octavo-os", "octavo-config", "octavo-machine"];
/// The crates besides, between a trace and the rows of `octavo run` and `octavo curves`.
const CURVES: [&str; 2] = ["octavo-curves", "octavo-symbols"];

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    println!("cargo::rustc-env=OCTAVO_MODEL={version}-{}", hash_of(&MODEL));
    println!(
        "cargo::rustc-env=OCTAVO_ENGINES={version}-{}",
        hash_of(&[&MODEL[..], &CURVES].concat())
    );
}

/// Of the sources of crates, and of the versions of what they use.
fn hash_of(crates: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("Cargo.lock")];
    for name in crates {
        let folder = root.join("crates").join(name).join("src");
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
        } else if path.extension().is_some_and(|suffix| suffix == "rs") {
            files.push(path);
        }
    }
}
