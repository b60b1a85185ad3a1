//! Lines as perf prints them.

use super::super::testing::{self, Drained};
use super::*;
use octavo_oracle::Reference as Plain;

fn read(text: &str) -> Drained {
    testing::read(&FORMAT, text.as_bytes())
}

fn load(addr: u64) -> Plain {
    Plain { kind: ItemKind::Load, addr: VirtAddr::new(addr), size_bytes: ASSUMED_BYTES }
}

fn store(addr: u64) -> Plain {
    Plain { kind: ItemKind::Store, ..load(addr) }
}

fn translations(drained: &Drained) -> Vec<(usize, u64, u64)> {
    let translation = |(before, event): &(usize, Event)| match event {
        Event::Translation { virt, phys } => (*before, virt.raw(), phys.raw()),
        other => panic!("{other:?}"),
    };
    drained.events.iter().map(translation).collect()
}

#[test]
fn lines_of_perf_script() {
    let cases = [
        // comm,tid,pid,time,event,addr,ip
        (
            "              ls 24949/24949 12310.322107: page-faults:     55c69af435c0 ffffffff81752b6a",
            (ItemKind::Load, 0x55c6_9af4_35c0, None),
        ),
        // and phys_addr,data_page_size, the first not known
        (
            "              ls 25805/25805 12349.317983: page-faults:u:     7fb6f7e8eb70     7fb6f7e8eb70               0 N/A",
            (ItemKind::Load, 0x7fb6_f7e8_eb70, None),
        ),
        (
            "  my prog: x 25805/25805 [003] 12349.317983: cpu/mem-stores/P:     7fb6f7e8eb70     7fb6f7e8eb70       12345f000 4K",
            (ItemKind::Store, 0x7fb6_f7e8_eb70, Some(0x1_2345_f000)),
        ),
        // sym and dso
        (
            "              ls 25805/25805 12349.317983: page-faults:u:     7fb6f7e8eb70 _start (/usr/lib/ld-linux-x86-64.so.2)     7fb6f7e8eb70 add (/usr/lib/ld-linux-x86-64.so.2)            1000 2M 4K",
            (ItemKind::Load, 0x7fb6_f7e8_eb70, Some(0x1000)),
        ),
        // sym alone: the last word is a symbol, not a physical address
        (
            "ls 1/1 1.0: mem-loads:     7fb6f7e8eb70 dead     7fb6f7e8eb70 beef",
            (ItemKind::Load, 0x7fb6_f7e8_eb70, None),
        ),
        // data_src, weight, and both with phys_addr
        (
            "              ls 25793/25793 12347.883816: cpu/mem-loads,ldlat=30/P:     5608687a05c0 __progname      1e05080021 |OP LOAD|LVL L1 or L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A               0 ffffffff81752b6a elf_load",
            (ItemKind::Load, 0x5608_687a_05c0, None),
        ),
        (
            "              ls 25793/25793 12347.883816: mem_event:     5608687a05c0 __progname      1e05080021 |OP STORE|LVL N/A or N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A               7 ffffffff81752b6a elf_load+0x3 ([kernel.kallsyms])            2000",
            (ItemKind::Store, 0x5608_687a_05c0, Some(0x2000)),
        ),
        // event and addr and ip alone; a kernel's address fills its column
        (
            "page-faults: ffff888100000000 ffffffff81752b6a",
            (ItemKind::Load, 0xffff_8881_0000_0000, None),
        ),
    ];
    for (line, (kind, addr, phys)) in cases {
        let expected = Sample { kind: Some(kind), addr, phys, certain: true };
        assert_eq!(Sample::of_script(line.as_bytes()), Some(expected), "{line}");
        assert_eq!(recognise(format!("# captured on\n\n{line}\n").as_bytes()), Likeness::Yes);
    }
    for line in ["", "x", "I  04016b80,3", "0 55c69af435c0", "0x1: R 0x55c69af435c055c6"] {
        assert_eq!(Sample::of_script(line.as_bytes()), None, "{line}");
    }
}

#[test]
fn samples_in_their_order() {
    let drained = read(
        "# ========\n# captured on    : Sat Nov 21 23:49:18 2026\n# ========\n#\n\
         ls 1/1 1.0: mem-loads:     7fb6f7e8e001     7fb6f7e8eb70           12000 4K\n\
         ls 1/1 1.1: PERF_RECORD_MMAP2 1/1: [0x1(0x2) @ 0 08:01 1 1]: r-xp /bin/ls\n\
         \x20 ls 1/1 1.1: PERF_RECORD_COMM exec: ls:1/1\n\
         ls 1/1 1.2: mem-loads:                0     7fb6f7e8eb70               0 N/A\n\
         ls 1/1 1.3: mem-stores:     7fb6f7e8e003     7fb6f7e8eb70               0 N/A\n",
    );
    assert_eq!(translations(&drained), [(0, 0x7fb6_f7e8_e001, 0x12000)]);
    assert!(!drained.facts.exact && !drained.facts.has_instructions);
    assert_eq!(
        drained.facts.notes[2..],
        ["1 samples have physical addresses", "1 samples have no data address, and were left out"]
    );
    assert_eq!(drained.whole(), [load(0x7fb6_f7e8_e001), store(0x7fb6_f7e8_e003)]);
}

#[test]
fn call_chains() {
    let text = "ls 1/1 1.0: page-faults:     557d6a62b5c0 __progname\n\
                \tffffffff81752b6a elf_load\n\t    7fe8816f2ad7 [unknown]\n\n\
                ls 1/1 1.1: page-faults:     7f191a099110 dl\n\tffffffff81752b6a elf_load\n\n";
    assert_eq!(read(text).whole(), [load(0x557d_6a62_b5c0), load(0x7f19_1a09_9110)]);
}

#[test]
fn an_instructions_address_is_not_taken_for_datas() {
    let line = "ls 1 1.0:          1 page-faults:  ffffffff81752b6a elf_load+0x28a ([kernel])\n";
    for text in [line.to_owned(), line.repeat(2), format!("{line}\n")] {
        let drained = read(&text);
        assert!(drained.references.is_empty());
        assert!(drained.sentence().contains("a single address"), "{}", drained.sentence());
    }
}

#[test]
fn perf_mem_report() {
    let drained = read(
        "# PID, TID, IP, ADDR, LOCAL WEIGHT, DSRC, SYMBOL\n\
         24949 24949 0xffffffff81752b6a 0x01655c69af435c0     0 0x1e05080021 [kernel.kallsyms]:elf_load\n\
         24949 24949 0xffffffff81752b6a 0x7fc6099ad110 0 0x1e05080024 [kernel.kallsyms]:elf_load\n\
         24949 24949 0xffffffff81752b6a 0x7fc6099ad120 0 0x8 [kernel.kallsyms]:elf_load\n",
    );
    assert_eq!(drained.facts.notes[2..], ["1 prefetches were left out"]);
    assert_eq!(drained.whole(), [load(0x55c6_9af4_35c0), store(0x7fc6_099a_d110)]);
    let drained = read(
        "# PID, TID, IP, ADDR, PHYS ADDR, DATA PAGE SIZE, LOCAL WEIGHT, DSRC, SYMBOL\n\
         1,2,0xffffffff81752b6a,0x7fc6099ad110,0x0000000000003000,4K,0,0x2,a:b\n",
    );
    assert_eq!(translations(&drained), [(0, 0x7fc6_099a_d110, 0x3000)]);
    assert_eq!(drained.whole(), [load(0x7fc6_099a_d110)]);
}

#[test]
fn malformed_traces_are_errors() {
    let sentence = |text: &str| read(text).sentence();
    assert_eq!(sentence(""), "`trace` is empty");
    assert_eq!(sentence("# nothing\n"), "`trace` has no samples");
    assert_eq!(
        sentence("ls 1 1.0: x\n"),
        "`trace`, line 1: `ls 1 1.0: x` is not a sample of `perf script` with a data address"
    );
    assert_eq!(
        sentence("# PID, TID, IP, ADDR, LOCAL WEIGHT, DSRC, SYMBOL\n1 2 3\n"),
        "`trace`, line 2: `1 2 3` is not a sample of `perf mem report -D`"
    );
}
