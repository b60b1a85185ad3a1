"""`octavo verify` on real programs: the pages of each setting, and a server with one command."""

import json
import os
import shlex
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from octavo.base.huge_pages import PMD_PAGE, read_huge_pages

from .conftest import OCTAVO, natively, workload

pytestmark = [
    pytest.mark.long,
    # Some change settings of the system, and `octavo verify` does nothing meanwhile.
    pytest.mark.usefixtures("changes_settings"),
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
    # One fault for each 4 KiB page, or for each 2 MiB page.
    assert found["as now"]["minor_faults"] > 128 * MIB // 4096
    assert found["glibc-thp 2MiB"]["minor_faults"] < 128 * MIB // 4096 / 10
    assert found["glibc-thp 2MiB"]["peak_resident_bytes"] > 128 * MIB


def pool() -> str:
    """The number of huge pages of the default size that are set aside."""
    return Path("/proc/sys/vm/nr_hugepages").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets huge pages aside")
def test_mallocs_pool_has_the_size_of_a_run(tmp_path: Path) -> None:
    program = workload("random_reads", "--block", "128MiB", "--reads", "200k")
    result, name, before = tmp_path / "run", "glibc-hugetlb 2MiB", pool()
    ran = natively([str(OCTAVO), "run", "-q", "--out", str(result), "--", *program])
    assert ran.status == 0, ran.stderr.decode()
    options = ("--allow-system", "--from", str(result), "--settings", name)
    found = verify(tmp_path, *options, "--", *program)[name]
    assert found["huge_bytes"]["hugetlb"] >= 128 * MIB
    assert pool() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes settings")
def test_shared_memory_gets_huge_pages_as_its_advice_says(tmp_path: Path) -> None:
    file, program = tmp_path / "run.json", workload("prefork", "3", "128", "8")
    ran = natively([str(OCTAVO), "run", "-q", "--json", str(file), "--", *program])
    assert ran.status == 0, ran.stderr.decode()
    answer = json.loads(file.read_text())["advice"][0]
    words = shlex.split(answer["verify"])
    options = words[words.index("verify") + 1 : words.index("--")]
    assert options == ["--allow-system", "--settings", "shared-for-all 2MiB"]
    found = verify(tmp_path, *options, "--", *program)
    assert found["shared-for-all 2MiB"]["huge_bytes"]["shared"] >= 32 * MIB
    assert huge(found["as now"]) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets huge pages aside")
@pytest.mark.skipif(shutil.which("javac") is None, reason="no javac")
def test_the_jvm_takes_its_heap_from_its_pool(tmp_path: Path) -> None:
    source = tmp_path / "Heap.java"
    source.write_text(
        "public class Heap { public static void main(String[] a) {\n"
        "  long[][] blocks = new long[100][];\n"
        "  for (int i = 0; i < blocks.length; i++) blocks[i] = new long[1 << 17];\n"
        "  System.out.println(blocks.length); } }\n"
    )
    subprocess.run(["javac", "-d", str(tmp_path), str(source)], check=True)
    name, before = "jvm-large-pages 2MiB", pool()
    program = ("java", "-Xms256m", "-Xmx256m", "-cp", str(tmp_path), "Heap")
    found = verify(tmp_path, "--allow-system", "--settings", name, "--", *program)[name]
    assert found["huge_bytes"]["hugetlb"] >= 100 * MIB
    assert pool() == before


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
