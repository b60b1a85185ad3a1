"""Traces by name, through Parquet, and messages about them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import Result

import octavo
from called import invoke as run
from cases import cases
from octavo._core import OctavoError
from octavo.base.errors import CannotRun, UsageError
from octavo.base.units import byte_size
from octavo.snapshot import take_snapshot
from octavo.terminal.live import recording_text, trace_text
from octavo.traces.by_name import format_to_write, names_a_trace, open_trace
from octavo.traces.survey import process_count, survey_trace
from traces_made import SOME, Reference, convert, read, write_csv


def assert_refused(done: Result, status: int, *words: str) -> None:
    """Asserts a single sentence on standard error."""
    assert done.exit_code == status, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("octavo: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


@pytest.fixture
def csv(tmp_path: Path) -> str:
    return write_csv(tmp_path / "some.csv", SOME)


# --- recognition of traces ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "format", "expected"),
    [
        (["-"], None, True),
        (["synth:zipf"], None, True),
        (["missing.oct"], None, True),
        (["missing.parquet"], None, True),
        (["missing.lackey.gz"], None, True),
        (["whatever"], "din", True),
        (["whatever", "else"], "din", False),
        (["missing"], None, False),
        (["sh"], None, False),
        (["/bin/sh"], None, False),
        (["trace.oct", "argument"], None, False),
        ([], None, False),
    ],
)
def test_which_command_lines_are_traces(
    command: list[str], format: str | None, expected: bool
) -> None:
    assert names_a_trace(command, format) is expected


def test_which_files_are_traces(csv: str, tmp_path: Path) -> None:
    unnamed = tmp_path / "unnamed"
    unnamed.write_bytes(Path(csv).read_bytes())
    assert names_a_trace([str(unnamed)])
    unnamed.chmod(0o755)  # some file systems mark every file as executable
    assert names_a_trace([str(unnamed)])
    parquet = tmp_path / "columns"
    convert(csv, tmp_path / "some.parquet")
    (tmp_path / "some.parquet").rename(parquet)
    assert names_a_trace([str(parquet)])
    for name, content in (
        ("script.oct", b"#!/bin/sh\n"),
        ("elf.csv", b"\x7fELF\x02\x01\x01"),
        ("words", b"just words\n"),
        ("empty", b""),
    ):
        (tmp_path / name).write_bytes(content)
        assert not names_a_trace([str(tmp_path / name)])


def test_a_pipe_with_a_name_is_read_once(csv: str, tmp_path: Path) -> None:
    """The shell makes such a pipe for <(zcat trace.gz)."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert names_a_trace([str(pipe)])
    writer = threading.Thread(target=pipe.write_bytes, args=(Path(csv).read_bytes(),))
    writer.start()
    assert read(str(pipe)) == SOME
    writer.join()


def test_a_program_on_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "sh", SOME)
    assert not names_a_trace(["sh"])
    assert names_a_trace(["./sh"])


def test_options_of_programs_are_refused_for_traces(csv: str) -> None:
    assert_refused(run("run", "--no-follow", csv), 2, "--no-follow", "is a trace")
    assert_refused(run("run", "--tracer", "octavo", csv), 2, "--tracer")
    assert_refused(run("run", "--format", "csv", "prog", "arg"), 2, "--format")
    assert_refused(run("run", csv, "more"), 2, "is a trace", "no arguments")
    assert_refused(run("run", "--format", "cvs", csv), 2, "did you mean `csv`")


# --- formats -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wanted", "expected"),
    [
        ("a.oct", None, "native"),
        ("a.lackey", None, "lackey"),
        ("dir.csv/a.champsim.xz", None, "champsim"),
        ("a.csv.gz", None, "csv"),
        ("a.parquet", None, "parquet"),
        ("-", "din", "din"),
        ("a.oct", "csv", "csv"),
    ],
)
def test_the_suffix_selects_the_format(name: str, wanted: str | None, expected: str) -> None:
    assert format_to_write(name, wanted) == expected


@pytest.mark.parametrize(
    ("name", "wanted", "message"),
    [
        ("-", None, "champsim or champsim-cloudsuite"),
        ("trace", None, "is not that of a format"),
        ("trace.gz", None, "is not that of a format"),
        ("a.oct", "nativ", "did you mean `native`"),
        ("a.pinatrace", None, "only read"),
        ("a", "pinatrace", "only read"),
    ],
)
def test_formats_that_cannot_be_written_are_refused(
    name: str, wanted: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        format_to_write(name, wanted)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5", 5),
        ("1K", 1024),
        ("64GiB", 64 << 30),
        ("0.5 MiB", 1 << 19),
        ("2P", 2 << 50),
        ("1EiB", 1 << 60),
    ],
)
def test_byte_sizes(text: str, size: int) -> None:
    assert byte_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "1.5", "3 GX", "1e"])
def test_invalid_byte_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        byte_size(text)


def test_a_limit_of_expansion_may_be_larger_than_any_file(tmp_path: Path) -> None:
    some = write_csv(tmp_path / "some.csv", SOME)
    done = run("convert", "--max-expansion", "99999999TiB", some, tmp_path / "some.oct")
    assert done.exit_code == 0, done.output
    assert read(str(tmp_path / "some.oct")) == SOME


def test_an_exec_does_not_begin_another_process() -> None:
    begun = ("start", "exec", "fork", "exec", "exec", "start")
    assert process_count({"began_by": began_by} for began_by in begun) == 3
    assert process_count([{"began_by": "exec"}]) == 1


# --- reading and writing -----------------------------------------------------------------------

references = st.lists(
    st.tuples(
        st.sampled_from(("fetch", "load", "store", "modify")),
        st.one_of(st.integers(0, (1 << 57) - 64), st.integers((1 << 32) - 70, (1 << 32) + 70)),
        st.integers(1, 15),
    ),
    max_size=60,
).map(lambda made: [("fetch", 0x40_0000, 1), *made])
"""Lackey's text begins with an instruction."""
FEW = settings(max_examples=cases(25), suppress_health_check=[HealthCheck.function_scoped_fixture])


@FEW
@given(made=references)
def test_every_address_survives_every_exact_format(made: list[Reference], tmp_path: Path) -> None:
    native = convert(write_csv(tmp_path / "made.csv", made), tmp_path / "made.oct")
    assert read(native) == made
    for suffix in ("lackey", "csv", "parquet", "csv.zst"):
        there = convert(native, tmp_path / f"there.{suffix}")
        assert read(there) == made
        assert read(convert(there, tmp_path / "back.oct")) == made


@FEW
@given(made=references, rows=st.integers(1, 20))
def test_any_kind_of_column_is_read(made: list[Reference], rows: int, tmp_path: Path) -> None:
    codes = {"fetch": 0, "load": 1, "store": 2, "modify": 3}
    words = [kind for kind, _, _ in made]
    name = str(tmp_path / "made.parquet")
    kinds = (
        pa.array(words, pa.large_string()),
        pa.array(words).dictionary_encode(),
        pa.array([codes[word] for word in words], pa.int64()),
        pa.array([word[0].upper().replace("F", "I") for word in words]),
    )
    for kind in kinds:
        columns = {
            "size": pa.array([size for _, _, size in made], pa.int32()),
            "comment": pa.array([None] * len(made), pa.string()),
            "address": pa.array([address for _, address, _ in made], pa.int64()),
            "kind": kind,
        }
        pq.write_table(pa.table(columns), name, row_group_size=rows)
        assert read(name) == made


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"kind": ["load"]}, "no column `address`"),
        ({"address": [1]}, "no column `kind`"),
        ({"kind": ["jump"], "address": [1]}, "`jump` is not a kind"),
        ({"kind": [7], "address": [1]}, "7 is not a kind"),
        ({"kind": ["load"], "address": [-1]}, "address"),
        ({"kind": ["load"], "address": ["0x10"]}, "whole numbers"),
        ({"kind": ["load"], "address": pa.array([None], pa.uint64())}, "missing"),
        ({"kind": ["load"], "address": [1], "size": [0]}, "size of 0 bytes"),
        ({"kind": ["load"], "address": [1], "size": [1 << 20]}, "size"),
        ({"kind": pa.array([], pa.string()), "address": pa.array([], pa.uint64())}, "is empty"),
    ],
)
def test_invalid_columns_are_refused(
    columns: dict[str, object], message: str, tmp_path: Path
) -> None:
    name = str(tmp_path / "wrong.parquet")
    pq.write_table(pa.table(columns), name)
    done = run("convert", name, str(tmp_path / "out.oct"))
    assert_refused(done, 125, "wrong.parquet", message)
    assert not (tmp_path / "out.oct").exists()


def test_a_failed_conversion_leaves_no_partial_file(csv: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text(Path(csv).read_text() + "load,0x10,8\nlod,1,1\n")
    out = tmp_path / "out.oct"
    assert_refused(run("convert", str(broken), str(out)), 125, "broken.csv", "line 8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.csv", "some.csv"]
    done = run("convert", "--quiet", "--keep-partial", str(broken), str(out))
    assert_refused(done, 125, "line 8", "what came before is kept")
    assert read(str(out)) == [*SOME, ("load", 16, 8)]


@pytest.mark.parametrize("command", ["info", "head", "check", "run", "convert"])
def test_a_text_is_read_in_the_format_of_its_suffix(command: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.din"
    broken.write_text("1 zzz\n0 1000\n")
    out = [str(tmp_path / "out.oct")] if command == "convert" else []
    done = run(command, str(broken), *out)
    assert done.stdout == ""
    assert_refused(done, 125, "broken.din", "line 1", "an address that is not hexadecimal")
    broken.write_bytes(b"\0\1\2")
    assert_refused(run(command, str(broken), *out), 125, "no known format")


def test_files_of_octavo_are_named_with_the_commands_that_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    take_snapshot("now.octmem")
    short = "synth:strided?references=100"
    run("run", "-q", "--json", "run.json", "--out", "run", short)
    run("sim", "-q", "--json", "sim.json", "--out", "sim", short)
    run("machines", "skylake", "-o", "mine.toml")
    run("convert", short, "some.oct")
    Path("study.toml").write_text(f'designs = "base4k"\ntraces = "{short}"\n')
    snapshot = " is a snapshot of memory, which `octavo snapshot --show {}` reads."
    machine = " is a machine, which `octavo sim --machine {}` and `octavo run --tlb {}` take and "
    for command, name, status, message in (
        ("run", "now.octmem", 126, snapshot),
        ("info", "now.octmem", 125, snapshot),
        ("run", "run.json", 126, " is a result of `octavo run`, which `octavo apply --from {}` "),
        ("info", "run.json", 125, " is a result of `octavo run`, which `octavo apply --from {}` "),
        ("run", "sim.json", 126, " is JSON that Octavo wrote for other programs (octavo/sim)."),
        ("sim", "mine.toml", 125, machine),
        ("run", "mine.toml", 125, machine),
        ("run", "study.toml", 125, " is a study, which `octavo study run {}` runs."),
        ("machines", "study.toml", 2, " is a study, which `octavo study run {}` runs."),
        ("verify", "some.oct", 126, " is a trace, which `octavo run {}` reads."),
        ("apply", "./some.oct", 126, " is a trace, which `octavo run {}` reads."),
        ("run", "sim/rows.parquet", 125, " has the rows of a result, and no trace: "),
        ("run", "sim/report.json", 126, " is the data of a report, which `octavo report sim` "),
        ("run", "./sim", 126, " is a directory of results, of which `octavo report {}` rebuilds "),
        ("info", "sim", 125, " is a directory of results, of which `octavo report {}` rebuilds "),
        ("run", "./run", 126, " is a directory of results, of which `octavo report {}` rebuilds "),
    ):
        assert_refused(run(command, name), status, f"`{name}`", message.replace("{}", name))
    for name, message in (("mine.toml", machine), ("now.octmem", snapshot)):
        refused = run("study", "run", name)
        assert_refused(refused, 2, f"`{name}`", message.replace("{}", name))
    assert_refused(run("record", "-o", "new.oct", "some.oct"), 126, " is a trace, which `octavo ")
    taken = snapshot.format("now.octmem").removesuffix(".")
    assert_refused(run("verify", "--from", "now.octmem", "--", "true"), 125, f"`now.octmem`{taken}")
    memory = "--set memory.fragmentation.kind=snapshot --set memory.fragmentation.file=now.octmem"
    for words in (("sim", "--machine"), ("run", "--tlb")):
        assert_refused(run(*words, "now.octmem", short), 2, f"`now.octmem`{taken}; ", memory)


@pytest.mark.parametrize("command", ["run", "sim", "curves", "info"])
def test_a_trace_without_a_whole_first_chunk_is_cut_off(command: str, tmp_path: Path) -> None:
    file = tmp_path / "head.oct"
    run("convert", "synth:strided?references=100", str(file))
    file.write_bytes(file.read_bytes()[:60])
    assert_refused(run(command, str(file)), 125, "chunk 0 (at byte 16)", "is cut off here")


def test_a_snapshot_in_a_pipe_is_no_trace(tmp_path: Path) -> None:
    file = tmp_path / "now.octmem"
    take_snapshot(file)
    done = subprocess.run(
        [sys.executable, "-m", "octavo", "info", "-"],
        stdin=file.open("rb"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 125
    assert "`octavo snapshot --show` reads it" in done.stderr


def test_the_kept_part_of_a_broken_trace_is_partial(csv: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text(Path(csv).read_text() + "lod,1,1\n")
    kept, again = str(tmp_path / "kept.oct"), str(tmp_path / "again.oct")
    run("convert", "--keep-partial", str(broken), kept)
    assert run("convert", kept, again).exit_code == 0
    for name in (kept, again):
        assert "partial:" in run("info", name).stdout
        assert "line 7" in run("info", name).stdout
        assert "line 7" in octavo.run(name).manifest["partial_reason"]
        assert "PARTIAL" in run("run", name).stderr


def test_a_text_that_ends_inside_a_line_is_refused(csv: str, tmp_path: Path) -> None:
    short = tmp_path / "short.csv"
    short.write_text(Path(csv).read_text().rstrip("\n"))
    for command in (["check", str(short)], ["head", str(short)], ["run", str(short)]):
        done = run(*command)
        assert done.exit_code == 125
        assert "line 6: the trace ends inside this line" in done.stderr
    assert_refused(run("convert", str(short), str(tmp_path / "no.din")), 125, "line 6")


@pytest.mark.parametrize("name", ["a.lackey", "a.csv", "a.oct.gz", "a.zst", "a.champsim.xz"])
def test_a_recording_is_not_named_like_another_format(name: str) -> None:
    assert_refused(run("record", "-o", name, "--", "true"), 2, name, ".oct")


def test_invalid_conversions_are_refused(csv: str, tmp_path: Path) -> None:
    out = tmp_path / "out.oct"
    out.write_text("precious")
    assert_refused(run("convert", csv, str(out)), 2, "--force")
    assert out.read_text() == "precious"
    assert_refused(run("convert", csv, csv, "--force"), 2, "into itself")
    assert_refused(run("convert", csv, "/dev/null"), 2, "device")
    assert_refused(run("convert", csv, str(tmp_path), "--to", "csv"), 125, "directory")
    assert_refused(run("convert", "--from", "parquet", "-", str(tmp_path / "x.oct")), 2, "pipe")
    assert_refused(run("convert", csv, str(tmp_path / "x.oct"), "--process", "3"), 125, "process 3")
    assert_refused(run("convert", str(tmp_path / "no.csv"), "x.oct"), 125, "No such file")
    assert_refused(run("convert", "", str(tmp_path / "x.oct")), 2, "empty")
    assert not (tmp_path / "x.oct").exists()


# --- descriptions and notes --------------------------------------------------------------------


def test_info_of_any_format(csv: str, tmp_path: Path) -> None:
    names = [convert(csv, tmp_path / f"some.{of}") for of in ("oct", "parquet", "lackey", "din")]
    for name in (csv, *names):
        found = survey_trace(name, lambda progress: None).document()
        assert (found["references"], found["instructions"], found["state"]) == (6, 2, "whole")
        assert found["processes"][0]["references"] == 6
        done = run("info", name)
        assert done.exit_code == 0
        assert "whole" in done.stdout
        assert done.stderr == ""


def test_info_as_json(csv: str, tmp_path: Path) -> None:
    document = json.loads(run("info", convert(csv, tmp_path / "some.oct"), "--json", "-").stdout)
    assert document["schema"] == "octavo/trace/1"
    assert document["source_format"] == "csv"
    assert document["about"]["converted"][0]["from"] == csv
    assert "mappings" not in document["processes"][0]


def test_a_head_names_instructions(csv: str) -> None:
    lines = run("head", csv, "-n", "3").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["instruction", "kind", "address", "size"],
        ["0", "fetch", "0x400000", "3"],
        ["0", "load", "0x7fff00001000", "8"],
        ["1", "fetch", "0x400003", "2"],
    ]
    for more, what in (
        (["--from", "1G"], "from instruction 1,000,000,000 on"),
        (["--process", "7"], "of process 7"),
    ):
        beyond = run("head", csv, *more)
        assert (beyond.exit_code, beyond.stdout) == (125, "")
        assert f"has nothing {what}." in beyond.stderr
    document = json.loads(run("head", csv, "--from", "1", "--json", "-").stdout)
    assert [entry["kind"] for entry in document["entries"]] == ["fetch", "store", "modify"]
    assert document["fault"] is None


def test_a_trace_without_mappings_is_clean(csv: str) -> None:
    done = run("check", csv)
    assert done.exit_code == 0
    assert "nothing is wrong" in done.stdout
    assert "references were not checked" in done.stdout
    mapped = run("check", "synth:gups?table=64KiB&updates=10")
    assert "references were not checked" not in mapped.stdout


def test_a_trace_with_a_finding(tmp_path: Path) -> None:
    bad = write_csv(tmp_path / "bad.csv", [*SOME, ("load", 1 << 60, 8)])
    done = run("check", bad)
    assert done.exit_code == 1
    assert "line 7" in done.stdout
    assert "instruction 1" in done.stdout
    assert "0x1000000000000000" in done.stdout
    document = json.loads(run("check", bad, "--json", "-").stdout)
    assert document["counts"] == {"not-canonical": 1}
    assert document["findings"][0]["address"] == 1 << 60


# --- running on a trace ------------------------------------------------------------------------


def test_a_run_on_a_trace(csv: str) -> None:
    result = octavo.run(csv)
    assert result.status == 0
    assert not result.partial
    assert result.manifest["command"] == [csv]
    assert result.manifest["trace"]["format"] == "csv"
    counts = {row["counter"]: row["value"] for row in result.rows if row["component"] == "stream"}
    assert (counts["references"], counts["modifies"]) == (6, 1)


def test_rates_are_undefined_without_instructions(tmp_path: Path) -> None:
    data = [("load", 0x10000 + 4096 * step, 8) for step in range(5000)]
    result = octavo.run(write_csv(tmp_path / "data.csv", data))
    curves = [row for row in result.rows if row["component"].startswith("tlb.")]
    assert curves
    assert all(row["mpki"] is None for row in curves)
    assert any("no instruction fetches" in note for note in result.manifest["notes"])
    done = run("run", "--out", str(tmp_path / "out"), str(tmp_path / "data.csv"))
    assert done.exit_code == 0
    assert "n/a" in done.stderr
    assert "5000 references, no instructions" in done.stderr
    assert (tmp_path / "out" / "report.html").exists()


def test_a_run_on_a_broken_trace_is_partial(csv: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text(Path(csv).read_text() + "lod,1,1\n")
    done = run("run", "--json", str(tmp_path / "result.json"), str(broken))
    assert done.exit_code == 125
    assert "PARTIAL: " in done.stderr
    assert "line 7" in done.stderr
    document = json.loads((tmp_path / "result.json").read_text())
    assert document["run"]["exit"]["reason"] == "trace-broken"
    assert document["run"]["partial"]


@pytest.mark.parametrize(
    ("content", "arguments", "status", "message"),
    [
        (b"", (), 125, "is empty"),
        (b"kind,address\n", (), 125, "has no references"),
        (b"\0\1\2", (), 125, "format"),
        (b"2 400000\n", ("--format", "native"), 125, "native"),
    ],
)
def test_files_without_references_are_refused(
    content: bytes, arguments: tuple[str, ...], status: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "no.csv").write_bytes(content)
    assert_refused(run("run", *arguments, str(tmp_path / "no.csv")), status, "no.csv", message)


def test_samples_are_refused(tmp_path: Path) -> None:
    """Also after a conversion, as a native trace records its origin."""
    samples = tmp_path / "a.perf"
    samples.write_text(
        "  ls 25793/25793 12347.883816: cpu/mem-loads,ldlat=30/P:     5608687a05c0 __progname      "
        "1e05080021 |OP LOAD|LVL L1 or L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A"
        "               0 ffffffff81752b6a elf_load\n"
    )
    native = convert(str(samples), tmp_path / "a.oct")
    for name in (str(samples), native):
        assert_refused(run("run", name), 125, "samples", "perf", "cannot be computed")
        assert run("info", name).exit_code == 0
    assert "not every reference" in run("info", native).stdout


def test_a_missing_trace_is_an_error() -> None:
    assert_refused(run("run", "missing.oct"), 125, "cannot read `missing.oct`")
    with pytest.raises(CannotRun):
        octavo.run("missing.oct")


@pytest.mark.parametrize("command", ["run", "sim", "curves", "info", "check", "head"])
def test_a_wrong_synthetic_trace_is_a_usage_error_with_the_nearest_word(command: str) -> None:
    for name, near in (("synth:zpif", "zipf"), ("synth:zipf?referencs=1k", "references")):
        done = run(command, name)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.endswith(f"; did you mean `{near}`?\n")


def test_a_synthetic_trace() -> None:
    result = octavo.run("synth:uniform?references=10000&bytes=1MiB")
    assert result.manifest["trace"]["format"] == "synthetic"
    with pytest.raises(OctavoError, match="synth"):
        octavo.run("synth:no-such-pattern")


def test_a_trace_is_read_once(csv: str) -> None:
    trace = open_trace(csv)
    trace.list(entries=1)
    with pytest.raises(OctavoError, match="read already"):
        trace.list(entries=1)


# --- unusual contents of traces ----------------------------------------------------------------


def text_trace(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


ODD = """kind,address,size
I,0xffffffffffffffff,2
L,0xffffffffffffff,4096
L,0xb4007f0000001000,8
L,0x00ff800000001000,8
L,0xffff800000001000,8
"""
"""A fetch past the end of the address space, a load past the end of its lower half, a tagged
pointer, an address of 57 bits, and one of the kernel."""


def test_addresses_that_are_not_canonical_are_folded_and_reported(tmp_path: Path) -> None:
    odd = text_trace(tmp_path / "odd.csv", ODD)
    native = convert(odd, tmp_path / "odd.oct")
    for name in (odd, native):
        for command, count, bits in (("run", 3, 57), ("curves", 3, 57), ("sim", 4, 48)):
            done = run(command, name)
            assert done.exit_code == 0, done.stderr
            message = f"{count} references, the first at 0xffffffffffffffff, were not at canonical"
            assert message in done.stderr
            assert f"of {bits} bits" in done.stderr
        checked = json.loads(run("check", name, "--json", "-").stdout)
        assert checked["counts"] == {"not-canonical": 3}
        assert checked["findings"][0]["address"] == (1 << 64) - 1
        assert read(name)[0] == ("fetch", (1 << 64) - 1, 2)
    wide = run("sim", "--set", "page_table.levels=5", odd)
    assert "3 references, the first at" in wide.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [("b2.din", "2 ffffffffffffffff\n"), ("b2.lackey", "I  ffffffffffffffff,2\n")],
)
def test_a_fetch_at_the_end_of_the_address_space_ends(name: str, text: str, tmp_path: Path) -> None:
    done = run("sim", text_trace(tmp_path / name, text))
    assert done.exit_code == 0, done.stderr
    assert "1 reference, 1 instruction" in done.stderr


def test_lackey_without_instructions_is_read_as_din_is(tmp_path: Path) -> None:
    places = [0x10000 + 4096 * step for step in range(300)]
    lines = "".join(f" L {place:x},1\n" for place in places)
    lackey = text_trace(tmp_path / "data.lackey", f"==1== Lackey\n{lines}")
    din = text_trace(tmp_path / "data.din", "".join(f"0 {place:x}\n" for place in places))

    def rows(document: dict[str, Any]) -> list[Any]:
        return [row for row in document["rows"] if row.get("counter") != "segments"]

    for command in ("run", "curves", "sim"):
        results = []
        for name in (lackey, din):
            done = run(command, "--json", "-", name)
            assert done.exit_code == 0, done.stderr
            assert "no instructions" in done.stderr
            results.append(rows(json.loads(done.stdout)))
        assert results[0] == results[1]


def test_too_few_instructions_give_no_rates(tmp_path: Path) -> None:
    places = [0x10000 + 4096 * step for step in range(300)]
    lines = "".join(f" L {place:x},1\n" for place in places)
    one = text_trace(tmp_path / "one.lackey", f"I  400000,3\n{lines}")
    for command in ("run", "curves", "sim"):
        done = run(command, "--json", str(tmp_path / f"{command}.json"), one)
        assert done.exit_code == 0, done.stderr
        assert "301 references were counted and only 1 instruction: too few" in done.stderr
        rows = json.loads((tmp_path / f"{command}.json").read_text())["rows"]
        assert not any(row.get("mpki") or row.get("cpi_tlb") for row in rows)
    assert " n/a " in run("run", one).stderr


def test_options_go_by_the_instructions_of_the_trace(tmp_path: Path) -> None:
    """The trace decides, not its format."""
    fetches = [("fetch", 0x40_0000 + 4 * step, 4) for step in range(1200)]
    both = [of for fetch in fetches for of in (fetch, ("load", 0x10_0000 + fetch[1], 8))]
    with_them = write_csv(tmp_path / "both.csv", both)
    native = convert(with_them, tmp_path / "both.oct")
    parquet = convert(with_them, tmp_path / "both.parquet")
    din = convert(with_them, tmp_path / "both.din")
    without = write_csv(tmp_path / "data.csv", [of for of in both if of[0] == "load"])
    options = (
        ("curves", "--flush-every", "50"),
        ("curves", "--processes", "asid"),
        ("sim", "--warm-up", "20"),
        ("sim", "--interval", "1000"),
        ("sim", "--processes", "flush"),
    )
    for option in options:
        for name in (with_them, native, parquet, din):
            done = run(*option, name)
            assert done.exit_code == 0, (option, name, done.stderr)
        refused = run(*option, without)
        words = " ".join(option[1:2])
        assert_refused(refused, 125, f"{words}", "goes by instructions", "`", "has none.")
    assert run("curves", "--processes", "asid", with_them, native).exit_code == 0
    refused = run("curves", "--processes", "asid", with_them, without)
    assert_refused(refused, 125, "at least one of")


def test_a_long_word_of_a_column_is_abbreviated(tmp_path: Path) -> None:
    table = pa.table({"kind": ["\x1b" + "x" * 10**6], "address": [1]})
    pq.write_table(table, tmp_path / "long.parquet")
    done = run("run", str(tmp_path / "long.parquet"))
    assert_refused(done, 125, r"`\x1bxxx", "…` is not a kind of reference")
    assert len(done.stderr) < 400


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")
    write_csv(Path(name), SOME)
    assert names_a_trace([name])
    assert read(name) == SOME
    for suffix in ("oct", "parquet"):
        target = convert(name, f"{name}.{suffix}")
        assert read(target) == SOME
        for command in ("run", "curves", "sim", "info", "check", "head"):
            done = run(command, target)
            assert done.exit_code == 0, (command, done.stderr)
    done = run("run", name, "--json", str(tmp_path / "result.json"))
    assert done.exit_code == 0
    assert json.loads((tmp_path / "result.json").read_text())["run"]["command"] == [name]
    assert_refused(run("run", name.replace(".csv", ".din")), 125, r"\xff.din", "No such file")


def test_parquet_is_read_and_written_without_files_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of pyarrow that uses a Python file aborts the process at its end."""
    used: list[object] = []

    def noting(kind: Any) -> Callable[..., Any]:
        def made(file: object, *arguments: Any, **options: Any) -> Any:
            used.append(file)
            return kind(file, *arguments, **options)

        return made

    monkeypatch.setattr(pq, "ParquetFile", noting(pq.ParquetFile))
    monkeypatch.setattr(pq, "ParquetWriter", noting(pq.ParquetWriter))
    trace = str(write_csv(tmp_path / "some.csv", SOME))
    assert read(convert(trace, str(tmp_path / "some.parquet"))) == SOME
    assert len(used) >= 2
    assert all(isinstance(file, pa.NativeFile) for file in used)


@pytest.mark.parametrize("name", [b"\xff", b"x:y"])
def test_results_have_any_name(
    tmp_path: Path, name: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = str(write_csv(tmp_path / "some.csv", SOME))
    place = os.fsdecode(name)
    for command in ("run", "curves", "sim"):
        done = run(command, trace, "--out", f"{place}.{command}")
        assert done.exit_code == 0, (command, done.stderr)
        done = run(command, trace, "--out", f"{place}.{command}.parquet")
        assert done.exit_code == 0, (command, done.stderr)
        with Path(place + f".{command}", "rows.parquet").open("rb") as file:
            assert pq.read_table(file).num_rows > 0


@pytest.mark.parametrize(
    "command",
    ["head -n 100000", "head -n 100000 --json -", "convert --to csv", "run --json -", "info"],
)
def test_a_closed_pipe_is_no_error(command: str, tmp_path: Path) -> None:
    trace = write_csv(tmp_path / "many.csv", [("load", 8 * step, 8) for step in range(100_000)])
    first, *options = command.split()
    words = [sys.executable, "-m", "octavo", first, trace, *options]
    words += ["-"] if first == "convert" else []
    # The reader of the pipe ends before anything is written.
    end, start = os.pipe()
    os.close(end)
    done = subprocess.run(words, stdout=start, stderr=subprocess.PIPE, text=True, check=False)
    os.close(start)
    assert done.returncode == 141
    assert "octavo: " not in done.stderr


# --- the line that shows progress --------------------------------------------------------------


def test_the_line_shows_the_remaining_part() -> None:
    progress = {
        "running": True,
        "elapsed_seconds": 10.0,
        "done": 25,
        "total": 100,
        "instructions": 1_000_000,
        "references": 2_000_000,
    }
    assert trace_text(progress, 5e6) == (  # type: ignore[arg-type]
        "25%, 2.00 M references (5.00 M/s), 1.00 M instructions, 10.0 s, about 30 s left"
    )
    assert "left" not in trace_text({**progress, "total": None}, 0.0)  # type: ignore[arg-type]
    assert "left" not in trace_text({**progress, "done": 0}, 0.0)  # type: ignore[arg-type]


def test_the_line_of_a_recording() -> None:
    progress = {
        "running": True,
        "elapsed_seconds": 10.0,
        "references": 2_000_000,
        "instructions": 1_000_000,
        "resident_bytes": 0,
        "streams_live": 1,
        "streams_total": 4,
        "processes_total": 2,
        "programs": ["/usr/bin/prog"],
        "counting": True,
        "over": False,
        "bytes": 3 << 20,
        "failed": None,
    }
    text = recording_text(progress, 5e6)  # type: ignore[arg-type]
    assert text.startswith("prog: recording, 2.00 M references")
    assert text.endswith("10.0 s, 3 MiB written, 1 of 2 processes live")
