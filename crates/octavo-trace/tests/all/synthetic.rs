//! Synthetic traces, against their descriptions.

use std::collections::{BTreeMap, HashSet};

use octavo_oracle::{NaiveReferences, Reference};
use octavo_trace::source::{Batch, Place, Step};
use octavo_trace::synthetic::{KINDS, Spec, parse};
use octavo_trace::{Decoder, StreamConsumer};
use octavo_types::{Consumer, Event, ItemKind, MapSource, Segment, VirtAddr};
use proptest::prelude::*;

const TEXT: u64 = 0x5555_5555_4000;
const TOP: u64 = 0x7fff_f7ff_f000;

/// All references and events of a stream.
#[derive(Default)]
struct Written {
    naive: NaiveReferences,
    events: Vec<Event>,
}

impl Consumer for Written {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.naive.segment(segment, addresses);
    }

    fn event(&mut self, event: &Event) {
        self.events.push(event.clone());
    }
}

impl StreamConsumer for Written {}

impl Written {
    fn data(&self) -> impl Iterator<Item = &Reference> {
        self.naive.references.iter().filter(|reference| reference.kind != ItemKind::Fetch)
    }

    fn fetches(&self) -> impl Iterator<Item = u64> {
        let fetches =
            self.naive.references.iter().filter(|reference| reference.kind == ItemKind::Fetch);
        fetches.map(|reference| reference.addr.raw())
    }

    /// Modifies count twice.
    fn data_references(&self) -> u64 {
        self.data().map(|reference| 1 + u64::from(reference.kind == ItemKind::Modify)).sum()
    }
}

/// The whole trace.
fn written(spec: &Spec) -> Written {
    let mut source = spec.source();
    let (mut decoder, mut out) = (Decoder::default(), Written::default());
    let mut batch = Batch::default();
    while let Some(step) = source.next(&mut batch).expect("synthetic traces do not fail") {
        if step == Step::Batch(0) {
            decoder.decode(&batch.words, &mut out).expect("sound words");
        }
    }
    assert_eq!(source.progress().done, spec.references());
    out
}

/// The first data addresses, as offsets from the table's beginning.
fn offsets(uri: &str, table_bytes: u64) -> Vec<u64> {
    let spec = parse(uri).unwrap_or_else(|error| panic!("{uri}: {error}"));
    let base = TOP - table_bytes.next_multiple_of(4096);
    written(&spec).data().map(|reference| reference.addr.raw() - base).collect()
}

#[test]
fn walks_go_where_they_should() {
    let strided = offsets("synth:strided?bytes=10000&stride=3000&references=6", 10_000);
    assert_eq!(strided, [0, 3000, 6000, 9000, 0, 3000]);
    let sequential = offsets("synth:sequential?bytes=20&access=8&references=5", 20);
    assert_eq!(sequential, [0, 8, 0, 8, 0]);
    let rows = offsets("synth:rows?bytes=32&row=16&references=5", 32);
    assert_eq!(rows, [0, 8, 16, 24, 0]);
    let columns = offsets("synth:columns?bytes=48&row=16&references=8", 48);
    assert_eq!(columns, [0, 16, 32, 8, 24, 40, 0, 16]);
}

#[test]
fn a_loop_has_the_instructions_that_were_asked_for() {
    let spec = parse("synth:sequential?bytes=64&references=3&instructions=2&stores=0.5").unwrap();
    let table = TOP - 4096;
    let reference =
        |kind, addr, size_bytes| Reference { kind, addr: VirtAddr::new(addr), size_bytes };
    use ItemKind::{Fetch, Load, Store};
    assert_eq!(
        written(&spec).naive.references,
        [
            reference(Fetch, TEXT, 4),
            reference(Load, table, 8),
            reference(Fetch, TEXT + 4, 4),
            reference(Fetch, TEXT + 8, 4),
            reference(Store, table + 8, 8),
            reference(Fetch, TEXT + 12, 4),
            reference(Fetch, TEXT + 16, 4),
            reference(Load, table + 16, 8),
            reference(Fetch, TEXT + 20, 4),
        ]
    );
}

/// The expected addresses were computed in Python, by xoshiro256++ seeded by SplitMix64.
#[test]
fn random_addresses_are_the_same_on_every_machine() {
    let uniform = offsets("synth:uniform?bytes=1MiB&references=5&seed=7", 1 << 20);
    assert_eq!(uniform, UNIFORM);
    let gups = offsets("synth:gups?bytes=1MiB&updates=5&seed=7", 1 << 20);
    assert_eq!(gups, UNIFORM);
    let chase = offsets("synth:pointer-chase?bytes=448&references=8&seed=7", 448);
    assert_eq!(chase, CHASE);
    let zipf = offsets("synth:zipf?bytes=1MiB&references=5&seed=7&placement=together", 1 << 20);
    assert_eq!(zipf, ZIPF);
    let scattered = offsets("synth:zipf?bytes=1MiB&references=5&seed=7", 1 << 20);
    assert_eq!(scattered, SCATTERED);
}

const UNIFORM: [u64; 5] = [58048, 180472, 752432, 447960, 1010464];
const CHASE: [u64; 8] = [128, 384, 320, 192, 0, 256, 64, 128];
const ZIPF: [u64; 5] = [549224, 138488, 160, 6368, 0];
const SCATTERED: [u64; 5] = [880896, 1045584, 601024, 892248, 493368];

#[test]
fn an_update_is_a_load_and_a_store() {
    let even = written(&parse("synth:gups?bytes=4KiB&updates=100").unwrap());
    assert!(even.data().all(|reference| reference.kind == ItemKind::Modify));
    assert_eq!(even.data().count(), 100);
    let odd = written(&parse("synth:gups?bytes=4KiB&references=101").unwrap());
    assert_eq!(odd.data_references(), 101);
    assert_eq!(odd.data().last().unwrap().kind, ItemKind::Load);
}

#[test]
fn a_chase_visits_everything_once_a_round() {
    let visited = offsets("synth:pointer-chase?bytes=100000&element=100&references=2000", 100_000);
    let mut round = visited[..1000].to_vec();
    assert_eq!(round, visited[1000..]);
    round.sort_unstable();
    assert!(round.into_iter().eq((0..1000).map(|element| element * 100)));
}

#[test]
fn a_span_of_each_element_is_read_from_its_start() {
    let uri = "synth:uniform?bytes=100000&element=1000&span=24&references=3000&seed=3";
    let read = offsets(uri, 100_000);
    let starts: Vec<u64> = read.chunks(3).map(|chunk| chunk[0]).collect();
    assert!(starts.iter().all(|start| start % 1000 == 0));
    assert!(read.chunks(3).zip(&starts).all(|(chunk, &at)| chunk == [at, at + 8, at + 16]));
    // The elements are the same as without a span, as long as the whole span fits.
    let drawn = offsets("synth:uniform?bytes=100000&element=1000&references=1000&seed=3", 100_000);
    assert_eq!(starts, drawn);
    let last = offsets("synth:uniform?bytes=40&element=16&span=16&references=100", 40);
    assert_eq!(last.iter().max(), Some(&24), "the third element would end outside");
}

/// Loops over one table leave the same parts of it untouched, and use all the rest.
#[test]
fn unused_parts_are_unused_in_every_phase() {
    let table = |kind: &str, rest: &str| {
        format!("[[phase]]\nkind = '{kind}'\nbase = '0x40000000'\nbytes = '6MiB'\n{rest}\n")
    };
    let pages = "unused = 0.25\nunused-portion = 0.67\nunused-layout = 'dispersed'";
    let slots = "unused = 0.3\nunused-slot = '20KiB'\nunused-seed = 9";
    // Unused are a quarter of two of the three regions; or 92 of 307 slots, and the rest behind the
    // slots.
    for (unused, used_pages) in [(pages, 3 * 512 - 2 * 128), (slots, (307 - 92) * 5)] {
        let chase = format!("element = '4KiB'\nreferences = {used_pages}\n{unused}");
        let text = "kind = 'phases'\n".to_owned()
            + &table("pointer-chase", &chase)
            + &table("uniform", &format!("references = 60000\n{unused}"))
            + &table("gups", &format!("updates = 5000\n{unused}"));
        let spec = Spec::from_toml(&text).unwrap();
        assert_eq!(Spec::from_toml(&spec.resolved()).unwrap(), spec);
        let all: Vec<u64> =
            written(&spec).data().map(|reference| reference.addr.raw() >> 12).collect();
        let chased: HashSet<u64> = all[..used_pages].iter().copied().collect();
        assert_eq!(chased.len(), used_pages, "each once");
        let random: HashSet<u64> = all[used_pages..].iter().copied().collect();
        assert_eq!(random, chased);
    }
}

#[test]
fn phases_follow_one_another_and_go_on_where_they_were() {
    let spec = Spec::from_toml(
        "kind = 'phases'\nrepeat = 2\n\
         [[phase]]\nkind = 'sequential'\nbytes = '4KiB'\nreferences = 3\n\
         [[phase]]\nkind = 'strided'\nbytes = 8192\nstride = 4096\nreferences = 2\nstores = 1.0\n",
    )
    .unwrap();
    assert_eq!((spec.references(), spec.data_bytes()), (10, 12288));
    let first = TOP - 4096;
    let second = first - 8192;
    let out = written(&spec);
    let data: Vec<_> = out.data().map(|reference| reference.addr.raw()).collect();
    assert_eq!(data[..5], [first, first + 8, first + 16, second, second + 4096]);
    assert_eq!(data[5..], [first + 24, first + 32, first + 40, second, second + 4096]);
    let stores = out.data().filter(|reference| reference.kind == ItemKind::Store).count();
    assert_eq!(stores, 4);
}

#[test]
fn parts_of_a_mix_get_their_shares_all_the_way() {
    let spec = Spec::from_toml(
        "kind = 'mix'\nreferences = 100_000\n\
         [[part]]\nkind = 'gups'\nbytes = '1MiB'\nweight = 3\n\
         [[part]]\nkind = 'phases'\n\
         [[part.phase]]\nkind = 'uniform'\nbytes = '1MiB'\nreferences = 7\n\
         [[part.phase]]\nkind = 'zipf'\nbytes = '1MiB'\nreferences = 2\n",
    )
    .unwrap();
    let mut shares = [0i64; 3];
    for reference in written(&spec).data() {
        let table = (TOP - 1 - reference.addr.raw()) >> 20;
        shares[table as usize] += 1 + i64::from(reference.kind == ItemKind::Modify);
        let [gups, uniform, zipf] = shares;
        assert!((gups - 3 * (uniform + zipf)).abs() < 4 * 64, "{shares:?}");
        assert!((2 * uniform - 7 * zipf).abs() <= 14, "{shares:?}");
    }
    assert_eq!(shares.iter().sum::<i64>(), 100_000);
}

#[test]
fn code_has_the_pages_that_were_asked_for() {
    for order in ["turn", "zipf"] {
        let uri =
            format!("synth:sequential?bytes=4KiB&code=40000&code-order={order}&references=50k");
        let out = written(&parse(&uri).unwrap());
        let pages: HashSet<u64> = out.fetches().map(|addr| (addr - TEXT) / 4096).collect();
        assert_eq!(pages, (0..10).collect());
    }
    let once = written(&parse("synth:sequential?code=128&references=50k&stores=0.3").unwrap());
    assert!(once.fetches().all(|addr| (TEXT..TEXT + 128).contains(&addr)));
    // The kind of an instruction's access never changes: no instruction both loads and stores.
    let mut kinds = BTreeMap::new();
    for pair in once.naive.references.windows(2).filter(|pair| pair[1].kind != ItemKind::Fetch) {
        assert_eq!(*kinds.entry(pair[0].addr.raw()).or_insert(pair[1].kind), pair[1].kind);
    }
}

#[test]
fn a_trillion_references_are_begun_at_once() {
    let spec = parse("synth:zipf?bytes=32TiB&references=1e12&code=1MiB").unwrap();
    let mut source = spec.source();
    let mut batch = Batch { wants_places: true, ..Batch::default() };
    assert!(matches!(source.next(&mut batch), Ok(Some(Step::Began(_)))));
    for _ in 0..20 {
        let before = source.progress().done;
        assert_eq!(source.next(&mut batch), Ok(Some(Step::Batch(0))));
        assert!(batch.words.capacity() < 1 << 17, "{}", batch.words.capacity());
        assert_eq!(source.place(), Place::Reference(before));
        assert_eq!(batch.places[0], Place::Reference(before));
    }
    assert_eq!(source.progress().total, Some(1_000_000_000_000));
    let longest = parse("synth:gups?references=4611686018427387904").unwrap();
    assert_eq!(longest.references(), 1 << 62);
}

#[test]
fn mistakes_get_one_sentence() {
    let wrong = |uri: &str| parse(uri).unwrap_err().to_string();
    assert_eq!(wrong("gups"), "`gups` must begin with `synth:`, as in `synth:gups?table=1GiB`");
    assert_eq!(
        wrong("synth:gusp"),
        "the kind `gusp` is none of uniform, zipf, strided, sequential, pointer-chase, gups, rows, \
         columns; did you mean `gups`?"
    );
    let empty = "the kind is empty: give uniform, zipf, strided, sequential, pointer-chase, gups, \
                 rows or columns";
    assert_eq!(wrong("synth:"), empty);
    assert_eq!(wrong("synth:?table=1MiB"), empty);
    assert!(wrong("synth:gups?tabel=1").ends_with("did you mean `table`?"));
    assert!(
        wrong("synth:gups?tabel=1").starts_with("among the parameters of gups, `tabel` is none of")
    );
    assert_eq!(
        wrong("synth:gups?table=12potatoes"),
        "`table=12potatoes` must be a size in bytes such as 4096, 64KiB or 1.5GiB"
    );
    assert_eq!(wrong("synth:gups?table=4"), "`table=4` must be from 8 to 32TiB");
    assert_eq!(wrong("synth:gups?bytes=4"), "`bytes=4` must be from 8 to 32TiB");
    assert_eq!(
        wrong("synth:gups?table=4KiB&bytes=8KiB"),
        "`table` and `bytes` mean the same, one of them is allowed"
    );
    assert_eq!(wrong("synth:gups?seed=1&seed=1"), "`seed` is given twice, once is allowed");
    assert_eq!(
        wrong("synth:zipf?placement=togehter"),
        "`placement`: `togehter` is none of scattered, together; did you mean `together`?"
    );
    assert_eq!(
        wrong("synth:uniform?access=3"),
        "`access=3` must be a power of two from 1 to 64 bytes"
    );
    assert_eq!(
        wrong("synth:uniform?access=64&element=128&span=100"),
        "`span=100` must be a multiple of the access size (64)"
    );
    assert_eq!(
        wrong("synth:gups?unused=0.5&table=1MiB"),
        "with `unused`, elements must be at most 4096 bytes, and the table whole regions of 2MiB, \
         or `unused-slot` be given"
    );
    assert_eq!(
        wrong("synth:uniform?unused=0.5&element=8KiB&unused-slot=12KiB"),
        "`element=8192` must be at most 4096 bytes or the slot (12288), as slots are unused"
    );
    assert_eq!(wrong("synth:gups?unused=1"), "`unused=1` must be from 0 to 0.99");
    assert!(wrong("synth:strided?unused=0.5").starts_with("among the parameters of strided,"));
    assert_eq!(
        wrong("synth:mix"),
        "the kind `mix` has members, so it must be described in a TOML file"
    );
    assert!(wrong("synth:columns?bytes=4KiB&row=100").starts_with("`row=100` must be a multiple"));

    let wrong = |text: &str| Spec::from_toml(text).unwrap_err().to_string();
    assert!(wrong("kind = 'gups'\nseed = ").starts_with("line 2 is not TOML: "));
    assert_eq!(wrong("seed = 1"), "`kind` is missing: give one such as \"gups\"");
    assert!(wrong("kind = 'phase'").ends_with("phases, mix; did you mean `phases`?"));
    assert_eq!(wrong("kind = 'mix'"), "mix must have members, each begun by [[part]]");
    assert_eq!(
        wrong("kind = 'mix'\n[[part]]\nkind = 'gups'\n[[part]]\nkind = 'zipf'\nseed = true"),
        "part 2: `seed` must be a number or a text"
    );
    assert!(
        wrong("kind = 'mix'\n[[part]]\nkind = 'gups'\nreferences = 3")
            .starts_with("part 1: among the parameters of gups, `references` is none of")
    );
    assert!(
        wrong("kind = 'phases'\nrepeat = 1e18\n[[phase]]\nkind = 'gups'")
            .starts_with("`repeat` and `references` together")
    );
    let nested = "kind = 'phases'\n".to_owned()
        + &(1..12)
            .map(|depth| format!("[[{}]]\nkind = 'phases'\n", vec!["phase"; depth].join(".")))
            .collect::<String>();
    assert!(wrong(&nested).contains("may be nested 8 deep"));
}

/// A random loop, as the lines of a TOML table.
fn any_loop(role: &'static str) -> impl Strategy<Value = String> {
    let kind = prop::sample::select(KINDS[..8].iter().map(|kind| kind.name).collect::<Vec<_>>());
    let shape = (kind, 0u32..=6, 1u64..=2000, 64u64..=200_000, 1u64..=300);
    let loops = (shape, 0u64..=100, 1u64..=256, 1u64..=40_000, any::<u64>(), any::<bool>());
    loops.prop_map(move |(shape, stores, instructions, code, seed, by_zipf)| {
        let (kind, access, references, bytes, other) = shape;
        let access = 1u64 << access;
        let mut lines = vec![
            format!("kind = '{kind}'"),
            format!("access = {access}"),
            format!("instructions = {instructions}"),
            format!("code = {}", code.max(2 * 4 * instructions)),
            format!("seed = '{seed}'"),
            format!("code-order = '{}'", if by_zipf { "zipf" } else { "turn" }),
        ];
        let element = access + other % (bytes - access + 1);
        let mut table_bytes = bytes;
        match kind {
            "gups" => {}
            _ => lines.push(format!("stores = {}", stores as f64 / 100.0)),
        }
        match kind {
            "uniform" | "zipf" | "pointer-chase" => {
                lines.push(format!("element = {element}"));
                if kind == "uniform" {
                    lines.push(format!("span = {}", element / access * access));
                }
                if kind != "zipf" && element <= 4096 && bytes >= 8192 {
                    lines.push("unused = 0.4\nunused-slot = 8192".to_owned());
                }
            }
            "strided" => lines.push(format!("stride = {}", other.min(bytes))),
            "rows" | "columns" => {
                let row = access * (1 + other % 20);
                table_bytes = row * (1 + bytes / row);
                lines.push(format!("row = {row}"));
            }
            _ => {}
        }
        lines.push(format!("bytes = {table_bytes}"));
        match role {
            "part" => lines.push(format!("weight = {}", 1 + other % 10)),
            _ => lines.push(format!("references = {references}")),
        }
        lines.join("\n")
    })
}

/// A loop, phases, or a mix.
fn any_description() -> impl Strategy<Value = String> {
    let phases =
        (prop::collection::vec(any_loop("phase"), 1..4), 1u64..4).prop_map(|(all, repeat)| {
            let members: Vec<_> = all.iter().map(|one| format!("[[phase]]\n{one}\n")).collect();
            format!("kind = 'phases'\nrepeat = {repeat}\n{}", members.concat())
        });
    let mix =
        (prop::collection::vec(any_loop("part"), 1..4), 1u64..4000).prop_map(|(all, length)| {
            let members: Vec<_> = all.iter().map(|one| format!("[[part]]\n{one}\n")).collect();
            format!("kind = 'mix'\nreferences = {length}\n{}", members.concat())
        });
    prop_oneof![any_loop("whole"), phases, mix]
}

proptest! {
    #![proptest_config(octavo_oracle::cases(128))]

    #[test]
    fn traces_are_as_described(text in any_description()) {
        let spec = Spec::from_toml(&text).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let out = written(&spec);
        prop_assert_eq!(out.data_references(), spec.references());

        let mappings: Vec<_> = out.events.iter().map(|event| match event {
            Event::Map { range, source, .. } => (*range, *source == MapSource::Anonymous),
            other => panic!("{other:?}"),
        }).collect();
        for reference in &out.naive.references {
            let last = reference.addr.wrapping_add(u64::from(reference.size_bytes) - 1);
            let is_data = reference.kind != ItemKind::Fetch;
            prop_assert!(mappings.iter().any(|(range, data)| {
                *data == is_data && range.contains(reference.addr) && range.contains(last)
            }), "{:?}", reference);
        }
        let mapped: u64 = mappings.iter().filter(|(_, data)| *data).map(|(range, _)| range.bytes()).sum();
        prop_assert!(mapped >= spec.data_bytes() && mapped < spec.data_bytes() + 4 * 4096);

        // Its resolved text describes the same plan.
        let resolved = spec.resolved();
        let again = if resolved.starts_with("synth:") { parse(&resolved) } else { Spec::from_toml(&resolved) };
        prop_assert_eq!(again.as_ref(), Ok(&spec), "{}", resolved);
        prop_assert_eq!(written(&again.unwrap()).naive.references, out.naive.references);
    }

    /// The table is small enough to be touched completely.
    #[test]
    fn all_of_a_table_is_used(kind in prop::sample::select(vec!["uniform", "sequential", "pointer-chase", "gups", "rows", "columns"]), rows in 1u64..20) {
        let bytes = rows * 512;
        let row = if kind == "rows" || kind == "columns" { "&row=512" } else { "" };
        let element = if kind == "pointer-chase" { "&element=64" } else { "" };
        let offsets = offsets(&format!("synth:{kind}?bytes={bytes}&access=64{row}{element}&references=10k"), bytes);
        let lines: HashSet<u64> = offsets.iter().copied().collect();
        prop_assert_eq!(lines.len() as u64, bytes / 64);
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,200}", query in "[a-z]{0,8}(=[0-9a-zA-Z.%+]{0,8}(&[a-z-]{0,10}=[0-9a-zA-Z.]{0,12}){0,4})?", kind in 0usize..8) {
        let _ = (parse(&text), Spec::from_toml(&text), parse(&format!("synth:{text}")));
        let uri = format!("synth:{}?{query}", KINDS[kind].name);
        if let Ok(spec) = parse(&uri) {
            let mut source = spec.source();
            let mut batch = Batch::default();
            for _ in 0..3 {
                let _ = source.next(&mut batch);
            }
        }
    }
}
