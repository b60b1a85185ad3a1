"""The real programs that the studies run, each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from octavo._core import OctavoError
from octavo.analysis.rows import stream_counters
from octavo.analysis.view import main_process
from octavo.base.temporary import TemporaryDirectory
from octavo.base.toml import read_toml, toml_table
from octavo.base.units import BASE_PAGE, byte_size
from octavo.hardware.machines import Setting, setting_texts
from octavo.simulation.model import Simulated
from octavo.studies.inputs import make_inputs
from octavo.studies.parts import document_of
from octavo.studies.reproduction import Request

_MOST_EVENTS = 100_000
"""Events of a workload, at most."""
BUILT = Path(__file__).resolve().parents[3] / "build" / "workloads"
"""Where `make workloads` puts the workloads in a clone."""
Measured = TypeVar("Measured")
PHASES = 'kind = "phases"\n'
"""The first line of a synthetic trace's description; a table `phase` for each phase follows."""
PERIOD = "period"
"""The folder of workloads like the programs of two papers."""
DISPLAY_SERVER = "Xvfb"
"""An X server without a screen."""


class NotMeasured(OctavoError):
    """A program or a pass is left out of a study; the text is the reason."""


@dataclass(frozen=True)
class Program:
    """A program of a study and its command."""

    name: str
    command: tuple[str, ...]
    max_instructions: int | None = None
    """The instructions after which it is ended at the latest; None: no limit."""
    like: str | None = None
    """The program of the paper that it stands for; None for a program of today."""
    needs: tuple[str, ...] = ()
    """Other commands that have to be installed."""
    stream: str | None = None
    """The description of a synthetic trace that is used in place of a recording."""
    begin: int = 0
    """The number of instructions after which all memory of that trace has been touched."""
    display: bool = False
    """Whether it needs an X display, which is started for it."""

    @property
    def is_static(self) -> bool:
        """Whether the program is one of the statically linked workloads."""
        return Path(self.command[0]).parent == BUILT / PERIOD

    def missing(self) -> str | None:
        """The reason why the program cannot run here; None if it can."""
        if self.stream is not None:
            return None
        if self.is_static:
            return None if os.access(self.command[0], os.X_OK) else "not built: `make workloads`"
        wanted = (self.command[0], *self.needs, *([DISPLAY_SERVER] if self.display else []))
        gone = [command for command in wanted if shutil.which(command) is None]
        return f"not installed: {', '.join(gone)}" if gone else None


def load_programs() -> list[Program]:
    """The real programs of all studies, inputs not yet filled in."""
    return [Program(name, tuple(command)) for name, command in _table()["programs"].items()]


def load_period(study: str) -> list[Program]:
    """The programs like those of a study's paper, inputs not yet filled in."""
    return [_period_program(name, table) for name, table in _table()["like"][study].items()]


def _period_program(name: str, table: Mapping[str, Any]) -> Program:
    command, *arguments = table["command"]
    if table.get("own", False):
        command = str(BUILT / PERIOD / command)
    return Program(
        name,
        (command, *arguments),
        like=table["like"],
        needs=tuple(table.get("needs", ())),
        display=table.get("display", False),
    )


@cache
def _table() -> dict[str, Any]:
    return read_toml(Path(__file__).with_name("programs.toml"))


def measure_runs(
    arguments: Sequence[str],
    programs: Sequence[Program],
    request: Request,
    measure: Callable[[Program, Any], Measured],
    skipped: dict[str, str],
) -> list[Measured]:
    """Runs every program that is installed under a command of octavo with its options,
    `arguments`; returns the results of `measure`, which takes a program and its rows. `skipped`
    gets the reasons why other programs were left out.
    """

    def run(program: Program, command: list[str], place: Path) -> Measured:
        limit = _limit(request.max_instructions, program)
        made = document([*arguments, *limit, "--", *command], place)
        return measure(program, made["rows"])

    return _measure(programs, request, run, skipped)


def measure_traces(
    programs: Sequence[Program],
    request: Request,
    measure: Callable[[Program, Path], Measured],
    skipped: dict[str, str],
) -> list[Measured]:
    """Records every program that is installed; returns the results of `measure`, which takes a
    program and its trace. The trace is removed when `measure` returns. `skipped` gets the reasons
    why other programs were left out.
    """

    def record(program: Program, command: list[str], place: Path) -> Measured:
        if program.stream is not None:
            described = place / "stream.toml"
            described.write_text(program.stream, encoding="ascii")
            return measure(program, described)
        trace = place / "trace.oct"
        limit = _limit(request.max_instructions, program)
        try:
            document(["record", "--force", "-o", str(trace), *limit, "--", *command], place)
            return measure(program, trace)
        finally:
            trace.unlink(missing_ok=True)

    return _measure(programs, request, record, skipped)


def _limit(max_instructions: int | None, program: Program) -> list[str]:
    limits = [n for n in (max_instructions, program.max_instructions) if n is not None]
    return ["--max-instructions", str(min(limits))] if limits else []


def _measure(
    programs: Sequence[Program],
    request: Request,
    measure: Callable[[Program, list[str], Path], Measured],
    skipped: dict[str, str],
) -> list[Measured]:
    """The results of `measure`, which takes a program, its command with inputs, and a directory."""
    measured = []
    missing = {program.name: why for program in programs if (why := program.missing())}
    if missing:
        # Printed before anything runs: a user may want to install them and begin again.
        left_out = [f"{name} ({why})" for name, why in missing.items()]
        request.say(f"Left out: {', '.join(left_out)}")
        skipped.update(missing)
    with TemporaryDirectory("octavo-study-") as name:
        place = Path(name)
        inputs = {key: str(path) for key, path in make_inputs(place).items()}
        for program in programs:
            if program.name in missing:
                continue
            request.on_program(program.name)
            try:
                with _display(program) as names:
                    measured.append(measure(program, fill_in(program, inputs | names), place))
            except NotMeasured as why:
                skipped[program.name] = str(why)
    return measured


@contextmanager
def _display(program: Program) -> Iterator[dict[str, str]]:
    """A display for a program that needs one, by the name that commands use; it ends with the
    context.
    """
    if not program.display:
        yield {}
        return
    ours, its = os.pipe()
    with subprocess.Popen(
        [DISPLAY_SERVER, "-displayfd", str(its), *_table()["display_options"]],
        pass_fds=[its],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        os.close(its)
        with os.fdopen(ours) as pipe:
            number = pipe.readline().strip()
        try:
            if not number:
                raise NotMeasured(f"{DISPLAY_SERVER} does not start")
            yield {"display": f":{number}"}
        finally:
            server.terminate()


def fill_in(program: Program, inputs: dict[str, str]) -> list[str]:
    """The command with the names of inputs replaced by their paths."""
    command = list(program.command)
    for name, path in inputs.items():
        command = [word.replace(f"{{{name}}}", path) for word in command]
    return command


def document(
    arguments: Sequence[str],
    directory: Path,
    *,
    run: Callable[..., subprocess.CompletedProcess[bytes]] = subprocess.run,
) -> dict[str, Any]:
    """The document of one run of octavo, or the part that was kept of it. The run's files go to
    `directory`. Raises NotMeasured if the run fails. `run` is called in place of `subprocess.run`.
    """
    return document_of(arguments, lambda: _document(arguments, directory, run))


def _document(
    arguments: Sequence[str],
    directory: Path,
    run: Callable[..., subprocess.CompletedProcess[bytes]],
) -> dict[str, Any]:
    """Runs octavo.

    Output goes to a file: some programs (grep, tar) do almost no work when it is /dev/null.
    """
    path = directory / "run.json"
    command, *rest = arguments
    options = ["-q", "--force", "--json", str(path)]
    octavo = [sys.executable, "-m", "octavo", command, *options, *rest]
    with (directory / "output").open("wb") as output:
        done = run(
            octavo,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    if done.returncode != 0:
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        raise NotMeasured(errors[-1] if errors else f"ended with status {done.returncode}")
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def simulated_of(result: Mapping[str, Any], *, of_all: bool = False) -> dict[str, Simulated]:
    """The results of each design of a document, by its whole name: of the process that did most, or
    of all of them. Designs that ran out of memory are left out.
    """
    if of_all:
        rows = [row for row in result["rows"] if "process" not in row]
    else:
        rows = main_process(result["rows"])
    configuration = result["run"]["configuration"]
    base_cpi = configuration["machine"]["core"]["base_cpi"]
    totals = stream_counters(rows)
    found = {}
    for design in configuration["designs"]:
        counts = {
            (row["component"], row["counter"]): row["value"]
            for row in rows
            if row.get("design") == design and "interval" not in row
        }
        simulated = Simulated(
            design, counts, totals["instructions"], totals["references"], base_cpi
        )
        has_memory = not simulated.count("os", "out_of_memory")
        # A design that stops in the warm-up has no counts.
        if has_memory and simulated.count("tlb.l1d", "accesses"):
            found[design] = simulated
    return found


def scope(begin: int, end: int | None) -> list[str]:
    """Options that limit the simulation to these instructions."""
    limit = [] if end is None else ["--max-instructions", str(end)]
    return ["--warm-up", str(begin), *limit]


def region_of(trace: Path) -> tuple[int, int | None]:
    """The instructions at which a workload's region of interest begins and ends; the end is None
    where the program was ended inside the region. Raises NotMeasured if it was ended before.
    """
    marks = [event for event in events(trace) if event["event"].startswith("mark ")]
    at = {mark["event"]: mark["instruction"] for mark in marks}
    if "mark 1" not in at:
        raise NotMeasured("it was ended before its region of interest")
    return at["mark 1"], at.get("mark 2")


def events(trace: Path) -> list[dict[str, Any]]:
    """The events of a trace in order."""
    listing = ["head", "--events", "--lines", str(_MOST_EVENTS), str(trace)]
    return list(document(listing, trace.parent)["entries"])


def simulate(machine: str, timing: str = "additive") -> list[str]:
    """The start of a command that simulates a machine: settings, designs and a trace follow."""
    return ["sim", "--timing", timing, "--machine", machine]


def to_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    """The options that give a machine these settings."""
    for text in setting_texts(settings):
        yield from ("--set", text)


Kind = Literal["workload", "stream", "program"]
"""A stream is a synthetic trace of gigabytes, on the machine without changed settings."""


@dataclass(frozen=True)
class Subject:
    """A program and how it is simulated."""

    program: Program
    kind: Kind
    settings: dict[str, Any]
    """Settings of the machine."""


def subjects(*, large: bool, machine: str) -> list[Subject]:
    """The workloads of one size, with the settings of a machine for them, synthetic traces, and the
    real programs of the other studies.
    """
    table = _table()
    settings = {} if large else table["usual_machine"][machine]
    size = "large" if large else "usual"
    made = [
        Subject(Program(name, _workload(commands[size])), "workload", settings)
        for name, commands in table["workloads"].items()
    ]
    streams = [
        Subject(stream_program(name, phase), "stream", {})
        for name, phase in table["streams"].items()
    ]
    limit = None if large else usual_instructions()
    programs = [replace(program, max_instructions=limit) for program in load_programs()]
    return [*made, *streams, *(Subject(program, "program", {}) for program in programs)]


def stream_program(name: str, loop: Mapping[str, Setting]) -> Program:
    """A workload as a synthetic trace: each page is touched once, in order, before the loop."""
    pages = byte_size(str(loop["bytes"])) // BASE_PAGE
    first: dict[str, Setting] = {"kind": "strided", "stride": BASE_PAGE, "references": pages}
    first |= {"bytes": loop["bytes"], "base": loop["base"], "stores": 1, "instructions": 1}
    text = PHASES + "".join(toml_table("phase", phase) for phase in (first, loop))
    return Program(name, (name,), stream=text, begin=pages)


def usual_instructions() -> int:
    """The instructions after which a real program is ended, except with large sizes."""
    return int(_table()["usual_instructions"])


def usual_host(machine: str) -> dict[str, Any]:
    """Settings of the host of a virtual machine for workloads of the usual sizes."""
    return dict(_table()["usual_machine"][f"{machine}-host"])


def usual_scale() -> int:
    """The factor by which machines for workloads of the usual sizes are smaller."""
    return int(_table()["usual_scale"])


def extent(subject: Subject, trace: Path, at_most: int | None = None) -> tuple[int, int | None]:
    """The instructions at which counting begins and ends: a workload's region of interest, a stream
    after its first touches, a whole real program; `at_most` instructions of each.
    """
    begin: int
    end: int | None
    if subject.program.stream is not None:
        begin, end = subject.program.begin, None
    else:
        begin, end = region_of(trace) if subject.kind == "workload" else (0, None)
    if at_most is None:
        return begin, end
    return begin, begin + at_most if end is None else min(end, begin + at_most)


def _workload(command: Sequence[str]) -> tuple[str, ...]:
    """A workload's command, from BUILT unless it is installed; without the check of its result."""
    name, *arguments = command
    built = BUILT / name
    if shutil.which(name) is None and os.access(built, os.X_OK):
        name = str(built)
    return (name, *arguments, "--check", "no")
