//! Lists the files of `conformance/` as tests, so that a new design adds its cases as a file.

use std::path::Path;
use std::{env, fs};

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    println!("cargo::rerun-if-changed={}", folder.display());
    let files = fs::read_dir(&folder).expect("the folder of conformance cases");
    let mut names: Vec<_> = files
        .map(|file| file.expect("a file of the folder").file_name())
        .filter_map(|name| Some(name.to_str()?.strip_suffix(".md")?.to_owned()))
        .filter(|name| name != "README")
        .collect();
    names.sort();
    let tests =
        names.iter().map(|name| format!("#[test]\nfn {name}() {{\n    play(\"{name}.md\");\n}}\n"));
    let out = env::var_os("OUT_DIR").expect("cargo names the folder of outputs");
    fs::write(Path::new(&out).join("conformance.rs"), tests.collect::<String>())
        .expect("the folder of outputs can be written");
}
