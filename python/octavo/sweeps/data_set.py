"""The data set of results: a directory with a Parquet file for each simulation. The name is a key
made of everything that determines the content.

A file is written under a temporary name and synchronised before it gets its own name, so that it is
always whole. Since its bytes depend on its key alone, the first of several writers may be any of
them. For recordings that is not so: all writers use the recording of the first.
Facts that differ from run to run (times, failures) are kept beside `data/`, in `journal/`.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import octavo._core as _core
from octavo.analysis.stored_result import DATA_SET
from octavo.base.errors import CannotRun, UsageError
from octavo.base.files import failing_with, open_for_arrow, write_parquet
from octavo.base.host import open_regular
from octavo.sweeps.simulation import Simulation
from octavo.sweeps.tasks import COLUMNS, METADATA

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "octavo/results/1"
_DATA, _STAGING, _JOURNAL = "data", "staging", "journal"

_FAILURE: dict[str, type] = {"at": float, "failed": list, "why": str}
_DURATION: dict[str, type] = {
    "at": float,
    "model": str,
    "trace": str,
    "simulations": int,
    "references": int,
    "seconds": float,
}
"""The facts in a journal, each with the types of its parts."""
_MOST_NOTED = 2**63


@dataclass(frozen=True)
class Stored:
    """A stored result."""

    table: pa.Table
    """Rows with the columns `octavo.sweeps.tasks.COLUMNS`."""
    about: Mapping[str, Any]
    """Its metadata: `resolved`, `metrics`, `stopped` and `is_bound`."""


class DataSet:
    """A directory of results."""

    def __init__(self, directory: str | os.PathLike[str], *, create: bool = True) -> None:
        """Opens a data set, or makes one of a directory that is absent or empty. Raises
        OctavoError.
        """
        self.directory = Path(directory)
        mark = self.directory / DATA_SET
        with failing_with(f"to `{self.directory}`"):
            if not mark.exists():
                self._make(create)
        try:
            with open_regular(mark) as file:
                schema = json.load(file)["schema"]
        except OSError as error:
            raise CannotRun(f"cannot read `{mark}`: {error.strerror}.") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            schema = None
        if schema != SCHEMA:
            raise CannotRun(f"`{mark}` is not that of a data set of results ({SCHEMA}).")
        host = "".join(each if each.isalnum() else "_" for each in socket.gethostname())
        self._writer = f"{host}-{os.getpid()}"
        self.kept: object = None
        """A temporary directory that must live as long as this object, if there is one."""

    def _make(self, create: bool) -> None:
        if not create:
            raise UsageError(
                f"`{self.directory}` is not a data set of results: `octavo study run` makes one, "
                "or `octavo.sweep`."
            )
        if self.directory.exists() and not self.directory.is_dir():
            raise CannotRun(f"cannot write to `{self.directory}`: it is not a directory.")
        self.directory.mkdir(parents=True, exist_ok=True)
        if any(each.name != _STAGING for each in self.directory.iterdir()):
            # Another writer may just have made it.
            if (self.directory / DATA_SET).exists():
                return
            raise UsageError(f"`{self.directory}` is neither empty nor a data set of results.")
        staging = self.directory / _STAGING
        staging.mkdir(exist_ok=True)
        new = staging / uuid.uuid4().hex
        new.write_text(json.dumps({"schema": SCHEMA}) + "\n", encoding="utf-8")
        new.replace(self.directory / DATA_SET)

    def path(self, simulation: Simulation) -> Path:
        """The path of a result, which need not exist."""
        return (
            self.directory
            / _DATA
            / f"model={_core.MODEL}"
            / f"trace={simulation.trace.hash}"
            / f"{simulation.key}.parquet"
        )

    def __contains__(self, simulation: Simulation) -> bool:
        return self.path(simulation).exists()

    def missing(self, simulations: Iterable[Simulation]) -> list[Simulation]:
        """The simulations without a result, without duplicates."""
        by_key = {one.key: one for one in simulations}
        return [one for one in by_key.values() if one not in self]

    def write(self, simulation: Simulation, table: pa.Table) -> None:
        """Adds a result as a whole file. Raises CannotRun."""
        place = self.path(simulation)
        with failing_with(f"`{place}`"), self.staged(place) as new:
            write_parquet(table, new)

    @contextmanager
    def staged(self, place: Path) -> Iterator[Path]:
        """A temporary path for writing a file, which is renamed to `place` unless an error occurs.
        Of several writers, the file of the first to end is kept. Raises CannotRun.
        """
        new = self.directory / _STAGING / f"{self._writer}-{uuid.uuid4().hex}{place.suffix}"
        try:
            with failing_with(f"`{place}`"):
                place.parent.mkdir(parents=True, exist_ok=True)
                new.parent.mkdir(exist_ok=True)
            yield new
            with failing_with(f"`{place}`"):
                with new.open("rb+") as file:
                    os.fsync(file.fileno())
                _appear(new, place)
        finally:
            new.unlink(missing_ok=True)

    def read(self, simulation: Simulation) -> Stored:
        """A result. Raises CannotRun."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        place = self.path(simulation)
        try:
            # Without the columns that the directories' names stand for.
            with open_for_arrow(place, "rb") as file:
                table = pq.ParquetFile(file).read()
            about = json.loads((table.schema.metadata or {})[METADATA])
        except FileNotFoundError:
            raise CannotRun(f"there is no result `{place}`.") from None
        except (OSError, pa.ArrowInvalid, KeyError, ValueError):
            raise CannotRun(
                f"`{place}` is damaged: delete it, and the simulation is run again."
            ) from None
        return Stored(table.select(list(COLUMNS)), about)

    def remove_abandoned(self) -> None:
        """Removes unfinished files of writers of this machine that have ended."""
        host = self._writer.rsplit("-", 1)[0]
        staging = self.directory / _STAGING
        for path in staging.iterdir() if staging.is_dir() else ():
            owner, _, rest = path.name.partition("-")
            pid = rest.split("-")[0]
            if owner == host and pid.isdigit() and not Path("/proc", pid).exists():
                path.unlink(missing_ok=True)

    def note(self, **fact: Any) -> None:
        """Appends a line to the journal of this process: the time of a task, or its failure."""
        journal = self.directory / _JOURNAL
        with failing_with(f"to `{journal}`"):
            journal.mkdir(exist_ok=True)
            line = json.dumps({"at": round(time.time(), 3), **fact})
            with (journal / f"{self._writer}.jsonl").open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    def notes(self) -> Iterator[dict[str, Any]]:
        """The lines of all journals, without damaged ones. Raises CannotRun."""
        for path in sorted((self.directory / _JOURNAL).glob("*.jsonl")):
            try:
                with open_regular(path, errors="replace") as file:
                    lines = file.readlines()
            except OSError as error:
                raise CannotRun(f"cannot read `{path}`: {error.strerror}.") from None
            yield from filter(None, map(_noted, lines))

    def failures(self, simulations: Sequence[Simulation]) -> dict[str, str]:
        """The last failures of simulations without a result, by key."""
        wanted = {one.key for one in self.missing(simulations)}
        found: dict[str, tuple[float, str]] = {}
        for note in self.notes():
            for key in note.get("failed", ()):
                if key in wanted and note["at"] >= found.get(key, (0.0, ""))[0]:
                    found[key] = (note["at"], note["why"])
        return {key: why for key, (_, why) in found.items()}


def _noted(line: str) -> dict[str, Any] | None:
    """The fact in a line of a journal; None for a damaged line, such as a last one cut off."""
    try:
        fact = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fact, dict):
        return None
    shape = _FAILURE if "failed" in fact else _DURATION
    is_whole = all(_is_of(kind, fact.get(name)) for name, kind in shape.items())
    return fact if is_whole else None


def _is_of(kind: type, value: Any) -> bool:
    """Whether a value is a text, a list of texts, or a number within bounds."""
    if kind is list:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if kind is str:
        return isinstance(value, str)
    return type(value) in (int, kind) and 0 <= value < _MOST_NOTED


def _appear(new: Path, place: Path) -> None:
    """Gives a file its name, unless another file has it already."""
    try:
        place.hardlink_to(new)
    except FileExistsError:
        return
    except OSError:
        # A file system without hard links.
        new.replace(place)
