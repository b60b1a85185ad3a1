"""Programs that are started through others."""

import pytest

from octavo.runtimes.launchers import program_at, with_options


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("gzip -9", 0),
        ("env A=1 gzip -9", 2),
        ("taskset -c 0 gzip -9", 3),
        ("setpriv --reuid=daemon --clear-groups nice -n 5 gzip -9", 6),
        ("timeout 10 no-such-program", 0),
        ("env", 0),
    ],
)
def test_the_program_behind_launchers_is_found(line: str, program: int) -> None:
    assert program_at(line.split()) == program


def test_options_go_behind_the_program() -> None:
    assert with_options(["nice", "gzip", "-9"], ["--fast"]) == ["nice", "gzip", "--fast", "-9"]
    assert with_options(["gzip"], ["--fast"]) == ["gzip", "--fast"]
