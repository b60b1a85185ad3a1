//! Zip archives of chunks.

use super::*;

/// Two chunks, the second of which begins with repeated records.
fn chunks() -> Vec<(&'static str, Vec<u8>)> {
    let first = [
        header(11, 11),
        time(5),
        vec![(kind::ENCODING, 2, 0), (10, 2, 0x1000), (kind::MARKER, 21, 0)],
    ];
    let second = [
        vec![(kind::MARKER, 22, 9)],
        time(5),
        vec![(kind::ENCODING, 2, 0), (10, 2, 0x1000), (kind::READ, 8, 0x3000)],
        end(11),
    ];
    vec![("chunk.0000", bytes_of(&first.concat())), ("chunk.0001", bytes_of(&second.concat()))]
}

#[test]
fn archives_of_chunks() {
    let scratch = Scratch::new("chunks");
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let zip = zipped(&chunks(), method);
        assert_eq!(recognise(&zip[..zip.len().min(4096)]), Likeness::Yes);
        let path = scratch.put("t.trace.zip", &zip);
        let drained = read_path(&path);
        assert_eq!(drained.facts.notes, [""; 0]);
        assert_eq!(drained.whole(), [fetch(0x1000, 2), fetch(0x1000, 2), load(0x3000, 8)]);
    }
    assert_eq!(
        read(&zipped(&chunks(), CompressionMethod::Stored)).sentence(),
        "`trace` is a zip archive, which can be read from a file only"
    );
}

#[test]
fn large_archives_have_larger_records() {
    let scratch = Scratch::new("zip64");
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in chunks() {
        let options = SimpleFileOptions::default().large_file(true);
        let options = options.compression_method(CompressionMethod::Deflated);
        zip.start_file(name, options).unwrap();
        zip.write_all(&bytes).unwrap();
    }
    // So many members that their number needs the larger record at the end.
    for number in 0..70_000 {
        let options = SimpleFileOptions::default();
        zip.start_file(number.to_string(), options).unwrap();
    }
    let path = scratch.put("t.zip", &zip.finish().unwrap().into_inner());
    assert_eq!(read_path(&path).whole().len(), 3);
}

#[test]
fn broken_archives() {
    let scratch = Scratch::new("broken");
    let sentence = |bytes: &[u8]| {
        let path = scratch.put("t.zip", bytes);
        let name = format!("`{}`", path.display());
        read_path(&path).sentence().replace(&name, "it")
    };
    let whole = zipped(&chunks(), CompressionMethod::Stored);
    let mut flipped = whole.clone();
    // A processor's number, after the member's header, name and ten records.
    flipped[40 + 9 * 12 + 4] ^= 1;
    let error = sentence(&flipped);
    assert!(error.ends_with("its member `chunk.0000` is broken: its checksum differs"), "{error}");
    let error = sentence(&whole[..whole.len() / 2]);
    let cut = "it is a zip archive without a directory at its end: it may be cut off";
    assert_eq!(error, cut);
    // More members than its directory has.
    let mut claims = whole.clone();
    let end = claims.len() - 22;
    claims[end + 10] = 3;
    assert_eq!(sentence(&claims), "it: the entry 3 of its directory is broken");
    // A directory elsewhere, and a member.
    claims[end + 18] = 1;
    assert_eq!(sentence(&claims), "it is a zip archive whose directory is not to be found");
    let mut moved = whole.clone();
    moved[end - 10 - 46 + 42] ^= 1;
    assert_eq!(sentence(&moved), "it: its member `chunk.0001` is not where it should be");
    moved[end - 10 - 46 + 10] = 93;
    moved[end - 10 - 46 + 42] ^= 1;
    assert_eq!(
        sentence(&moved),
        "it: its member `chunk.0001` is compressed by the method 93, which is not read"
    );
    let odd = zipped(&[("chunk.0000", vec![0; 13])], CompressionMethod::Stored);
    assert_eq!(
        sentence(&odd),
        "it: its member `chunk.0000` has 13 bytes, which are not whole records"
    );
    assert_eq!(sentence(&zipped(&[], CompressionMethod::Stored)), "it is empty");
    let one = zipped(&chunks()[..1], CompressionMethod::Deflated);
    assert_eq!(sentence(&one), "it, byte 156: ends without a footer: it was cut off");
    // A bomb: a long run of zeros in a small member.
    let bomb = zipped(&[("chunk.0000", vec![0; 12 << 20])], CompressionMethod::Deflated);
    let path = scratch.put("t.zip", &bomb);
    let options = InputOptions { max_expanded_bytes: 1 << 20, ..InputOptions::default() };
    let opened = Input::open(&path, options).and_then(FORMAT.open);
    let error = opened.err().unwrap().to_string();
    assert!(error.ends_with("expands to more than 1048576 bytes; raise --max-expansion"));
}
