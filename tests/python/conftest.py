"""Fixtures that several test files use."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cases import use_profile
from fakes import FakeRun, write_script
from octavo.analysis.rows import rows_of
from octavo.base.huge_pages import read_huge_pages
from octavo.runs.api import execute
from octavo.runs.configuration import configure
from octavo.runs.result import RunResult, advice_records
from octavo.tracing.manifest import Circumstances, build_manifest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from octavo._core import Result


use_profile()

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """An installed browser in headless mode; skips the test if there is none."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no browser")
    with sync_api.sync_playwright() as playwright:
        yield playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )


@pytest.fixture
def finish() -> Callable[..., RunResult]:
    """Makes a RunResult from a fake Result, as a run does."""

    def make(
        result: Result,
        tlb: str | None = None,
        interrupted_by: int | None = None,
        *,
        was_closed: bool = False,
    ) -> RunResult:
        configuration = configure(tlb=tlb)
        rows = rows_of(result, configuration.machine)
        facts = Circumstances(
            command=["prog", "<b>&", "\udcff"],
            program=Path("/usr/bin/prog"),
            directory="/tmp",
            started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
            valgrind_version="3.19.0",
            configuration=configuration,
            interrupted_by=interrupted_by,
            was_closed=was_closed,
        )
        manifest = build_manifest(result, facts)
        huge_pages = read_huge_pages()
        advice = advice_records(rows, configuration.machine, huge_pages, facts.command, manifest)
        return RunResult(manifest, rows, advice)

    return make


@pytest.fixture
def fake_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a fake Valgrind and a fake tool, which is the only one on PATH."""
    tools = tmp_path / "tools"
    tools.mkdir()
    write_script(tools / "valgrind", "echo valgrind-3.22.0")
    write_script(tools / "octavo-amd64-linux", "echo valgrind-3.21.0")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("OCTAVO_TOOL_DIR", str(tools))
    return tools


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch, fake_tools: Path) -> Callable[[FakeRun], None]:
    """Installs a fake run in place of the tracer, for tests of the command line."""
    write_script(fake_tools / "prog", "exit 0")

    def install(run: FakeRun) -> None:
        fake = partial(execute, make_run=lambda program, **options: run)
        monkeypatch.setattr("octavo.cli.run.execute", fake)

    return install
