import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from rich.console import Console

from called import invoke as octavo
from fakes import FakeRun, killed, process, progress, region, result
from octavo._core import VERSION, OctavoError
from octavo.base.units import MIB
from octavo.runs.result import RunResult
from octavo.terminal.live import LiveLine, progress_text
from octavo.terminal.run import show_result

Install = Callable[[FakeRun], None]
Finish = Callable[..., RunResult]
FALLING = tuple(10_000_000 >> step for step in range(10))


def plain_run() -> FakeRun:
    return FakeRun(result(process(0, data_misses=FALLING, regions=[region(misses=FALLING)])))


def test_a_run_prints_tables_and_advice_on_standard_error_only(pretend: Install) -> None:
    pretend(plain_run())
    done = octavo("run", "--", "prog")
    assert done.exit_code == 0
    assert done.stdout == ""
    assert "TLB with 64 entries for code and 64 for data" in done.stderr
    assert "Which page size?" in done.stderr


def test_off_a_terminal_the_output_is_plain_ascii(pretend: Install) -> None:
    pretend(plain_run())
    done = octavo("run", "prog")
    assert "\x1b" not in done.stderr
    assert done.stderr.isascii()


@pytest.mark.parametrize(
    ("more", "message"), [(0, ""), (1, "and 1 more region;"), (2, "2 more regions;")]
)
def test_regions_not_shown_are_counted(pretend: Install, more: int, message: str) -> None:
    regions = [region(name=f"region {number}", misses=FALLING) for number in range(6 + more)]
    pretend(FakeRun(result(process(0, data_misses=FALLING, regions=regions))))
    shown = octavo("run", "--tlb", "lru64", "prog").stderr
    assert message in shown
    assert ("more region" in shown) == (more > 0)


def test_json_on_standard_output_has_every_number(pretend: Install) -> None:
    pretend(plain_run())
    done = octavo("run", "--json", "-", "--", "prog")
    document = json.loads(done.stdout)
    assert document["schema"] == "octavo/run/1"
    assert document["run"]["command"] == ["prog"]
    assert document["advice"][0]["text"] in done.stderr


def test_quiet_prints_nothing(pretend: Install) -> None:
    pretend(plain_run())
    done = octavo("run", "--quiet", "--", "prog")
    assert (done.stdout, done.stderr) == ("", "")


def test_no_advice(pretend: Install) -> None:
    pretend(plain_run())
    assert "Which page size?" not in octavo("run", "--no-advice", "prog").stderr


def test_the_status_is_the_programs(pretend: Install) -> None:
    failed = result()
    failed["exit"]["code"] = 3
    pretend(FakeRun(failed))
    assert octavo("run", "prog").exit_code == 3


def test_a_crash_is_partial_and_reported(pretend: Install) -> None:
    pretend(FakeRun(result(ended=killed(11))))
    done = octavo("run", "prog")
    assert done.exit_code == 139
    assert "PARTIAL: the program was killed by SIGSEGV" in done.stderr


def test_an_interrupt_before_anything_was_counted(pretend: Install) -> None:
    empty = process(0, instructions=0, data_references=0)
    fired = iter([True])

    def interrupt(run: FakeRun) -> None:
        if next(fired, False):
            os.kill(os.getpid(), signal.SIGTERM)

    pretend(FakeRun(result(empty), during=interrupt))
    done = octavo("run", "prog")
    assert done.exit_code == 143
    assert done.stderr.endswith("octavo: interrupted before anything was counted.\n")


def test_an_unknown_instruction_is_reported_even_with_quiet(pretend: Install) -> None:
    failed = result(ended=killed(4))
    failed["exit"]["reason"] = "tracer-failed"
    failed["exit"]["diagnostics"] = (
        "==7== \n==7== vex amd64->IR: unhandled instruction bytes: 0x62 0xF1\n"
        "==7== valgrind: Unrecognised instruction at address 0x109191.\n"
    )
    pretend(FakeRun(failed))
    done = octavo("run", "--quiet", "prog")
    assert done.exit_code == 125
    assert done.stderr == (
        "octavo: the program executed an instruction that Valgrind does not know (0x62 0xF1) at "
        "0x109191, such as one of AVX-512; build it for an older processor; "
        "the result is partial.\n"
    )


def test_out_and_report(pretend: Install, tmp_path: Path) -> None:
    pretend(plain_run())
    out = tmp_path / "out"
    assert octavo("run", "--out", str(out), "prog").exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "manifest.json",
        "report.html",
        "result.json",
        "rows.parquet",
    ]
    again = octavo("run", "--out", str(out), "prog")
    assert again.exit_code == 2
    assert "--force" in again.stderr
    before = (out / "report.html").read_text()
    (out / "report.html").unlink()
    assert octavo("report", str(out)).exit_code == 0
    assert (out / "report.html").read_text() == before


def test_report_refuses_other_files(tmp_path: Path) -> None:
    assert "cannot read" in octavo("report", str(tmp_path)).stderr
    (tmp_path / "result.json").write_text("{}")
    done = octavo("report", str(tmp_path))
    assert done.exit_code == 125
    assert "is not a result of `octavo run`" in done.stderr


@pytest.mark.parametrize("words", [["report", "result.json"], ["diff", "result.json", "."]])
def test_a_file_in_place_of_a_directory_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("result.json").write_text("{}")
    done = octavo(*words)
    assert done.exit_code
    assert done.stderr == "octavo: `result.json` is a file: give the directory that --out named.\n"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--page-sizes", "3KiB", "prog"], 2, "power of two"),
        (["--tlb", "itanium", "prog"], 2, "did you mean `itanium2`"),
        (["--layout", "nativ", "prog"], 2, "did you mean `native`"),
        (["--max-instructions", "many", "prog"], 2, "is not a count"),
        (["--pagesizes", "4KiB", "prog"], 2, "--page-sizes"),
        (["no-such-program"], 127, "no program `no-such-program`"),
        (["/"], 126, "is a directory"),
        (["--out", "/proc/x/y", "prog"], 125, "cannot write to"),
        (["--out", "", "prog"], 2, "--out is empty"),
        (["--out", "counts.csv", "prog"], 2, "give a directory, or a file that ends with .parquet"),
        (["--json", "", "prog"], 2, "--json is empty"),
        (["--max-instructions", "", "prog"], 2, "is not a count"),
        (["--skip-instructions", "9" * 30, "prog"], 2, "no run has more than 9223372T"),
        (["--entries", "5000000000", "prog"], 2, "--entries must be from 1 to 1048576"),
        (["--json", "/proc/no/x", "prog"], 125, "cannot write"),
    ],
)
def test_errors_are_one_sentence(
    pretend: Install, arguments: list[str], status: int, message: str
) -> None:
    run = plain_run()
    pretend(run)
    done = octavo("run", *arguments)
    assert done.exit_code == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not run.started


def test_a_file_here_that_cannot_be_executed_is_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.bin").write_bytes(b"words")
    done = octavo("run", "in.bin")
    assert done.exit_code == 127
    assert "no program `in.bin` on PATH; the file here is not executable." in done.stderr


def test_a_program_without_data_has_its_tables(pretend: Install) -> None:
    made = process(0, data_references=0)
    made["curves"] = [curve for curve in made["curves"] if curve["stream"] == "fetch"]
    pretend(FakeRun(result(made)))
    done = octavo("run", "prog")
    assert done.exit_code == 0
    assert "Which page size?" in done.stderr


def test_nothing_counted_is_no_result(pretend: Install, tmp_path: Path) -> None:
    empty = process(0, instructions=0, data_references=0)
    pretend(FakeRun(result(empty)))
    out = tmp_path / "out"
    done = octavo("run", "--out", str(out), "--skip-instructions", "10M", "prog")
    assert done.exit_code == 125
    assert "ended within the 10,000,000 instructions to skip" in done.stderr
    assert not out.exists()
    assert "begin mark" in octavo("run", "--marks", "prog").stderr


def test_errors_of_the_extension_give_no_tracebacks(
    pretend: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(run: FakeRun) -> None:
        raise OctavoError("the kernel forbids ptrace here.")

    pretend(FakeRun(result(), during=refuse))
    done = octavo("run", "prog")
    assert (done.exit_code, done.stderr) == (125, "octavo: the kernel forbids ptrace here.\n")

    def break_down(run: FakeRun) -> None:
        raise KeyError("x")

    pretend(FakeRun(result(), during=break_down))
    done = octavo("run", "prog")
    assert done.exit_code == 125
    assert "a bug in Octavo (KeyError" in done.stderr
    monkeypatch.setenv("OCTAVO_DEBUG", "1")
    assert isinstance(octavo("run", "prog").exception, KeyError)


def test_help_has_examples_and_statuses() -> None:
    done = octavo("run", "--help")
    assert "octavo run -- gzip" in done.stdout
    assert "127  there is no such program" in done.stdout
    assert octavo("reproduce", "base-page-siz").exit_code == 2


def test_a_study_of_no_instructions_is_refused_before_it_begins(tmp_path: Path) -> None:
    arguments = ("base-page-size", "--max-instructions", "0", "--out", str(tmp_path / "out"))
    refused = octavo("reproduce", *arguments)
    assert refused.exit_code == 2
    assert refused.stderr == "octavo: --max-instructions must be at least 1.\n"
    assert not (tmp_path / "out").exists()


def test_help_of_report_names_the_commands_whose_results_it_reads() -> None:
    shown = octavo("report", "--help").stdout
    assert all(
        f"`octavo {name}`" in shown or f"`{name}`" in shown for name in ("run", "curves", "sim")
    )


def test_version() -> None:
    assert octavo("--version").stdout == f"octavo {VERSION}\n"


def test_a_closed_pipe_is_an_exit_status() -> None:
    program = "from octavo.base.files import JsonFile; JsonFile('-').write(list(range(10**5)))"
    guarded = f"from octavo.cli.guard import guarded\nwith guarded(): exec({program!r})"
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -c "$1" | true', sys.executable, guarded],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "BrokenPipeError" not in done.stderr
    assert done.stderr.endswith("Exit: 141\n")


@pytest.mark.parametrize("end", ["2>/dev/full", "", "2>&-"], ids=["full", "no reader", "closed"])
def test_an_unwritable_standard_error_does_not_fail_the_run(end: str) -> None:
    program = (
        "from octavo.terminal.console import make_console; console = make_console()\n"
        "for _ in range(3): console.print('x' * 10**5)\n"
        "open(sys.argv[1], 'w').write('kept')\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as without_reader:
        done = _shell(f'"$0" -c "import sys; {program}" "$1" {end}; cat "$1"', without_reader)
    assert done == "kept"


def test_closed_standard_output_is_an_error_before_the_run() -> None:
    guarded = (
        "from octavo.cli.guard import guarded; from octavo.base.files import JsonFile\n"
        "with guarded(): JsonFile('-')"
    )
    assert "octavo: cannot write to standard output: it is closed." in _shell(
        f'"$0" -c "{guarded}" 2>"$1" >&-; cat "$1"'
    )


def test_a_deleted_current_directory_is_reported(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    script = 'mkdir {0}; cd {0}; rmdir {0}; "$0" -m octavo run -q {1} 2>"$1"; cat "$1"'
    for subject in ("-- true", "synth:strided?references=100"):
        message = _shell(script.format(gone, subject))
        assert message == "octavo: the current directory is gone; change to one that exists.\n"


def _shell(script: str, stderr: IO[str] | int = subprocess.PIPE) -> str:
    """The output of a script; `$0` is Python, `$1` a file for it to write to."""
    with tempfile.NamedTemporaryFile() as file:
        done = subprocess.run(
            ["/bin/sh", "-c", script, sys.executable, file.name],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            check=False,
        )
    return done.stdout


def test_ctrl_c_is_caught_while_the_command_line_loads() -> None:
    program = "import octavo.__main__, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "octavo.cli" not in done.stdout.split()
    assert "octavo.runs.api" not in done.stdout.split()


@pytest.mark.parametrize("width", [80, 100, 200])
def test_every_column_is_seen_on_a_terminal(finish: Finish, width: int) -> None:
    regions = [region("a-library-of-some-length.so.6 data", misses=FALLING)]
    made = result(*(process(n, data_misses=FALLING, regions=regions) for n in range(2)))
    console = Console(force_terminal=True, width=width, color_system=None)
    with console.capture() as captured:
        show_result(console, finish(made), advice=True)
    lines = captured.get().splitlines()
    assert any(line.split()[-2:] == ["page", "page"] for line in lines)
    commands = [line for line in lines if "| sudo tee" in line]
    assert all(line.startswith("      ") and line.endswith("enabled") for line in commands)
    assert all(len(line.rstrip()) <= width for line in lines if line not in commands)


def test_sentences_and_settings_of_the_program_are_not_repeated_under_its_regions(
    finish: Finish,
) -> None:
    reason = "Sets pages aside. No other program has them."

    def pool(pages: int) -> dict[str, Any]:
        command = f"echo {pages} > pool"
        return {"text": reason, "command": command, "undo": "echo 0 > pool", "name": "pool 2MiB"}

    def source(where: str) -> dict[str, Any]:
        return {"text": f"Asks in the source. Here: {where}.", "command": f"ask({where})"}

    def advice(region: str, *actions: dict[str, Any]) -> dict[str, Any]:
        at = {"region": region, "stream": "data", "page_size": 2 * MIB, "reason": "gain"}
        return {
            "scope": "region",
            "text": f"Data of {region}.",
            "actions": actions,
            "region_kind": "anonymous",
            "start": 0,
            **at,
        }

    made = finish(result(process(0, data_misses=FALLING)))
    regions = [advice("heap", pool(2), source("heap")), advice("maps", pool(3), source("maps"))]
    whole = {**advice("all", pool(5)), "scope": "program"}
    answer = {"scope": "answer", "text": "Which page size? No other program has them."}

    def shown(*items: dict[str, Any]) -> list[str]:
        console = Console(width=200, color_system=None)
        with console.capture() as captured:
            show_result(console, replace(made, advice=[answer, *items]), advice=True)
        lines = [line.strip() for line in captured.get().splitlines()]
        return lines[lines.index("Why, and what else could be done:") + 1 :]

    heap = ["Asks in the source. Here: heap.", "ask(heap)"]
    maps = ["Here: maps.", "ask(maps)"]
    undo = ["To undo:", "echo 0 > pool"]
    pools = ["Sets pages aside.", "echo 5 > pool", *undo]
    assert shown(whole, *regions) == [
        *("- Data of all.", *pools),
        *("- Data of heap.", *heap),
        *("- Data of maps.", *maps),
    ]
    assert shown(*regions) == [
        *("- Data of heap.", "Sets pages aside.", "echo 2 > pool", *undo, *heap),
        *("- Data of maps.", "As above:", "echo 3 > pool", *maps),
    ]


def test_the_live_line_needs_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for console, shown in (
        (Console(force_terminal=True, width=200), True),
        (Console(force_terminal=False), False),
    ):
        with console.capture() as captured, LiveLine(console, quiet=False) as line:
            line.show(progress(running=True))
        assert ("123 M references" in captured.get()) == shown
    terminal = Console(force_terminal=True)
    with terminal.capture() as captured, LiveLine(terminal, quiet=True) as line:
        line.show(progress(running=True))
    assert captured.get() == ""


def test_the_text_of_the_live_line() -> None:
    made = progress(running=True, seconds=5.1)
    assert progress_text(made, 24e6) == (
        "prog: counting, 123 M references (24.0 M/s), 100 M instructions, 5.1 s, 45 MiB resident"
    )
    made["processes_total"] = 3
    assert "1 of 3 processes live" in progress_text(made, 0)
    made["streams_live"] = 2
    assert "45 MiB resident (memory that processes share counts for each), 2 of 3" in (
        progress_text(made, 0)
    )
    made["programs"] = ["/bin/sh", *["/usr/bin/postgres"] * 12, "/usr/bin/a", "/usr/bin/b"]
    made["counting"] = False
    assert progress_text(made, 0).startswith(
        "postgres (12 processes), sh, a, …: not counting, 123 M references"
    )
    made["references"] = 0
    made["programs"] = []
    assert progress_text(made, 0).startswith("waiting for the region of interest, 5.1 s")
    made["over"] = True
    assert progress_text(made, 0).startswith("region of interest over")


def test_the_command_as_a_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "octavo", "run", "no-such-program"],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    assert done.returncode == 127
    assert done.stderr.startswith("octavo: no program `no-such-program` on PATH")
