"""Programs that are started through launchers, such as `env`."""

import pytest

from octavo.runtimes.launchers import added_to, has_options, program_at, with_options


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


def test_options_follow_the_program() -> None:
    assert with_options(["nice", "gzip", "-9"], ["--fast"]) == ["nice", "gzip", "--fast", "-9"]
    assert with_options(["gzip"], ["--fast"]) == ["gzip", "--fast"]


def test_options_follow_those_that_must_be_first() -> None:
    first = ["mariadbd", "--defaults-file=my.cnf", "--defaults-group-suffix=1"]
    assert with_options([*first, "-P1"], ["--large-pages"]) == [*first, "--large-pages", "-P1"]


def test_present_options_are_recognised() -> None:
    words = ["server", "-c", "a=1", "-c", "b=2"]
    assert has_options(words, ["-c", "b=2"])
    assert not has_options(words, ["-c", "b=1"])
    assert not has_options(words, ["a=1", "b=2"])


@pytest.mark.parametrize(
    ("name", "present", "new", "joined"),
    [
        ("GLIBC_TUNABLES", "a.b=1:a.c=2", "a.b=3", "a.c=2:a.b=3"),
        ("GLIBC_TUNABLES", "a.b=1:a.c=2:a.b=1", "a.b=1:a.d=4", "a.c=2:a.b=1:a.d=4"),
        ("MALLOC_CONF", "thp:never,narenas:1", "thp:always", "narenas:1,thp:always"),
        ("JAVA_TOOL_OPTIONS", "-XX:+UseA -XX:+UseB", "-XX:+UseA", "-XX:+UseA -XX:+UseB"),
        ("LD_PRELOAD", "/a.so:/b.so", "/c.so", "/a.so:/b.so:/c.so"),
        ("OTHER", "a=1:b=2", "a=3", "a=3"),
    ],
)
def test_a_present_option_is_replaced(name: str, present: str, new: str, joined: str) -> None:
    assert added_to({name: present}, {name: new}) == {name: joined}
