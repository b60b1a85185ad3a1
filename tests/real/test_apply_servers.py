"""`octavo apply` on servers under load: they continue to answer, and all answers stay the same."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.real.conftest import OCTAVO, TIMEOUT_SECONDS, natively

from octavo.applying.collapse import read_mappings

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("needs_settings")]

PRELOAD = (OCTAVO, "apply", "-q", "--by", "preload", "--")

PYTHON = """\
import sys
data = {number: str(number) * 4 for number in range(600_000)}
for line in sys.stdin:
    print(sum(len(data[number]) for number in range(0, 600_000, 60)), flush=True)
"""
NODE = """\
const data = new Map();
for (let number = 0; number < 600000; number++) data.set(number, {name: String(number), number});
require('readline').createInterface({input: process.stdin}).on('line', () => {
  let sum = 0;
  for (let number = 0; number < 600000; number += 60) sum += data.get(number).name.length;
  console.log(sum);
});
"""
JAVA = """\
import java.util.*;

public class Served {
    public static void main(String[] words) {
        Map<Integer, String> data = new HashMap<>();
        for (int number = 0; number < 600000; number++) data.put(number, number + "value");
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            in.nextLine();
            long sum = 0;
            for (int number = 0; number < 600000; number += 60) sum += data.get(number).length();
            System.out.println(sum);
        }
    }
}
"""


@dataclass
class Served:
    """A server, and a client that repeats the same request."""

    pid: int
    ask: Callable[[], str]
    answers: set[str] = field(default_factory=set)
    count: int = 0
    longest_seconds: float = 0.0
    failure: Exception | None = None
    _done: threading.Event = field(default_factory=threading.Event)

    def _load(self) -> None:
        try:
            while not self._done.is_set():
                started = time.monotonic()
                self.answers.add(self.ask())
                self.longest_seconds = max(self.longest_seconds, time.monotonic() - started)
                self.count += 1
        except Exception as error:
            self.failure = error

    def during(self, work: Callable[[], None]) -> None:
        """Does some work while the client sends requests, with answers before and after it."""
        client = threading.Thread(target=self._load)
        client.start()
        try:
            self.wait_for(lambda: self.count > 3)
            work()
            before = self.count
            self.wait_for(lambda: self.count > before + 3)
        finally:
            self._done.set()
            client.join(TIMEOUT_SECONDS)
        assert self.failure is None
        assert len(self.answers) == 1
        print(f"{self.count} answers, the longest took {1000 * self.longest_seconds:.1f} ms")

    def wait_for(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < end
            assert self.failure is None, self.failure
            time.sleep(0.02)

    def huge_share(self) -> float:
        """The share of the server's heap and anonymous memory in 2 MiB pages."""
        mappings = [one for one in read_mappings(self.pid) if one.kind in ("heap", "anonymous")]
        return sum(one.huge for one in mappings) / sum(one.resident_bytes for one in mappings)


def needs(program: str) -> str:
    """The path of a program; skips the test if it is not installed."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def line_server(command: Sequence[str | Path], started: list[subprocess.Popen[str]]) -> Served:
    """A program that answers each line of its standard input."""
    process = subprocess.Popen(
        [*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    started.append(process)
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def ask() -> str:
        stdin.write("\n")
        stdin.flush()
        return stdout.readline()

    assert ask()
    return Served(process.pid, ask)


def redis(
    before: Sequence[str | Path], place: Path, started: list[subprocess.Popen[str]]
) -> Served:
    """A redis-server with 400,000 keys; requests are for the length of one and for their number."""
    server = needs("redis-server")
    path = place / "socket"
    options = ["--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(place)]
    process = subprocess.Popen(
        [*map(str, before), server, *options, "--enable-debug-command", "yes"],
        stdout=subprocess.DEVNULL,
        text=True,
    )
    started.append(process)
    end = time.monotonic() + TIMEOUT_SECONDS
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    stream = connection.makefile("rw", newline="\r\n")

    def ask(*lines: str) -> str:
        stream.write("".join(f"{line}\r\n" for line in lines))
        stream.flush()
        return " ".join(stream.readline() for _ in lines)

    assert ask("DEBUG POPULATE 400000 key 200").startswith("+OK")
    return Served(process.pid, lambda: ask("DBSIZE", "STRLEN key:77777", "PING"))


SHARES = {"redis-server": 0.8, "python3": 0.7, "node": 0.1, "java": 0.5}
"""The least share of heap and anonymous memory in huge pages: V8 maps most of its heap in pieces of
256 KiB, which no 2 MiB page can map, and the JVM continues to touch more of its heap."""


def serve(
    name: str,
    before: Sequence[str | Path],
    place: Path,
    started: list[subprocess.Popen[str]],
) -> Served:
    if name == "redis-server":
        return redis(before, place, started)
    program = needs(name)
    if name == "python3":
        return line_server([*before, program, "-c", PYTHON], started)
    if name == "node":
        return line_server([*before, program, "-e", NODE], started)
    source = place / "Served.java"
    source.write_text(JAVA)
    if natively([program, "--list-modules"]).stdout.find(b"jdk.compiler") < 0:
        pytest.skip("java has no compiler here (the module jdk.compiler)")
    return line_server([*before, program, "-Xms400m", "-Xmx400m", str(source)], started)


@pytest.mark.parametrize("name", SHARES)
def test_a_server_under_load_is_changed_from_outside(
    name: str, tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    served = serve(name, (), tmp_path, started)
    file = tmp_path / "done.json"

    def apply() -> None:
        done = natively([OCTAVO, "apply", "--pid", str(served.pid), "--json", str(file)])
        print(done.stdout.decode())
        assert done.status == 0, done.stderr

    served.during(apply)
    (process,) = json.loads(file.read_text())["processes"]
    huge = sum(region["huge_bytes"] or 0 for region in process["regions"])
    resident = sum(region["resident_bytes_before"] for region in process["regions"])
    assert process["made_pages"] >= 0.9 * process["planned_pages"]
    assert huge >= SHARES[name] * resident


@pytest.mark.parametrize("name", SHARES)
def test_a_server_under_load_gets_huge_pages_by_the_library(
    name: str, tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    served = serve(name, PRELOAD, tmp_path, started)
    served.during(lambda: served.wait_for(lambda: served.huge_share() >= SHARES[name]))
