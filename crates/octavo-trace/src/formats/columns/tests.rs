use super::*;
use crate::formats::rows::testing::{threads_of, threads_read};
use crate::formats::testing::{self, Drained, drain};
use proptest::prelude::*;

fn read(batches: Vec<ColumnBatch>) -> Drained {
    let (feed, mut source) = column_channel("trace");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for batch in batches {
                if feed.send(batch) == Err(Gone) {
                    return;
                }
            }
            feed.finish();
        });
        drain(&mut source)
    })
}

proptest! {
    #![proptest_config(octavo_oracle::cases(48))]

    /// All references are kept, with their threads.
    #[test]
    fn written_traces_are_read_back(random in testing::stream(1..80), cut in 1usize..50) {
        let (writer, written) = column_writer("trace");
        testing::write_with(|_| Box::new(writer), &random).unwrap();
        let expected = threads_of(&random);
        prop_assume!(!expected.is_empty());
        let batch = written.receive().unwrap().unwrap();
        prop_assert_eq!(written.receive(), Ok(None));
        let rows = batch.kinds.len();
        // The same rows in small batches, with empty ones between.
        let batches = (0..rows).step_by(cut).flat_map(|from| {
            let range = from..rows.min(from + cut);
            let part = ColumnBatch {
                kinds: batch.kinds[range.clone()].to_vec(),
                addresses: batch.addresses[range.clone()].to_vec(),
                sizes: batch.sizes.as_ref().map(|sizes| sizes[range.clone()].to_vec()),
                threads: batch.threads.as_ref().map(|threads| threads[range].to_vec()),
            };
            [ColumnBatch::default(), part]
        });
        let drained = read(batches.collect());
        prop_assert_eq!(&drained.error, &None);
        prop_assert_eq!(threads_read(&drained), expected);
    }
}

fn batch(kinds: &[u8], sizes: Option<Vec<u16>>) -> ColumnBatch {
    let addresses = (1..=kinds.len() as u64).map(|n| 16 * n).collect();
    ColumnBatch { kinds: kinds.to_vec(), addresses, sizes, threads: None }
}

#[test]
fn wrong_rows_are_named() {
    let good = || batch(&[0, 1], None);
    let many = batch(&[1; 40_000], None);
    let mut short = good();
    short.addresses.pop();
    for (batches, references, sentence) in [
        (vec![], 0, "`trace` is empty"),
        (
            vec![good(), batch(&[2, 4], None)],
            3,
            "`trace`, row 3: 4 is not a kind of reference: these are 0 to 3",
        ),
        (
            vec![many, batch(&[1], Some(vec![0]))],
            40_000,
            "`trace`, row 40000: a size of 0 bytes is outside 1..=4096",
        ),
        (vec![good(), short], 2, "`trace`, row 2: a batch has 2 kinds but 1 addresses"),
    ] {
        let drained = read(batches);
        assert_eq!(drained.sentence(), sentence);
        assert_eq!(drained.references.len(), references);
    }
}

#[test]
fn an_early_end_is_an_error() {
    let (feed, mut source) = column_channel("trace");
    feed.send(batch(&[1], None)).unwrap();
    drop(feed);
    let drained = drain(&mut source);
    assert_eq!(drained.references.len(), 1);
    assert!(drained.sentence().starts_with("`trace`, row 1: ends early"));

    let (feed, mut source) = column_channel("trace");
    feed.fail("`x.parquet` has no column `kind`");
    assert_eq!(drain(&mut source).sentence(), "`trace`, row 0: `x.parquet` has no column `kind`");

    let (writer, written) = column_writer("trace");
    drop(writer);
    assert!(written.receive().is_err());
}

#[test]
fn a_writer_whose_reader_is_gone_says_so() {
    let (mut writer, written) = column_writer("trace");
    drop(written);
    writer.batch = batch(&[1], None);
    let error = Box::new(writer).finish().err().unwrap();
    assert_eq!(error.to_string(), "cannot write `trace`: the reader of the columns has closed");
}
