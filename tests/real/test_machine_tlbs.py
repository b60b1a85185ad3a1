"""`octavo run` and `octavo sim` agree on the TLBs of a machine, on real programs."""

from pathlib import Path

import pytest

from .conftest import OCTAVO, Row, natively, read_document, workload

BASE = 4096
PROGRAMS = {
    # The loader maps, protects and unmaps; the exec gives two images.
    "shell": ["sh", "-c", "exec gzip -9 --stdout /etc/services > /dev/null"],
    # Maps and unmaps large blocks, moves them and cuts holes into them.
    "layout": workload("layout"),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_run_and_sim_agree_on_misses_and_walks(program: str, tmp_path: Path):
    trace = tmp_path / "program.oct"
    assert natively([OCTAVO, "record", "-q", "-o", trace, "--", *PROGRAMS[program]]).status == 0

    def rows(*words: str) -> list[Row]:
        result = tmp_path / f"{words[0]}.json"
        argv = [OCTAVO, *words, "-q", "--force", "--json", result, trace]
        assert natively(argv).status == 0
        document = read_document(result)
        assert document is not None
        return [row for row in document["rows"] if "region" not in row]

    # Times change no counter of TLBs, and take most of a simulation out of order.
    simulation = ["sim", "--timing", "additive", "--design", "base4k", "--machine"]
    for machine in ("zen3", "skylake"):
        studied: dict[tuple[int | None, str], int] = {}
        for row in rows("run", "--tlb", machine):
            if row["component"].startswith("machine.") and row["page_size"] == BASE:
                name = {"machine.l1.fetch": "tlb.l1i", "machine.l1.data": "tlb.l1d"}
                key = (row.get("process"), name.get(row["component"], "tlb.l2"))
                studied[key] = studied.get(key, 0) + row["misses"]
        simulated = {
            (row.get("process"), row["component"]): row["value"]
            for row in rows(*simulation, machine)
            if row["component"] in ("tlb.l1i", "tlb.l1d", "tlb.l2") and row["counter"] == "misses"
        }
        assert studied == simulated, machine
        assert min(studied.values()) > 0
