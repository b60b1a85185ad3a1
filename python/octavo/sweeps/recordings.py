"""The recordings of a study's programs: each is made once, as a whole file."""

from __future__ import annotations

from pathlib import Path

from octavo.base.errors import CannotRun, Interrupted
from octavo.sweeps.data_set import DataSet
from octavo.sweeps.study_file import Study
from octavo.traces.by_name import overview_of, parse_manifest
from octavo.tracing.manifest import failure_of
from octavo.tracing.recording import record


def record_program(study: Study, name: str, data_set: DataSet) -> None:
    """Records a program of a study, unless another process finishes sooner. Raises OctavoError,
    also where a signal ends the recording before the program's own end.
    """
    with data_set.staged(study.recording(name)) as new:
        done = record(study.programs[name], new)
        if done.interrupted_by is not None:
            raise Interrupted(done.interrupted_by, f"before `{name}` was recorded")
        if done.about["exit"]["reason"] == "tracer-failed":
            raise CannotRun(f"`{name}` is not recorded: {done.about['partial_reason']}.")


def failures(study: Study) -> dict[str, str]:
    """Failures of recorded programs, or reasons why their recordings are partial, by name, without
    full stops.
    """
    found = {}
    for name in study.programs:
        why = _failure(study.recording(name))
        if why is not None:
            found[name] = why
    return found


def _failure(recording: Path) -> str | None:
    overview = overview_of(str(recording))
    manifest = parse_manifest(overview["manifest"]) if overview is not None else None
    about = manifest["about"] if manifest is not None else {}
    if "exit" not in about:
        return None
    return failure_of(about["exit"]) or about.get("partial_reason")
