"""`octavo run` models a machine's TLBs as `octavo sim` does, and finds this processor's machine."""

from pathlib import Path

import pytest

import octavo
from octavo.base.errors import UsageError
from octavo.base.units import MIB
from octavo.hardware.modelled import this_machine
from octavo.hardware.processors import Processor, machine_for, this_processor
from octavo.runs.configuration import configure

KIB4 = 4096
TRACES = (
    "synth:gups?table=32MiB&updates=30k",
    "synth:zipf?table=16MiB&references=50k",
    "synth:pointer-chase?table=8MiB&references=30k",
)


def studied(trace: str, machine: str, page_size: int) -> dict[str, int]:
    """Misses of the first levels and walks of both streams, as `octavo run` counts them."""
    rows = octavo.run(trace, tlb=machine).rows
    misses = {
        row["component"]: row["misses"]
        for row in rows
        if row["component"].startswith("machine.")
        and row["page_size"] == page_size
        and "process" not in row
        and "region" not in row
    }
    return {
        "l1i": misses["machine.l1.fetch"],
        "l1d": misses["machine.l1.data"],
        "walks": misses["machine.l2.fetch"] + misses["machine.l2.data"],
    }


def simulated(trace: str, machine: str, design: str) -> dict[str, int]:
    """Misses of the first levels and walks of both streams, as `octavo sim` counts them."""
    result = octavo.sim(trace, machine=machine, designs=[design]).design(design)
    counted = {"l1i": "tlb.l1i", "l1d": "tlb.l1d", "walks": "tlb.l2"}
    return {name: result.count(component, "misses") for name, component in counted.items()}


@pytest.mark.parametrize("machine", ["zen3", "skylake", "golden-cove"])
@pytest.mark.parametrize("trace", TRACES)
def test_run_and_sim_agree(trace: str, machine: str) -> None:
    assert studied(trace, machine, KIB4) == simulated(trace, machine, "base4k")


@pytest.mark.parametrize("machine", ["zen3", "skylake", "golden-cove"])
def test_run_and_sim_agree_on_huge_pages(tmp_path: Path, machine: str) -> None:
    """The trace has no mappings: the simulation takes all memory as one mapping of huge pages."""
    references = []
    number = 12345
    for _ in range(20_000):
        number = number * 1103515245 + 12345 & 0x7FFF_FFFF
        references.append(f"2 {0x40_0000 + number % 5 * 0x40_0000 + number % 4096:x}")
        references.append(f"{number >> 8 & 1} {0x1000_0000 + number % (1 << 29):x}")
    trace = tmp_path / "huge.din"
    trace.write_text("\n".join(references) + "\n")
    ours = studied(str(trace), machine, 2 * MIB)
    assert ours == simulated(str(trace), machine, "thp")
    assert ours["walks"] > 256, "pages are used again after their eviction"


@pytest.mark.parametrize(
    ("vendor", "family", "model", "machine"),
    [
        ("AuthenticAMD", 23, 0x31, "zen2"),
        ("AuthenticAMD", 25, 0x01, "zen3"),
        ("AuthenticAMD", 25, 0x21, "zen3"),
        ("AuthenticAMD", 25, 0x11, "zen4"),
        ("AuthenticAMD", 26, 0x02, "zen5"),
        ("GenuineIntel", 6, 0x55, "skylake"),
        ("GenuineIntel", 6, 0x6A, "ice-lake"),
        ("GenuineIntel", 6, 0x8F, "golden-cove"),
    ],
)
def test_processors_have_their_machines(vendor: str, family: int, model: int, machine: str) -> None:
    match = machine_for(Processor(vendor, family, model, None))
    assert (match.machine, match.nearest) == (machine, None)


@pytest.mark.parametrize(
    ("processor", "machine"),
    [
        (Processor("AuthenticAMD", 23, 0x01, None), "zen2"),
        (Processor("GenuineIntel", 6, 0x3F, None), "skylake"),
        (Processor("GenuineIntel", 19, 1, None), "golden-cove"),
        (Processor("CentaurHauls", 7, 1, None), "skylake"),
        (Processor(None, None, None, None), "skylake"),
    ],
)
def test_unknown_processors_have_the_nearest(processor: Processor, machine: str) -> None:
    match = machine_for(processor)
    assert match.machine == machine
    assert match.nearest


def test_cpuid_is_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    text = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon\n"
    (tmp_path / "proc" / "cpuinfo").write_text(text)
    assert this_processor(tmp_path) == Processor("GenuineIntel", 6, 143, "Xeon")


def test_this_processor_is_the_default() -> None:
    configuration = configure()
    assert configuration.modelled == this_machine()
    assert configuration.machine.name == "lru64"
    assert any(this_machine().name in note for note in configuration.notes())


def test_a_tlb_without_a_machine_has_no_walks() -> None:
    assert configure(tlb="itanium2").modelled is None
    assert configure(entries=(32, 64)).modelled is None
    result = octavo.run(TRACES[1], tlb="lru64")
    assert not any(row["component"].startswith("machine.") for row in result.rows)
    assert all(item.get("basis", "misses") == "misses" for item in result.advice[1:])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("zen33", "unknown TLB `zen33`; did you mean `zen3`?"),
        ("r3000", "octavo run models a first level for each (tlb.l1i and tlb.l1d)"),
        ("nowhere.toml", "nowhere.toml"),
    ],
)
def test_machines_that_cannot_be_modelled_are_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        configure(tlb=name)
    assert message in str(caught.value)


def test_machines_that_cannot_be_modelled_are_not_offered() -> None:
    with pytest.raises(UsageError) as caught:
        configure(tlb="r300")
    assert "zen5" in str(caught.value)
    assert "r3000" not in str(caught.value)


def test_a_machine_of_a_file_is_modelled(tmp_path: Path) -> None:
    """A smaller second level has other misses than the preset that it extends."""
    file = tmp_path / "mine.toml"
    file.write_text('extends = "zen3"\nname = "mine"\n[tlb.l2.main]\nentries = 16\n')
    assert studied(TRACES[0], str(file), KIB4) == simulated(TRACES[0], str(file), "base4k")
    assert studied(TRACES[0], str(file), KIB4) != studied(TRACES[0], "zen3", KIB4)
