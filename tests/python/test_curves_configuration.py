from __future__ import annotations

from typing import Any

import pytest

from octavo._core import Analysis
from octavo.base.errors import UsageError
from octavo.base.units import KIB, MIB
from octavo.hardware.preset_files import preset_names
from octavo.hardware.tlb_presets import load_tlb_presets
from octavo.tlb_curves.configuration import configure_curves, read_pairs

GIB = 1024 * MIB


def test_the_defaults() -> None:
    configuration = configure_curves()
    assert configuration.page_sizes == tuple(4 * KIB << step for step in range(11))
    assert configuration.streams == ("fetch", "data", "all")
    assert (configuration.max_entries, configuration.max_sets) == (4096, 1024)
    assert configuration.indexes == ("low",)
    assert configuration.windows_refs == (
        100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000,
    )  # fmt: skip
    assert [(pair.large // KIB, pair.threshold_blocks) for pair in configuration.two_sizes] == [
        (16, 2), (32, 4), (64, 8),
    ]  # fmt: skip
    assert {pair.window_refs for pair in configuration.two_sizes} == {10_000_000}
    assert configuration.miss_penalty_cycles == 20
    assert configuration.two_sizes_penalty_cycles == 25
    configuration.analysis()


@pytest.mark.parametrize(
    ("threshold", "blocks", "expected"),
    [
        ("50%", 8, 4), ("50%", 2, 1), ("1%", 8, 1), ("30%", 8, 3), ("100%", 8, 8), ("12.5%", 8, 1),
        ("12.6%", 8, 2), (1, 8, 1), (8, 8, 8), ("3", 8, 3),
    ],
)  # fmt: skip
def test_thresholds(threshold: int | str, blocks: int, expected: int) -> None:
    made = configure_curves(two_sizes=[(4 * KIB, 4 * KIB * blocks)], threshold=threshold)
    assert made.two_sizes[0].threshold_blocks == expected


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"threshold": 0}, ["--threshold 0", "1 to 4 blocks"]),
        ({"threshold": 5}, ["--threshold 5", "1 to 4 blocks"]),
        ({"threshold": "0%"}, ["--threshold 0%", "above 0%"]),
        ({"threshold": "100.1%"}, ["--threshold 100.1%", "up to 100%"]),
        ({"threshold": "1.5"}, ["--threshold 1.5"]),
        ({"threshold": "half"}, ["--threshold half"]),
        ({"threshold": -1}, ["--threshold -1"]),
        ({"two_sizes": [(32 * KIB, 4 * KIB)]}, ["32 KiB + 4 KiB", "larger"]),
        ({"two_sizes": [(4 * KIB, 4 * KIB)]}, ["4 KiB + 4 KiB", "larger"]),
        ({"two_sizes": [(4 * KIB, 5000)]}, ["5000", "4KiB to 1GiB"]),
        ({"two_sizes": [(4 * KIB, 2 * GIB)]}, ["power of two", "1GiB"]),
        ({"sizes": [6000]}, ["6000", "power of two"]),
        ({"sizes": [2 * GIB]}, ["1GiB"]),
        ({"windows": [0]}, ["--windows 0: give a window in references from 1 to 4611686T"]),
        ({"windows": [(1 << 62) + 1]}, ["--windows"]),
        ({"policy_window": 0}, ["--policy-window 0", "from 1"]),
        ({"entries": 0}, ["--entries 0", "1 to 4096"]),
        ({"entries": 4097}, ["--entries 4097", "1 to 4096"]),
        ({"sets": 0}, ["--sets 0", "1 to 1024"]),
        ({"sets": 24}, ["--sets 24", "power of two"]),
        ({"sets": 2048}, ["--sets 2048", "1 to 1024"]),
        ({"indexes": ["high"]}, ["--index `high`", "low, xor, or bits:N", "0 to 40"]),
        ({"indexes": ["bits:41"]}, ["bits:41"]),
        ({"indexes": ["bits:-1"]}, ["bits:-1"]),
        ({"streams": ["code"]}, ["code", "fetch, data, all"]),
        ({"streams": []}, ["--streams", "fetch, data, all"]),
        ({"miss_penalty": -1}, ["--miss-penalty -1", "0 to 1000000"]),
        ({"two_sizes_penalty": float("nan")}, ["--two-sizes-penalty nan"]),
        ({"presets": ["r400"]}, ["did you mean `r4000`"]),
        ({"without": ["set"]}, ["did you mean `sets`"]),
        ({"without": ["full", "sets", "working-sets", "two-sizes"]}, ["leaves out all parts"]),
        ({"layout": "linux"}, ["layout"]),
        ({"max_instructions": 0}, ["--max-instructions"]),
    ],
)
def test_errors_name_the_allowed_values(choices: dict[str, Any], words: list[str]) -> None:
    chosen = {"two_sizes": [(4 * KIB, 16 * KIB)], **choices}
    with pytest.raises(UsageError) as refused:
        configure_curves(**chosen)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    "choices",
    [
        {"max_entries": 4097},
        {"max_sets": 3},
        {"max_sets": 2048},
        {"line_sizes": [8]},
        {"line_sizes": [48]},
        {"line_sizes": [8192]},
        {"set_indexes": ["high"]},
        {"set_indexes": ["bits:41"]},
        {"streams": ["code"]},
        {"windows_refs": [0]},
        {"page_sizes": [5000]},
        {"layout": "linux"},
        {"two_sizes": [{"small": 4096, "large": 4096, "threshold_blocks": 1, "window_refs": 1}]},
        {"two_sizes": [{"small": 4096, "large": 8192, "threshold_blocks": 3, "window_refs": 1}]},
        {"two_sizes": [{"small": 4096, "large": 8192, "threshold_blocks": 0, "window_refs": 1}]},
        {"two_sizes": [{"small": 4096, "large": 8192, "threshold_blocks": 1, "window_refs": 0}]},
        {"classified": {"page_size": 4096, "larger": 4096, "sets": 1, "ways": 1}},
        {"classified": {"page_size": 4096, "larger": 8192, "sets": 3, "ways": 1}},
        {"classified": {"page_size": 4096, "larger": 8192, "sets": 1024, "ways": 5}},
        {"threads": "many"},
        {"processes": "together"},
        {"sample": (0.0, 1)},
        {"sample": (1.001, 1)},
        {"sample": (float("nan"), 1)},
    ],
)
def test_the_extension_refuses_invalid_values(choices: dict[str, Any]) -> None:
    allowed: dict[str, Any] = {
        "page_sizes": [4096],
        "streams": ["all"],
        "layout": "native",
        "max_entries": 4096,
        "set_indexes": ["low", "xor", "bits:40"],
        "max_sets": 1024,
        "line_sizes": [16, 4096],
        "windows_refs": [1, 1 << 62],
        "two_sizes": [{"small": 4096, "large": 8192, "threshold_blocks": 2, "window_refs": 1}],
        "classified": {"page_size": 4096, "larger": 8192, "sets": 1, "ways": 4096},
        "threads": "private",
        "processes": "apart",
        "flush_every_instructions": 1,
        "sample": (1 / 4096, 2**64 - 1),
    }
    Analysis.curves(**allowed)
    with pytest.raises(ValueError, match=r"give|larger"):
        Analysis.curves(**{**allowed, **choices})


def test_pairs_add_their_sizes_and_their_window() -> None:
    made = configure_curves(
        sizes=[4 * KIB], two_sizes=[(8 * KIB, GIB)], windows=[5], policy_window=7
    )
    assert made.page_sizes == (4 * KIB, 8 * KIB, GIB)
    assert made.windows_refs == (5, 7)


def test_parts_can_be_left_out() -> None:
    made = configure_curves(without=["full", "sets", "two-sizes"])
    assert (made.max_entries, made.indexes, made.two_sizes) == (0, (), ())
    assert made.windows_refs
    assert configure_curves(without=["working-sets"]).windows_refs == ()


def test_the_low_bits_have_one_name() -> None:
    assert configure_curves(indexes=["bits:0", "low", "xor", "bits:007"]).indexes == (
        "low", "xor", "bits:7",
    )  # fmt: skip


def test_pairs_are_read() -> None:
    assert read_pairs(["4KiB+32KiB,8KiB+64KiB", "4KiB+2MiB"]) == [
        (4 * KIB, 32 * KIB), (8 * KIB, 64 * KIB), (4 * KIB, 2 * MIB),
    ]  # fmt: skip
    for text in ("4KiB", "4KiB+8KiB+16KiB", ""):
        with pytest.raises(UsageError, match=r"such as 4KiB\+32KiB"):
            read_pairs([text])


def test_equal_configurations_have_equal_names() -> None:
    assert configure_curves().sha256() == configure_curves(threshold="50.0%").sha256()
    assert configure_curves().sha256() != configure_curves(entries=64).sha256()


def test_presets_equal_those_of_the_paper() -> None:
    """Section 1."""
    assert preset_names("tlbs") == ["i860xp", "pa-risc", "r4000", "supersparc"]
    i860xp, pa_risc, r4000, supersparc = load_tlb_presets(preset_names("tlbs"))
    assert [(tlb.entries, tlb.ways, tlb.sets, tlb.page_sizes) for tlb in i860xp.tlbs] == [
        (64, 4, 16, (4 * KIB,)),
        (16, 4, 4, (4 * MIB,)),
    ]
    assert [(tlb.entries, tlb.sets) for tlb in pa_risc.tlbs] == [(4, 1)]
    assert pa_risc.tlbs[0].page_sizes == tuple(256 * KIB << step for step in range(7))
    assert [(tlb.entries, tlb.sets) for tlb in r4000.tlbs] == [(48, 1)]
    assert len(r4000.tlbs[0].page_sizes) == 13
    assert supersparc.tlbs[0].page_sizes == (4 * KIB, 256 * KIB, 16 * MIB)
    assert supersparc.tlbs[0].entries == 64
    for machine in (i860xp, pa_risc, r4000, supersparc):
        assert "section 1" in machine.source
    made = configure_curves(sizes=[4 * KIB], presets=["all"])
    assert made.page_sizes[-1] == 16 * MIB
