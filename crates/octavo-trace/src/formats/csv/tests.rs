use super::*;
use crate::formats::rows::testing::{threads_of, threads_read};
use crate::formats::testing::{self, read, same_but_for_sizes};
use proptest::prelude::*;

proptest! {
    #![proptest_config(octavo_oracle::cases(64))]

    /// All references are kept, with their threads.
    #[test]
    fn written_traces_are_read_back(random in testing::stream(1..80)) {
        let (bytes, written) = testing::write(&FORMAT, &random).unwrap();
        let expected = threads_of(&random);
        prop_assert_eq!(written.references > 0, !expected.is_empty());
        prop_assert_eq!(recognise(&bytes[..bytes.len().min(4096)]), Likeness::Yes);
        prop_assume!(!expected.is_empty());
        let drained = read(&FORMAT, &bytes);
        prop_assert_eq!(&drained.error, &None);
        prop_assert!(drained.facts.has_sizes && drained.facts.notes.is_empty());
        prop_assert_eq!(threads_read(&drained), expected);
    }

    /// A table without sizes gives references as every format without sizes does.
    #[test]
    fn sizes_may_be_missing(random in testing::stream(1..40)) {
        let (bytes, _) = testing::write(&FORMAT, &random).unwrap();
        let expected = testing::references_of(&random);
        prop_assume!(!expected.is_empty());
        let text = String::from_utf8(bytes).unwrap();
        let bare: String = text.lines().map(|line| {
            let fields: Vec<_> = line.split(',').collect();
            format!("{},{}\n", fields[0], fields[1])
        }).collect();
        let drained = read(&FORMAT, bare.as_bytes());
        prop_assert!(!drained.facts.has_sizes);
        same_but_for_sizes(&drained.whole(), &expected);
    }
}

fn rows(text: &str) -> Vec<(ItemKind, u64, u16)> {
    let whole = read(&FORMAT, text.as_bytes()).whole();
    whole
        .iter()
        .map(|reference| (reference.kind, reference.addr.raw(), reference.size_bytes))
        .collect()
}

#[test]
fn columns_in_any_order_and_words_in_either_case() {
    use ItemKind::{Fetch, Load, Modify, Store};
    let text = "\u{feff}Size, note ,KIND,\"Address\"\r\n4,x,FETCH,0x401000\r\n8,\"a,b\",r,4096\r\n\
                0x10,,W,0xFFFFFFFFFFFFFFFF\r\n\r\n1,,m,0\r\n2,,L,1\r\n3,,Store,2\r\n1,,i,7\r\n";
    assert_eq!(recognise(text.as_bytes()), Likeness::Yes);
    assert_eq!(
        rows(text),
        [
            (Fetch, 0x401000, 4),
            (Load, 4096, 8),
            (Store, u64::MAX, 16),
            (Modify, 0, 1),
            (Load, 1, 2),
            (Store, 2, 3),
            (Fetch, 7, 1),
        ]
    );
    let facts = read(&FORMAT, text.as_bytes()).facts;
    assert!(facts.has_instructions && facts.has_sizes);
    assert_eq!(facts.notes, ["the column `note` is ignored"]);
}

#[test]
fn each_thread_that_rows_name_starts_once() {
    let started = |text: &str| -> Vec<u32> {
        let events = read(&FORMAT, text.as_bytes()).events;
        let started = events.iter().filter_map(|(_, event)| match event {
            octavo_types::Event::ThreadStart { thread } => Some(*thread),
            _ => None,
        });
        started.collect()
    };
    assert_eq!(started("kind,address,thread\nload,8,1\nload,8,2\nload,8,1\n"), [1, 2]);
    assert_eq!(started("kind,address,thread\nload,8,7\nload,8,7\nload,8,1\n"), [7, 1]);
    assert!(started("kind,address\nload,8\nload,8\n").is_empty());
}

#[test]
fn instructions_without_fetches_are_a_note() {
    let text = "kind,address,instructions\nload,8,3\nstore,16,3\nload,8,7\n";
    let facts = read(&FORMAT, text.as_bytes()).facts;
    assert!(!facts.has_instructions && !facts.has_sizes);
    assert!(facts.notes[0].contains("7 instructions"), "{:?}", facts.notes);
}

#[test]
fn wrong_tables_are_named() {
    let long = format!("kind,address\nload,{}", "1".repeat(5000));
    let wide = format!("kind,address{}\n", ",x".repeat(64));
    let open = format!("kind,address\n\"load,{}", "8\nload,".repeat(2000));
    for (text, sentence) in [
        ("kind,address\n", "`trace` has no references"),
        ("kind,size\n", "`trace`, line 1: no column is named `address`"),
        ("address,size\n", "`trace`, line 1: no column is named `kind`"),
        ("kind,address,Kind\n", "`trace`, line 1: two columns are named `kind`"),
        ("kind,address\nload,8\nload\nload,8\n", "`trace`, line 3: has 1 of 2 columns"),
        ("kind,address\nload,8,9\n", "`trace`, line 2: has 3 of 2 columns"),
        ("kind,address\nload,8\nlo", &format!("`trace`, line 3: {CUT}")),
        // The address may have been longer.
        ("kind,address\nload,8\nload,0x7f", &format!("`trace`, line 3: {CUT}")),
        (
            "kind,address\nload,8\n\n\npre,8\n",
            "`trace`, line 5: `pre` is not a kind of reference: give fetch, load, store or modify",
        ),
        (
            "kind,address\nload,40a0\n",
            "`trace`, line 2: `40a0` is not an address (hexadecimal ones begin with 0x)",
        ),
        (
            "kind,address,size\nload,8,4097\n",
            "`trace`, line 2: a size of 4097 bytes is outside 1..=4096",
        ),
        ("kind,address,size\nload,8,\n", "`trace`, line 2: `` is not a size"),
        (
            "kind,address,thread\nload,8,4294967296\n",
            "`trace`, line 2: `4294967296` is not a thread's number",
        ),
        (
            "kind,address,instructions\nload,8,5\nload,8,4\n",
            "`trace`, line 3: time travel: instruction 4 comes after 5",
        ),
        (&long, "`trace`, line 2: is longer than 4096 bytes"),
        (&wide, "`trace`, line 1: has more than 64 columns"),
    ] {
        assert_eq!(read(&FORMAT, text.as_bytes()).sentence(), sentence);
    }
    assert!(read(&FORMAT, open.as_bytes()).sentence().ends_with("is longer than 4096 bytes"));
}
