import os
import struct
from pathlib import Path

import pytest

from fakes import write_script
from octavo.base.errors import NotExecutable, NotFound, status_of
from octavo.tracing.program import find_program


def elf(
    path: Path, *, bits: int = 64, machine: int = 62, order: str = "<", mode: int = 0o755
) -> Path:
    ident = b"\x7fELF" + bytes([bits // 32, 1 if order == "<" else 2, 1]) + bytes(9)
    path.write_bytes(ident + struct.pack(f"{order}HH", 2, machine) + bytes(44))
    path.chmod(mode)
    return path


def test_a_64_bit_x86_64_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = elf(tmp_path / "tool")
    assert find_program(str(program)) == program
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program("tool") == program


@pytest.mark.parametrize(
    ("bits", "machine", "order", "message"),
    [
        (32, 3, "<", "32-bit x86 "),
        (32, 62, "<", "32-bit x86-64 "),
        (64, 183, "<", "64-bit AArch64"),
        (64, 22, ">", r"64-bit S/390"),
        (64, 9999, "<", "ELF machine 9999"),
    ],
)
def test_foreign_programs_are_refused(
    tmp_path: Path, bits: int, machine: int, order: str, message: str
) -> None:
    program = elf(tmp_path / "tool", bits=bits, machine=machine, order=order)
    with pytest.raises(NotExecutable, match=message):
        find_program(str(program))


def test_a_broken_header_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_bytes(b"\x7fELF\x09")
    program.chmod(0o755)
    with pytest.raises(NotExecutable, match="broken ELF header"):
        find_program(str(program))


def test_a_truncated_program_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    whole = Path("/bin/true").resolve().read_bytes()
    program.write_bytes(whole)
    program.chmod(0o755)
    assert find_program(str(program)) == program
    program.write_bytes(whole[:3000])
    with pytest.raises(NotExecutable, match="truncated: it has 3000 bytes, and its headers name"):
        find_program(str(program))


def test_missing_programs_and_their_nearest_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elf(tmp_path / "simulate")
    monkeypatch.setenv("PATH", f"/nonexistent:{tmp_path}")
    with pytest.raises(NotFound, match=r"on PATH; did you mean `simulate`\?") as error:
        find_program("simulat")
    assert status_of(error.value) == 127
    with pytest.raises(NotFound, match=r"no such program: .*did you mean `simulate`\?"):
        find_program(str(tmp_path / "simulte"))
    with pytest.raises(NotFound, match=r"on PATH\.$"):
        find_program("zzzzzzzzzz")
    (tmp_path / "link").symlink_to("simulate-2")
    with pytest.raises(NotFound, match=r"link` is a link to `simulate-2`, which is not there\.$"):
        find_program(str(tmp_path / "link"))
    for first in ("simulate", str(tmp_path / "simulate")):
        sentence = f"no program `{first} --steps 5`; give `{first}` and each of its arguments as"
        with pytest.raises(NotFound, match=sentence):
            find_program(f"{first} --steps 5")
    with pytest.raises(NotFound, match=r"on PATH\.$"):
        find_program("zzzzzzzzzz --steps 5")
    elf(tmp_path / "simulate --steps 5")
    assert find_program("simulate --steps 5") == tmp_path / "simulate --steps 5"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nonexistent")
    elf(tmp_path / "here", mode=0o644)
    with pytest.raises(NotFound, match=r"the file here is not executable\.$"):
        find_program("here")
    elf(tmp_path / "there")
    with pytest.raises(NotFound, match=r"`\./there`"):
        find_program("there")


def test_a_program_is_named_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    elf(tmp_path / "plain", mode=0o644)
    elf(tmp_path / "foreign", machine=183)
    write_script(tmp_path / "script", "")
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    for name, message in (
        ("./nosuch", "no such program: `./nosuch`."),
        ("../nosuch/./x", "no such program: `../nosuch/./x`."),
        ("./plain", "`./plain` is not executable"),
        ("./foreign", "`./foreign` is a 64-bit AArch64"),
        ("./script", "`./script` wants the interpreter"),
    ):
        with pytest.raises((NotFound, NotExecutable)) as error:
            find_program(name)
        assert str(error.value).startswith(message)


def test_files_that_cannot_be_executed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotExecutable, match=r"is a directory.*name a file in it") as error:
        find_program(f"{tmp_path}/")
    (tmp_path / "result.json").touch()
    with pytest.raises(NotExecutable, match=r"`octavo report .*` rebuilds the report"):
        find_program(str(tmp_path))
    assert status_of(error.value) == 126
    with pytest.raises(NotExecutable, match=r"chmod \+x"):
        find_program(str(elf(tmp_path / "plain", mode=0o644)))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotExecutable, match="not a regular file"):
        find_program(str(tmp_path / "pipe"))
    (tmp_path / "file").touch()
    with pytest.raises(NotExecutable, match="cannot reach"):
        find_program(str(tmp_path / "file" / "inside"))


def test_programs_that_gain_privileges_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.geteuid()
    to_owner = str(elf(tmp_path / "set-user-id", mode=0o4755))
    to_group = str(elf(tmp_path / "set-group-id", mode=0o2755))
    # No privileges are gained by a set-user-ID program of the same user, nor by root from a
    # set-group-ID program.
    assert find_program(to_owner)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert find_program(to_group)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(NotExecutable, match="set-user-ID") as error:
        find_program(to_owner)
    assert status_of(error.value) == 126
    monkeypatch.setattr(os, "getegid", lambda: Path(to_group).stat().st_gid + 1)
    with pytest.raises(NotExecutable, match="set-group-ID"):
        find_program(to_group)


def test_scripts_are_judged_by_their_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script"
    write_script(script, "true")
    assert find_program(str(script)) == script

    foreign = elf(tmp_path / "foreign", machine=183)
    for text, message in (
        (f"#!{foreign} -x\n", "foreign` is a 64-bit AArch64"),
        ("#!/no/such/interpreter\n", "wants the interpreter `/no/such/interpreter`"),
        ("#!/bin/sh\r\ntrue\r\n", "ends as on Windows"),
        ("#!\n", "names no interpreter"),
        (f"#!{script}\n", "without end"),
        ("echo hello\n", "neither an ELF program nor a script"),
    ):
        script.write_bytes(text.encode())
        with pytest.raises(NotExecutable, match=message):
            find_program(str(script))
