"""A pool of `octavo sim` passes for one study: runs several at once, reports progress, and keeps
finished results on Ctrl-C.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.base.temporary import TemporaryDirectory
from octavo.base.units import format_count
from octavo.studies.programs import NotMeasured, document
from octavo.studies.reproduction import Say

PROGRESS_EVERY_SECONDS = 10.0
STOPPED = "the study was stopped"


@dataclass(frozen=True)
class Pass:
    """One command of octavo, with a unique key."""

    key: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Done:
    """The results of several passes."""

    documents: dict[str, dict[str, Any]]
    """The results of the passes that ran to their end, by key."""
    failed: dict[str, str]
    """The errors of the other passes, by key."""
    is_partial: bool
    """Whether the user stopped the passes."""


class _Children:
    """The processes under way, so that all of them can be stopped at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.is_stopped = False

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Like `subprocess.run`, in a new session: Ctrl-C in the terminal signals only Octavo."""
        options.pop("check")
        with self._lock:
            if self.is_stopped:
                return subprocess.CompletedProcess(command, 1, b"", STOPPED.encode())
            child = subprocess.Popen(command, start_new_session=True, **options)
            self._running.add(child)
        try:
            output, errors = child.communicate()
        finally:
            with self._lock:
                self._running.discard(child)
        return subprocess.CompletedProcess(command, child.returncode, output, errors)

    def stop(self) -> None:
        """Ends the running passes; no other pass begins."""
        with self._lock:
            self.is_stopped = True
            for child in self._running:
                child.kill()


def run_passes(passes: Sequence[Pass], what: str, say: Say, jobs: int | None = None) -> Done:
    """Runs all passes, `jobs` at once (usually as many as there are processors); progress is shown
    under the name `what`. On Ctrl-C running passes are ended, and finished results returned.
    """
    documents: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    children = _Children()
    progress = _Progress(what, len(passes), say)
    is_partial = False
    with TemporaryDirectory("octavo-study-") as name:

        def run_one(number: int, task: Pass) -> dict[str, Any]:
            place = Path(name) / str(number)
            place.mkdir()
            return document(task.arguments, place, run=children.run)

        with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
            waiting: dict[Future[dict[str, Any]], Pass] = {
                pool.submit(run_one, number, task): task for number, task in enumerate(passes)
            }
            try:
                while waiting:
                    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                        task = waiting.pop(future)
                        try:
                            documents[task.key] = future.result()
                        except NotMeasured as why:
                            failed[task.key] = str(why)
                        progress.one_more()
            except KeyboardInterrupt:
                is_partial = True
                children.stop()
                for future in waiting:
                    future.cancel()
                failed.update({task.key: STOPPED for task in waiting.values()})
    return Done(documents, failed, is_partial)


class _Progress:
    """Shows at intervals how many passes are done and how long the rest takes."""

    def __init__(self, what: str, total: int, say: Say) -> None:
        self._what, self._total, self._say = what, total, say
        self._began = self._last = time.monotonic()
        self._done = 0
        if total:
            say(f"{what}: {format_count(total)} passes")

    def one_more(self) -> None:
        self._done += 1
        now = time.monotonic()
        left = self._total - self._done
        if not left or now - self._last < PROGRESS_EVERY_SECONDS:
            return
        self._last = now
        seconds = (now - self._began) / self._done * left
        self._say(f"{self._what}: {self._done} of {self._total}, {_duration(seconds)} left")


def _duration(seconds: float) -> str:
    """Rounded to 10 s or to 1 min."""
    if seconds < 90:
        return f"about {max(round(seconds / 10), 1) * 10} s"
    return f"about {round(seconds / 60)} min"
