//! Hand-written texts, one for each rule.

use super::super::super::testing;
use super::*;

#[test]
fn segments_end_where_instructions_do_not_follow() {
    let text = "==7== Lackey, an example Valgrind tool\n\
                ==7== \n\
                I  04016b80,3\n\
                \x20L 1ffeffe7e8,8\n\
                I  04016b83,5\n\
                \x20S 1ffeffe7e0,8\n\
                SB 04016b90\n\
                I  04016b90,2\r\n\
                \x20M 0000000010,1\r\n\
                I  04016b90,2\n\
                I  04016b92,1\n\
                \n\
                ==7== Exit code:       0\n";
    let (notes, outcome) = read(text);
    assert_eq!(notes.segments(), ["0x4016b80 ILIS", "0x4016b90 IM", "0x4016b90 II"]);
    assert_eq!(outcome, Ok(()));
    assert_eq!(notes.lines, 13);
    assert_eq!(notes.messages, ["Lackey, an example Valgrind tool", "Exit code:       0"]);
}

/// Lines that Lackey would write shorter are read nevertheless.
#[test]
fn odd_spellings_are_the_same_references() {
    let text = "I  00000000000001000,2\n L 10,000000000008\n";
    assert_eq!(error(text), "`text`, line 1: `I  00000000000001000,2` is not Lackey's");
    let text = "I  0000000000001000,2\n L 0AbC,000000000008\n".repeat(30);
    let (notes, _) = read(&text);
    assert_eq!(notes.segments(), ["0x1000 IL"; 30]);
    assert!(notes.log.executed.iter().all(|(_, addresses)| *addresses == [VirtAddr::new(0xabc)]));
    check(text.as_bytes(), &[1000]).unwrap();
}

/// A branch that goes one way, the other, and back: the same segments whether foreseen or not.
#[test]
fn repeats_and_their_changes_are_the_same_segments() {
    let (start, through, jump) =
        ("I  00001000,2\n L 8000,8\n", "I  00001002,2\n", "I  00002000,5\n");
    let ways = [start, through, jump, start, jump, start, jump, start, through, jump, jump];
    let (notes, outcome) = read(ways.concat());
    let (long, short) = ("0x1000 ILI", "0x1000 IL");
    let jump = "0x2000 I";
    assert_eq!(notes.segments(), [long, jump, short, jump, short, jump, long, jump, jump]);
    assert_eq!((outcome, notes.lines), (Ok(()), 15));
    check(ways.concat().repeat(20).as_bytes(), &[500]).unwrap();
}

#[test]
fn a_segment_has_at_most_64_instructions() {
    let line = |place: u64| format!("I  {:08x},4\n S {place:x},4\n", 0x1000 + 4 * place);
    let text = (0..200).map(line).collect::<String>();
    let (notes, _) = read(text.repeat(3));
    let lengths: Vec<u32> = notes.log.executed.iter().map(|(s, _)| s.instructions()).collect();
    assert_eq!(lengths, [64, 64, 64, 8].repeat(3));
    let line = |place: u64| format!("I  {:08x},4\n", 0x1000 + 4 * place);
    let text = (0..100).map(line).collect::<String>();
    check(text.repeat(3).as_bytes(), &[1 << 20]).unwrap();
}

/// One instruction whose data differ in number, kind and length.
#[test]
fn data_may_differ_in_every_way() {
    let mut text = String::new();
    for round in 0..3 {
        for number in 0..200u64 {
            text += "I  00001000,4\n";
            for item in 0..number % 6 {
                let label = ['L', 'S', 'M'][((number + item) % 3) as usize];
                text += &format!(" {label} {:x},8\n", 1u64 << ((number * item * 7 + round) % 64));
            }
            text += "I  00001004,4\n";
        }
    }
    check(text.as_bytes(), &[1 << 20]).unwrap();
}

#[test]
fn more_data_than_an_instruction_has_is_a_segment_of_its_own() {
    let text = ("I  00001000,2\n".to_owned() + &" L 10,8\n".repeat(1000)).repeat(2);
    check(text.as_bytes(), &[1 << 20]).unwrap();
    assert_eq!(read(&text).0.segments().len(), 8);
}

/// More of everything than is kept.
#[test]
fn segments_are_learnt_anew_after_a_reset() {
    let line = |place: u64| format!("I  {:08x},4\n S {place:x},4\n", 0x1000 + 8 * place);
    let text = (0..600).map(line).collect::<String>();
    check(text.repeat(3).as_bytes(), &[1 << 20]).unwrap();
    let text = (0..600).map(|place| line(place % 37).repeat(3)).collect::<String>();
    check(text.as_bytes(), &[1 << 20]).unwrap();
}

#[test]
fn instructions_may_be_filtered_out() {
    let text = "==1== x\n L 10,8\n M 20,4\nSB 1000\n S 30,1\n";
    check(text.as_bytes(), &[]).unwrap();
    let (notes, outcome) = read(text);
    assert_eq!(outcome, Ok(()));
    assert_eq!((notes.log.references.references.len(), notes.has_instructions), (3, false));
    assert!(read(text.to_owned() + "I  1000,2\n").0.has_instructions);
}

#[test]
fn faulty_lines_are_named() {
    for (text, expected) in [
        ("I  1000,2\nhello\n", "`text`, line 2: `hello` is not Lackey's"),
        ("\n I 10\x1b,2\n", "`text`, line 2: ` I 10\\x1b,2` is not Lackey's"),
        (
            &("I  00001000,2\n".repeat(90) + " L 10,0\n"),
            "`text`, line 91: ` L 10,0` has a size outside 1..=4096 bytes",
        ),
    ] {
        assert_eq!(error(text), expected);
    }
    assert_eq!(error(b"\xff\n"), "`text`, line 1: `\u{fffd}` is not Lackey's");
    let quote = "x".repeat(80);
    for length in [4097, BLOCK_BYTES, 3 * BLOCK_BYTES] {
        for end in ["", "\n", "\nI  1000,2\n"] {
            assert_eq!(
                error("I  1000,2\n".to_owned() + &"x".repeat(length) + end),
                format!("`text`, line 2: `{quote}…` is longer than 4096 bytes")
            );
        }
    }
    assert_eq!(
        error("x".repeat(4096) + "\n"),
        format!("`text`, line 1: `{quote}…` is not Lackey's")
    );
}

#[test]
fn references_before_an_error_are_delivered() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the pipe broke"))
        }
    }
    // More than the head of the input.
    let text = "I  00001000,2\n L 10,8\n".repeat(1000) + "I  00001002";
    let reader = Pieces::new(text.as_bytes(), vec![]).chain(Broken);
    let (notes, outcome) = read_from(reader, false);
    assert_eq!(outcome.unwrap_err().to_string(), "`text`, line 2000: the pipe broke");
    assert_eq!(notes.segments(), ["0x1000 IL"; 1000]);
    let (notes, _) = read("I  1000,2\n L 10,8\n?\nI  1002,2\n");
    assert_eq!(notes.segments(), ["0x1000 IL"]);
}

#[test]
fn a_live_text_may_end_inside_a_line_and_a_file_may_not() {
    for (last, segment) in
        [("I  1002,2", "0x1000 II"), ("I  1002", "0x1000 I"), ("I  1002,", "0x1000 I")]
    {
        let file = testing::read(&FORMAT, ("I  1000,2\n".to_owned() + last).as_bytes());
        assert_eq!(file.sentence(), format!("`trace`, line 2: {CUT}"));
        let (notes, outcome) = read("I  1000,2\n".to_owned() + last);
        assert_eq!(outcome, Ok(()));
        assert_eq!(notes.segments(), [segment], "{last}");
    }
}

/// Many batches, lines across their ends.
#[test]
fn long_texts_are_read_to_their_end() {
    let line = |place: u64| format!("I  {:08x},4\n L {place:x},8\n", 0x1000 + place % 13 * 4);
    let text = (0..60_000).map(line).collect::<String>() + "I  0000";
    check(text.as_bytes(), &[1 << 20]).unwrap();
}

#[test]
fn an_empty_text_is_an_error() {
    assert_eq!(error(""), "`text` is empty");
}

#[test]
fn long_messages_are_cut_and_only_the_last_kept() {
    for length in [4000, 4096, 4097, 10_000, BLOCK_BYTES, 3 * BLOCK_BYTES] {
        // The rest of the long message looks like a line, but is none.
        let message = format!("==1== {}", "I  1000,2".repeat(length / 9));
        let (notes, outcome) = read(format!("I  1000,2\n{message}\n L 10,8\n{message}"));
        assert_eq!(outcome, Ok(()));
        assert_eq!(notes.segments(), ["0x1000 IL"]);
        assert_eq!(notes.lines, 4);
        assert_eq!(notes.messages.len(), 2);
        assert!(notes.messages[0].len() < 520);
    }
    let text: String = (0..1000).map(|number| format!("==1== {number}\n")).collect();
    let messages = read(text).0.messages;
    assert_eq!(messages.len(), MAX_MESSAGES);
    assert_eq!(messages.last().unwrap(), "999");
}

#[test]
fn lackeys_text_is_recognised() {
    use Likeness::{No, Yes};
    for (head, likeness) in [
        ("==7== Lackey, an example Valgrind tool\n\nI  04016b80,3\n", Yes),
        ("I  04016b80,3\nI  04", Yes),
        ("hello\nI  04016b80,3\n", No),
        ("", No),
        ("I  04016b80,3", No),
    ] {
        assert_eq!(recognise(head.as_bytes()), likeness, "{head}");
    }
}
