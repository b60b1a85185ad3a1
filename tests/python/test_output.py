import errno
import json
from pathlib import Path

import pytest

from octavo.base.errors import CannotRun, UsageError
from octavo.base.files import JsonFile, OutputDirectory, text_writer


def no_space(path: Path) -> None:
    path.write_text("half")
    raise OSError(errno.ENOSPC, "No space left on device")


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_json_is_written_whole(tmp_path: Path) -> None:
    file = JsonFile(str(tmp_path / "out.json"))
    assert names_in(tmp_path) == []
    file.write({"a": 1})
    assert json.loads((tmp_path / "out.json").read_text()) == {"a": 1}
    assert names_in(tmp_path) == ["out.json"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.json"
    target.write_text("before")
    file = JsonFile(str(target), force=True)
    monkeypatch.setattr("octavo.base.files.text_writer", lambda text: no_space)
    with pytest.raises(CannotRun, match="No space left on device"):
        file.write({})
    assert target.read_text() == "before"
    assert names_in(tmp_path) == ["out.json"]


def test_dev_full_is_a_full_disk() -> None:
    with pytest.raises(CannotRun, match="No space left on device"):
        JsonFile("/dev/full").write({})


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    JsonFile("-").write({"a": 1})
    assert json.loads(capsys.readouterr().out) == {"a": 1}


def test_unwritable_places_are_found_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="No such file or directory"):
        JsonFile(str(tmp_path / "missing" / "out.json"))
    with pytest.raises(CannotRun, match="it is a directory"):
        JsonFile(str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(CannotRun, match="it is not a directory"):
        OutputDirectory(str(tmp_path / "file"), force=False)
    with pytest.raises(CannotRun, match="cannot write to"):
        OutputDirectory("/proc/nowhere", force=False)


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real.json").touch()
    (tmp_path / "link.json").symlink_to("real.json")
    JsonFile(str(tmp_path / "link.json"), force=True).write([])
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "[]\n"


def test_a_directory_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    directory = OutputDirectory(str(out), force=False)
    directory.write({"manifest.json": text_writer("{}"), "a": text_writer("A")})
    directory.close()
    assert names_in(out) == ["a", "manifest.json"]


def test_a_failed_directory_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    directory = OutputDirectory(str(out), force=False)
    with pytest.raises(CannotRun, match="No space left"):
        directory.write({"manifest.json": text_writer("{}"), "a": no_space})
    directory.close()
    assert not out.exists()


def test_results_are_overwritten_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(UsageError, match="--force"):
        OutputDirectory(str(tmp_path), force=False)
    directory = OutputDirectory(str(tmp_path), force=True)
    directory.write({"a": text_writer("new")})
    directory.close()
    assert (tmp_path / "a").read_text() == "new"
    assert names_in(tmp_path) == ["a", "mine"]
