"""`octavo.sweep` on a Ray cluster of several node processes on this machine, one of which is lost;
and with a trace in an object store.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.sweeps.running import SweepProgress
from test_sweeps import ZIPF, files
from traces_made import convert

pytestmark = pytest.mark.long
DESIGNS = ["base4k", "thp", "tps"]
LATE_SECONDS = 600
UNHURRIED = {
    "agent_register_timeout_ms": 1000 * LATE_SECONDS,
    "health_check_timeout_ms": 1000 * LATE_SECONDS,
    "worker_register_timeout_seconds": LATE_SECONDS,
}
"""Ray's time limits for nodes and processes that answer late, as on a busy machine. A node whose
process has ended refuses connections, which counts at once.
"""


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head node without processors, and two nodes with one processor each."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "wait": False, "_system_config": UNHURRIED}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        nodes.add_node(num_cpus=1, wait=False)
    nodes.wait_for_nodes(timeout=LATE_SECONDS)
    ray.init(address=nodes.address, log_to_driver=False)
    try:
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


def test_a_lost_node_changes_no_result(cluster: Any, tmp_path: Path) -> None:
    """In a study of 1,000 simulations over 10 traces, the lost tasks run again on the remaining
    nodes.
    """
    traces = {str(seed): f"{ZIPF}&seed={seed}" for seed in range(10)}
    settings = {"core.base_cpi": [0.5 + n / 100 for n in range(50)]}
    choices: dict[str, Any] = {"designs": ["base4k", "thp"], "settings": settings}
    lost: list[Any] = []

    def lose_a_node(progress: SweepProgress) -> None:
        if progress.done and not lost:
            lost.append(cluster.list_all_nodes()[-1])
            cluster.remove_node(lost[0], allow_graceful=False)

    result = octavo.sweep(
        traces, out=tmp_path / "ray", on="ray", on_progress=lose_a_node, **choices
    )
    assert lost
    assert result.failed == {}
    octavo.sweep(traces, out=tmp_path / "local", **choices)
    assert len(files(tmp_path / "ray")) == 1000
    assert files(tmp_path / "ray") == files(tmp_path / "local")


def test_processes_share_machines_on_every_node(cluster: Any, tmp_path: Path) -> None:
    """Finished simulations are not run again."""
    traces = {str(seed): [ZIPF, f"{ZIPF}&seed={seed}"] for seed in range(1, 5)}
    choices: dict[str, Any] = {"processes": "flush", "quantum": 10_000, "cores": 2}
    some = dict(list(traces.items())[:2])
    octavo.sweep(some, designs=DESIGNS, out=tmp_path / "ray", **choices)
    seen: list[SweepProgress] = []
    result = octavo.sweep(
        traces, designs=DESIGNS, out=tmp_path / "ray", on="ray", on_progress=seen.append, **choices
    )
    assert result.failed == {}
    assert seen[-1].total == 6
    octavo.sweep(traces, designs=DESIGNS, out=tmp_path / "local", **choices)
    assert len(files(tmp_path / "ray")) == 12
    assert files(tmp_path / "ray") == files(tmp_path / "local")


def test_a_design_in_python_runs_on_every_node(cluster: Any, tmp_path: Path) -> None:
    """The design's module exists on no node."""

    class Nothing(octavo.Design):
        def look_up(self, space: int, page: int) -> int | None:
            return None

        def fill(self, space: int, page: int, page_bytes: int) -> None:
            pass

        def invalidate(self, space: int, first: int, end: int) -> None:
            pass

        def flush(self) -> None:
            pass

    traces = {str(seed): f"{ZIPF}&seed={seed}" for seed in range(4)}
    result = octavo.sweep(traces, designs=[Nothing], out=tmp_path / "ray", on="ray")
    assert result.failed == {}
    octavo.sweep(traces, designs=[Nothing], out=tmp_path / "local")
    assert len(files(tmp_path / "ray")) == 4
    assert files(tmp_path / "ray") == files(tmp_path / "local")


def test_a_trace_is_read_from_an_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        trace = convert(ZIPF, tmp_path / "zipf.oct")
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
        where = f"http://{host}:{port}"
        store = boto3.client("s3", endpoint_url=where, region_name="us-east-1", **keys)
        store.create_bucket(Bucket="traces")
        store.upload_file(trace, "traces", "zipf.oct")
        for name, value in keys.items():
            monkeypatch.setenv(name.upper(), value)
        monkeypatch.setenv("OCTAVO_TRACE_CACHE", str(tmp_path / "cache"))
        uri = f"s3://traces/zipf.oct?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
        octavo.sweep(uri, designs=DESIGNS, out=tmp_path / "remote")
        octavo.sweep(trace, designs=DESIGNS, out=tmp_path / "here")
    finally:
        server.stop()
    assert files(tmp_path / "remote") == files(tmp_path / "here")
    assert [path.name for path in (tmp_path / "cache").rglob("*.oct")] == ["zipf.oct"]
