"""Curves compared with other simulators on the same references: all misses are equal.

Cachegrind with lines of the size of a page is a set-associative TLB, and with one set a fully
associative TLB. It counts references: a reference that spans two lines looks both up, but misses at
most once, and a reference that loads and stores the same address is a single load. Octavo counts
look-ups. So the counts are equal if no reference misses on two pages; otherwise these references
are the whole difference. Cachegrind has the references of Lackey: both are tools of the same
Valgrind, and see the same addresses of a static program.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from . import lackey
from .conftest import ROOT, natively, workload

# Sets and ways; cachegrind needs more than one line.
TLBS = [
    (1, 2),
    (1, 7),
    (1, 64),
    (1, 1000),
    (2, 1),
    (4, 3),
    (16, 2),
    (64, 4),
    (256, 8),
    (1024, 1),
    (1024, 16),
]
PAGE_SIZES = [4096, 8192, 65536]
CURVES_DUMP = Path(
    os.environ.get("CARGO_TARGET_DIR", ROOT / "target"), "release/examples/curves_dump"
)
KINDS = {"fetch": "I", "data": "LSM"}
MAX_WAYS = 16
# A C library reads its environment before `main`, so the environment is fixed.
ENVIRONMENT = {"PATH": os.environ["PATH"]}

Curves = dict[str, Any]


def curves(trace: Path) -> Curves:
    """The misses of all TLBs on a trace."""
    assert CURVES_DUMP.exists(), f"{CURVES_DUMP} does not exist: `make test-programs` builds it"
    done = natively([CURVES_DUMP, "--sizes", ",".join(map(str, PAGE_SIZES)), trace])
    assert done.status == 0, done.stderr.decode()
    result: Curves = json.loads(done.stdout)
    return result


def misses_of(curves: Curves, stream: str, page_size: int, sets: int, ways: int) -> int:
    """The misses of one TLB; all kernels that simulate it must agree."""
    at_size = curves[stream]["sizes"][str(page_size)]
    known = set()
    if sets == 1:
        known.add(at_size["stack"][ways - 1])
    if ways <= MAX_WAYS:
        known.add(at_size["sets"][sets.bit_length() - 1][ways - 1])
    (misses,) = known
    return int(misses)


def cachegrind(argv: Iterable[str], out: Path, page_size: int, sets: int, ways: int) -> Curves:
    """Cachegrind's counts for the whole program, by event."""
    cache = f"{sets * ways * page_size},{ways},{page_size}"
    # The last level does not affect the first.
    last = f"--LL={4096 * page_size},4096,{page_size}"
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={out}"]
    subprocess.run(
        [*tool, f"--I1={cache}", f"--D1={cache}", last, *argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=ENVIRONMENT,
    )
    text = out.read_text()
    out.unlink()
    events = re.search(r"^events: (.*)$", text, re.M)
    counts = re.search(r"^summary: (.*)$", text, re.M)
    assert events
    assert counts
    return dict(zip(events[1].split(), map(int, counts[1].split()), strict=True))


class Program:
    """A static program, its references by Lackey, and Octavo's curves of them."""

    def __init__(self, argv: list[str], status: int, folder: Path) -> None:
        self.argv = argv
        trace = folder / "text.lackey"
        self.items = lackey.trace(argv, trace, expect_status=status, env=ENVIRONMENT)
        self.curves = curves(trace)
        self.out = folder / "cachegrind"

    def misses(self, stream: str, *tlb: int) -> int:
        return misses_of(self.curves, stream, *tlb)

    def missed_items(self, *tlb: int) -> dict[str, int]:
        """Cachegrind's misses. Checks that it saw the same references, too."""
        counts = cachegrind(self.argv, self.out, *tlb)
        expected = lackey.counts(self.items)
        modifies = sum(item.kind == "M" for item in self.items)
        assert counts["Ir"] == expected["fetches"]
        assert counts["Dr"] == expected["loads"]
        assert counts["Dw"] == expected["stores"] - modifies
        return {"fetch": counts["I1mr"], "data": counts["D1mr"] + counts["D1mw"]}


@pytest.fixture(scope="module")
def bfs(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A graph search with a whole C library; all its data is aligned."""
    return Program(workload("bfs_static", 3000, 8), 0, tmp_path_factory.mktemp("bfs"))


@pytest.fixture(scope="module")
def static_count(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A program with data and instructions across pages."""
    return Program(workload("static_count"), 42, tmp_path_factory.mktemp("static_count"))


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize(("sets", "ways"), TLBS)
def test_cachegrinds_misses_equal_octavos(page_size: int, sets: int, ways: int, bfs: Program):
    tlb = (page_size, sets, ways)
    theirs = bfs.missed_items(*tlb)
    assert {stream: bfs.misses(stream, *tlb) for stream in KINDS} == theirs


def test_no_data_of_the_graph_search_spans_pages(bfs: Program):
    """The test above requires this, as cachegrind counts spanning references differently."""
    data = [item for item in bfs.items if item.kind != "I"]
    assert len(data) > 50_000
    assert not any(item.address // 4096 != (item.address + item.size - 1) // 4096 for item in data)


@pytest.mark.parametrize(("sets", "ways"), TLBS)
def test_spanning_references_make_the_difference(sets: int, ways: int, static_count: Program):
    theirs = static_count.missed_items(4096, sets, ways)
    for stream, kinds in KINDS.items():
        lookups, items = lackey.missed_in_sets(static_count.items, kinds, 4096, sets, ways)
        assert static_count.misses(stream, 4096, sets, ways) == lookups
        assert theirs[stream] == items


def test_there_is_a_difference(static_count: Program):
    for kinds in KINDS.values():
        lookups, items = lackey.missed_in_sets(static_count.items, kinds, 4096, 1, 2)
        assert lookups > items


# --- libCacheSim ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def libcachesim() -> Callable[[Path, Iterable[int]], list[dict[str, int]]]:
    """A function that gives the misses of libCacheSim's LRU cache for numbers of entries."""
    python = os.environ.get("OCTAVO_PEER_PYTHON", sys.executable)
    if natively([python, "-c", "import libcachesim"]).status:
        pytest.skip("libcachesim is not installed; OCTAVO_PEER_PYTHON names a Python that has it")

    def simulate(requests: Path, entries: Iterable[int]) -> list[dict[str, int]]:
        peer = [python, ROOT / "benches/peer.py", requests, *map(str, entries)]
        result: list[dict[str, int]] = json.loads(
            subprocess.run(peer, check=True, stdout=subprocess.PIPE).stdout
        )
        return result

    return simulate


def write_requests(items: Iterable[lackey.Item], kinds: str, out: Path) -> None:
    """Writes looked-up pages as `oracleGeneral`, libCacheSim's format of 24 bytes per request."""
    with out.open("wb") as file:
        for time, page in enumerate(lackey.pages(items, kinds, 4096)):
            file.write(time.to_bytes(4, "little") + page.to_bytes(8, "little"))
            file.write((1).to_bytes(4, "little") + (-2).to_bytes(8, "little", signed=True))


@pytest.mark.parametrize("stream", ["fetch", "data", "all"])
def test_libcachesims_misses_equal_octavos(
    stream: str, libcachesim: Any, static_count: Program, tmp_path: Path
):
    requests = tmp_path / "requests"
    write_requests(static_count.items, {**KINDS, "all": "ILSM"}[stream], requests)
    for theirs in libcachesim(requests, [2, 3, 16, 17, 64, 65, 500, 1024, 4096]):
        ours = static_count.misses(stream, 4096, 1, theirs["entries"])
        assert theirs["misses"] == ours, theirs["entries"]
