"""Metrics that `octavo verify` reads from outputs."""

from __future__ import annotations

import re

import pytest

from octavo.base.errors import UsageError
from octavo.base.units import duration, format_duration
from octavo.verification import metric as metric_module
from octavo.verification.metric import Reading, parse_metric, read_metric

REDIS_QUIET = (
    "GET: rps=120000.0 (overall: 119000.5) avg_msec=0.2 (overall: 0.3)\r"
    "GET: 871839.56 requests per second, p50=0.455 msec                    \n"
)
REDIS = """\
====== GET ======
  100000 requests completed in 1.06 seconds
Summary:
  throughput summary: 94250.71 requests per second
  latency summary (msec):
"""
PGBENCH = """\
pgbench (15.3)
latency average = 0.412 ms
initial connection time = 3.801 ms
tps = 2425.083100 (without initial connection time)
"""
PGBENCH_13 = """\
tps = 2300.1 (including connections establishing)
tps = 2425.5 (excluding connections establishing)
"""
WRK = "  Latency   635.91us    0.89ms\nRequests/sec: 748868.53\nTransfer/sec:    606.33MB\n"
AB = "Requests per second:    4567.11 [#/sec] (mean)\nTime per request: 2.19 [ms] (mean)\n"
H2LOAD = "finished in 1.21s, 82512.44 req/s, 2.68MB/s\n"
MEMTIER = (
    "Sets         8000.11          ---          ---         0.19100\n"
    "Totals      88000.25        0.00     80000.00         0.18994\n"
)
SYSBENCH = "    transactions:                        12345  (1234.56 per sec.)\n"
YCSB = "[OVERALL], RunTime(ms), 1080\n[OVERALL], Throughput(ops/sec), 92592.59\n"


@pytest.mark.parametrize(
    ("output", "value", "name"),
    [
        (REDIS_QUIET, 871839.56, "requests per second"),
        (REDIS, 94250.71, "requests per second"),
        (PGBENCH, 2425.0831, "transactions per second"),
        (PGBENCH_13, 2425.5, "transactions per second"),
        (WRK, 748868.53, "requests per second"),
        (AB, 4567.11, "requests per second"),
        (H2LOAD, 82512.44, "requests per second"),
        (MEMTIER, 88000.25, "operations per second"),
        (SYSBENCH, 1234.56, "transactions per second"),
        (YCSB, 92592.59, "operations per second"),
    ],
)
def test_the_formats_of_load_generators_are_known(output: str, value: float, name: str) -> None:
    metric = parse_metric(["command:load"], None)
    assert metric.is_of_server
    assert read_metric(metric, output) == Reading(value, name, 0)


def test_a_number_alone_needs_a_direction() -> None:
    assert read_metric(parse_metric(["command:x"], "lower"), " 12.5\n") == Reading(12.5, None, 0)
    refused = read_metric(parse_metric(["command:x"], None), "12.5")
    assert isinstance(refused, str)
    assert "--better" in refused
    refused = read_metric(parse_metric(["command:x"], "lower"), "took 12.5 parsecs")
    assert isinstance(refused, str)
    assert "--metric regex:" in refused


def test_an_expression_reads_the_output_of_a_command() -> None:
    metric = parse_metric(["command:load", r"regex:GET: ([0-9.]+) requests per second"], None)
    assert (metric.source, metric.command, metric.better) == ("command", "load", "higher")
    text = "SET: 10.5 requests per second\nGET: 20.5 requests per second\n"
    assert read_metric(metric, text) == Reading(20.5, None, 0)


def test_the_last_number_counts_and_the_others_are_noted() -> None:
    metric = parse_metric(["regex:[0-9,]+ per second"], "higher")
    assert isinstance(read_metric(metric, "1,000 per second"), str)
    metric = parse_metric(["regex:([0-9,]+) per second"], None)
    text = "1,000 per second\n1,000 per second\n2,000 per second\n"
    assert read_metric(metric, text) == Reading(2000.0, None, 1)
    assert read_metric(parse_metric(["regex:[0-9]+"], "lower"), "took 7") == Reading(7, None, 0)


@pytest.mark.parametrize(
    "text", ["nan", "inf", "1e999", "1_000", "\u0661\u0662", "0x10", "1 2", ""]
)
def test_a_metric_is_a_finite_number(text: str) -> None:
    refused = read_metric(parse_metric(["regex:v=(.*)$"], "lower"), f"v={text}\n")
    assert refused == f"`v=(.*)$` found `{text}`, which is not a number"
    assert isinstance(read_metric(parse_metric(["command:x"], "lower"), text), str)


@pytest.mark.parametrize(("text", "value"), [("-1.5e3", -1500), ("+.5", 0.5), ("7.", 7)])
def test_plain_numbers_of_every_form(text: str, value: float) -> None:
    metric = parse_metric(["regex:v=(.*)$"], "lower")
    assert read_metric(metric, f"v={text}\n") == Reading(value, None, 0)


def test_a_search_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_module, "SEARCH_SECONDS", 1)
    refused = read_metric(parse_metric(["regex:(x+x+)+y"], "lower"), "x" * 80)
    assert isinstance(refused, str)
    assert "the search for `(x+x+)+y` takes more than 1 s" in refused


@pytest.mark.parametrize(
    ("pattern", "better"),
    [
        ("([0-9.]+) requests per second", "higher"),
        (r"tps = ([0-9.]+)", "higher"),
        (r"([0-9.]+) MB/s", "higher"),
        (r"throughput: (\d+)", "higher"),
        (r"p99=([0-9.]+) msec", "lower"),
        (r"elapsed: ([0-9.]+)", "lower"),
        (r"took ([0-9.]+) seconds", "lower"),
    ],
)
def test_the_direction_follows_from_words(pattern: str, better: str) -> None:
    assert parse_metric([f"regex:{pattern}"], None).better == better
    other = "lower" if better == "higher" else "higher"
    assert parse_metric([f"regex:{pattern}"], other).better == other


@pytest.mark.parametrize(
    ("given", "better", "sentence"),
    [
        (["tiem"], None, "unknown metric `tiem`; did you mean `time`? Allowed: time, time:COMMAND"),
        (["regex:"], None, "needs its expression"),
        (["command: "], None, "needs its command"),
        (["regex:("], None, "is not an expression"),
        (["regex:(a)(b) per second"], None, "2 groups"),
        (["regex:([0-9]+) MFLOPS"], None, "give --better higher or --better lower"),
        (["regex:a/s", "regex:b/s"], None, "given twice"),
        (["time", "regex:a/s"], None, "do not go together"),
        (["cpu:"], None, "needs a command after the colon"),
        (["time: "], None, "needs a command after the colon"),
        (["time"], "higher", "of times, lower is better"),
        (["time"], "hihger", "did you mean `higher`?"),
    ],
)
def test_a_wrong_metric_is_refused(given: list[str], better: str | None, sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        parse_metric(given, better)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("([0-9.]+) requests per second", "requests per second"),
        (r"^GET: ([0-9.]+) requests per second", "GET requests per second"),
        (r"tps\s=\s(\d+)", "tps"),
        (r"[0-9]+", "`[0-9]+`"),
    ],
)
def test_an_expression_has_a_name(pattern: str, words: str) -> None:
    assert parse_metric([f"regex:{pattern}"], "higher").text == words


def test_times_need_no_output() -> None:
    assert not parse_metric([], None).captures
    assert parse_metric([], None).source == "time"
    assert parse_metric(["cpu"], None).source == "cpu"
    timed = parse_metric(["time:load --now"], None)
    assert (timed.source, timed.command, timed.is_of_server) == ("command-time", "load --now", True)
    used = parse_metric(["cpu:load"], None)
    assert (used.source, used.command, used.better) == ("command-cpu", "load", "lower")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5h", 5400), ("5min", 300), ("5 m", 300), ("250ms", 0.25)],
)
def test_spans_of_time(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "soon", "5 parsecs", "-3s", "1h30"])
def test_a_wrong_span_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time" if text == "0" else "is not a duration"):
        duration(text)


def test_spans_are_shown() -> None:
    shown = [format_duration(seconds) for seconds in (0, 0.25, 7, 180, 9000)]
    assert shown == ["0 s", "0.25 s", "7 s", "3 min", "2.5 h"]
