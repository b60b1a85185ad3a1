//! Every compression there and back, cut, flipped, and as a bomb.

use std::io::{Cursor, Read, Write};
use std::path::PathBuf;

use proptest::prelude::*;

use super::{Compression, Input, InputOptions};
use crate::sink::Output;

/// A file of its own in the system's temporary directory, removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir();
        Scratch(directory.join(format!("octavo-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

const SUFFIXES: [&str; 4] = ["gz", "xz", "bz2", "zst"];

fn compressed(name: &str, suffix: &str, bytes: &[u8]) -> Vec<u8> {
    let file = Scratch::new(&format!("{name}.{suffix}"));
    let mut output = Output::create(&file.0).unwrap();
    for part in bytes.chunks(1000) {
        output.put(part).unwrap();
    }
    let written = output.finish().unwrap();
    let stored = std::fs::read(&file.0).unwrap();
    assert_eq!(stored.len() as u64, written);
    stored
}

/// The readable part of `stored`, and the error that follows it.
fn read(stored: Vec<u8>, options: InputOptions) -> (Vec<u8>, Option<String>) {
    let mut input = Input::from_reader("t", Box::new(Cursor::new(stored)), options).unwrap();
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 70_000]);
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return (bytes, None),
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(error) => {
                let what = error.to_string();
                assert_eq!(input.read(&mut buffer).unwrap_err().to_string(), what);
                return (bytes, Some(what));
            }
        }
    }
}

/// Text that compresses moderately.
fn sample(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut text = Vec::new();
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        writeln!(text, " L {:08x},8", state >> 40).unwrap();
    }
    text.truncate(bytes);
    text
}

#[test]
fn there_and_back() {
    let options = InputOptions::default();
    for suffix in ["", "gz", "xz", "bz2", "zst"] {
        for length in [0, 1, 10, 4095, 4096, 4097, 300_000] {
            let bytes = sample(length);
            let stored = compressed(&format!("back-{length}"), suffix, &bytes);
            assert_eq!(stored == bytes, suffix.is_empty());
            assert_eq!(read(stored.clone(), options), (bytes.clone(), None), "{suffix} {length}");
            if !suffix.is_empty() {
                // Several members, streams or frames one after the other.
                let twice = [stored.clone(), stored].concat();
                assert_eq!(read(twice, options), ([bytes.clone(), bytes].concat(), None));
            }
        }
    }
}

#[test]
fn a_file_has_a_head_a_path_and_its_progress() {
    let bytes = sample(500_000);
    let file = Scratch::new("progress.txt");
    // Named as if it were not compressed.
    std::fs::write(&file.0, compressed("progress", "zst", &bytes)).unwrap();
    let mut input = Input::open(&file.0, InputOptions::default()).unwrap();
    assert_eq!(input.head(), &bytes[..4096]);
    assert_eq!(input.path(), Some(&*file.0));
    let total = input.progress().total.unwrap();
    assert_eq!(total, std::fs::metadata(&file.0).unwrap().len());
    assert!(input.progress().done > 0);
    let mut read = Vec::new();
    input.read_to_end(&mut read).unwrap();
    assert_eq!((read, input.progress().done), (bytes, total));
}

#[test]
fn empty_inputs_are_read_and_directories_are_errors() {
    let options = InputOptions::default();
    assert_eq!(read(Vec::new(), options), (Vec::new(), None));
    let mut input = Input::open(&std::env::temp_dir(), options).unwrap();
    assert!(input.head().is_empty() && input.path().is_some());
    assert_eq!(input.read(&mut [0]).unwrap_err().to_string(), "is a directory");
    let error = Input::open("/no/such/file".as_ref(), options).err().unwrap().to_string();
    assert!(error.starts_with("`/no/such/file`: No such file"), "{error}");
}

#[test]
fn a_cut_anywhere_is_an_error() {
    let bytes = sample(200_000);
    for (suffix, name) in SUFFIXES.into_iter().zip(["gzip", "xz", "bzip2", "zstd"]) {
        let stored = compressed("cut", suffix, &bytes);
        for length in [12, 50, stored.len() / 2, stored.len() - 5, stored.len() - 1] {
            let (got, error) = read(stored[..length].to_vec(), InputOptions::default());
            assert!(bytes.starts_with(&got));
            let error = error.unwrap_or_else(|| panic!("{suffix} cut at {length} is whole"));
            let expected = format!("the {name} data is cut off after {} expanded bytes", got.len());
            assert_eq!(error, expected, "{suffix} cut at {length}");
        }
    }
}

#[test]
fn bombs_are_stopped() {
    let bytes = vec![b'a'; 4 << 20];
    for suffix in SUFFIXES {
        let stored = compressed("bomb", suffix, &bytes);
        assert!(stored.len() < 8192);
        let options = InputOptions { max_expanded_bytes: 1 << 20, ..InputOptions::default() };
        let (got, error) = read(stored, options);
        assert!(got.len() <= 1 << 20);
        assert_eq!(
            error.unwrap(),
            "expands to more than 1048576 bytes; raise --max-expansion",
            "{suffix}"
        );
    }
}

#[test]
fn a_run_of_one_byte_is_no_trace() {
    let stored = compressed("run", "bz2", &vec![0; 70 << 20]);
    let (got, error) = read(stored, InputOptions::default());
    assert!(got.len() <= 64 << 20);
    assert_eq!(error.unwrap(), "expands more than 100000-fold, as no trace does");
}

#[test]
fn a_window_beyond_the_memory_limit_is_an_error() {
    let options = InputOptions { max_decoder_bytes: 4 << 20, ..InputOptions::default() };
    let (got, error) = read(compressed("window", "xz", &sample(100_000)), options);
    assert!(got.is_empty());
    let needs = |name| format!("the {name} data needs more than 4 MiB of memory to expand");
    assert_eq!(error.unwrap(), needs("xz"));
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.window_log(24).unwrap();
    encoder.write_all(&sample(100_000)).unwrap();
    let (got, error) = read(encoder.finish().unwrap(), options);
    assert!(got.is_empty());
    assert_eq!(error.unwrap(), needs("zstd"));
}

#[test]
fn an_unfinished_output_leaves_nothing_behind() {
    for suffix in SUFFIXES {
        let file = Scratch::new(&format!("unfinished.{suffix}"));
        let partial = Scratch::new(&format!("unfinished.{suffix}.partial"));
        let mut output = Output::create(&file.0).unwrap();
        output.put(b"half").unwrap();
        assert!(partial.0.exists());
        drop(output);
        assert!(!partial.0.exists() && !file.0.exists());
    }
}

/// A device that is full from the first byte on.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_device_is_an_error() {
    let mut output = Output::to_writer("t", Box::new(Full));
    output.put(b"few").unwrap();
    let error = output.finish().unwrap_err().to_string();
    assert_eq!(error, "cannot write `t`: no storage space");
}

/// Returns one byte at a time, with an interruption before each.
struct Interrupted(Cursor<Vec<u8>>, bool);

impl Read for Interrupted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.1 = !self.1;
        let length = buffer.len().min(1);
        if self.1 {
            Err(std::io::ErrorKind::Interrupted.into())
        } else {
            self.0.read(&mut buffer[..length])
        }
    }
}

#[test]
fn interrupted_reads_go_on() {
    let bytes = sample(10_000);
    for suffix in ["", "gz", "xz", "bz2", "zst"] {
        let stored = Cursor::new(compressed("interrupted", suffix, &bytes));
        let reader = Box::new(Interrupted(stored, false));
        let mut input = Input::from_reader("t", reader, InputOptions::default()).unwrap();
        let mut got = Vec::new();
        loop {
            let mut buffer = [0; 999];
            match input.read(&mut buffer).unwrap() {
                0 => break,
                read => got.extend_from_slice(&buffer[..read]),
            }
        }
        assert_eq!(got, bytes, "{suffix}");
    }
}

#[test]
fn suffixes_name_compressions() {
    for (suffix, compression) in SUFFIXES.into_iter().zip(Compression::ALL) {
        assert_eq!(Compression::by_suffix(suffix), Some(compression));
    }
    assert_eq!(Compression::by_suffix("txt"), None);
}

proptest! {
    #![proptest_config(octavo_oracle::cases(64))]

    /// A flipped bit gives an error, or leaves the data as it was.
    #[test]
    fn flipped_bits_do_no_harm(which in 0usize..4, place in any::<prop::sample::Index>(), bit in 0u8..8) {
        let bytes = sample(30_000);
        let mut stored = compressed(&format!("flip-{which}-{bit}"), SUFFIXES[which], &bytes);
        let place = place.index(stored.len());
        stored[place] ^= 1 << bit;
        let options = InputOptions { max_expanded_bytes: 1 << 20, ..InputOptions::default() };
        let (got, error) = read(stored, options);
        // A header's bits may make it no compressed data at all, or change a comment.
        prop_assert!(error.is_some() || got == bytes || place < 10);
    }

    /// Any bytes are read as they are, or give an error.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..2000), magic in 0usize..5) {
        let magics: [&[u8]; 5] = [
            b"", b"\x1f\x8b\x08\0", b"\xfd7zXZ\0", b"BZh91AY&SY", b"\x28\xb5\x2f\xfd",
        ];
        let stored = [magics[magic], &bytes].concat();
        let options = InputOptions { max_expanded_bytes: 1 << 20, ..InputOptions::default() };
        let (got, error) = read(stored.clone(), options);
        prop_assert!(got.len() <= 1 << 20);
        prop_assert!(magic != 0 || (error.is_none() && got == stored));
    }
}
