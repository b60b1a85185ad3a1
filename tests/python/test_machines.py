"""`octavo machines`: lists and shows the machines of simulations."""

import json
from pathlib import Path

import pytest

import octavo
from called import invoke as run
from octavo._core import OctavoError, machine_presets
from octavo.base.errors import UsageError
from octavo.base.toml import toml_value
from octavo.hardware.machines import Setting, machines_grid
from octavo.snapshot import take_snapshot


def test_every_machine_is_listed() -> None:
    listed = octavo.machines()
    assert [one["name"] for one in listed] == machine_presets()
    assert all(one["description"] and one["source"] for one in listed)
    done = run("list", "machines")
    assert done.exit_code == 0
    assert all(name in done.stdout for name in machine_presets())
    document = json.loads(run("list", "machines", "--json", "-").stdout)
    assert document == {"schema": "octavo/list/1", "kind": "machines", "entries": listed}


def test_a_machine_is_shown_as_a_file_that_makes_it(tmp_path: Path) -> None:
    shown = run("machines", "skylake", "--json", str(tmp_path / "skylake.json"))
    assert shown.exit_code == 0
    assert "entries = 1536  # Tailored Page Sizes" in shown.stdout
    document = json.loads((tmp_path / "skylake.json").read_text())
    assert document["schema"] == "octavo/machine/1"
    assert document["machine"] == octavo.machine("skylake")
    (tmp_path / "again.toml").write_text(shown.stdout)
    again = json.loads(run("machines", str(tmp_path / "again.toml"), "--json", "-").stdout)
    assert again == document


def test_settings_change_the_machine() -> None:
    settings: dict[str, Setting] = {
        "tlb.l2.main.entries": 2048,
        "tlb.l2.main.ways": 16,
        "cache.l2.bytes": "1MiB",
    }
    machine = octavo.machine("skylake", settings)
    assert machine["tlb"]["l2"]["main"]["entries"] == 2048
    assert machine["cache"]["l2"]["bytes"] == "1MiB"
    options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    shown = json.loads(run("machines", "skylake", *options, "--json", "-").stdout)
    assert shown["machine"] == machine
    assert shown["hash"] != json.loads(run("machines", "skylake", "--json", "-").stdout)["hash"]
    assert "entries = 2048  # --set" in run("machines", "skylake", *options).stdout


def test_paths_in_standard_input_are_relative_to_the_current_directory(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.toml"
    fragmentation = 'kind = "snapshot"\nfile = "now.octmem"'
    file.write_text(f'extends = "skylake"\n[memory.fragmentation]\n{fragmentation}\n')
    with file.open() as opened:
        read, beside = octavo.machine(f"/dev/fd/{opened.fileno()}"), octavo.machine(file)
    assert read["memory"]["fragmentation"]["file"] == "now.octmem"
    assert beside["memory"]["fragmentation"]["file"] == str(tmp_path / "now.octmem")


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("[memory.fragmentation]", "memory.fragmentation"),
        ("[host]\nmemory.bytes = '4GiB'\n[host.memory.fragmentation]", "host.memory.fragmentation"),
    ],
)
def test_a_missing_snapshot_is_reported_with_its_machine(
    tmp_path: Path, table: str, key: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'extends = "skylake"\n{table}\nkind = "snapshot"\nfile = "gone.octmem"\n')
    sentence = f"octavo: {file}: {key}: cannot read `{tmp_path}/gone.octmem`: No such file"
    for command in ("machines", "sim --machine"):
        words = command.split()
        refused = run(*words, str(file), *(["--", "true"] if words[1:] else []))
        assert refused.exit_code == 2
        assert refused.stderr.startswith(sentence)


@pytest.mark.parametrize("part", ["", "host."])
def test_a_snapshot_of_another_size_is_refused_with_the_machine(tmp_path: Path, part: str) -> None:
    file = tmp_path / "mine.toml"
    take_snapshot(tmp_path / "now.octmem")
    file.write_text(
        'extends = "skylake"\nmemory.bytes = "64MiB"\nhost.memory.bytes = "64MiB"\n'
        f'[{part}memory.fragmentation]\nkind = "snapshot"\nfile = "now.octmem"\n'
    )
    refused = run("sim", "--machine", str(file), "synth:gups?table=64KiB&updates=10")
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"octavo: {file}: {part}memory.fragmentation: the snapshot is")


def test_settings_of_every_kind() -> None:
    machine = octavo.machine(
        "skylake",
        {
            "core.base_cpi": 0.25,
            "tlb.l1d.4k.page_sizes": ["4KiB", "16KiB"],
            "tlb.l2": None,
            "description": 'a "text"\nof 2 lines',
            "memory.fragmentation": {
                "kind": "order-mix",
                "free_blocks": {"2MiB": 3},
                "movable_share": 0.5,
            },
        },
    )
    assert machine["core"]["base_cpi"] == 0.25
    assert machine["tlb"]["l1d"]["4k"]["page_sizes"] == ["4KiB", "16KiB"]
    assert machine["tlb"]["l2"] is None
    assert machine["description"] == 'a "text"\nof 2 lines'
    assert machine["memory"]["fragmentation"]["free_blocks"] == {"2MiB": 3}
    assert toml_value(True) == "true"
    assert octavo.machine("skylake", {"name": "7"})["name"] == "7"


def test_a_file_extends_a_machine(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('extends = "zen4"\n[core]\ncount = 4\n')
    machine = octavo.machine(mine)
    assert machine == {**octavo.machine("zen4", {"core.count": 4}), "name": "mine"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["skylke"], "did you mean `skylake`?"),
        (["nothing.toml"], "octavo: nothing.toml: cannot read it: "),
        (["skylake", "--set", "tlb.l2.entires=7"], "--set: tlb.l2.entires: there is no such key"),
        (["\udcff.toml"], "octavo: '\\udcff.toml' is not UTF-8 text."),
        (["skylake", "--set", "core.count"], "--set: core.count: give KEY=VALUE"),
        (["--set", "core.count=2"], "Missing argument 'MACHINE'"),
    ],
)
def test_invalid_machines_are_refused(arguments: list[str], sentence: str) -> None:
    refused = run("machines", *arguments)
    assert refused.exit_code == 2
    assert sentence in refused.stderr
    assert refused.stdout == ""


def test_invalid_settings_in_python_are_refused() -> None:
    with pytest.raises(UsageError, match="give a multiple of 12") as raised:
        octavo.machine("skylake", {"tlb.l2.main.entries": 1537})
    assert isinstance(raised.value, OctavoError)


def test_a_long_source_is_abbreviated_in_the_list() -> None:
    long = {"name": "it", "description": "what", "source": "word " * 30}
    assert machines_grid([long]).rows[0][2] == "word " * 9 + "word …"
