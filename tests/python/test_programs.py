"""Processes of one program together: tables of a server with workers."""

from __future__ import annotations

from typing import Any

from fakes import FLAT, KIB, SIZES, process, region, result
from octavo.programs import programs_of
from octavo.rows import rows_of
from octavo.tlb_levels import load_preset
from octavo.view import process_grid, region_grid

MIB = 1024 * KIB
WORKERS = 3
TEXT = {"name": "server text", "kind": "text", "stream": "fetch", "path": "/usr/bin/server"}


def grids(*, per_process: bool) -> tuple[Any, Any]:
    """Three workers of a server, and a shell."""
    workers = [
        process(
            stream,
            program="/usr/bin/server",
            instructions=10**8 * (stream + 1),
            data_misses=(1000 * (stream + 1),) * len(SIZES),
            regions=[
                region("heap", misses=(1000 * (stream + 1),) * len(SIZES), base=4 * MIB),
                region(**TEXT, misses=(10,) * len(SIZES), base=(stream + 1) * MIB),
            ],
        )
        for stream in range(WORKERS)
    ]
    shell = process(WORKERS, program="/bin/sh", regions=[region("heap", base=MIB)])
    found = result(*workers, shell)
    rows = rows_of(found, load_preset("lru64"))
    manifest = {"processes": found["processes"]}
    programs = programs_of(found["processes"], per_process=per_process)
    return process_grid(rows, manifest, 1, programs), region_grid(rows, [], 1, programs)


def test_processes_of_a_program_are_one_row() -> None:
    processes, _ = grids(per_process=False)
    server, shell = processes.rows
    assert server[:3] == ("server ×3", "/usr/bin/server", "start to exit, …")
    # 1000 + 2000 + 3000 misses in (1 + 2 + 3) * 10^8 instructions.
    assert server[4:] == ("600 M", "0", "0.010")
    assert shell[:2] == ("3", "/bin/sh")
    alone, _ = grids(per_process=True)
    assert [row[0] for row in alone.rows] == ["0", "1", "2", "3"]


def test_regions_of_a_program_are_one_row_and_code_counts_once() -> None:
    _, regions = grids(per_process=False)
    rows = {row[0]: row for row in regions.rows}
    assert set(rows) == {"server ×3: heap", "server ×3: server text", "3: heap"}
    assert rows["server ×3: heap"][3] == "12 MiB"
    assert rows["server ×3: heap"][5] == "0.010"
    assert rows["server ×3: server text"][3] == "3 MiB", "as the worker that touched most"
    assert "counted once" in regions.title
    _, alone = grids(per_process=True)
    assert len(alone.rows) == 2 * WORKERS + 1
    assert "counted once" not in alone.title


def test_one_process_is_as_it_was() -> None:
    found = result(process(regions=[region(growth=FLAT)]))
    rows = rows_of(found, load_preset("lru64"))
    programs = programs_of(found["processes"], per_process=False)
    assert process_grid(rows, {"processes": found["processes"]}, 1, programs) is None
    assert [row[0] for row in region_grid(rows, [], 1, programs).rows] == ["heap"]
