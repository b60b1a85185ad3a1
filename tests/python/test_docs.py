"""Runs the examples of README and of the documentation unchanged."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

import octavo
from octavo.cli import app
from octavo.studies import ALL, STUDIES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
RESULTS = {
    "run.md": "result/manifest.json",
    "ctl.md": "whole/manifest.json",
    "traces.md": "result/manifest.json",
    "curves.md": "result/manifest.json",
    "sim.md": "result/manifest.json",
    "core.md": "result/manifest.json",
    "perforated.md": "result/manifest.json",
    "softvm.md": "softvm.json",
    "sweeps.md": "difference.json",
    "snapshot.md": "now.json",
    "apply.md": "plan.json",
    "machines.md": "mine.toml",
    "verify.md": "verify.json",
    "calibrate.md": "quick.toml",
    "commands.md": "diff.json",
    "workloads.md": "result/manifest.json",
}
"""Each page with a file that its examples leave behind."""
PAGES = tuple(RESULTS)
GUIDES = {
    "tutorial.md": "answer.txt",
    "how-to/16k-pages.md": "curves/manifest.json",
    "how-to/foreign-traces.md": "made.csv",
    "how-to/jvm.md": "sums.txt",
    "how-to/mariadb.md": "sizes.txt",
    "how-to/page-walk-budget.md": "change/manifest.json",
    "how-to/postgresql.md": "data/PG_VERSION",
    "how-to/ray.md": "study.results",
    "how-to/redis.md": "filled.txt",
    "how-to/study-a-design.md": "designs/manifest.json",
}
"""The tutorial and the how-to guides, each with what its examples leave behind."""
INSTALLED = {
    "javac": ("java", "javac"),
    "initdb": ("initdb", "postgres"),
    "mariadbd": ("mariadbd",),
    "redis-server": ("redis-server", "redis-cli", "redis-benchmark"),
}
"""Words in examples, and the programs that such examples need. Without them the test is skipped."""

ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}:{ROOT / 'build/workloads'}:{os.environ['PATH']}",
}


def examples(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)
    return blocks


def test_every_page_with_examples_is_run() -> None:
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    pages = {page for page in pages if not page.startswith("developing/")}
    assert {page for page in pages if examples(page, "sh")} == {*PAGES, *GUIDES}
    assert {page for page in pages if examples(page, "python")} == set(PAGES) - {"ctl.md"}


def run_shell_examples(page: str, directory: Path, **variables: str) -> None:
    environment = {**ENVIRONMENT, **variables}
    for script in examples(page, "sh"):
        subprocess.run(["sh", "-eu", "-c", script], cwd=directory, env=environment, check=True)


@pytest.mark.long
@pytest.mark.usefixtures("needs_settings")
@pytest.mark.parametrize("page", PAGES)
def test_the_shell_examples_run(page: str, tmp_path: Path) -> None:
    run_shell_examples(page, tmp_path)
    assert (tmp_path / RESULTS[page]).exists()


@pytest.mark.long
@pytest.mark.usefixtures("needs_settings")
@pytest.mark.parametrize("page", GUIDES)
def test_the_commands_of_guides_run(page: str, tmp_path: Path) -> None:
    """Runs the blocks one after another in one directory, as a reader pastes them."""
    left_out = []
    path = f"{ENVIRONMENT['PATH']}:/usr/lib/postgresql/15/bin"
    with as_server(page, tmp_path) as (place, identity):
        for script in on_free_ports(examples(page, "sh")):
            needed = {name for word, names in INSTALLED.items() if word in script for name in names}
            absent = sorted(name for name in needed if shutil.which(name, path=path) is None)
            left_out += absent
            if not absent:
                environment = {**ENVIRONMENT, "PATH": path}
                command = ["sh", "-eu", "-c", script]
                subprocess.run(command, cwd=place, env=environment, check=True, **identity)
        if left_out:
            pytest.skip(f"not installed: {', '.join(left_out)}")
        assert (place / GUIDES[page]).exists()


PORT = re.compile(r"(?<=-p )\d+|(?<=--port )\d+")


def on_free_ports(scripts: list[str]) -> list[str]:
    """The scripts with a free port in place of each that they name, which may be in use here."""
    ports = {port for script in scripts for port in PORT.findall(script)}
    with ExitStack() as stack:
        sockets = {port: stack.enter_context(socket.socket()) for port in ports}
        for one in sockets.values():
            one.bind(("127.0.0.1", 0))
        free = {port: str(one.getsockname()[1]) for port, one in sockets.items()}
    return [PORT.sub(lambda found: free[found[0]], script) for script in scripts]


def test_servers_of_guides_get_free_ports() -> None:
    for page in ("tutorial.md", "how-to/redis.md"):
        scripts = examples(page, "sh")
        (port,) = {port for script in scripts for port in PORT.findall(script)}
        replaced = "".join(on_free_ports(scripts))
        (free,) = set(PORT.findall(replaced))
        assert free != port
        assert port not in replaced


@contextmanager
def as_server(page: str, place: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A directory and a user for the examples of a page: PostgreSQL does not run as root."""
    if "postgresql" not in page or os.geteuid() != 0 or not shutil.which("pg_isready"):
        yield place, {}
        return
    with tempfile.TemporaryDirectory() as name:
        shutil.chown(name, "postgres", "postgres")
        yield Path(name), {"user": "postgres", "group": "postgres", "extra_groups": []}


@pytest.mark.long
def test_the_memory_behind_cxl_is_read(tmp_path: Path) -> None:
    """The guide's program does not fit into the local memory."""
    page = "how-to/study-a-design.md"
    record = "octavo record -q --out sorting.oct -- sort /usr/bin/sort > sorted"
    (far,) = (script for script in examples(page, "sh") if "cxl" in script)
    for script in (record, far):
        subprocess.run(["sh", "-eu", "-c", script], cwd=tmp_path, env=ENVIRONMENT, check=True)
    rows = json.loads((tmp_path / "far.json").read_text(encoding="utf-8"))["rows"]
    reads = {
        row["component"]: row["value"]
        for row in rows
        if row.get("design") == "base4k" and row.get("counter") == "reads"
    }
    assert reads["memory.tier.cxl"] > 0
    assert reads["memory.tier.local"] > 0


def test_a_budget_that_is_too_small_fails(tmp_path: Path) -> None:
    """The script of the guide decides by its budget."""
    (script, _) = examples("how-to/page-walk-budget.md", "sh")
    for budget, status in (("0.050", 0), ("0.0001", 1)):
        text = script.replace("budget=0.050", f"budget={budget}").replace("60000", "3000")
        text = text.replace("sort -n numbers", "sort --parallel=1 -n numbers")
        done = subprocess.run(["sh", "-eu", "-c", text], cwd=tmp_path, env=ENVIRONMENT, check=False)
        assert done.returncode == status


@pytest.mark.long
@pytest.mark.usefixtures("needs_settings")
@pytest.mark.parametrize("page", PAGES)
def test_the_python_examples_run(page: str, tmp_path: Path) -> None:
    for script in examples(page, "python"):
        subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=ENVIRONMENT, check=True)


CSV_VALUES = {
    "kind": "fetch",
    "address": "0x1000",
    "size": "4",
    "thread": "1",
    "instructions": "1",
}


def test_csv_traces_follow_their_page(tmp_path: Path) -> None:
    """Every column of the page's table is read, optional columns may be missing, and the example
    has the instructions and the threads of its rows.
    """
    page = "traces.md"
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    columns = dict(re.findall(r"^\| `(\w+)` \| (yes|no) \|", text, flags=re.MULTILINE))
    assert columns.keys() == CSV_VALUES.keys()
    for without in (None, *columns):
        values = {name: value for name, value in CSV_VALUES.items() if name != without}
        trace = tmp_path / f"{without}.csv"
        trace.write_text(f"{','.join(values)}\n{','.join(values.values())}\n")
        if without is not None and columns[without] == "yes":
            with pytest.raises(octavo.OctavoError, match=f"no column is named `{without}`"):
                octavo.run(trace, format="csv")
        else:
            notes = octavo.run(trace).manifest["notes"]
            assert not any("ignored" in note for note in notes)
    (example,) = (script for script in examples(page, "sh") if "small.csv" in script)
    subprocess.run(["sh", "-eu", "-c", example], cwd=tmp_path, env=ENVIRONMENT, check=True)
    (process,) = json.loads((tmp_path / "small.json").read_text(encoding="utf-8"))["processes"]
    assert (process["instructions"], process["threads"]) == (3, 2)


def test_example_of_a_machine_is_simulated(tmp_path: Path) -> None:
    run_shell_examples("developing/machines.md", tmp_path)
    shown = json.loads((tmp_path / "my-core.json").read_text(encoding="utf-8"))
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert result["run"]["configuration"]["machine_hash"] == shown["hash"]
    preset, mine = octavo.machine("zen3"), shown["machine"]
    assert preset["tlb"]["l2"]["main"]["entries"] == 2048
    assert mine["tlb"]["l2"]["main"]["entries"] == 3072
    assert mine["cache"] == preset["cache"]


def test_example_of_a_study_is_run(tmp_path: Path) -> None:
    """Runs in a copy of the package with the files of the page added."""
    page = "developing/studies.md"
    package = tmp_path / "octavo"
    shutil.copytree(Path(octavo.__file__).parent, package, ignore=shutil.ignore_patterns("*.pyc"))
    listed = package / "studies" / "__init__.py"
    names = listed.read_text(encoding="utf-8")
    listed.write_text(
        names.replace("STUDIES = (", 'STUDIES = (\n    "tlb-reach",'), encoding="utf-8"
    )
    folder = package / "studies" / "tlb_reach"
    folder.mkdir()
    for name, language in (("__init__.py", "python"), ("study.toml", "toml"), ("page.md", "jinja")):
        (text,) = examples(page, language)
        (folder / name).write_text(text, encoding="utf-8")
    run_shell_examples(page, tmp_path, PYTHONPATH=str(tmp_path))
    document = json.loads((tmp_path / "reach/tlb-reach.json").read_text(encoding="utf-8"))
    assert [claim["agrees"] for claim in document["claims"]] == [True]
    assert [table["updates"] for table in document["tables"]] == [20_000] * 3
    written = (tmp_path / "reach/tlb-reach.md").read_text(encoding="utf-8")
    assert "| 16 MiB |" in written
    assert "**Agrees**" in written


# --- README, whose commands are pasted at the top of a clone ----------------------------------

IN_CLONE = (".venv", "build", "workloads", "Cargo.lock", "Makefile")
"""Names in a clone after `make demo` and `make workloads` that README uses."""


def readme_commands() -> list[str]:
    """The commands of README: lines of `sh` blocks, and lines after `$` in `console` blocks."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = []
    for language, block in re.findall(r"```(sh|console)\n(.*?)```", text, flags=re.DOTALL):
        lines = block.splitlines()
        if language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        commands += [line for line in lines if line]
    return commands


def octavo_arguments(command: str) -> list[str] | None:
    """The arguments of a command line of octavo without redirections and comments, else None."""
    program, *arguments = shlex.split(command, comments=True)
    if program != ".venv/bin/octavo":
        return None
    end = next((at for at, word in enumerate(arguments) if word in (">", "<", "|")), None)
    return arguments[:end]


def make_targets(command: str) -> list[str]:
    program, *targets = shlex.split(command, comments=True)
    return targets if program == "make" else []


def test_readme_has_commands_of_octavo_and_make_alone() -> None:
    commands = readme_commands()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert sum(octavo_arguments(command) is not None for command in commands) > 10
    for command in commands:
        targets = make_targets(command)
        assert targets or octavo_arguments(command) is not None, command
        assert all(f"\n{target}:" in makefile for target in targets), command


@pytest.mark.parametrize("command", readme_commands())
def test_readme_commands_are_understood(command: str) -> None:
    """Options and arguments are parsed, and files of the clone that they name exist."""
    arguments = octavo_arguments(command)
    if arguments is None:
        return
    name, *rest = arguments
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    group.commands[name].make_context(name, [*rest])
    if name == "reproduce":
        assert rest[0] in (*STUDIES, ALL)
    for word in re.findall(r"(?:workloads/)[a-z0-9./_]+", command):
        source = word.removeprefix("build/") if "." in word else f"{word}.c"
        assert (ROOT / source).exists(), word


@pytest.mark.long
def test_readme_commands_run_in_a_clone(tmp_path: Path) -> None:
    for name in IN_CLONE:
        (tmp_path / name).symlink_to(ROOT / name)
    for command in readme_commands():
        if make_targets(command) or "octavo reproduce" in command:
            continue
        done = subprocess.run(
            ["sh", "-eu", "-c", command], cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "result/manifest.json").exists()
    assert (tmp_path / "orders.oct").exists()


def test_all_files_require_the_same_version_of_rust() -> None:
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    version = manifest["workspace"]["package"]["rust-version"]
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert re.findall(r"Rust \(?(\d\.\d+)", text) == [version], name
    script = (ROOT / "scripts/setup-system").read_text(encoding="utf-8")
    assert not re.findall(r"Rust \d", script)
