//! Random streams, lines and bytes.

use super::*;

proptest! {
    #![proptest_config(octavo_oracle::cases(128))]

    /// Any stream written as Lackey writes it reads back the same, however it arrives.
    #[test]
    fn streams_read_back(
        stream in strategies::stream(0..300),
        repeats in 1usize..4,
        sizes in vec(0usize..20_000, 0..4),
        noise in vec((any::<prop::sample::Index>(), prop_oneof![
            Just("==7== Process terminating\n"), Just("SB 04016b80\n"), Just("\n"),
        ]), 0..5),
    ) {
        let mut written = NaiveReferences::default();
        for _ in 0..repeats {
            stream.play(&mut written);
        }
        let text = written.lackey_text();
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        for (place, line) in noise {
            lines.insert(place.index(lines.len() + 1), line);
        }
        prop_assume!(!lines.is_empty());
        let text = lines.concat();
        let (references, _, _) = read_plainly(text.as_bytes());
        let references: Vec<Reference> = references.into_iter().map(|(one, _)| one).collect();
        prop_assert_eq!(references, written.references);
        check(text.as_bytes(), &sizes)?;
    }

    /// A text with a few bytes changed reads as it does line by line, up to the same fault.
    #[test]
    fn damaged_texts_read_as_they_do_line_by_line(
        stream in strategies::stream(1..60),
        damage in vec((any::<prop::sample::Index>(), prop_oneof![
            any::<u8>(),
            prop::sample::select(b"\0\n\r ,=ILSM0f9F:`gG/".as_slice()),
        ]), 0..6),
        sizes in vec(0usize..3000, 0..4),
    ) {
        let mut written = NaiveReferences::default();
        stream.play(&mut written);
        let mut text = written.lackey_text().into_bytes();
        text.extend_from_within(..);
        text.extend_from_within(..);
        for (place, byte) in damage {
            let place = place.index(text.len().max(1));
            if let Some(damaged) = text.get_mut(place) {
                *damaged = byte;
            }
        }
        prop_assume!(!text.is_empty());
        check(&text, &sizes)?;
    }

    /// Lines of a small set in any order: every kind of divergence.
    #[test]
    fn any_lines_read_as_they_do_line_by_line(
        lines in vec(prop::sample::select([
            "I  00001000,2\n", "I  00001002,3\n", "I  00001002,12\n", "I  00001005,2\n",
            "I  00001007,7\n", "I  10000000100e,7\n", "I  00001000,2\r\n", "I  1000,2\n",
            " L 00000010,8\n", " L 1ffeffe7e8,8\n", " S 1,4\n", " M ffffffffffffffff,16\n",
            " L ABCDEF,8\n",
        ].as_slice()), 1..400),
        sizes in vec(0usize..3000, 0..4),
    ) {
        check(lines.concat().as_bytes(), &sizes)?;
    }

    /// Random text never makes it panic.
    #[test]
    fn any_bytes_do_no_harm(
        bytes in vec(prop_oneof![
            any::<u8>(),
            prop::sample::select(b"\n\n\r  ,,==--I LSMB0123456789abcdef".as_slice()),
        ], 0..3000),
        sizes in vec(0usize..300, 0..4),
    ) {
        let _ = read_from(Pieces::new(&bytes, sizes), false);
    }
}
