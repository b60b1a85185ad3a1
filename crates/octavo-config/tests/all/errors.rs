//! Error messages for invalid machines.

use std::fs;
use std::path::PathBuf;

use crate::own_table::{resolve, resolve_text};

/// The error of a preset with settings.
fn error(name: &str, settings: &[&str]) -> String {
    match resolve(name, settings) {
        Ok(_) => panic!("{name} with {settings:?} is a machine"),
        Err(error) => error.to_string(),
    }
}

/// The error of a file.
fn error_of_file(text: &str) -> String {
    let nothing: [&str; 0] = [];
    match resolve_text("mine.toml", text, &nothing) {
        Ok(_) => panic!("it is a machine: {text}"),
        Err(error) => error.to_string(),
    }
}

/// The error of a file that extends skylake.
fn error_of_skylake_file(text: &str) -> String {
    error_of_file(&format!("extends = \"skylake\"\n{text}"))
}

#[test]
fn advice_on_numbers_has_the_bounds_that_are_accepted() {
    let advice = |setting: &str| error("skylake", &[setting]).split_off("--set: ".len());
    let count = "give a whole number from 1 to 256";
    assert_eq!(advice("core.count=-1"), format!("core.count = -1: {count}"));
    assert_eq!(advice("core.count=99999999999"), format!("core.count = 99999999999: {count}"));
    assert_eq!(advice("core.count=many"), format!("core.count = \"many\": {count}"));
    assert!(advice("tlb.l2.hit_latency_cycles=-1").ends_with("from 0 to 1000000"));
    assert_eq!(
        advice("tlb.l1d.hit_latency_cycles=3"),
        "tlb.l1d.hit_latency_cycles = 3: give 0: a first level is looked up beside the first-level cache"
    );
    assert_eq!(advice("core.count={}"), format!("core.count = {{}}: {count}"));
    assert_eq!(advice("core.count={a=1}"), format!("core.count = {{ a = 1 }}: {count}"));
    assert_eq!(
        advice("page_table.levels=true"),
        "page_table.levels = true: give a whole number from 4 to 5"
    );
    assert_eq!(
        advice("memory.bytes={}"),
        "memory.bytes = {}: give a multiple of \"4KiB\" from \"4KiB\" to \"4TiB\""
    );
    assert_eq!(
        advice("page_table.levels=300"),
        "page_table.levels = 300: give a whole number from 4 to 5"
    );
}

#[test]
fn value_in_place_of_a_table_is_rejected_with_the_keys_of_the_table() {
    assert_eq!(
        error("skylake", &["tlb.l2.main=3"]),
        "--set: tlb.l2.main = 3: it is a table; give a key in it: entries, ways, page_sizes or \
         replacement"
    );
    assert!(error("skylake", &["tlb=3"]).starts_with("--set: tlb = 3: it is a table; give a key"));
}

#[test]
fn invalid_geometry_is_rejected() {
    assert_eq!(
        error("skylake", &["tlb.l2.main.entries=1537"]),
        "--set: tlb.l2.main.entries = 1537: give a multiple of 12 (ways), such as 1548"
    );
    assert_eq!(
        error("skylake", &["tlb.l2.main.ways=5"]),
        "--set: tlb.l2.main.ways = 5: give a number by which entries (1536) can be divided, such \
         as 4, or \"full\""
    );
    // If both are set, the later one is wrong.
    assert!(
        error("skylake", &["tlb.l2.main.ways=5", "tlb.l2.main.entries=16"]).starts_with(
            "--set: tlb.l2.main.entries = 16: give a multiple of 5 (ways), such as 20"
        )
    );
    assert_eq!(
        error("skylake", &["tlb.l1d.1g.entries=0"]),
        "--set: tlb.l1d.1g.entries = 0: give at least 1"
    );
    assert_eq!(
        error("skylake", &["tlb.l1d.4k.ways=0"]),
        "--set: tlb.l1d.4k.ways = 0: give at least 1, or \"full\""
    );
    assert_eq!(
        error("skylake", &["tlb.l1d.4k.entries=100000000"]),
        "--set: tlb.l1d.4k.entries = 100000000: give at most 67108864"
    );
    assert_eq!(
        error("skylake", &["tlb.l2.main.entries=99999999999"]),
        "--set: tlb.l2.main.entries = 99999999999: give at most 67108864"
    );
    assert_eq!(
        error("skylake", &["walker.caches.pde.entries=33"]),
        "--set: walker.caches.pde.entries = 33: give a multiple of 4 (ways), such as 36"
    );
    assert_eq!(
        error("skylake", &["cache.l1d.bytes=32832"]),
        "--set: cache.l1d.bytes = \"32832\": give a multiple of \"512\" (8 ways of 64 bytes), such \
         as \"33280\""
    );
}

#[test]
fn invalid_prefetchers_are_rejected() {
    let with = |cache: &str, keys: &str| {
        error_of_skylake_file(&format!(
            "[cache.{cache}.prefetch.streamer]\nstreams = 4\nconfirmations = 2\n{keys}"
        ))
    };
    assert_eq!(
        with("llc", "distance = 8\ndegree = 1"),
        "mine.toml: cache.llc.prefetch = streamer: only cache.l1d and cache.l2 have prefetchers: omit it"
    );
    assert_eq!(
        with("l2", "distance = 0\ndegree = 1"),
        "mine.toml: cache.l2.prefetch.streamer.distance = 0: give a whole number from 1 to 1024"
    );
    assert!(
        with("l2", "distance = 8\ndegree = 1\npage = \"5KiB\"")
            .starts_with("mine.toml: cache.l2.prefetch.streamer.page = \"5KiB\"")
    );
    let region = |cache: &str, [entries, visits, before, after]: [u32; 4]| {
        error_of_skylake_file(&format!(
            "[cache.{cache}.prefetch.region]\nentries = {entries}\nconfirmations = 2\n\
             visits = {visits}\nbefore = {before}\nafter = {after}\ndegree = 10"
        ))
    };
    assert_eq!(
        region("l1i", [64, 22, 4, 6]),
        "mine.toml: cache.l1i.prefetch = region: only cache.l1d and cache.l2 have prefetchers: omit it"
    );
    for (given, key, range) in [
        ([65537, 22, 4, 6], "entries = 65537", "1 to 65536"),
        ([64, 1025, 4, 6], "visits = 1025", "1 to 1024"),
        ([64, 22, 32, 6], "before = 32", "0 to 31"),
        ([64, 22, 4, 32], "after = 32", "0 to 31"),
        ([64, 22, 0, 0], "after = 0", "1 to 31"),
    ] {
        assert_eq!(
            region("l1d", given),
            format!("mine.toml: cache.l1d.prefetch.region.{key}: give a whole number from {range}")
        );
    }
    for (setting, range) in [("confirmations=17", "1 to 16"), ("degree=65", "0 to 64")] {
        assert_eq!(
            error("zen5", &[&format!("cache.l1d.prefetch.region.{setting}")]),
            format!(
                "--set: cache.l1d.prefetch.region.{}: give a whole number from {range}",
                setting.replace('=', " = ")
            )
        );
    }
}

#[test]
fn unknown_keys_are_rejected() {
    assert_eq!(
        error("skylake", &["tlb.l2.main.entires=2048"]),
        "--set: tlb.l2.main.entires: there is no such key; give entries, ways, page_sizes or \
         replacement; did you mean `entries`?"
    );
    assert_eq!(
        error("skylake", &["tbl.l2.hit_latency_cycles=7"]),
        "--set: tbl: there is no such key; give name, description, source, core, memory, \
         page_table, tlb, walker, cache, dram, host or own; did you mean `tlb`?"
    );
    assert_eq!(
        error("skylake", &["tlb.l2.hit_latency=7"]),
        "--set: tlb.l2.hit_latency: there is no such key; give hit_latency_cycles, fill or a table \
         for each array; did you mean `hit_latency_cycles`?"
    );
    assert_eq!(
        error("skylake", &["tlb.l3.hit_latency_cycles=7"]),
        "--set: tlb.l3: there is no such key; give l1, l1i, l1d or l2"
    );
    assert_eq!(
        error_of_skylake_file("[cache.l1d]\nlatency_cycle = 5\n"),
        "mine.toml: cache.l1d.latency_cycle: there is no such key; give bytes, ways, latency_cycles, \
         replacement or prefetch; did you mean `latency_cycles`?"
    );
}

#[test]
fn invalid_values_are_rejected() {
    let cases = [
        (
            "tlb.l2.fill=victm",
            "tlb.l2.fill = \"victm\": give all or victim; did you mean `victim`?",
        ),
        ("tlb.l2.fill=7", "tlb.l2.fill = 7: give all or victim"),
        (
            "tlb.l2.main.replacement=LRU",
            "tlb.l2.main.replacement = \"LRU\": give lru, tree-plru, random, fifo or srrip",
        ),
        ("tlb.l2.main.entries=many", "tlb.l2.main.entries = \"many\": give a whole number from 1"),
        ("tlb.l2.main.entries=-1", "tlb.l2.main.entries = -1: give at least 1"),
        ("tlb.l2.main.entries=1.5", "tlb.l2.main.entries = 1.5: give a whole number from 1"),
        (
            "tlb.l2.main.ways=some",
            "tlb.l2.main.ways = \"some\": give a whole number from 1, or \"full\"",
        ),
        (
            "tlb.l2.main.page_sizes=4KiB",
            "tlb.l2.main.page_sizes = \"4KiB\": give a list such as [\"4KiB\", \"2MiB\"], or \"any\"",
        ),
        (
            "tlb.l2.main.page_sizes=[\"4KiB\", \"3KiB\"]",
            "tlb.l2.main.page_sizes[1] = \"3KiB\": give a power of two from \"4KiB\" to \"1GiB\", \
             such as \"4KiB\", \"64KiB\" or \"2MiB\"",
        ),
        (
            "tlb.l2.main.page_sizes=[]",
            "tlb.l2.main.page_sizes = []: give at least one size, such as [\"4KiB\"]",
        ),
        (
            "tlb.l2.main.page_sizes=[\"2MiB\", \"4KiB\"]",
            "tlb.l2.main.page_sizes = [\"2MiB\", \"4KiB\"]: give each size once, the smallest first",
        ),
        (
            "memory.bytes=lots",
            "memory.bytes = \"lots\": give a multiple of \"4KiB\" from \"4KiB\" to \"4TiB\"",
        ),
        (
            "memory.bytes=5TiB",
            "memory.bytes = \"5TiB\": give a multiple of \"4KiB\" from \"4KiB\" to \"4TiB\"",
        ),
        (
            "memory.bytes=0",
            "memory.bytes = \"0\": give a multiple of \"4KiB\" from \"4KiB\" to \"4TiB\"",
        ),
        ("core.count=0", "core.count = 0: give a whole number from 1 to 256"),
        ("core.base_cpi=nan", "core.base_cpi = NaN: give a number from 0.001 to 1000"),
        ("core.base_cpi=0", "core.base_cpi = 0: give a number from 0.001 to 1000"),
        ("core.base_cpi=1e308", "core.base_cpi = 1e308: give a number from 0.001 to 1000"),
        ("core.base_cpi=1e-308", "core.base_cpi = 1e-308: give a number from 0.001 to 1000"),
        (
            "core.pipeline.frequency_ghz=1e-300",
            "core.pipeline.frequency_ghz = 1e-300: give a number from 0.001 to 100",
        ),
        (
            "memory.fragmentation={kind='faults',portion=-1e300,layout='clustered'}",
            "memory.fragmentation.portion = -1e300: give a share from 0 to 1",
        ),
        (
            "memory.tiers={far={share=1e300,added_latency_cycles=9}}",
            "memory.tiers.far.share = 1e300: give a share above 0, and at most 1",
        ),
        ("core.base_cpi=fast", "core.base_cpi = \"fast\": give a number"),
        ("page_table.levels=6", "page_table.levels = 6: give a whole number from 4 to 5"),
        ("page_table.levels=300", "page_table.levels = 300: give a whole number from 4 to 5"),
        (
            "walker.start=with-look-up",
            "walker.start = \"with-look-up\": give after-lookup or with-lookup; did you mean \
             `with-lookup`?",
        ),
        ("walker.pte_entry=l1", "walker.pte_entry = \"l1\": give l1d or l2; did you mean `l1d`?"),
        (
            "walker.window_instructions=0",
            "walker.window_instructions = 0: give a whole number from 1 to 65536",
        ),
        ("walker.walkers=65", "walker.walkers = 65: give a whole number from 1 to 64"),
        (
            "walker.caches.pde.level=1",
            "walker.caches.pde.level = 1: give 2 to 4; level 1 has leaves only",
        ),
        (
            "walker.caches.pdpte.level=2",
            "walker.caches.pdpte.level = 2: give another level: walker.caches.pde is of this one",
        ),
        (
            "cache.line_bytes=48",
            "cache.line_bytes = 48: give a power of two from 8 to 4096, such as 64",
        ),
        (
            "tlb.l2=7",
            "tlb.l2 = 7: it is a table; give a key in it: hit_latency_cycles, fill, main or 1g",
        ),
        ("tlb=7", "tlb = 7: it is a table; give a key in it: l1i, l1d or l2"),
        ("cache.l1d.bytes=many", "cache.l1d.bytes = \"many\": give a size from \"64\""),
        (
            "cache.line_bytes=many",
            "cache.line_bytes = \"many\": give a power of two from 8 to 4096, such as 64",
        ),
        (
            "tlb.l2.main.entries=99999999999999999999",
            "tlb.l2.main.entries = \"99999999999999999999\": give at most 67108864",
        ),
        (
            "tlb.l2.main.entries=\"1536\"",
            "tlb.l2.main.entries = \"1536\": give a whole number from 1",
        ),
        ("name=7", "name = 7: give a text in quotes"),
        (
            "cache.l2.replacement=3",
            "cache.l2.replacement = 3: give lru, tree-plru, random, fifo or srrip",
        ),
        (
            "memory.bytes=1EiB",
            "memory.bytes = \"1EiB\": give a multiple of \"4KiB\" from \"4KiB\" to \"4TiB\"",
        ),
        ("core.count=2020-01-01", "core.count = \"2020-01-01\": give a whole number from 1 to 256"),
    ];
    for (setting, sentence) in cases {
        assert_eq!(error("skylake", &[setting]), format!("--set: {sentence}"));
    }
}

#[test]
fn inconsistent_parts_are_rejected() {
    assert_eq!(
        error("skylake", &["tlb.l1d.fill=victim"]),
        "--set: tlb.l1d.fill = \"victim\": give \"all\": there is no level before it whose victims \
         it could take"
    );
    assert_eq!(
        error("skylake", &["tlb.l1d.4k=none"]),
        "--set: tlb.l1d: give one of its arrays page_sizes with \"4KiB\""
    );
    assert_eq!(
        error("skylake", &["tlb.l1d.4k.page_sizes=any"]),
        "--set: tlb.l1d.4k.page_sizes = \"any\": give a list such as [\"4KiB\", \"2MiB\"], or make \
         the array's ways \"full\": sets have no index for pages of any size"
    );
    assert_eq!(
        error("skylake", &["tlb.l1i=none"]),
        "--set: tlb: give either l1i and l1d, or l1 for both; `none` takes one out"
    );
    assert_eq!(
        error("skylake", &["memory.fragmentation.kind=holes"]),
        "--set: memory.fragmentation: of kind \"holes\", it has the keys portion, fraction, layout \
         and holes, and may have seed"
    );
    assert_eq!(
        error("skylake", &["memory.fragmentation.portion=0.5"]),
        "--set: memory.fragmentation: of kind \"empty\", the default, it has no other key; give a kind \
         that has, too: \"holes\", \"mixed-holes\", \"faults\", \"order-mix\" or \"snapshot\""
    );
    assert_eq!(
        error("skylake", &["memory.fragmentation.seed=1"]),
        "--set: memory.fragmentation: of kind \"empty\", the default, it has no other key; give a kind \
         that has, too: \"holes\", \"mixed-holes\", \"faults\", \"order-mix\" or \"snapshot\""
    );
    assert_eq!(
        error("skylake", &["memory.fragmentation.file=now.octmem"]),
        "--set: memory.fragmentation: of kind \"empty\", the default, it has no file; give kind = \
         \"snapshot\", too"
    );
    assert_eq!(
        error("skylake", &["core.pipeline.wrong_paths=maybe"]),
        "--set: core.pipeline.wrong_paths = \"maybe\": give true or false"
    );
    assert_eq!(
        error("skylake", &["memory.fragmentation={kind = 'faults', portion = 0.1}"]),
        "--set: memory.fragmentation: of kind \"faults\", it has the keys portion and layout, and may \
         have seed"
    );
    assert_eq!(
        error(
            "skylake",
            &["memory.fragmentation={kind = 'faults', portion = 1.5, layout = 'dispersed'}"]
        ),
        "--set: memory.fragmentation.portion = 1.5: give a share from 0 to 1"
    );
    let mix =
        "memory.fragmentation={kind = 'order-mix', free_blocks = {8MiB = 1}, movable_share = 0}";
    assert_eq!(
        error("skylake", &[mix]),
        "--set: memory.fragmentation.free_blocks.8MiB = 1: give 0: no block is above \
         memory.largest_block, \"4MiB\""
    );
    let mix = mix.replace("8MiB = 1", "4MiB = 5000");
    assert_eq!(
        error("skylake", &[&mix]),
        "--set: memory.fragmentation.free_blocks.4MiB = 5000: give fewer: all free blocks are more \
         than memory.bytes, \"16GiB\""
    );
    assert_eq!(
        error("skylake", &["memory.fragmentation.kind=mixed-holes"]),
        "--set: memory.fragmentation: of kind \"mixed-holes\", it has the key groups, and may have seed"
    );
    let group = "{portion = 0.75, fraction = 0.5, layout = 'clustered', holes = 'immovable'}";
    let mixed = format!(
        "memory.fragmentation={{kind = 'mixed-holes', groups = {{a = {group}, b = {group}}}}}"
    );
    assert_eq!(
        error("skylake", &[&mixed]),
        "--set: memory.fragmentation.groups.b.portion = 0.75: give less: the portions of all groups \
         come to more than 1"
    );
    let holes = "memory.fragmentation={kind = 'holes', portion = 2, fraction = 0.5, \
                 layout = 'clustered', holes = 'movable'}";
    assert_eq!(
        error("skylake", &[holes]),
        "--set: memory.fragmentation.portion = 2: give a share from 0 to 1"
    );
    assert_eq!(
        error("skylake", &[&holes.replace("clustered", "clusterd")]),
        "--set: memory.fragmentation.layout = 'clusterd': give clustered or dispersed; did you \
         mean `clustered`?"
    );
    assert_eq!(
        error_of_skylake_file(
            "[tlb.l1d.\"4 K\"]\nentries = 64\nways = 4\npage_sizes = ['4KiB']\nreplacement = 'lru'"
        ),
        "mine.toml: tlb.l1d: `4 K` is not a name of an array; give 1 to 32 of a to z, 0 to 9, - and _"
    );
}

#[test]
fn malformed_settings_are_rejected() {
    for setting in ["tlb.l2", "", "=", "a b=1", "=5"] {
        let sentence = error("skylake", &[setting]);
        assert!(sentence.starts_with(&format!("--set: {setting}: give ")), "{sentence}");
    }
    let deep = format!("{}=1", ["a"; 100_000].join("."));
    let sentence = error("skylake", &[&deep]);
    assert!(sentence.len() < 200 && sentence.contains("such as tlb.l2.main.entries"), "{sentence}");
    assert_eq!(
        error("skylake", &["tlb.l2.mian.entries=2048"]),
        "--set: tlb.l2.mian: `tlb.l2` has main or 1g; a new one needs ways and its other keys; did you mean \
         `main`?"
    );
    assert_eq!(
        error_of_skylake_file("[tlb.l2.mian]\nentries = 2048"),
        "mine.toml: tlb.l2.mian: `tlb.l2` has main or 1g; a new one needs ways and its other keys; did you mean \
         `main`?"
    );
    assert_eq!(
        error("apple-m1", &["core.pipeline.reorder_buffer=512"]),
        "--set: core.pipeline: the machine has no such table; a new one needs frequency_ghz and its other keys"
    );
    assert_eq!(
        error("skylake", &["host.tlb.mian.entries=64"]),
        "--set: host.tlb.mian: `host.tlb` has main; a new one needs ways and its other keys; did you mean `main`?"
    );
    assert_eq!(
        error("apple-m1", &["dram.channels=2"]),
        "--set: dram: the machine has no such table; a new one needs banks and its other keys"
    );
    assert_eq!(
        error("skylake", &["tlb.l2.entries=2048"]),
        "--set: tlb.l2.entries=2048: tlb.l2 has 2 arrays; give tlb.l2.main.entries or \
         tlb.l2.1g.entries"
    );
    assert_eq!(
        error("zen4", &["tlb.l2.entries=2000"]),
        "--set: tlb.l2.main.entries = 2000: give a multiple of 24 (ways), such as 2016"
    );
}

/// Adds the keys of all tables in `parent`.
fn tables(parent: &toml_edit::Table, within: &str, keys: &mut Vec<String>) {
    for (key, item) in parent {
        if let Some(table) = item.as_table() {
            let key = format!("{within}{key}");
            tables(table, &format!("{key}."), keys);
            keys.push(key);
        }
    }
}

#[test]
fn empty_table_over_one_with_keys_is_refused() {
    const ADVICE: &str = "{}: an empty table changes nothing; give the keys to change, or \"none\" to \
                          take the whole table out";
    let all = ["host=usual", "own.inner.ways=8"];
    let base = resolve("skylake", &all).unwrap();
    let mut keys = Vec::new();
    tables(base.toml().parse::<toml_edit::DocumentMut>().unwrap().as_table(), "", &mut keys);
    assert!(keys.len() > 30 && keys.iter().any(|key| key == "walker.caches"), "{keys:?}");
    for key in keys {
        let setting = format!("{key}={{}}");
        let settings: Vec<&str> = all.into_iter().chain([&*setting]).collect();
        assert_eq!(error("skylake", &settings), format!("--set: {key} = {ADVICE}"));
    }
    // A heading is equivalent to a value.
    let heading =
        error_of_skylake_file("[walker.caches]\n# [walker.caches.pde]\n[core]\ncount = 2\n");
    assert_eq!(heading, format!("mine.toml: walker.caches = {ADVICE}"));
}

#[test]
fn unknown_machines_are_rejected() {
    assert_eq!(
        error("skylke", &[]),
        "there is no machine `skylke`: give skylake, ice-lake, golden-cove, zen2, zen3, zen4, zen5, \
         neoverse-n1, neoverse-v2, apple-m1, sifive-p550, r3000, puma, perforated-pages or a file \
         that ends with .toml; did you mean `skylake`?"
    );
    assert_eq!(
        error("nothing.toml", &[]),
        "nothing.toml: cannot read it: No such file or directory"
    );
    assert!(
        error("/dev/zero", &[]).starts_with("/dev/zero: cannot read it: it is not a regular file")
    );
    assert!(error("./", &[]).starts_with("./: cannot read it: "));
}

#[test]
fn unreadable_files_are_rejected() {
    let folder = Folder::new("errors");
    let bytes = folder.put("bytes.toml", b"name = \"\xff\"");
    assert_eq!(error(&bytes, &[]), format!("{bytes}: it is not text in UTF-8: byte 8 is not"));
    assert!(error_of_file("name = \n").starts_with("mine.toml: it is no TOML: line 1: "));
    assert!(error_of_file("a = 1\na = 2\n").starts_with("mine.toml: it is no TOML: line 2: "));
    for deep in [
        format!("a = {}", "[".repeat(200_000)),
        format!("a = {}", "{a=".repeat(100_000)),
        format!("{}a = 1", "a.".repeat(100_000)),
        format!("[{}a]", "a.".repeat(100_000)),
    ] {
        let sentence = error_of_file(&deep);
        assert!(sentence.len() < 200 && sentence.starts_with("mine.toml: "), "{sentence}");
    }
    assert!(error_of_file(&" ".repeat(2 << 20)).contains("it has more than 1048576 bytes"));
    assert_eq!(
        error_of_file(""),
        "mine.toml: name: it is missing; a machine has every key, or `extends` one that has, such \
         as \"skylake\""
    );
    for text in ["extend = \"skylake\"\n", "extends = \"skylake\"\nextend = \"zen4\"\n"] {
        let sentence = error_of_file(text);
        assert!(sentence.starts_with("mine.toml: extend: there is no such key"), "{sentence}");
        assert!(sentence.ends_with("did you mean `extends`?"), "{sentence}");
    }
    // A setting cannot extend a machine.
    assert!(error("skylake", &["extend=zen4"]).ends_with("host or own"));
    assert_eq!(error_of_file("[[tlb]]\n"), "mine.toml: tlb: give a table");
}

#[test]
fn missing_key_is_attributed_to_the_file_that_began_its_table() {
    let text = "extends = \"skylake\"\n[tlb.l1d.extra]\nentries = 4\n";
    let sentence = error_of_file(text);
    let expected = "mine.toml: tlb.l1d.extra: `tlb.l1d` has 4k, 2m or 1g; a new one needs ways and its other keys";
    assert_eq!(sentence, expected);
}

#[test]
fn parts_that_every_machine_has_cannot_be_taken_out() {
    let advice = |key: &str, latency: u32| {
        format!(
            "--set: {key} = none: every machine has it; for one without it, give a cache of one line that \
             costs what comes behind it: {key}.bytes=64, {key}.ways=1 and {key}.latency_cycles={latency}"
        )
    };
    assert_eq!(error("skylake", &["cache.llc=none"]), advice("cache.llc", 200));
    assert_eq!(
        error("skylake", &["cache.llc.latency_cycles=50", "cache.l2=none"]),
        advice("cache.l2", 50)
    );
    let without = ["cache.llc.bytes=64", "cache.llc.ways=1", "cache.llc.latency_cycles=200"];
    resolve("skylake", &without).unwrap();
    for key in ["cache.l1d", "cache", "memory", "core"] {
        assert_eq!(
            error("skylake", &[&format!("{key}=none")]),
            format!(
                "--set: {key} = none: every machine has it; none takes out what a machine need not have, such as \
                 tlb.l2, an array of a TLB or a walk cache"
            )
        );
    }
}

#[test]
fn table_taken_out_of_one_that_a_file_adds_is_named() {
    let nothing: [&str; 0] = [];
    let skylake = resolve("skylake", &nothing).unwrap().config().to_toml();
    let (from, to) = (skylake.find("[core.pipeline]").unwrap(), skylake.find("[memory]").unwrap());
    let text = format!("extends = \"apple-m1\"\n{}", &skylake[from..to]);
    resolve_text("mine.toml", &text, &nothing).unwrap();
    let refused = resolve_text("mine.toml", &text, &["core.pipeline.outstanding=none"]);
    assert_eq!(
        refused.map(|_| ()).unwrap_err().to_string(),
        "--set: core.pipeline.outstanding = none: every machine has it; none takes out what a machine need not \
         have, such as tlb.l2, an array of a TLB or a walk cache"
    );
}

#[test]
fn invalid_extensions_are_rejected() {
    assert_eq!(
        error_of_file("extends = \"skylke\""),
        error("skylke", &[]).replace("there is no", "mine.toml: extends: there is no")
    );
    assert_eq!(
        error_of_file("extends = 7"),
        "mine.toml: extends: give a text in quotes, such as \"skylake\""
    );
    assert_eq!(
        error_of_file("extends = \"other.toml\""),
        "mine.toml: extends = \"other.toml\": give a preset"
    );
    let folder = Folder::new("extends");
    let one = folder.put("one.toml", b"extends = \"two.toml\"");
    folder.put("two.toml", b"extends = \"./one.toml\"");
    assert!(error(&one, &[]).contains("files extend one another"));
    // The error names the file that contains it.
    let base = folder.put("base.toml", b"extends = \"zen4\"\n[tlb.l2.main]\nentries = 3073");
    let mine = folder.put("mine.toml", b"extends = \"base.toml\"\n[core]\ncount = 0");
    assert!(
        error(&mine, &["core.count=2"]).starts_with(&format!("{base}: tlb.l2.main.entries = 3073"))
    );
    assert!(error(&mine, &[]).starts_with(&format!("{mine}: core.count = 0")));
}

/// A temporary folder of this test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("config-{name}"));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}
