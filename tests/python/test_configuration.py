import pytest

from octavo.base.errors import UsageError
from octavo.hardware.preset_files import preset_names
from octavo.hardware.tlb_levels import load_preset
from octavo.runs.configuration import configure


def test_defaults_are_those_of_the_study() -> None:
    configuration = configure()
    assert configuration.page_sizes[0] == 4096
    assert configuration.page_sizes[-1] == 2 << 20
    level = configuration.machine.levels[0]
    assert (level.fetch_entries, level.data_entries) == (64, 64)


def test_4_kib_is_always_measured() -> None:
    assert configure(sizes=[65536]).page_sizes == (4096, 65536)


def test_itanium_2_as_its_source_states_it() -> None:
    first, second = load_preset("itanium2").levels
    assert (first.fetch_entries, first.data_entries) == (32, 32)
    assert (first.fetch_miss_cycles, first.data_miss_cycles) == (2, 4)
    assert (second.fetch_entries, second.data_entries) == (128, 128)
    assert second.data_miss_cycles is None


def test_every_preset_loads_and_names_its_source() -> None:
    assert preset_names("levels") == ["itanium2", "lru64"]
    for name in preset_names("levels"):
        machine = load_preset(name)
        assert machine.name == name
        assert machine.source


def test_unknown_names_are_answered_with_the_nearest_and_the_allowed() -> None:
    with pytest.raises(UsageError, match=r"did you mean `itanium2`\? Allowed: itanium2, lru64"):
        configure(tlb="itanum2")
    with pytest.raises(UsageError, match="Allowed: native, as-traced"):
        configure(layout="weird")
    with pytest.raises(UsageError, match="did you mean `lackey`"):
        configure(tracer="lacky")


def test_contradictions_are_refused() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        configure(entries=(64, 64), tlb="itanium2")
    with pytest.raises(UsageError):
        configure(max_instructions=0)
    with pytest.raises(UsageError):
        configure(entries=(0, 64))
    with pytest.raises(UsageError):
        configure(sizes=[5000])


def test_the_hash_names_the_configuration() -> None:
    assert configure().sha256() == configure(sizes=configure().page_sizes).sha256()
    assert configure().sha256() != configure(layout="as-traced").sha256()
