mod naive;
mod random;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use naive::Body;
use random::{Items, items};

fn is_record(words: &[u64]) -> bool {
    words[0] >> 63 != 0
}

fn encode(encoder: &mut ChunkEncoder, items: &[Vec<u64>]) -> ([Vec<u8>; 2], ChunkSummary) {
    let mut parts = [vec![1, 2, 3], Vec::new()];
    let summary = encoder.encode(&items.concat(), &mut parts).unwrap();
    (parts, summary)
}

fn encode_one(items: &[Vec<u64>]) -> [Vec<u8>; 2] {
    encode(&mut ChunkEncoder::default(), items).0
}

/// All words of a chunk. Reads no more than the summary allows.
fn decode(
    decoder: &mut ChunkDecoder,
    parts: &[Vec<u8>; 2],
) -> Result<(Vec<u64>, ChunkSummary), CodecError> {
    let summary = decoder.begin([&parts[0], &parts[1]])?;
    let (mut all, mut words) = (Vec::new(), Vec::new());
    while decoder.next(&mut words)? {
        assert!(!words.is_empty());
        all.append(&mut words);
        assert!(all.len() <= summary.words as usize);
    }
    assert!(words.is_empty());
    Ok((all, summary))
}

/// Cuts a stream before some of its items.
fn cut(items: &Items, cuts: &[Index]) -> Vec<Items> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(items.len() + 1)).collect();
    places.extend([0, items.len()]);
    places.sort_unstable();
    places.windows(2).map(|ends| items[ends[0]..ends[1]].to_vec()).collect()
}

/// The totals of each chunk, counted item by item.
fn count(chunks: &[Items]) -> Vec<ChunkSummary> {
    // Of each segment, its instructions, and its address groups' references and whether NULL skips
    // them.
    let mut segments: Vec<(u64, Vec<(u64, bool)>)> = Vec::new();
    let mut count = |items: &Items| {
        let mut summary = ChunkSummary::default();
        for words in items {
            summary.words += words.len() as u32;
            if !is_record(words) {
                summary.executions += 1;
                let (instructions, data) = &segments[words[0] as usize];
                summary.instructions += instructions;
                summary.references += instructions;
                for (addr, (references, guarded)) in words[1..].iter().zip(data) {
                    summary.references += if *addr == 0 && *guarded { 0 } else { *references };
                }
                continue;
            }
            summary.records += 1;
            if (words[0] >> 48) as u8 == 1 {
                let number = words[1] as u32 as usize;
                segments.resize(segments.len().max(number + 1), Default::default());
                segments[number] = (words[2], Vec::new());
                let mut rest = &words[3..words.len() - 3 * words[2] as usize];
                while let [first, tail @ ..] = rest {
                    let is_fetch = first & 3 == 0;
                    if !is_fetch {
                        let references = if first & 3 == 3 { 2 } else { 1 };
                        let groups = &mut segments[number].1;
                        if first & 16 == 0 {
                            groups.push((0, first & 4 != 0));
                        }
                        groups.last_mut().expect("an item to join").0 += references;
                    }
                    rest = &tail[usize::from(is_fetch)..];
                }
            }
        }
        summary
    };
    chunks.iter().map(&mut count).collect()
}

proptest! {
    #![proptest_config(octavo_oracle::cases(200))]

    #[test]
    fn words_come_back(items in items(300), cuts in prop::collection::vec(any::<Index>(), 0..4)) {
        let mut encoder = ChunkEncoder::default();
        let chunks = cut(&items, &cuts);
        let encoded: Vec<_> = chunks.iter().map(|chunk| encode(&mut encoder, chunk)).collect();
        let mut decoder = ChunkDecoder::default();
        // The last chunk first: none needs another.
        for ((chunk, (parts, summary)), counted) in
            chunks.iter().zip(&encoded).zip(count(&chunks)).rev()
        {
            let words = chunk.concat();
            prop_assert_eq!(*summary, counted);
            let decoded = decode(&mut decoder, parts).unwrap();
            prop_assert_eq!(&decoded, &(words.clone(), counted));
            prop_assert_eq!(Body::read(parts).words(), words);
            let mut records = vec![1];
            prop_assert_eq!(decoder.skip(&parts[0], &mut records).unwrap(), counted);
            let of_chunk: Items = chunk.iter().filter(|words| is_record(words)).cloned().collect();
            prop_assert_eq!(records, of_chunk.concat());
        }
    }

    /// Damaged bytes give an error or other words, but not too many.
    #[test]
    fn damaged_bytes_do_no_harm(
        items in items(60),
        damage in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        length in proptest::option::weighted(0.2, any::<Index>()),
        part in 0usize..2,
    ) {
        let mut parts = encode_one(&items);
        prop_assume!(!parts[part].is_empty());
        for (place, flipped) in damage {
            *place.get_mut(&mut parts[part]) ^= flipped;
        }
        if let Some(length) = length {
            let length = length.index(parts[part].len());
            parts[part].truncate(length);
        }
        let mut decoder = ChunkDecoder::default();
        let _ = decode(&mut decoder, &parts);
        let _ = decoder.skip(&parts[0], &mut Vec::new());
        // Nothing of it is left.
        let sound = encode_one(&items);
        prop_assert_eq!(decode(&mut decoder, &sound).unwrap().0, items.concat());
    }

    /// Sound sections may have damaged contents: whatever is not refused is read as by the naive
    /// reader.
    #[test]
    fn damaged_contents_are_refused_or_read_as_they_stand(
        items in items(60),
        damage in prop::collection::vec((0usize..10, any::<Index>(), 0u8..24), 1..4),
        header in proptest::option::weighted(0.3, (0usize..5, -2i32..3)),
    ) {
        let mut body = Body::read(&encode_one(&items));
        for (section, place, value) in damage {
            if !body.contents[section].is_empty() {
                *place.get_mut(&mut body.contents[section]) = value;
            }
        }
        if let Some((field, change)) = header {
            body.small[field] = body.small[field].wrapping_add_signed(change);
        }
        if let Ok((words, summary)) = decode(&mut ChunkDecoder::default(), &body.write()) {
            prop_assert_eq!(words.len(), summary.words as usize);
            prop_assert_eq!(words, body.words());
        }
    }
}

/// A definition of a segment that is one instruction with a load.
fn load(number: u64) -> Vec<u64> {
    let payload = [number | 2 << 32, 1, 4 << 16, 0x40_0000 + 4 * number, 1 | 8 << 16, 0, 0, 0];
    [&[1 << 63 | 1 << 48 | 8][..], &payload].concat()
}

#[test]
fn many_segments_have_wider_numbers() {
    for (segments, width) in [(256, 1), (257, 2), (65_536, 2), (65_537, 4)] {
        let definitions: Items = (0..segments).map(load).collect();
        let executions: Items =
            (0..segments).rev().map(|number| vec![number, 8 * number]).collect();
        let mut encoder = ChunkEncoder::default();
        encode(&mut encoder, &definitions);
        let (parts, _) = encode(&mut encoder, &executions);
        let body = Body::read(&parts);
        assert_eq!(body.contents[4].len(), width * segments as usize);
        assert_eq!(body.words(), executions.concat());
        let decoded = decode(&mut ChunkDecoder::default(), &parts).unwrap();
        assert_eq!(decoded.0, executions.concat());
    }
}

#[test]
fn words_come_in_batches_of_whole_items() {
    let long_record = [vec![1 << 63 | 14 << 48 | 70_000], vec![5; 70_000]].concat();
    let mut items = vec![load(0)];
    items.extend((0..50_000).map(|turn| vec![0, 16 * turn + 16]));
    items.push(long_record);
    items.extend((0..50_000).map(|turn| vec![0, turn + 1]));
    let parts = encode_one(&items);
    let (mut decoder, mut words) = (ChunkDecoder::default(), Vec::new());
    decoder.begin([&parts[0], &parts[1]]).unwrap();
    let (mut rest, mut batches) = (items.concat(), 0);
    let mut whole: Vec<usize> = Vec::new();
    for item in &items {
        whole.push(whole.last().unwrap_or(&0) + item.len());
    }
    let mut given = 0;
    while decoder.next(&mut words).unwrap() {
        batches += 1;
        assert_eq!(rest[..words.len()], words);
        rest.drain(..words.len());
        given += words.len();
        assert!(whole.binary_search(&given).is_ok(), "a batch ends between items");
        assert!(words.len() >= 32 * 1024 || rest.is_empty());
    }
    assert!(rest.is_empty());
    assert!(batches >= 5);
}

#[test]
fn a_chunk_cannot_ask_for_more_than_the_limit() {
    let mut body = Body::read(&encode_one(&[load(0), vec![0, 1]]));
    for field in 0..5 {
        let mut hostile = body.clone();
        hostile.small[field] = u32::MAX - 5;
        assert!(decode(&mut ChunkDecoder::default(), &hostile.write()).is_err());
    }
    // A frame with far more in it than is due is refused before it is decompressed whole.
    body.contents[5] = vec![0; 1 << 24];
    let error = decode(&mut ChunkDecoder::default(), &body.write()).unwrap_err();
    assert!(matches!(error, CodecError::Zstd { section: "symbols", .. }), "{error}");
    // A segment that says it has more items than there are addresses.
    let mut body = Body::read(&encode_one(&[load(0), vec![0, 1]]));
    body.contents[3] = vec![0xff; 4];
    let error = decode(&mut ChunkDecoder::default(), &body.write()).unwrap_err();
    assert!(matches!(error, CodecError::Addresses { .. }), "{error}");
}

/// Everything that may disagree within a chunk, off by one.
#[test]
fn inconsistent_parts_are_errors() {
    let sound = Body::read(&encode_one(&[load(0), vec![0, 1 << 40], load(1), vec![1, 300]]));
    let refused = |expected: &str, spoil: fn(&mut Body)| {
        let mut body = sound.clone();
        spoil(&mut body);
        let mut decoder = ChunkDecoder::default();
        let error = decode(&mut decoder, &body.write()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!decoder.next(&mut Vec::new()).unwrap(), "nothing is left of it");
    };
    refused("records are not the 1 in 18 words", |body| body.small[2] = 1);
    refused("records are not the 2 in 18 words", |body| body.contents[0][7] = 0);
    refused("records decompress to 136 bytes where 144", |body| body.contents[0].truncate(136));
    refused("gaps cannot be decompressed", |body| body.contents[1].push(0));
    refused("records lie behind", |body| body.contents[1][4] = 3);
    refused("segment numbers decompress to 0 bytes", |body| body.contents[2].clear());
    refused("lists 3 segments for 2 executions", |body| body.small[4] = 3);
    refused("executions have 3 address groups, not its 2", |body| body.contents[3][0] = 2);
    refused("executions have 1 address groups, not its 2", |body| body.contents[3][0] = 0);
    refused("execution 1 of the chunk", |body| body.contents[4][1] = 2);
    refused("20 is not a symbol", |body| body.contents[5][0] = 20);
    refused("deltas of 8 bytes decompress to 0 bytes where 8", |body| body.contents[9].clear());
    refused("deltas of 1 byte cannot be", |body| body.contents[6].push(0));
    refused("words are more than a chunk holds", |body| body.small[0] = 1 << 22);

    let parts = sound.write();
    let [first, second] = &parts;
    let mut decoder = ChunkDecoder::default();
    let mut error = |parts| decoder.begin(parts).unwrap_err().to_string();
    let bytes = "a part of the chunk has";
    assert!(error([&first[..75], second]).contains("has 75 bytes where its header states 76"));
    assert!(error([&first[..first.len() - 1], second]).starts_with(bytes));
    assert!(error([first, &second[1..]]).starts_with(bytes));
    assert!(error([first, &[&second[..], &[0]].concat()]).starts_with(bytes));
}

#[test]
fn words_that_are_no_stream_are_refused() {
    let refused = |items: &[Vec<u64>]| {
        let mut parts = [vec![1], vec![2]];
        let error = ChunkEncoder::default().encode(&items.concat(), &mut parts).unwrap_err();
        assert!(parts.iter().all(Vec::is_empty));
        error
    };
    assert!(matches!(refused(&[load(0), vec![1, 8]]), CodecError::Undefined(1)));
    assert!(matches!(refused(&[vec![1 << 62]]), CodecError::Undefined(_)));
    assert!(matches!(refused(&[load(0), vec![0]]), CodecError::TornItem));
    assert!(matches!(refused(&[vec![1 << 63 | 2]]), CodecError::TornItem));
    assert!(matches!(refused(&[load(1)]), CodecError::Definition(1)));
    assert!(matches!(refused(&[vec![1 << 63 | 1 << 48]]), CodecError::Definition(0)));
    let torn = vec![1 << 63 | 1 << 48 | 3, 9 << 32, 1, 0];
    assert!(matches!(refused(&[torn]), CodecError::Definition(0)));
    let long = vec![0; MAX_CHUNK_WORDS + 1];
    assert!(matches!(refused(&[long]), CodecError::TooManyWords(_)));
}
