from pathlib import Path

import pytest

from fakes import write_script
from octavo.base.errors import CannotRun
from octavo.tracing.valgrind import check_temporary_directory, find_tool_dir, find_valgrind


def test_the_tool_is_its_own_launcher(fake_tools: Path) -> None:
    (fake_tools / "valgrind").unlink()
    found = find_valgrind("octavo")
    assert found.launcher == fake_tools / "octavo-amd64-linux"
    assert found.tool_dir == fake_tools
    assert found.version == "3.21.0"


def test_the_launcher_of_lackey_and_its_version(fake_tools: Path) -> None:
    found = find_valgrind("lackey")
    assert found.launcher == fake_tools / "valgrind"
    assert found.version == "3.22.0"


def test_the_real_launcher_beside_debians_script_is_preferred(fake_tools: Path) -> None:
    write_script(fake_tools / "valgrind.bin", "echo valgrind-3.19.0")
    assert find_valgrind("lackey").launcher == fake_tools / "valgrind.bin"


def test_missing_old_and_broken_launchers_are_refused(fake_tools: Path) -> None:
    write_script(fake_tools / "valgrind", "echo valgrind-3.18.1")
    with pytest.raises(CannotRun, match=r"3\.18\.1 is too old; Octavo needs 3\.19"):
        find_valgrind("lackey")
    write_script(fake_tools / "valgrind", "echo 'no lib' >&2; exit 1")
    with pytest.raises(CannotRun, match="does not work: no lib"):
        find_valgrind("lackey")
    (fake_tools / "valgrind").unlink()
    with pytest.raises(CannotRun, match="apt-get install valgrind"):
        find_valgrind("lackey")


def test_the_tool_directory(
    fake_tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_tool_dir() == fake_tools
    monkeypatch.setenv("OCTAVO_TOOL_DIR", str(tmp_path))
    with pytest.raises(CannotRun, match="holds no octavo-amd64-linux"):
        find_tool_dir()


def test_the_error_of_a_missing_tool_names_make_setup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OCTAVO_TOOL_DIR", raising=False)
    monkeypatch.setattr("octavo.tracing.valgrind._PACKAGE", tmp_path / "python" / "octavo")
    with pytest.raises(CannotRun, match="make setup"):
        find_tool_dir()


def test_a_missing_temporary_directory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_temporary_directory()
    monkeypatch.setenv("TMPDIR", "/no/such/directory")
    with pytest.raises(CannotRun, match="TMPDIR names `/no/such/directory`"):
        check_temporary_directory()
