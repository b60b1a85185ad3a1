"""`octavo verify` on real programs: what each setting obtains, and the one line for a server."""

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from octavo.huge_pages import PMD_PAGE, read_huge_pages

from .conftest import OCTAVO, natively, workload

pytestmark = [
    pytest.mark.long,
    pytest.mark.usefixtures("needs_settings"),
    pytest.mark.skipif(
        read_huge_pages().thp != "madvise",
        reason="transparent_hugepage/enabled is not madvise, under which programs ask for pages",
    ),
]
MIB = 1 << 20


def verify(tmp_path: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """The settings by name."""
    file = tmp_path / "result.json"
    command = [str(OCTAVO), "verify", "-q", "--json", str(file), "--repetitions", "1", *arguments]
    ended = natively(command)
    assert ended.status == 0, ended.stderr.decode()
    return {setting["name"]: setting for setting in json.loads(file.read_text())["settings"]}


def huge(setting: dict[str, Any]) -> int:
    return sum(setting["huge_bytes"].values())


def test_mallocs_switch_gives_a_block_huge_pages(tmp_path: Path) -> None:
    program = workload("random_reads", "--block", "128MiB", "--reads", "2M")
    found = verify(tmp_path, "--", *program)
    assert huge(found["as now"]) == 0
    assert huge(found["glibc-thp 2MiB"]) >= 100 * MIB
    assert huge(found["glibc-thp 2MiB"]) % PMD_PAGE == 0
    # A fault for each page of 4 KiB, and one for each of 2 MiB.
    assert found["as now"]["minor_faults"] > 128 * MIB // 4096
    assert found["glibc-thp 2MiB"]["minor_faults"] < 128 * MIB // 4096 / 10
    assert found["glibc-thp 2MiB"]["peak_resident_bytes"] > 128 * MIB


@pytest.mark.skipif(
    not (shutil.which("redis-server") and shutil.which("redis-benchmark")),
    reason="redis-server and redis-benchmark are not installed (apt-get install redis)",
)
def test_redis_is_verified_by_one_line(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    load = f"redis-benchmark -p {port} -q -n 200000 -r 200000 -d 64 -P 16 -t"
    found = verify(
        tmp_path,
        *("--prepare", f"{load} set", "--metric", f"command:{load} get"),
        *("--try", "MALLOC_CONF=thp:always", "--settings", "MALLOC_CONF=thp:always"),
        *("--", "redis-server", "--port", port, "--save", ""),
    )
    now, asked = found["as now"], found["MALLOC_CONF=thp:always"]
    assert now["values"][0] > 1000
    assert asked["values"][0] > 1000
    assert huge(now) == 0
    assert huge(asked) > 10 * MIB
    assert asked["minor_faults"] < now["minor_faults"]
