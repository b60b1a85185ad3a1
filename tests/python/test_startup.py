"""The imports of a command, which are most of its start-up time."""

import subprocess
import sys
from pathlib import Path

import pytest

LIST_MODULES = """\
import sys
from octavo.__main__ import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""

DRAWING = {"altair", "vl_convert"}
FILES = {"jinja2", "pyarrow"}
UNUSED = {"pydantic"}


def modules_of(*arguments: str, prelude: str = "") -> set[str]:
    """The modules that are loaded at the end of a command."""
    done = subprocess.run(
        [sys.executable, "-c", prelude + LIST_MODULES, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return set(done.stderr.split())


def test_version_imports_no_command() -> None:
    modules = modules_of("--version")
    assert not modules & {"rich", *DRAWING, *FILES, *UNUSED}
    assert not {name for name in modules if name.startswith("octavo.cli.")}


@pytest.mark.parametrize("command", ["run", "curves", "sim"])
def test_a_command_without_files_imports_nothing_that_draws_or_writes_them(command: str) -> None:
    modules = modules_of(command, "--max-instructions", "1k", "synth:strided?references=1k")
    assert f"octavo.cli.{command}" in modules
    assert not modules & {*DRAWING, *FILES, *UNUSED}
    others = {f"octavo.cli.{name}" for name in ("run", "curves", "sim", "record")} - {
        f"octavo.cli.{command}"
    }
    assert not modules & others


def test_a_program_starts_before_modules_for_its_result_are_imported() -> None:
    prelude = (
        "import sys, octavo._core\n"
        "class Run:\n"
        "    def __init__(self, *arguments, **options):\n"
        "        print(*sys.modules, file=sys.stderr)\n"
        "        raise SystemExit(0)\n"
        "octavo._core.LiveRun = Run\n"
    )
    code = f"{prelude}from octavo.__main__ import main\nmain()"
    command = [sys.executable, "-c", code, "run", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    modules = set(done.stderr.split())
    assert "octavo.cli.run" in modules
    assert not modules & {"rich", "octavo.runs.result", "octavo.terminal.run"}


@pytest.mark.parametrize("command", ["run", "curves", "sim"])
def test_a_report_is_written_without_an_engine_that_draws(command: str, tmp_path: Path) -> None:
    script = tmp_path / "vega.js"
    script.write_text("// drawn by this")
    prelude = (
        f"import octavo.report.bundle as b, pathlib; b.PLACES = [pathlib.Path({str(script)!r})]\n"
    )
    out = tmp_path / "out"
    trace = "synth:strided?references=1k"
    small = ["--entries", "64", "--sets", "4"] if command == "curves" else []
    modules = modules_of(command, "-q", *small, "--out", str(out), trace, prelude=prelude)
    assert not modules & {*DRAWING, *UNUSED}
    assert "// drawn by this" in (out / "report.html").read_text()
