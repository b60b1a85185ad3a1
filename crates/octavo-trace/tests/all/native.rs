//! The native format: written traces are read back word for word; cut, damaged or hostile ones are
//! read up to the fault, and then refused with one sentence.

use std::io::Cursor;
use std::time::Duration;

use octavo_oracle::strategies::{RandomStream, stream};
use octavo_trace::sink::{Output, Sink};
use octavo_trace::source::{Batch, Input, InputOptions, Source, Step, TraceError};
use octavo_trace::{
    Began, Encoder, Ended, Manifest, NamedThread, NativeSink, NativeSource, Overview, StreamEnd,
    StreamIdentity,
};
use proptest::prelude::*;

use crate::memory::Memory;

fn words_of(random: &RandomStream) -> Vec<u64> {
    let mut encoder = Encoder::default();
    random.play(&mut encoder);
    encoder.words().to_vec()
}

fn identity(stream: u32) -> StreamIdentity {
    StreamIdentity {
        stream,
        parent: stream.checked_sub(1),
        pid: 100 + stream,
        began: if stream == 0 { Began::Start } else { Began::Fork },
        program: format!("/bin/program-{stream}"),
    }
}

fn end() -> StreamEnd {
    StreamEnd {
        ended: Ended::Exit,
        exit_code: Some(3),
        instructions: None,
        kernel_time: Some(Duration::from_micros(12)),
        threads: vec![
            NamedThread::default(),
            NamedThread { name: "worker".to_owned(), kernel_time: Duration::from_nanos(7) },
        ],
    }
}

fn manifest() -> Manifest {
    Manifest::recorded(serde_json::json!({"command": ["true"]}))
}

/// The trace of several streams.
fn trace(streams: &[Vec<u64>]) -> Vec<u8> {
    let memory = Memory::default();
    let output = Output::to_writer("memory", Box::new(memory.clone()));
    let mut sink = Box::new(NativeSink::create(output, &manifest()).unwrap());
    for (number, words) in (0..).zip(streams) {
        sink.begin(&identity(number)).unwrap();
        sink.words(number, words).unwrap();
    }
    for number in 0..streams.len() as u32 {
        sink.end(number, &end()).unwrap();
    }
    sink.finish().unwrap();
    memory.bytes()
}

#[derive(Debug, Default, PartialEq)]
struct Read {
    began: Vec<StreamIdentity>,
    words: Vec<Vec<u64>>,
    ended: Vec<(u32, StreamEnd)>,
}

/// Everything that can be read from `bytes`, and the error that ended the reading.
fn read(bytes: &[u8]) -> (Read, Option<TraceError>) {
    let reader = Box::new(Cursor::new(bytes.to_vec()));
    let opened =
        Input::from_reader("t.oct", reader, InputOptions::default()).and_then(NativeSource::open);
    let mut read = Read::default();
    let mut source = match opened {
        Ok(source) => source,
        Err(error) => return (read, Some(error)),
    };
    let mut batch = Batch::default();
    loop {
        match source.next(&mut batch) {
            Ok(Some(Step::Began(identity))) => {
                read.began.push(identity);
                read.words.push(Vec::new());
            }
            Ok(Some(Step::Batch(stream))) => {
                read.words[stream as usize].extend_from_slice(&batch.words);
            }
            Ok(Some(Step::Ended(stream, end))) => read.ended.push((stream, end)),
            Ok(None) => return (read, None),
            Err(error) => return (read, Some(error)),
        }
    }
}

#[test]
fn threads_and_their_names_are_cut_to_what_a_tracer_reports() {
    let memory = Memory::default();
    let output = Output::to_writer("memory", Box::new(memory.clone()));
    let mut sink = Box::new(NativeSink::create(output, &manifest()).unwrap());
    sink.begin(&identity(0)).unwrap();
    let named =
        |name: &str| NamedThread { name: name.to_owned(), kernel_time: Duration::from_nanos(7) };
    sink.end(0, &StreamEnd { threads: vec![named(&"ü1".repeat(1000)); 97], ..end() }).unwrap();
    sink.finish().unwrap();
    let (read, error) = read(&memory.bytes());
    assert_eq!(error, None);
    assert_eq!(read.ended[0].1.threads, vec![named("ü1ü1ü1ü1ü1ü1ü1ü"); 96]);
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    #[test]
    fn written_traces_are_read_back(random in prop::collection::vec(stream(0..60), 0..3)) {
        let streams: Vec<Vec<u64>> = random.iter().map(words_of).collect();
        let (read, error) = read(&trace(&streams));
        prop_assert_eq!(error, None);
        prop_assert_eq!(&read.words, &streams);
        let numbers = 0..streams.len() as u32;
        prop_assert_eq!(read.began, numbers.clone().map(identity).collect::<Vec<_>>());
        let ends = read.ended.into_iter().map(|(n, end)| (n, StreamEnd { instructions: None, ..end }));
        prop_assert_eq!(ends.collect::<Vec<_>>(), numbers.map(|n| (n, end())).collect::<Vec<_>>());
    }

    #[test]
    fn a_cut_trace_gives_its_whole_part_and_the_place_of_the_cut(
        random in stream(1..40), at in any::<prop::sample::Index>(),
    ) {
        let words = words_of(&random);
        let whole = trace(std::slice::from_ref(&words));
        let cut = at.index(whole.len());
        let (read, error) = read(&whole[..cut]);
        if let Some(got) = read.words.first() {
            prop_assert!(words.starts_with(got));
        }
        let error = error.expect("it is cut").to_string();
        prop_assert!(error.starts_with("`t.oct`"), "{}", error);
    }

    #[test]
    fn a_flipped_bit_is_found(random in stream(1..40), bit in any::<prop::sample::Index>()) {
        let words = words_of(&random);
        let mut bytes = trace(std::slice::from_ref(&words));
        let bit = bit.index(8 * bytes.len());
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (read, error) = read(&bytes);
        if VERSION_BITS.contains(&bit) {
            prop_assert_eq!((read.words, error), (vec![words], None));
        } else {
            prop_assert!(read.words.first().is_none_or(|got| words.starts_with(got)));
            prop_assert!(error.is_some());
        }
    }
}

/// The two bits of version 3: without one of them, the trace has version 2 or 1, which is read in
/// the same way.
const VERSION_BITS: [usize; 2] = [8 * 8, 8 * 8 + 1];

#[test]
fn a_flipped_bit_of_the_file_header_is_found_or_makes_an_older_version() {
    let whole = trace(&[vec![]]);
    let not_found: Vec<usize> = (0..8 * 16)
        .filter(|bit| {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            read(&bytes).1.is_none()
        })
        .collect();
    assert_eq!(not_found, VERSION_BITS);
}

#[test]
fn faults_are_one_sentence() {
    let whole = trace(&[vec![]]);
    let sentence = |bytes: &[u8]| read(bytes).1.unwrap().to_string();
    assert_eq!(sentence(b"no such thing at all"), "`t.oct` is not a native trace");
    let mut newer = whole.clone();
    newer[8] = 9;
    assert_eq!(
        sentence(&newer),
        "`t.oct` has version 9 of the native format, and this Octavo reads up to 3"
    );
    let cut = sentence(&whole[..whole.len() - 30]);
    assert!(cut.ends_with("the trace is cut off here; what came before is whole"), "{cut}");
    assert!(cut.starts_with("`t.oct`, chunk "), "{cut}");
    let followed = sentence(&[&whole[..], b"?"].concat());
    assert!(followed.starts_with("`t.oct`, chunk "), "{followed}");
    assert!(followed.ends_with("the trace ends here, and something follows its end"), "{followed}");
}

#[test]
fn a_pipe_with_a_name_is_read_as_any_pipe() {
    let whole = trace(&[vec![]]);
    let path = std::env::temp_dir().join(format!("octavo-pipe-{}.oct", std::process::id()));
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let (to, bytes) = (path.clone(), whole.clone());
    let writer = std::thread::spawn(move || std::fs::write(to, bytes));
    let input = Input::open(&path, InputOptions::default()).unwrap();
    // The writer has closed the pipe: another open would wait for ever.
    writer.join().unwrap().unwrap();
    let mut source = NativeSource::open(input).unwrap();
    source.skip_instructions(1);
    std::fs::remove_file(path).unwrap();
    let mut batch = Batch::default();
    let mut steps = 0;
    while source.next(&mut batch).unwrap().is_some() {
        steps += 1;
    }
    assert_eq!(steps, 2);
}

#[test]
fn an_overview_is_read_from_the_index_or_from_the_frames() {
    let random = [0u64; 0];
    let whole = trace(&[random.to_vec(), random.to_vec()]);
    let directory = std::env::temp_dir().join(format!("octavo-native-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("t.oct");
    std::fs::write(&path, &whole).unwrap();
    let overview = Overview::read(&path).unwrap();
    assert!(overview.is_whole && overview.bytes == whole.len() as u64);
    std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let cut = Overview::read(&path).unwrap();
    assert!(!cut.is_whole);
    assert_eq!(cut.streams, overview.streams);
    std::fs::write(&path, [&whole[..], &whole].concat()).unwrap();
    let twice = Overview::read(&path).unwrap();
    assert!(!twice.is_whole && twice.whole_bytes < whole.len() as u64);
    std::fs::remove_dir_all(directory).unwrap();
}
