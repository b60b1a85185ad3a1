//! One ELF file: its segments, symbols and debug information.

use std::fs::File;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use memmap2::Mmap;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::Function;

/// Where separate debug information is kept, by build id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// The loadable parts and functions of one object file.
pub struct ObjectFile {
    /// Loaded parts: offset in the file, length, virtual address.
    parts: Vec<(u64, u64, u64)>,
    /// Sorted by address; none holds another.
    symbols: Vec<Symbol>,
    debug: Option<Loader>,
}

struct Symbol {
    address: u64,
    bytes: u64,
    name: String,
}

impl ObjectFile {
    /// Reads the file at `path`; `None` if that fails for any reason.
    pub fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok().filter(is_regular)?;
        // SAFETY: truncating the file while it is mapped would kill this process with SIGBUS, as it
        // would any process that runs the file.
        let bytes = unsafe { Mmap::map(&file) }.ok()?;
        let elf = object::File::parse(&*bytes).ok()?;
        let parts = elf.segments().map(|segment| {
            let (offset, length) = segment.file_range();
            (offset, length, segment.address())
        });
        let separate = elf.build_id().ok().flatten().and_then(debug_file);
        let mut symbols = functions(&elf);
        if let Some(separate) = &separate {
            symbols.extend(functions_of(separate));
        }
        symbols.sort_by(|a, b| (a.address, a.bytes, &a.name).cmp(&(b.address, b.bytes, &b.name)));
        symbols.dedup_by_key(|symbol| symbol.address);
        Some(ObjectFile {
            parts: parts.collect(),
            symbols,
            debug: Loader::new(separate.as_deref().unwrap_or(path)).ok(),
        })
    }

    /// The function at an offset in the file.
    pub fn function_at(&self, offset_bytes: u64) -> Option<Function> {
        let address = self.parts.iter().find_map(|&(offset, length, address)| {
            let inside = offset_bytes.checked_sub(offset).filter(|inside| *inside < length)?;
            address.checked_add(inside)
        })?;
        self.outermost(address).or_else(|| {
            let name = self.symbol(address)?;
            Some(Function { name, source: None, line: None })
        })
    }

    /// The outermost function at an address by the debug information, which is the one not inlined,
    /// and its line.
    fn outermost(&self, address: u64) -> Option<Function> {
        let mut frames = self.debug.as_ref()?.find_frames(address).ok()?;
        let mut function = None;
        while let Some(frame) = frames.next().ok()? {
            let name = frame.function.and_then(|name| Some(name.demangle().ok()?.into_owned()));
            let (source, line) = frame.location.map_or((None, None), |at| (at.file, at.line));
            let source = source.map(str::to_owned);
            function = name.map(|name| Function { name, source, line });
        }
        function
    }

    fn symbol(&self, address: u64) -> Option<String> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = self.symbols[..after].last()?;
        let inside = address - symbol.address < symbol.bytes;
        inside.then(|| addr2line::demangle_auto(symbol.name.as_str().into(), None).into_owned())
    }
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let hex: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = PathBuf::from(format!("{DEBUG_FILES}/{first:02x}/{hex}.debug"));
    path.is_file().then_some(path)
}

fn functions_of(path: &Path) -> Vec<Symbol> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    // SAFETY: as in `ObjectFile::open`.
    let Ok(bytes) = (unsafe { Mmap::map(&file) }) else { return Vec::new() };
    object::File::parse(&*bytes).map_or_else(|_| Vec::new(), |elf| functions(&elf))
}

/// The functions in the symbol tables. The dynamic linker's table is the only one that most
/// installed libraries have.
fn functions(elf: &object::File<'_>) -> Vec<Symbol> {
    let symbols = elf.symbols().chain(elf.dynamic_symbols());
    let functions =
        symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
    let read = functions.filter_map(|symbol| {
        let name = symbol.name().ok().filter(|name| !name.is_empty())?.to_owned();
        let bytes = match symbol.size() {
            // Hand-written code often has no size: it extends to the next symbol, but not beyond
            // its section.
            0 => bytes_to_section_end(elf, &symbol)?,
            bytes => bytes,
        };
        Some(Symbol { address: symbol.address(), bytes, name })
    });
    read.collect()
}

fn bytes_to_section_end<'a>(elf: &object::File<'a>, symbol: &impl ObjectSymbol<'a>) -> Option<u64> {
    let section = elf.section_by_index(symbol.section_index()?).ok()?;
    section.address().checked_add(section.size())?.checked_sub(symbol.address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_of_this_test() -> usize {
        std::hint::black_box(17)
    }

    /// The offset of one of this test's functions in its own file, according to /proc/self/maps.
    fn own_place(address: usize) -> (PathBuf, u64) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let found = maps.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let hex = |text| usize::from_str_radix(text, 16).ok();
            let (start, end) = (hex(start)?, hex(end)?);
            let offset = hex(words.nth(1)?)?;
            let path = words.nth(2)?;
            let inside = (start..end).contains(&address);
            inside.then(|| (PathBuf::from(path), (address - start + offset) as u64))
        });
        found.expect("a function lies in a mapped file")
    }

    #[test]
    fn a_function_of_this_file_is_found_with_its_line() {
        assert_eq!(a_function_of_this_test(), 17);
        let (path, offset) = own_place(a_function_of_this_test as *const () as usize);
        let function = ObjectFile::open(&path).unwrap().function_at(offset).unwrap();
        assert!(function.name.contains("a_function_of_this_test"), "{function:?}");
        assert!(function.source.unwrap().ends_with("object_file.rs"));
        let text = include_str!("object_file.rs");
        let at = text.lines().position(|line| line.contains("fn a_function_of_this_test")).unwrap();
        let line = function.line.unwrap() as usize;
        assert!((at + 1..=at + 3).contains(&line), "line {line}");
    }

    #[test]
    fn a_function_of_the_c_library_is_found_in_its_symbols() {
        unsafe extern "C" {
            fn getpid() -> i32;
        }
        let (path, offset) = own_place(getpid as *const () as usize);
        let function = ObjectFile::open(&path).unwrap().function_at(offset).unwrap();
        assert!(function.name.ends_with("getpid"), "{function:?}");
    }

    #[test]
    fn other_files_have_no_functions() {
        assert!(ObjectFile::open(Path::new("/etc/passwd")).is_none());
        assert!(ObjectFile::open(Path::new("/nonexistent")).is_none());
        assert!(ObjectFile::open(Path::new("/dev/zero")).is_none());
    }
}
