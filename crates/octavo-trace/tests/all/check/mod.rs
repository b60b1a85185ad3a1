//! The checker: every kind of finding, and none where all is well.

mod random;
mod script;

use octavo_trace::check::{Checker, FindingKind, KEPT_OF_A_KIND, Report};
use octavo_trace::source::{Place, Step};
use octavo_trace::{Began, Ended, StreamEnd, synthetic};
use octavo_types::{Event, Item, ItemKind, MapSource, Segment, VirtAddr};

use script::{CODE, DATA, NONE, RW, RX, Writer, map, range};

/// Whether all of the trace was read, and nothing is wrong with it.
fn is_clean(report: &Report) -> bool {
    report.counts.is_empty() && report.error.is_none() && !report.stopped
}

#[test]
fn references_must_be_where_something_is_mapped() {
    let findings = Writer::new()
        .load(DATA + 4088)
        .load(DATA + 4092)
        .batch()
        .load(DATA)
        .at(CODE + 4094, ItemKind::Load, DATA, 1)
        .event(&Event::Unmap { range: range(DATA, 4096) })
        .store(DATA)
        .findings();
    assert_eq!(
        findings,
        [
            "unmapped stream 0, instruction 1 (line 2): a load of 8 bytes at 0x600ffc where nothing \
             is mapped",
            "unmapped stream 0, instruction 3 (line 4): a fetch of 4 bytes at 0x400ffe where \
             nothing is mapped",
            "unmapped stream 0, instruction 4 (line 5): a store of 8 bytes at 0x600000 where \
             nothing is mapped",
        ]
    );
}

#[test]
fn memory_allows_only_what_it_was_given() {
    let findings = Writer::new()
        .store(CODE + 8)
        .at(CODE, ItemKind::Modify, CODE, 4)
        .load(CODE)
        .at(DATA, ItemKind::Load, DATA, 8)
        .event(&Event::Protect { range: range(DATA, 4096), protection: NONE })
        .load(DATA)
        .load(CODE)
        .findings();
    let starts = [
        "not-writable stream 0, instruction 0 (line 1): a store of 8 bytes at 0x400008 of",
        "not-writable stream 0, instruction 1 (line 2): a load and store of 4 bytes at 0x400000 of",
        "not-executable stream 0, instruction 3 (line 4): a fetch of 4 bytes at 0x600000 of",
        "not-readable stream 0, instruction 4 (line 5): a load of 8 bytes at 0x600000 of",
    ];
    assert_eq!(findings.len(), starts.len(), "{findings:#?}");
    for (finding, start) in findings.iter().zip(starts) {
        assert!(finding.starts_with(start), "{finding}");
    }
}

#[test]
fn addresses_are_canonical_with_or_without_mappings() {
    let mut writer = Writer::bare(Began::Start);
    let findings = writer
        .load(0x00ff_ffff_ffff_fff8)
        .load(0xff00_0000_0000_0000)
        .load(0x0100_0000_0000_0000)
        .load(0x00ff_ffff_ffff_fff9)
        .load(u64::MAX - 6)
        .findings();
    let lines: Vec<&str> =
        findings.iter().map(|finding| &finding[..finding.find(':').unwrap()]).collect();
    assert_eq!(
        lines,
        [
            "not-canonical stream 0, instruction 2 (line 3)",
            "not-canonical stream 0, instruction 3 (line 4)",
            "not-canonical stream 0, instruction 4 (line 5)",
        ]
    );
}

#[test]
fn events_do_not_contradict_one_another() {
    let findings = Writer::new()
        .event(&Event::Unmap { range: range(0x9000_0000, 4096) })
        .event(&Event::Protect { range: range(DATA, 8192), protection: RW })
        .event(&Event::Unmap { range: range(DATA + 4096, 4096) })
        .event(&Event::Remap { from: range(DATA, 4096), to: range(DATA + 8192, 8192) })
        .store(DATA + 16376)
        .event(&Event::Remap { from: range(DATA, 4096), to: range(DATA, 8192) })
        .findings();
    assert_eq!(
        findings,
        [
            "mapping-order stream 0, instruction 0 (line 1): a protection of 0x600000 to 0x602000, \
             of which 0x601000 is not mapped",
            "mapping-order stream 0, instruction 1 (line 99): a remapping of 0x600000 to 0x601000, \
             of which 0x600000 is not mapped",
        ]
    );
}

#[test]
fn threads_run_between_their_start_and_their_end() {
    let switch = |thread| Event::ThreadSwitch { thread };
    let mut writer = Writer::new();
    writer
        .event(&switch(1))
        .event(&Event::ThreadStart { thread: 2 })
        .event(&switch(2))
        .event(&Event::ThreadEnd { thread: 2 })
        .event(&switch(1))
        .event(&switch(2))
        .event(&switch(3));
    let findings = writer.findings();
    assert_eq!(findings.len(), 2, "{findings:#?}");
    assert!(findings[0].ends_with("thread 2 runs, which was not started or has ended"));

    // No event gives the number of a forked child's thread.
    let mut forked = Writer::bare(Began::Fork);
    forked.event(&Event::ThreadStart { thread: 2 }).event(&switch(2)).event(&switch(7));
    forked.event(&switch(2)).event(&switch(7));
    assert_eq!(forked.findings(), [""; 0]);
    let mut forked = Writer::bare(Began::Fork);
    forked.event(&switch(7)).event(&switch(8));
    assert_eq!(forked.findings().len(), 1);
}

#[test]
fn nothing_comes_after_the_exit() {
    let mut writer = Writer::new();
    writer.load(DATA).event(&Event::Exit { code: 0 });
    assert_eq!(writer.findings(), [""; 0]);
    let mut writer = Writer::new();
    writer.event(&Event::Exit { code: 0 }).load(DATA).event(&Event::Fork { child: 3 });
    let report = writer.report();
    assert_eq!(report.counts.into_iter().collect::<Vec<_>>(), [(FindingKind::AfterExit, 2)]);
}

#[test]
fn streams_begin_and_end_once() {
    let mut writer = Writer::new();
    let mut script = writer.load(DATA).ended(Ended::Exit);
    let again = script.steps[0].clone();
    script.steps.push_back((Step::Batch(0), vec![], vec![]));
    script.steps.push_back((Step::Ended(0, StreamEnd::PLAIN), vec![], vec![]));
    script.steps.push_back(again);
    let report = Checker::new().check(&mut script, |_| true);
    assert_eq!(report.counts.into_iter().collect::<Vec<_>>(), [(FindingKind::StreamOrder, 3)]);
}

#[test]
fn a_wrong_instruction_count_is_found() {
    for (stated, findings) in [(3, 0), (4, 1)] {
        let mut script = Writer::new().load(DATA).load(DATA).load(DATA).ended(Ended::Exit);
        let Some((Step::Ended(_, end), ..)) = script.steps.back_mut() else { panic!("it ends") };
        end.instructions = Some(stated);
        let report = Checker::new().check(&mut script, |_| true);
        assert_eq!((report.instructions, report.references), (3, 6));
        assert_eq!(report.findings.len(), findings);
    }
}

#[test]
fn words_that_cannot_be_decoded_are_one_finding() {
    let mut writer = Writer::new();
    writer.load(DATA);
    writer.out.execute(77, &[]);
    writer.batch().load(DATA);
    assert_eq!(
        writer.findings(),
        [
            "undecodable stream 0, instruction 1 (line 99): segment 77 executes but was never defined"
        ]
    );
}

#[test]
fn a_fault_that_a_signal_follows_is_no_finding() {
    let segv = Event::Signal { signal: 11 };
    let mut taken = Writer::new();
    taken.load(0).event(&segv).load(DATA).store(CODE).batch().event(&segv);
    assert_eq!(taken.findings(), [""; 0]);
    let mut died = Writer::new();
    let report = Checker::new().check(&mut died.load(0).ended(Ended::Signal), |_| true);
    assert!(is_clean(&report));
    let mut late = Writer::new();
    late.load(0).load(DATA).event(&segv);
    assert_eq!(late.findings().len(), 1);
    let mut other = Writer::new();
    other.load(0).event(&Event::Signal { signal: 10 });
    assert_eq!(other.findings().len(), 1);
}

#[test]
fn stacks_grow_unseen_and_guarded_items_need_no_memory() {
    let mut writer = Writer::new();
    let source = MapSource::Stack;
    let top = 0x7fff_ffff_f000;
    writer.event(&Event::Map { range: range(top - 8192, 8192), protection: RW, source, flags: 0 });
    writer.store(top - (8 << 20)).load(top - 20_000);
    assert_eq!(writer.findings(), [""; 0]);
    let mut writer = Writer::new();
    let source = MapSource::Stack;
    writer.event(&Event::Map { range: range(top - 8192, 8192), protection: RW, source, flags: 0 });
    writer.store(top - (8 << 20) - 8);
    assert_eq!(writer.findings().len(), 1);

    let guarded = Item {
        kind: ItemKind::Store,
        guarded: true,
        atomic: false,
        size_bytes: 8,
        addr: VirtAddr::NULL,
    };
    let fetch =
        Item { kind: ItemKind::Fetch, addr: VirtAddr::new(CODE), guarded: false, ..guarded };
    let mut writer = Writer::new();
    writer.out.define(0, &Segment::new(vec![fetch, guarded], vec![]).unwrap());
    writer.out.execute(0, &[0]);
    assert_eq!(writer.findings(), [""; 0]);
}

#[test]
fn a_trace_without_first_mappings_is_checked_against_recorded_ones() {
    let mut without = Writer::bare(Began::Start);
    without.load(0).store(DATA);
    assert_eq!(without.findings(), [""; 0]);
    let mut late = Writer::bare(Began::Start);
    late.load(0).event(&map(DATA, 4096, RX)).load(DATA + 4096).store(DATA);
    assert_eq!(late.findings().len(), 1);
}

#[test]
fn all_findings_are_counted_and_the_first_are_kept() {
    let mut writer = Writer::new();
    for _ in 0..100 {
        writer.load(0);
    }
    let report = writer.report();
    assert_eq!(report.counts[&FindingKind::Unmapped], 100);
    assert_eq!(report.findings.len() as u64, KEPT_OF_A_KIND);
    assert_eq!(report.findings[19].place, Place::Line(20));
}

#[test]
fn a_check_can_be_stopped() {
    let mut steps = 0;
    let mut source = synthetic::parse("synth:gups?updates=1e15").unwrap().source();
    let report = Checker::new().check(&mut *source, |progress| {
        steps += 1;
        assert_eq!(progress.total, Some(2_000_000_000_000_000));
        steps < 10
    });
    assert!(report.stopped && report.counts.is_empty());
}

/// The library's own traces pass.
#[test]
fn synthetic_traces_are_clean() {
    for kind in &synthetic::KINDS[..8] {
        let uri = format!(
            "synth:{}?bytes=100000&row=1000&references=50k&code=64KiB&stores=0.4",
            kind.name
        );
        let uri = match kind.name {
            "gups" => uri.replace("&row=1000", "").replace("&stores=0.4", ""),
            "rows" | "columns" => uri,
            _ => uri.replace("&row=1000", ""),
        };
        let spec = synthetic::parse(&uri).unwrap_or_else(|error| panic!("{error}"));
        let report = Checker::new().check(&mut *spec.source(), |_| true);
        assert!(is_clean(&report), "{uri}: {report:#?}");
        assert_eq!(report.streams, 1);
    }
}
