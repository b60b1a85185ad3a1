"""Virtual caches compared with cachegrind's on the same references: all misses are equal.

Cachegrind's caches are indexed by virtual addresses, too; its first level is split, and its last
level is unified. Cachegrind counts references, and Octavo counts lines, so their misses are equal
if no reference misses on two lines. Therefore each is compared with simple caches on Lackey's text
that count in the same way.
"""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from . import lackey
from .conftest import OCTAVO, natively, workload
from .test_curves_peers import ENVIRONMENT

LINE = 64
LEVELS = [
    # Bytes and ways of both levels.
    ((1 << 10, 1), (16 << 10, 1)),
    ((8 << 10, 1), (64 << 10, 1)),
    ((8 << 10, 2), (64 << 10, 4)),
    ((32 << 10, 8), (512 << 10, 8)),
]
LARGE = (4 << 20, 16)


class Lru:
    """A cache of lines; each set is a list in the order of use."""

    def __init__(self, size_bytes: int, ways: int) -> None:
        self.sets: list[list[int]] = [[] for _ in range(size_bytes // LINE // ways)]
        self.ways = ways
        self.misses = 0

    def hits(self, line: int) -> bool:
        held = self.sets[line % len(self.sets)]
        is_hit = line in held
        if is_hit:
            held.remove(line)
        held.insert(0, line)
        del held[self.ways :]
        self.misses += not is_hit
        return is_hit


def lines_of(item: lackey.Item) -> range:
    return range(item.address // LINE, (item.address + item.size - 1) // LINE + 1)


def by_lines(items: Iterable[lackey.Item], kinds: str, *levels: tuple[int, int]) -> list[int]:
    """Misses of each level of one side in lines, as Octavo counts; misses of the first level look
    up the second.
    """
    first, last = (Lru(*level) for level in levels)
    for item in items:
        if item.kind in kinds:
            for line in lines_of(item):
                if not first.hits(line):
                    last.hits(line)
    return [first.misses, last.misses]


def by_references(items: Iterable[lackey.Item], *levels: tuple[int, int]) -> dict[str, list[int]]:
    """Misses of each level by side in references, as cachegrind counts: the last level is unified,
    and a reference misses if any of its lines misses.
    """
    firsts, last = {"i": Lru(*levels[0]), "d": Lru(*levels[0])}, Lru(*levels[1])
    missed = {"i": [0, 0], "d": [0, 0]}
    for item in items:
        side = "i" if item.kind == "I" else "d"
        lines = lines_of(item)
        if sum(firsts[side].hits(line) for line in lines) < len(lines):
            missed[side][0] += 1
            missed[side][1] += sum(last.hits(line) for line in lines) < len(lines)
    return missed


def cachegrind(argv: list[str], out: Path, first: tuple[int, int], last: tuple[int, int]):
    """Cachegrind's counts for the whole program, by event."""
    caches = [f"--{name}={first[0]},{first[1]},{LINE}" for name in ("I1", "D1")]
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={out}"]
    caches.append(f"--LL={last[0]},{last[1]},{LINE}")
    subprocess.run(
        [*tool, *caches, *argv], stdin=subprocess.DEVNULL, capture_output=True, env=ENVIRONMENT
    )
    lines = dict(line.split(": ", 1) for line in out.read_text().splitlines() if ": " in line)
    names, counts = lines["events"].split(), map(int, lines["summary"].split())
    return dict(zip(names, counts, strict=True))


def octavo(trace: Path, first: tuple[int, int], last: tuple[int, int]) -> dict[str, int]:
    """Misses of `softvm_free` by cache."""
    settings = [
        f"cache.line_bytes={LINE}",
        *(f"softvm.l1.{key}={value}" for key, value in zip(("bytes", "ways"), first, strict=True)),
        *(f"softvm.l2.{key}={value}" for key, value in zip(("bytes", "ways"), last, strict=True)),
    ]
    # The machine's own caches must have a size of whole lines.
    settings += [f"cache.{name}.bytes={LINE}" for name in ("l1i", "l1d", "l2", "llc")]
    options = [word for setting in settings for word in ("--set", setting)]
    command = [OCTAVO, "sim", "-q", "--machine", "puma", "--design", "softvm_free", *options]
    done = natively([*command, "--layout", "as-traced", "--json", "-", trace])
    assert done.status == 0, done.stderr.decode()
    return {
        row["component"].removeprefix("vcache."): row["value"]
        for row in json.loads(done.stdout)["rows"]
        if row["component"].startswith("vcache.") and row["counter"] == "misses"
    }


class Program:
    """A static program, and its references by Lackey."""

    def __init__(self, argv: list[str], folder: Path) -> None:
        self.argv = argv
        self.trace = folder / "text.lackey"
        self.items = lackey.trace(argv, self.trace, expect_status=0, env=ENVIRONMENT)
        self.out = folder / "cachegrind"


@pytest.fixture(scope="module")
def bfs(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A graph search with a whole C library; all its data is aligned."""
    return Program(workload("bfs_static", 3000, 8), tmp_path_factory.mktemp("bfs"))


@pytest.mark.parametrize(("first", "last"), [*LEVELS, (LEVELS[0][0], LARGE)])
def test_all_miss_the_same(first: tuple[int, int], last: tuple[int, int], bfs: Program) -> None:
    ours = octavo(bfs.trace, first, last)
    counted = cachegrind(bfs.argv, bfs.out, first, last)
    theirs = by_references(bfs.items, first, last)
    assert [counted["I1mr"], counted["ILmr"]] == theirs["i"]
    assert [counted["D1mr"] + counted["D1mw"], counted["DLmr"] + counted["DLmw"]] == theirs["d"]
    for side, kinds in (("i", "I"), ("d", "LSM")):
        assert [ours[f"l1{side}"], ours[f"l2{side}"]] == by_lines(bfs.items, kinds, first, last)
    # A reference that spans two lines is one reference, and may miss in both.
    spanning = sum(len(lines_of(item)) > 1 for item in bfs.items if item.kind != "I")
    assert 0 <= ours["l1d"] - theirs["d"][0] <= spanning
    assert spanning < 0.01 * sum(item.kind != "I" for item in bfs.items)


@pytest.mark.parametrize("side", ["fetch", "data"])
def test_one_pass_has_every_organisation(side: str, bfs: Program) -> None:
    """All sets and ways in one pass (`--cache-lines`) compared with simulations: for the first
    level always, for the second if both levels are direct-mapped, as it then contains the first.
    """
    command = [OCTAVO, "curves", "-q", "--cache-lines", LINE, "--streams", side, "--json", "-"]
    options = ["--without", "full,sets,working-sets,two-sizes", "--layout", "as-traced"]
    done = natively([*command, *options, bfs.trace])
    assert done.status == 0, done.stderr.decode()
    missed = {
        (row["cache_bytes"], row["ways"]): row["misses"]
        for row in json.loads(done.stdout)["rows"]
        if row["component"] == "cache.sets"
    }
    number = "i" if side == "fetch" else "d"
    for first, last in LEVELS:
        ours = octavo(bfs.trace, first, last)
        assert missed[first] == ours[f"l1{number}"]
        if first[1] == last[1] == 1:
            assert missed[last] == ours[f"l2{number}"]


def test_few_references_span_lines(bfs: Program) -> None:
    """The comparison above requires this."""
    data = [item for item in bfs.items if item.kind != "I"]
    assert len(data) > 50_000
    assert sum(len(lines_of(item)) > 1 for item in data) < 100
