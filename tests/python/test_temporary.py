"""Temporary directories: directories of killed processes are removed by a later process."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from octavo.base.files import OutputDirectory, replace_text, text_writer
from octavo.base.temporary import TemporaryDirectory

PREFIX = "octavo-test-"
MAKE = f"""
import sys, time
from octavo.base.temporary import TemporaryDirectory
print(TemporaryDirectory({PREFIX!r}).name, flush=True)
kept = TemporaryDirectory({PREFIX!r})
print(kept.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def names_in(place: Path) -> set[str]:
    return {each.name for each in place.iterdir()}


def make() -> tuple[subprocess.Popen[str], Path]:
    """A process that keeps a directory, and the path of the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert not Path(process.stdout.readline().strip()).exists()
    directory = Path(process.stdout.readline().strip())
    (directory / "a").mkdir()
    (directory / "a" / "b").write_text("content")
    return process, directory


def test_only_directories_of_ended_processes_are_removed(tmp_path: Path) -> None:
    (process, left), (other, kept) = make(), make()
    for name in (f"{PREFIX}unowned", "another"):
        (tmp_path / name).mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(left)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with TemporaryDirectory(PREFIX) as name:
        assert not left.exists()
        assert kept.joinpath("a", "b").exists()
        assert names_in(tmp_path) == {
            kept.name,
            Path(name).name,
            f"{PREFIX}unowned",
            f"{PREFIX}link",
            "another",
        }
    other.kill()
    other.wait()
    with TemporaryDirectory("octavo-other-"):
        assert kept.exists()


def test_directories_of_processes_killed_before_they_had_the_lock_are_removed(
    tmp_path: Path,
) -> None:
    """A day later, where nothing is in them: results that are kept have no lock, either."""
    day = 24 * 60 * 60
    old = time.time() - 2 * day
    for name, content in (("empty", []), ("new", [".octavo-owner-new"]), ("result", ["a.json"])):
        for age in ("old", "young"):
            directory = tmp_path / f"{PREFIX}{name}-{age}"
            directory.mkdir(mode=0o700)
            for file in content:
                (directory / file).touch()
            if age == "old":
                os.utime(directory, (old, old))
    users = tmp_path / f"{PREFIX}users"
    users.mkdir(mode=0o755)
    os.utime(users, (old, old))
    with TemporaryDirectory(PREFIX) as name:
        kept = {"empty-young", "new-young", "result-old", "result-young", "users"}
        assert names_in(tmp_path) == {Path(name).name, *(f"{PREFIX}{one}" for one in kept)}


def test_the_staging_place_of_a_killed_run_is_removed_by_the_next_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    begin = (
        "import sys; from octavo.base.files import OutputDirectory\n"
        "kept = OutputDirectory(sys.argv[1], force=False)\n"
        "print(flush=True); sys.stdin.read()"
    )
    runs = []
    for _ in range(2):
        before = set() if not out.exists() else names_in(out)
        run = subprocess.Popen(
            [sys.executable, "-c", begin, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert run.stdout is not None
        run.stdout.readline()
        runs.append((run, names_in(out) - before))
    (killed, (left,)), (alive, (kept,)) = runs
    killed.kill()
    killed.wait()
    elsewhere = out / ".octavo-elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".octavo-owner").write_text("another machine")
    directory = OutputDirectory(str(out), force=False)
    assert left not in names_in(out)
    assert kept in names_in(out)
    directory.write({"manifest.json": text_writer("{}")})
    directory.close()
    assert names_in(out) == {"manifest.json", kept, elsewhere.name}
    assert alive.stdin is not None
    alive.stdin.close()
    alive.wait()
    assert names_in(out) == {"manifest.json", elsewhere.name}


def test_the_unfinished_file_of_a_killed_process_is_removed_by_the_next_write(
    tmp_path: Path,
) -> None:
    write = (
        "import sys; from pathlib import Path; from octavo.base.files import replace_file\n"
        "def pause(place):\n"
        "    place.write_text('half'); print(flush=True); sys.stdin.read()\n"
        "replace_file(Path(sys.argv[1]), pause)"
    )
    file = tmp_path / "out.json"
    writing = []
    for _ in range(2):
        before = names_in(tmp_path)
        process = subprocess.Popen(
            [sys.executable, "-c", write, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        writing.append((process, names_in(tmp_path) - before))
    (killed, _), (alive, kept) = writing
    killed.kill()
    killed.wait()
    replace_text(file, "whole")
    assert names_in(tmp_path) == {file.name, *kept}
    assert file.read_text() == "whole"
    assert alive.stdin is not None
    alive.stdin.close()
    alive.wait()
    assert names_in(tmp_path) == {file.name}


def test_a_directory_is_removed_by_its_own_process(tmp_path: Path) -> None:
    with TemporaryDirectory(PREFIX) as name:
        Path(name, "file").write_text("content")
    assert names_in(tmp_path) == set()
