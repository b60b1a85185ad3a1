"""External names and values on terminals, in reports and in messages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from called import invoke as octavo
from octavo.base import units
from octavo.base.errors import UsageError, choose
from octavo.base.table import Grid
from octavo.base.text import (
    MOST_QUOTED,
    html_with_code,
    printable,
    printable_document,
    quoted,
    shell_line,
)
from octavo.report import page
from octavo.terminal.console import say, show_grid
from traces_made import write_csv

HOSTILE = "a\x1b[2J\x07b"
SHOWN = r"a\x1b[2J\x07b"


@given(st.text(st.characters()))
def test_printable_text_is_one_line_that_any_stream_takes(text: str) -> None:
    shown = printable(text)
    assert printable(shown) == shown
    assert "\n" not in shown
    assert all(ord(character) >= 32 and character != "\x7f" for character in shown)
    shown.encode()


def test_escaped_characters() -> None:
    assert (
        printable("\n\t\r\x1b\x7f\x9b\u202e\udcff\ud800") == r"\n\t\r\x1b\x7f\x9b\u202e\xff\ud800"
    )
    assert printable("naïve “\\n” 日本") == "naïve “\\n” 日本"


def test_values_are_abbreviated() -> None:
    assert quoted("x" * MOST_QUOTED) == "x" * MOST_QUOTED
    assert quoted("x" * 10**7) == "x" * MOST_QUOTED + "…"
    for refuse in (units.count, units.byte_size, units.line_sizes):
        with pytest.raises(UsageError) as refused:
            refuse("x\x1b" * 10**5)
        assert len(str(refused.value)) < 400
        assert "\x1b" not in str(refused.value)
    with pytest.raises(UsageError) as refused:
        choose("y" * 10**5, ["a", "b"], "thing")
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("is_terminal", [False, True])
def test_names_do_not_control_the_terminal(
    is_terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(force_terminal=is_terminal, color_system=None, width=200)
    show_grid(console, Grid(HOSTILE, ("head", "of\nlines"), ((HOSTILE, "1\n2"),)))
    say(console, HOSTILE)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.count(SHOWN) == 3


def test_a_table_in_a_file_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """No column is dropped and no cell is cut off, whatever the width."""
    numbers = tuple(f"{number}{'0' * 20}" for number in range(10))
    path = f"/opt/{'directory/' * 20}program"
    console = Console(force_terminal=False, color_system=None, width=120)
    show_grid(console, Grid("Wide", ("name", *numbers), ((path, *numbers),)))
    out = capsys.readouterr().out
    assert out.count(path) == 1
    assert all(out.count(number) == 2 for number in numbers)
    assert console.width == 120


def test_pages_hold_no_control_characters() -> None:
    environment = page._environment()
    made = environment.from_string("{{ name }}|{{ script | safe }}").render(
        name=f"<{HOSTILE}>", script=page._for_script({"name": HOSTILE})
    )
    assert made == rf'&lt;{SHOWN}&gt;|{{"name":"a\\x1b[2J\\x07b"}}'
    assert printable_document([{"a": HOSTILE, "b": "x\ny"}, 1]) == [{"a": SHOWN, "b": "x\ny"}, 1]


def test_text_in_backticks_is_code_in_html() -> None:
    shown = html_with_code("`a<b` & `c`, but not `of\ntwo lines`")
    code = '<code class="inline">{}</code>'.format
    assert shown == f"{code('a&lt;b')} &amp; {code('c')}, but not `of\ntwo lines`"


def test_errors_do_not_control_the_terminal(tmp_path: Path) -> None:
    name = tmp_path / f"{HOSTILE}.csv"
    name.write_text("kind,address\n\x1b]0;title\x07,1\n")
    done = subprocess.run(
        [sys.executable, "-m", "octavo", "run", str(name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 125
    assert SHOWN in done.stderr
    assert not any(character in done.stderr for character in "\x1b\x07")


@pytest.mark.parametrize(
    "word",
    [
        "plain",
        "two words",
        "it's",
        "a\nb",
        "don't\n\\n",
        "\x1b[31m\t",
        "b\udcff1",
        "é\u202eé\n",
        "",
    ],
)
def test_words_survive_a_shell_on_one_line(word: str) -> None:
    line = shell_line(["printf", "%s", word])
    assert printable(line) == line
    printed = subprocess.run(["bash", "-c", line], stdout=subprocess.PIPE, check=True).stdout
    assert printed == os.fsencode(word)


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "page", "0 pages"),
        (1, "page", "1 page"),
        (1, "process", "1 process"),
        (2, "process", "2 processes"),
        (12_345_678, "reference", "12.3 M references"),
    ],
)
def test_a_count_has_its_noun_in_the_right_number(number: int, noun: str, text: str) -> None:
    assert units.counted(number, noun) == text


def test_one_reference_is_no_plural(tmp_path: Path) -> None:
    one = write_csv(tmp_path / "one.csv", [("fetch", 0x40_0000, 3)])
    commands = [
        ("info", one),
        ("check", one),
        ("convert", one, str(tmp_path / "one.oct")),
        ("run", one),
        ("curves", one),
        ("sim", one),
    ]
    for words in commands:
        done = octavo(*words)
        assert done.exit_code == 0
        assert re.search(r"\b1 reference\b", done.output) or words[0] == "info", words
        assert not re.search(r"\b1 (references|instructions|processes|page walks)\b", done.output)
