"""The measured workloads of workloads/: their checks pass and can fail, the same seed gives the
same run natively and traced, and a wrong option is an error."""

import re
from dataclasses import dataclass

import pytest

from .conftest import Octavo, natively, workload

KIB = 1 << 10


@dataclass(frozen=True)
class Small:
    """A workload at a small size."""

    options: str
    least_bytes: int
    """The bytes of all arrays, computed by hand."""
    operations: int
    region_references: int
    """A lower bound of the references of an operation: loads and stores of the arrays."""


SMALL = {
    "gups": Small("--table 1MiB --updates 20k", 1024 * KIB, 20096, 2),
    # The edges and their two directions: 16 B per edge. Each direction is read, and visited twice.
    "graph500": Small("--scale 10 --edge-factor 16 --roots 2", 16 * 16 * KIB, 0, 4),
    # Bytes are of energies, points and rows.
    "xsbench": Small("--nuclides 12 --points 200 --lookups 3k", 2400 * (8 + 48 + 48), 3000, 30),
    "ycsb": Small("--records 1k --operations 3k", 1000 * 1000 + 2048 * 16, 3000, 125),
    "hashjoin": Small("--build 10k --probe 40k --partition-bits 4", 50_000 * 32, 50_000, 5),
    "random_reads": Small("--block 1MiB --reads 20k", 1024 * KIB, 20000, 1),
    "btree": Small("--keys 20k --inserts 2k --lookups 5k --scans 100", 22_000 * 16, 7100, 8),
}
NAMES = tuple(SMALL)
RESULT = re.compile(
    r"(\w+): checked: (ok|failed|no), ([0-9]+) [a-z-]+, +[0-9]+\.[0-9]{3} s, +[0-9]+\.[0-9]{3} ns "
    r"per operation, digest ([0-9a-f]{16})\n"
)


def small(name: str, *more: str) -> list[str]:
    return workload(name, *SMALL[name].options.split(), *more)


def result(name: str, stdout: bytes) -> tuple[str, int, str]:
    """The parts of the program's line: checked, operations, digest."""
    matched = RESULT.fullmatch(stdout.decode())
    assert matched, stdout
    assert matched[1] == name
    return matched[2], int(matched[3]), matched[4]


def digest(name: str, *more: str) -> str:
    ended = natively(small(name, *more))
    assert ended.status == 0, ended.stderr.decode()
    assert ended.stderr == b""
    checked, operations, number = result(name, ended.stdout)
    assert checked == "ok"
    if SMALL[name].operations:
        assert operations == SMALL[name].operations
    return number


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_is_a_run(name: str):
    assert digest(name) == digest(name, "--huge", "always") == digest(name, "--huge=never")
    assert digest(name) == digest(name, "--seed", "1") != digest(name, "--seed", "2")


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("gups", "--table 4KiB --updates 1"),
        ("graph500", "--scale 4 --edge-factor 1 --roots 1"),
        ("graph500", "--scale 13 --edge-factor 3 --roots 20"),
        ("xsbench", "--nuclides 2 --points 2 --lookups 1"),
        ("xsbench", "--nuclides 400 --points 5"),
        ("ycsb", "--workload B --record-bytes 16 --theta 0"),
        ("ycsb", "--workload C --records 2"),
        ("ycsb", "--workload F --record-bytes 1001 --theta 0.5"),
        ("hashjoin", "--partition-bits 0"),
        ("hashjoin", "--partition-bits 12 --hits 30"),
        ("hashjoin", "--build 1 --probe 1 --partition-bits 1"),
        ("btree", "--node 128"),
        ("btree", "--node 4KiB --scan-length 3000"),
        ("btree", "--keys 1 --inserts 0 --lookups 1 --scans 1"),
    ],
)
def test_the_checks_pass(name: str, more: str):
    ended = natively(small(name, *more.split()))
    assert (ended.status, ended.stderr) == (0, b"")
    assert result(name, ended.stdout)[0] == "ok"


SPOILT = {
    "gups": ["the same updates again do not undo the first"],
    "graph500": [
        "the parents of a vertex do not lead to the root",
        "an edge joins vertices that are more than one level apart",
        "an edge leads out of the tree",
        "the root is not its own parent",
        "no edge joins a vertex and its parent",
    ],
    "xsbench": ["a look-up differs from that by each nuclide's own grid"],
    "ycsb": [
        "a read did not return what was written last",
        "a record is not as last written",
        "a key is not in the index any more",
    ],
    "hashjoin": [
        "the join has not as many tuples as it should",
        "the join's tuples are not what they should be",
    ],
    "random_reads": ["the reads did not find what was written"],
    "btree": [
        "a look-up did not find its key's value",
        "a scan did not find the keys that follow",
        "a value is not its key's",
        "a node's keys are out of order",
        "a key lies outside the bounds of the node above",
        "the chain of leaves leaves one out",
        "a node is less than half full",
        "the tree's keys are not those that were inserted",
    ],
}


@pytest.mark.parametrize(
    ("name", "what", "problem"),
    [(name, n + 1, problem) for name in NAMES for n, problem in enumerate(SPOILT[name])],
)
def test_the_checks_fail(name: str, what: int, problem: str):
    # A sparse graph, since in a dense one all vertices are near all others.
    sparse = ["--scale", "12", "--edge-factor", "4"] if name == "graph500" else []
    ended = natively(small(name, *sparse, f"--break-result={what}"))
    assert (ended.status, ended.stderr.decode()) == (1, f"{name}: the check failed: {problem}.\n")
    assert result(name, ended.stdout)[0] == "failed"


def test_a_check_can_be_left_out():
    ended = natively(small("gups", "--check", "no", "--break-result=1"))
    assert ended.status == 0
    assert result("gups", ended.stdout)[0] == "no"


def test_gups_keeps_to_hpccs_rule():
    def step(number: int) -> int:
        return number << 1 & 2**64 - 1 ^ (7 if number >> 63 else 0)

    table, updates = list(range(512)), 128 * 90
    streams, number = [], 1
    for k in range(updates):
        if k % (updates // 128) == 0:
            streams.append(number)
        number = step(number)
    for _ in range(updates // 128):
        for s in range(128):
            streams[s] = step(streams[s])
            table[streams[s] % 512] ^= streams[s]
    expected = 0
    for word in table:
        expected = (expected * 3 + word) % 2**64
    assert digest_of_gups(512 * 8, updates, seed=0) == f"{expected:016x}"


def digest_of_gups(table: int, updates: int, seed: int = 1) -> str:
    ended = natively(workload("gups", "--table", table, "--updates", updates, "--seed", seed))
    return result("gups", ended.stdout)[2]


@pytest.mark.parametrize("table", ["65536", "64KiB", "64K", "64kb", "65536B"])
@pytest.mark.parametrize("updates", ["128000", "128k", "128K"])
def test_units(table: str, updates: str):
    ended = natively(workload("gups", f"--table={table}", "--updates", updates))
    assert result("gups", ended.stdout)[1:] == (128_000, digest_of_gups(65536, 128_000))


ALLOWED_TABLE = "allowed are powers of two from 4KiB to 16TiB, such as 128MiB."
ALLOWED_OPTIONS = "--table, --updates, --huge, --seed, --check, --help."


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("gups --tabel 3", f"`--tabel` is not an option: allowed are {ALLOWED_OPTIONS}"),
        ("gups 3", f"`3` is not an option: allowed are {ALLOWED_OPTIONS}"),
        ("gups --table", f"--table lacks its value: {ALLOWED_TABLE}"),
        ("gups --table=", f"--table does not take ``: {ALLOWED_TABLE}"),
        ("gups --table 12potatoes", f"--table does not take `12potatoes`: {ALLOWED_TABLE}"),
        ("gups --table 3MiB", f"--table does not take `3MiB`: {ALLOWED_TABLE}"),
        ("gups --table 32TiB", f"--table does not take `32TiB`: {ALLOWED_TABLE}"),
        (
            "gups --updates 99999999999999999999",
            "--updates does not take `99999999999999999999`: allowed are numbers from 1 to "
            "1000T, such as 8M.",
        ),
        (
            "gups --updates 18446744073709552k",
            "--updates does not take `18446744073709552k`: allowed are numbers from 1 to "
            "1000T, such as 8M.",
        ),
        (
            "ycsb --huge alwys",
            "--huge does not take `alwys`: allowed are default, always and never.",
        ),
        ("ycsb --workload E", "--workload does not take `E`: allowed are A, B, C and F."),
        (
            "ycsb --theta 1",
            "--theta does not take `1`: allowed are numbers from 0.000 to 0.999, such as 0.990.",
        ),
        (
            "graph500 --scale 4 --edge-factor 1 --roots 100",
            "--roots 100 is more than this graph has: allowed are as many as there are vertices "
            "with edges.",
        ),
    ],
)
def test_a_bad_option_is_an_error(command: str, sentence: str):
    name, *options = command.split()
    ended = natively(workload(name, *options))
    assert (ended.status, ended.stdout) == (2, b"")
    assert ended.stderr.decode() == f"{name}: {sentence}\n"


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_the_help_are_right(name: str):
    ended = natively(workload(name, "--help"))
    assert (ended.status, ended.stderr) == (0, b"")
    examples = re.findall(rf"^  {name} (--.*)$", ended.stdout.decode(), flags=re.MULTILINE)
    assert len(examples) >= 2
    for example in examples:
        # Options are read one after the other, so that a wrong one is an error before the help.
        assert natively(workload(name, *example.split(), "--help")).status == 0


@pytest.mark.parametrize("name", NAMES)
def test_traced(name: str, octavo: Octavo):
    whole = octavo(small(name))
    assert whole.status == 0, whole.stderr.decode()
    whole.check()
    assert result(name, whole.stdout)[::2] == ("ok", digest(name))
    memory = {"component": "memory", "stream": "data", "page_size": 4 * KIB}
    least_bytes = SMALL[name].least_bytes
    touched_bytes = whole.row(**memory)["touched_bytes"]
    assert least_bytes <= touched_bytes <= 3 * least_bytes + 512 * KIB

    # The printed times differ, but the traces are equal, including the references of printing.
    part = octavo(small(name), "--marks")
    part.check()
    assert part.run["trace_hash"] == whole.run["trace_hash"]
    operations = result(name, part.stdout)[1]
    references = part.count("loads") + part.count("stores")
    assert references >= operations * SMALL[name].region_references
    assert part.count("references") < whole.count("references") / 2


def test_updates_are_random(octavo: Octavo):
    traced = octavo(small("gups"), "--marks")
    misses = traced.row(component="tlb.data", page_size=4 * KIB)["misses"]
    # 64 entries hold a quarter of the table's pages, less two for the streams and the stack.
    assert 0.75 < misses / SMALL["gups"].operations < 0.78


def test_huge_pages_are_requested(octavo: Octavo):
    little = ("--page-sizes", "4KiB")
    advised = {
        huge: octavo(small("hashjoin", "--huge", huge), *little).count("advise", "stream.events")
        for huge in ("default", "always", "never")
    }
    assert advised["always"] == advised["never"] >= advised["default"] + 6


def test_a_zipf_distribution_misses_less(octavo: Octavo):
    options = ("--records", "4k", "--operations", "10k", "--workload", "C")
    misses = {}
    for theta in ("0", "0.99"):
        traced = octavo(small("ycsb", *options, "--theta", theta), "--marks")
        misses[theta] = traced.row(component="tlb.data", page_size=4 * KIB)["misses"]
    assert misses["0.99"] < 0.8 * misses["0"]
