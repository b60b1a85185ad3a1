"""The layout of the installed package, made by scripts/make-wheel from built files.

`make wheel` makes the wheel and scripts/check-wheel installs it; both take too long for a test.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from octavo.applying import preload
from octavo.applying.preload import is_static
from octavo.report import bundle
from octavo.tracing import valgrind

from .conftest import OCTAVO, ROOT, workload


@pytest.fixture(scope="module")
def make_wheel() -> ModuleType:
    loader = SourceFileLoader("make_wheel", str(ROOT / "scripts/make-wheel"))
    spec = importlib.util.spec_from_loader("make_wheel", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = bytecode
    return module


@pytest.fixture(scope="module")
def package(make_wheel: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory `octavo` of the wheel, without its Python files."""
    package = tmp_path_factory.mktemp("wheel") / "octavo"
    (package / "report").mkdir(parents=True)
    make_wheel.add_built(package)
    return package


def test_package_finds_its_own_parts(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (valgrind.TOOL_DIR_VARIABLE, preload.LIBRARY_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("octavo.tracing.valgrind._PACKAGE", package)
    monkeypatch.setattr("octavo.applying.preload._PACKAGE", package)
    assert valgrind.find_tool_dir() == package / "tracer"
    assert preload.find_library() == package / "preload" / preload.LIBRARY
    assert (package / "report" / bundle.PLACES[0].name).read_text() == bundle.read_bundle()


def test_nothing_points_outside(package: Path) -> None:
    assert not [path for path in package.rglob("*") if path.is_symlink()]
    assert is_static(package / "tracer" / valgrind.TOOL_NAME)


def test_program_is_traced_by_the_copy(package: Path, tmp_path: Path) -> None:
    document = tmp_path / "run.json"
    command = [str(OCTAVO), "run", "--quiet", "--json", str(document), "--"]
    command += workload("static_count")
    environment = {**os.environ, valgrind.TOOL_DIR_VARIABLE: str(package / "tracer")}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (42, b"")
    rows = json.loads(document.read_text(encoding="utf-8"))["rows"]
    assert rows[0]["counter"] == "references"
    assert rows[0]["value"] > 700_000


def test_offer_of_source_names_exact_versions(package: Path) -> None:
    offer = (package / "tracer/SOURCE.txt").read_text(encoding="utf-8")
    assert "$" not in offer
    assert re.search(r"- Valgrind: version \d+\.\d+\.\d+, as ", offer)
    assert re.search(r"commit ([0-9a-f]{40}|unknown)", offer)
    assert "at least three years from" in offer
    assert (package / "tracer/COPYING").read_bytes() == (ROOT / "tracer/COPYING").read_bytes()
    sources = {path.name for path in (package / "tracer/source").iterdir()}
    assert sources >= {"main.c", "ring.h", "octavo.h", "build.mk"}


def test_every_linked_crate_has_its_licence() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/third-party-notices"],
        capture_output=True,
        text=True,
        check=True,
    )
    crates = re.findall(r"^- (\S+) \S+: (.+)$", done.stdout, re.MULTILINE)
    texts = " ".join(re.findall(r"^-{78}\n(.+):$", done.stdout, re.MULTILINE)).split()
    assert {"pyo3", "zstd-sys"} <= {name for name, _ in crates}
    assert not [name for name, _ in crates if name not in {text.rstrip(",") for text in texts}]
    assert not [name for name, text in crates if "None" in text]
