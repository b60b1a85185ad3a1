//! Random streams, and random damage.

use super::*;

/// The references of any stream as records.
fn records_of(references: &[Reference]) -> Vec<Raw> {
    let record = |reference: &Reference| {
        let addr = reference.addr.raw();
        match reference.kind {
            ItemKind::Fetch => vec![(kind::INSTR, reference.size_bytes, addr)],
            ItemKind::Load => vec![(kind::READ, reference.size_bytes, addr)],
            ItemKind::Store => vec![(kind::WRITE, reference.size_bytes, addr)],
            ItemKind::Modify => {
                vec![
                    (kind::READ, reference.size_bytes, addr),
                    (kind::WRITE, reference.size_bytes, addr),
                ]
            }
        }
    };
    references.iter().flat_map(record).collect()
}

proptest! {
    #![proptest_config(octavo_oracle::cases(64))]

    /// Reading inverts writing for random programs.
    #[test]
    fn any_stream_is_read(stream in testing::stream(0..100)) {
        let references = testing::references_of(&stream);
        let got = read(&whole(&records_of(&references))).whole();
        prop_assert_eq!(got, testing::split_modifies(&references));
    }

    /// Damaged traces, and damaged archives of them, are read or refused.
    #[test]
    fn damage_is_survived(
        stream in testing::stream(1..20), at in any::<prop::sample::Index>(), bit in 0u8..8,
    ) {
        let mut bytes = whole(&records_of(&testing::references_of(&stream)));
        let mut zip = zipped(&[("chunk.0000", bytes.clone())], CompressionMethod::Deflated);
        let place = at.index(zip.len());
        zip[place] ^= 1 << bit;
        let scratch = Scratch::new(&format!("damage-{bit}"));
        read_path(&scratch.put("t.zip", &zip));
        let place = at.index(bytes.len());
        bytes[place] ^= 1 << bit;
        read(&bytes);
    }

    /// Records of any kind are read or refused.
    #[test]
    fn any_records(records in prop::collection::vec((0u16..52, 0u16..20, 0u64..9), 0..200)) {
        read(&whole(&records));
    }
}
