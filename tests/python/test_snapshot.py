"""`octavo snapshot`: this machine's memory, recorded and described."""

import json
import os
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from called import invoke as octavo
from octavo._core import OctavoError
from octavo.base.errors import UsageError
from octavo.snapshot import coverage_grid, facts, read_snapshot, take_snapshot


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("snapshots") / "now.octmem"
    take_snapshot(file, pid=os.getpid())
    return file


def test_a_file_describes_its_snapshot(tmp_path: Path) -> None:
    file = tmp_path / "now.octmem"
    assert take_snapshot(file) == read_snapshot(file)


def is_free_as_counted(summary: dict[str, Any]) -> bool:
    """Whether the blocks that the kernel counts are found free a moment later; other processes may
    take and give memory in between.
    """
    sizes = summary["coverage"]
    counted = sum((size["free_blocks"] or 0) * size["page_size_bytes"] for size in sizes)
    return bool(summary["free_bytes"] == pytest.approx(counted, rel=0.2))


def test_sums_of_a_snapshot_are_consistent(taken: Path, tmp_path: Path) -> None:
    """On any machine and with any rights."""
    summary = read_snapshot(taken).summary
    sizes = summary["coverage"]
    assert [size["page_size_bytes"] for size in sizes] == [4096 << order for order in range(19)]
    assert sizes[0]["usable_bytes"] == summary["free_bytes"]
    assert sizes[0]["share"] == 1
    known = [size["usable_bytes"] for size in sizes if size["usable_bytes"] is not None]
    assert known == sorted(known, reverse=True)
    assert len(known) == (19 if summary["exact"] else 11)
    if summary["states"] is None:
        assert any("kpageflags" in sentence for sentence in summary["missing"])
    else:
        assert sum(summary["states"].values()) == summary["simulated_bytes"]
        assert summary["states"]["free"] == summary["free_bytes"]
        again = (take_snapshot(tmp_path / f"{number}.octmem").summary for number in range(5))
        assert any(is_free_as_counted(one) for one in chain([summary], again))
    if summary["process"] is None:
        assert any("pagemap" in sentence for sentence in summary["missing"])
    else:
        assert summary["process"]["pid"] == os.getpid()
        assert summary["process"]["resident_frames"] * 4096 == sizes[0]["process_bytes"]
        assert summary["process"]["resident_frames"] > 1000


def test_a_table_is_shown_on_standard_output(taken: Path) -> None:
    done = octavo("snapshot", "--show", str(taken))
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    rows = [line for line in done.stdout.splitlines() if line.startswith(("4 KiB", "1 GiB"))]
    assert len(rows) == 2
    assert "100%" in rows[0]


def test_json_has_everything(taken: Path) -> None:
    done = octavo("snapshot", "--show", str(taken), "--json", "-")
    document = json.loads(done.stdout)
    assert document["schema"] == "octavo/snapshot/1"
    assert document["file"] == str(taken)
    assert document["coverage"] == read_snapshot(taken).summary["coverage"]


def test_a_file_is_not_overwritten_unasked(tmp_path: Path) -> None:
    file = tmp_path / "now.octmem"
    assert octavo("snapshot", "-o", str(file), "--quiet").stderr == ""
    refused = octavo("snapshot", "-o", str(file))
    assert refused.exit_code == 2
    assert "exists; --force overwrites it." in refused.stderr
    done = octavo("snapshot", "-o", str(file), "--force", "--json", str(tmp_path / "now.json"))
    assert done.exit_code == 0
    assert "free, Linux" in done.stderr
    assert json.loads((tmp_path / "now.json").read_text())["file"] == str(file)


def test_other_files_are_refused(tmp_path: Path, taken: Path) -> None:
    cut = tmp_path / "cut.octmem"
    cut.write_bytes(taken.read_bytes()[:-1])
    refused = octavo("snapshot", "--show", str(cut))
    assert refused.exit_code == 125
    assert refused.stderr.startswith(f"octavo: `{cut}`: it has ")
    other = tmp_path / "other"
    other.write_text("text")
    assert "it is not a snapshot of Octavo." in octavo("snapshot", "--show", str(other)).stderr
    assert "cannot read" in octavo("snapshot", "--show", str(tmp_path / "nothing")).stderr
    with pytest.raises(OctavoError, match="not a snapshot"):
        read_snapshot(other)


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    file = str(tmp_path / "now.octmem")
    for arguments in (["--quiet"], ["-o", file, "--show", file]):
        refused = octavo("snapshot", *arguments)
        assert refused.exit_code == 2
        assert "give either -o FILE, to take a snapshot, or --show FILE." in refused.stderr
    refused = octavo("snapshot", "--show", file, "--pid", "1")
    assert "--pid goes with -o, not with --show." in refused.stderr
    refused = octavo("snapshot", "-o", file, "--pid", str(2**22))
    assert refused.exit_code == 125
    assert f"there is no process {2**22}." in refused.stderr
    assert not Path(file).exists()
    with pytest.raises(UsageError, match="-o is empty"):
        take_snapshot("")


def test_missing_data_is_listed(taken: Path) -> None:
    summary = read_snapshot(taken).summary
    summary["exact"] = False
    summary["states"] = None
    summary["movable_share"] = 0.25
    summary["process"] = {
        "pid": 7,
        "name": "prog",
        "resident_frames": 12,
        "mappable_frames": [12] + 18 * [0],
    }
    summary["missing"] = ["a file: why"]
    for size in summary["coverage"]:
        size["process_bytes"] = 0
    summary["coverage"][11].update(free_blocks=None, usable_bytes=None, share=None)
    assert facts(summary) == [
        "2 MiB regions that Linux keeps for what may be moved: 25.0%.",
        "Process 7 (prog): 12 pages of 4 KiB in memory.",
        "Missing: a file: why.",
    ]
    grid = coverage_grid(summary)
    assert grid.rows[11] == ("8 MiB", "", "unknown", "", "0 B")
    assert grid.head[-1] == "could map of the process"
