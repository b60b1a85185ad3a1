//! Maps instruction addresses to function names, from the files that the program had mapped.
//!
//! Names come from debug information where it exists (in the file itself, or in the separate file
//! with its build id), else from the symbol tables. Inlined code counts as the function that it
//! was inlined into, as in a sampling profile.

mod object_file;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use object_file::ObjectFile;

/// A function, and where its source is, as far as that is known.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Function {
    /// Its name, demangled.
    pub name: String,
    /// Its source file.
    pub source: Option<String>,
    /// The line of the instruction in the source file.
    pub line: Option<u32>,
}

/// The files looked at so far.
#[derive(Default)]
pub struct Symbols {
    /// None where a file cannot be read or is no ELF file: nothing is known of it.
    files: HashMap<PathBuf, Option<ObjectFile>>,
}

impl Symbols {
    /// No file looked at yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The function that holds the instruction at `offset_bytes` of the file at `path`, if it is
    /// known.
    pub fn function_at(&mut self, path: &Path, offset_bytes: u64) -> Option<Function> {
        if !self.files.contains_key(path) {
            self.files.insert(path.to_owned(), ObjectFile::open(path));
        }
        self.files[path].as_ref()?.function_at(offset_bytes)
    }
}
