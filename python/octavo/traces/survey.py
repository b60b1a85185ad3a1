"""The description of a trace: its format, its origin, each process in it, and notes on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo._core import start_survey
from octavo.base.background import outcome_of
from octavo.base.errors import CannotRun
from octavo.base.table import Shown
from octavo.base.text import capitalised
from octavo.base.units import counted
from octavo.traces.by_name import STANDARD_STREAM, open_trace, overview_of, parse_manifest
from octavo.traces.sampling import sentences_on

if TYPE_CHECKING:
    from octavo._core import Facts, JobProgress, Survey, SurveyedStream, TraceOverview

SCHEMA = "octavo/trace/1"


@dataclass(frozen=True, repr=False)
class TraceInfo(Shown):
    """The description of a trace, as plain data."""

    record: dict[str, Any]
    """Everything except the processes."""
    processes: list[dict[str, Any]]

    def headline(self) -> str:
        """The trace, its format, and the amount of references and instructions."""
        return (
            f"{self.record['trace']}: {self.record['format']}, "
            f"{counted(self.record['references'], 'reference')}, "
            f"{counted(self.record['instructions'], 'instruction')}, "
            f"{counted(process_count(self.processes), 'process')}"
        )

    def document(self) -> dict[str, Any]:
        """The document of `octavo info --json`."""
        return {"schema": SCHEMA, **self.record, "processes": self.processes}


def survey_trace(
    name: str,
    on_progress: Callable[[JobProgress], None],
    *,
    format: str | None = None,
) -> TraceInfo:
    """Describes a trace: a native one from its chunk headers, another one by reading it.

    For a trace that is cut off or broken, this describes the readable part. Raises OctavoError if
    there is none.
    """
    trace = open_trace(name, format=format)
    overview = overview_of(name) if format in (None, "native") else None
    job = start_survey(trace, records_only=overview is not None)
    survey = outcome_of(job, on_progress)
    record = _record(name, survey, overview)
    processes = [_process(stream, overview) for stream in survey["streams"]]
    _use_started_name(processes, record["about"] or {})
    references = sum(process["references"] for process in processes)
    if survey["fault"] is not None and not references:
        raise CannotRun(f"{survey['fault'].rstrip('.')}.")
    stored = record["bytes"]
    return TraceInfo(
        record={
            **record,
            "instructions": sum(process["instructions"] for process in processes),
            "references": references,
            "bytes_per_reference": stored / references if stored and references else None,
        },
        processes=processes,
    )


def _record(name: str, survey: Survey, overview: TraceOverview | None) -> dict[str, Any]:
    manifest = parse_manifest(survey["manifest"]) or {}
    facts = survey["facts"]
    fault = survey["fault"]
    is_cut = overview is not None and not overview["is_whole"]
    return {
        "trace": name,
        "format": facts["format"],
        "source_format": manifest.get("source_format", facts["format"]),
        "exact": facts["exact"],
        "has_instructions": facts["has_instructions"],
        "has_sizes": facts["has_sizes"],
        "physical": facts["physical"],
        "notes": notes_on(facts),
        "sample": sample_of(facts),
        "written_by": manifest.get("octavo"),
        "about": manifest.get("about") or None,
        "bytes": _stored_bytes(name),
        "state": "cut" if is_cut else "broken" if fault is not None else "whole",
        "whole_bytes": overview["whole_bytes"] if is_cut and overview is not None else None,
        "fault": fault,
    }


def _stored_bytes(name: str) -> int | None:
    """The size of a file; None for a directory, and where there is no file."""
    path = Path(name)
    if name == STANDARD_STREAM or not path.is_file():
        return None
    return path.stat().st_size


def _process(stream: SurveyedStream, overview: TraceOverview | None) -> dict[str, Any]:
    """A process; counts come from the chunk headers where executions were not read."""
    counts: dict[str, Any] = dict(stream)
    if overview is not None:
        chunks = [chunk for chunk in overview["streams"] if chunk["stream"] == stream["stream"]]
        counts["instructions"] = sum(chunk["instructions"] for chunk in chunks)
        counts["references"] = sum(chunk["references"] for chunk in chunks)
        counts["stream_hash"] = None
    return counts


def _use_started_name(processes: list[dict[str, Any]], about: dict[str, Any]) -> None:
    """Names the program as it was started where it is a symbolic link of another name."""
    program, image = about.get("program", ""), about.get("image", "")
    for process in processes:
        if process["program"] == image and Path(program).name != Path(image).name:
            process["program"] = program


def process_count(images: Iterable[Mapping[str, Any]]) -> int:
    """The number of processes of one or more images. An exec does not begin another process."""
    begun = sum(1 for image in images if image["began_by"] != "exec")
    return max(1, begun)


def sample_of(facts: Facts) -> Any:
    """The statement on the sample that a trace is, with its error; None for a whole trace."""
    return None if facts["sample"] is None else json.loads(facts["sample"])


def own_notes_on(facts: Facts) -> list[str]:
    """The notes of the trace itself, a sentence each."""
    return [f"{capitalised(note.rstrip('.'))}." for note in facts["notes"]]


def notes_on(facts: Facts) -> list[str]:
    """Notes for readers of numbers from a trace, a sentence each."""
    notes = own_notes_on(facts)
    if not facts["exact"]:
        notes.append("The trace does not hold every reference; all counts are of what it holds.")
    statement = sample_of(facts)
    if statement is not None:
        notes += sentences_on(statement)
    if not facts["has_instructions"]:
        notes.append(
            "The trace has no instruction fetches: nothing is said of code, and numbers per "
            "instruction are n/a."
        )
    if not facts["has_sizes"]:
        notes.append("The trace has no sizes: each data reference is taken to be one byte.")
    if facts["physical"]:
        notes.append(
            "The trace's addresses are physical: pages are those of physical memory, where the "
            "operating system had scattered what a program sees as one."
        )
    return notes
