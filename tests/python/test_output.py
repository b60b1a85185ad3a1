import errno
import json
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from octavo.base.errors import CannotRun, UsageError
from octavo.base.files import (
    JsonFile,
    NewFile,
    OutputDirectory,
    failing_with,
    in_turn,
    replace_text,
    text_writer,
    write_parquet,
)
from octavo.results.target import OutputTarget


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


def test_dev_full_is_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(CannotRun, match="No space left on device; the result is in `") as error:
        JsonFile("/dev/full").write({"a": 1})
    (kept,) = tmp_path.iterdir()
    assert str(error.value).endswith(f"`{kept}`.")
    assert (kept / "full").read_text() == '{"a": 1}\n'


def test_errors_of_arrow_have_the_message_of_the_system() -> None:
    table = pa.table({"numbers": list(range(10_000))})
    with (
        pytest.raises(CannotRun, match=r"^cannot write x: No space left on device\.$"),
        failing_with("x"),
    ):
        write_parquet(table, Path("/dev/full"))


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    JsonFile("-").write({"a": 1})
    assert json.loads(capsys.readouterr().out) == {"a": 1}


def test_unwritable_places_are_found_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="No such file or directory"):
        JsonFile("/proc/nowhere/out.json")
    with pytest.raises(CannotRun, match="it is a directory"):
        JsonFile(str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(CannotRun, match="it is not a directory"):
        OutputDirectory(str(tmp_path / "file"), force=False)
    with pytest.raises(CannotRun, match="cannot write to"):
        OutputDirectory("/proc/nowhere", force=False)


def test_directories_of_results_are_made(tmp_path: Path) -> None:
    name = "a/b/out.json"
    JsonFile(str(tmp_path / name)).write({})
    NewFile(str(tmp_path / "c/d/out.txt"), force=False, option="--out").write("text")
    OutputDirectory(str(tmp_path / "e/f"), force=False).write({})
    assert (tmp_path / name).read_text() == "{}\n"
    assert (tmp_path / "c/d/out.txt").read_text() == "text"
    assert (tmp_path / "e/f").is_dir()


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real.json").touch()
    (tmp_path / "link.json").symlink_to("real.json")
    JsonFile(str(tmp_path / "link.json"), force=True).write([])
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "[]\n"


def test_a_link_to_a_directory_that_is_not_there_yet_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("scratch/results")
    OutputDirectory(str(tmp_path / "link"), force=False).close()
    assert names_in(tmp_path / "scratch") == []
    OutputDirectory(str(tmp_path / "link"), force=False).write({"manifest.json": text_writer("")})
    assert (tmp_path / "scratch/results/manifest.json").exists()


def test_a_directory_is_written_with_all_files(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    directory = OutputDirectory(str(out), force=False)
    directory.write({"manifest.json": text_writer("{}"), "a": text_writer("A")})
    directory.close()
    assert names_in(out) == ["a", "manifest.json"]


def test_a_failed_directory_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    directory = OutputDirectory(str(out), force=False)
    with pytest.raises(CannotRun, match=r"No space left on device\.$"):
        directory.write({"manifest.json": text_writer("{}"), "a": no_space})
    directory.close()
    assert not out.exists()


def test_a_result_that_does_not_fit_its_place_is_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, other = tmp_path / "small" / "result", tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(other))

    def fits_elsewhere(path: Path) -> None:
        if path.is_relative_to(place):
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_text("rows")

    directory = OutputDirectory(str(place), force=False)
    with pytest.raises(CannotRun, match="No space left on device; the result is in `") as error:
        directory.write({"first": text_writer("a"), "second": fits_elsewhere})
    directory.close()
    (kept,) = other.iterdir()
    assert str(error.value).endswith(f"`{kept}`.")
    assert [(kept / name).read_text() for name in ("first", "second")] == ["a", "rows"]
    assert not place.exists()


@pytest.mark.parametrize("name", ["result.json", "rows.parquet"])
def test_a_file_that_does_not_fit_its_place_is_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place, other = tmp_path / "small" / name, tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(other))

    def fits_elsewhere(path: Path) -> None:
        if path.is_relative_to(place.parent):
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_text("whole")

    monkeypatch.setattr("octavo.base.files.text_writer", lambda text: fits_elsewhere)
    file: JsonFile | NewFile = JsonFile(str(place))
    if name.endswith(".parquet"):
        file = NewFile(str(place), force=False, option="--out")
    with pytest.raises(CannotRun, match="No space left on device; the result is in `") as error:
        file.write("whole")
    (kept,) = other.iterdir()
    assert str(error.value).endswith(f"`{kept}`.")
    assert (kept / name).read_text() == "whole"
    assert names_in(place.parent) == []


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


@pytest.mark.parametrize("name", ["there/out.json", "there/below/out.json"])
def test_a_file_as_a_parent_directory_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "there").write_text("a file")
    for make in (JsonFile, lambda path: NewFile(path, force=False, option="--out")):
        with pytest.raises(CannotRun, match=r"[Nn]ot a directory\.$"):
            make(str(tmp_path / name))


def test_json_of_another_run_is_kept(tmp_path: Path) -> None:
    """The later of two runs writes its result under another name, and reports it."""
    name = str(tmp_path / "out.json")
    runs = [JsonFile(name) for _ in range(3)]
    runs[0].write({"run": 0})
    for at in (1, 2):
        with pytest.raises(CannotRun, match=f"out.json` was written .* in `.*/out-{at + 1}.json`"):
            runs[at].write({"run": at})
    assert names_in(tmp_path) == ["out-2.json", "out-3.json", "out.json"]
    for at, path in enumerate(["out.json", "out-2.json", "out-3.json"]):
        assert json.loads((tmp_path / path).read_text()) == {"run": at}


def test_force_replaces_json_of_another_run(tmp_path: Path) -> None:
    forced = JsonFile(str(tmp_path / "out.json"), force=True)
    JsonFile(str(tmp_path / "out.json")).write(1)
    forced.write(2)
    assert (tmp_path / "out.json").read_text() == "2\n"
    assert names_in(tmp_path) == ["out.json"]


def test_a_file_system_without_links_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    replace_text(tmp_path / "a", "first", overwrite=False)
    with pytest.raises(CannotRun, match="a-2"):
        replace_text(tmp_path / "a", "second", overwrite=False)
    assert (tmp_path / "a").read_text() == "first"
    assert (tmp_path / "a-2").read_text() == "second"
    assert names_in(tmp_path) == ["a", "a-2"]


def test_a_directory_filled_by_another_run_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, second = (OutputDirectory(str(out), force=False) for _ in range(2))
    for directory, text in ((first, "1"), (second, "2")):
        with pytest.raises(CannotRun, match="/out-2`") if directory is second else nullcontext():
            directory.write({"manifest.json": text_writer(text), "a": text_writer(text)})
        directory.close()
    assert names_in(tmp_path) == ["out", "out-2"]
    for name, text in (("out", "1"), ("out-2", "2")):
        assert names_in(tmp_path / name) == ["a", "manifest.json"]
        assert (tmp_path / name / "a").read_text() == text
    assert (tmp_path / "out-2").stat().st_mode == out.stat().st_mode


def test_a_result_beside_a_mount_point_is_written_inside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is a mount point, so its contents cannot be renamed to a name outside."""
    out = tmp_path / "out"
    rename = Path.rename

    def within(self: Path, target: Path) -> Path:
        if not target.is_relative_to(out):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", within)
    first, second = (OutputDirectory(str(out), force=False) for _ in range(2))
    first.write({"manifest.json": text_writer("1")})
    with pytest.raises(CannotRun, match="/out/out-2`"):
        second.write({"manifest.json": text_writer("2")})
    for directory in (first, second):
        directory.close()
    assert names_in(tmp_path) == ["out"]
    assert names_in(out) == ["manifest.json", "out-2"]
    assert (out / "out-2" / "manifest.json").read_text() == "2"


def test_results_forced_into_one_directory_do_not_mix(tmp_path: Path) -> None:
    names = [f"part-{number}" for number in range(50)]

    def write(text: str) -> None:
        directory = OutputDirectory(str(tmp_path), force=True)
        directory.write({name: text_writer(text) for name in ["manifest.json", *names]})
        directory.close()

    for _ in range(10):
        writers = [threading.Thread(target=write, args=(text,)) for text in "123"]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert len({path.read_text() for path in tmp_path.iterdir()}) == 1
    assert len(names_in(tmp_path)) == 51


def test_a_failure_keeps_the_other_result(tmp_path: Path) -> None:
    def fail() -> None:
        raise CannotRun("one.")

    with pytest.raises(CannotRun, match=r"^one\. One\.$"):
        in_turn(fail, lambda: replace_text(tmp_path / "a", "kept"), fail)
    assert (tmp_path / "a").read_text() == "kept"


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    replace_text(pipe, "text")
    reader.join()
    assert found == ["text"]
    assert pipe.is_fifo()
    assert names_in(tmp_path) == ["pipe"]


def _seeking(place: Path) -> None:
    with place.open("wb") as file:
        file.write(b"t..t")
        file.seek(1)
        file.write(b"ex")


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda name: NewFile(name, force=False, option="--out").write("text"), "text"),
        (lambda name: NewFile(name, force=False, option="--out").write(_seeking), "text"),
        (lambda name: JsonFile(name).write("text"), '"text"\n'),
    ],
    ids=["text", "seeking", "json"],
)
def test_a_pipe_without_a_name_is_written(write: Callable[[str], None], expected: str) -> None:
    """`/dev/stdout` leads to one before `| cat`, and `>(cat)` names one."""
    reading, writing = os.pipe()
    write(f"/dev/fd/{writing}")
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == expected


@pytest.mark.parametrize("name", ["counts.csv/", "counts.parquet/"])
def test_a_name_that_ends_as_a_directory_is_one(tmp_path: Path, name: str) -> None:
    target = OutputTarget(f"{tmp_path}/{name}", force=False)
    assert target.has_report
    assert (tmp_path / name).is_dir()
    target.close()


@pytest.mark.parametrize("name", ["--", "-q", "--quiet"])
def test_an_option_is_no_name_of_an_output(name: str) -> None:
    sentence = f"has no value: `{name}` after it begins as options do; name a "
    for make in (
        partial(JsonFile, name),
        partial(NewFile, name, force=True, option="--out"),
        partial(OutputTarget, name, force=True),
        partial(OutputTarget, f"{name}.parquet", force=True),
    ):
        with pytest.raises(UsageError, match=sentence.replace(name, f"{name}.*")):
            make()
    assert not Path(name).exists()
