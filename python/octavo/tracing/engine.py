"""The common part of the engines of `octavo curves` and `octavo sim`: from a configuration to the
result, for a program under the tracer or for traces, from the command line and from Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from octavo.base.background import from_python
from octavo.base.errors import UsageError
from octavo.base.progress import OnProgress, watched
from octavo.tracing.manifest import Circumstances, Finished, Found
from octavo.tracing.replay import replay_trace
from octavo.tracing.run import means_traces, trace_program
from octavo.tracing.scope import SharedScope

Configuration = TypeVar("Configuration", bound=SharedScope)
Outcome = TypeVar("Outcome", bound=Finished)


@dataclass(frozen=True, repr=False)
class EngineResult(Finished, Generic[Configuration, Found]):
    """A finished run of an engine."""

    configuration: Configuration
    counted: Found
    """The counts in the form of the extension."""

    @property
    def is_shared(self) -> bool:
        """Whether processes shared a core."""
        return "shared" in self.counted

    @property
    def work(self) -> dict[str, int]:
        """The references and instructions of all processes that were counted."""
        # Counts of processes that share machines include the common warm-up.
        shared: Any = self.counted.get("shared")
        counted: Any = [shared] if isinstance(shared, dict) else self.counted["processes"]
        units = ("references", "instructions")
        return {unit: sum(one[unit] for one in counted) for unit in units}

    @property
    def main(self) -> int:
        """The index of the process image with most references."""
        processes = self.counted["processes"]
        return max(range(len(processes)), key=lambda at: processes[at]["references"])


@dataclass(frozen=True)
class Engine(Generic[Configuration, Outcome]):
    """An engine: its command, its configuration, and the function that makes its result."""

    verb: str
    """The name of its command."""
    configure: Callable[..., Configuration]
    finish: Callable[[Any, Configuration, Circumstances], Outcome]
    """Makes the result from the extension's counts."""

    def call(
        self,
        command: Sequence[str] | str | os.PathLike[str],
        *,
        format: str | None,
        tracer: str | None,
        follow_children: bool | None,
        on_progress: OnProgress | None,
        **choices: Any,
    ) -> Outcome:
        """Runs a program or reads traces, for a call from Python. Raises OctavoError."""
        words = [os.fspath(command)] if isinstance(command, str | os.PathLike) else command
        is_trace = means_traces(
            words,
            processes=choices.get("processes", "apart"),
            format=format,
            tracer=tracer,
            follow_children=follow_children,
            verb=self.verb,
        )
        configuration = self.configure(
            tracer=tracer or "octavo", follow_children=follow_children is not False, **choices
        )

        def work() -> Outcome:
            with watched(on_progress, "trace" if is_trace else "program") as show:
                return self.execute(words, configuration, show, is_trace, format)

        return from_python(work)

    def execute(
        self,
        command: Sequence[str],
        configuration: Configuration,
        on_progress: OnProgress,
        is_trace: bool,
        format: str | None,
    ) -> Outcome:
        """Runs a resolved configuration: a program, or traces as far as they can be read. Raises
        OctavoError.
        """
        if configuration.windows is not None and configuration.windows.warm:
            raise UsageError(f"octavo {self.verb} has no --window-warm; octavo run has.")
        analysis = configuration.analysis
        if is_trace:
            found = replay_trace(command, configuration, analysis, on_progress, format)
        else:
            found = trace_program(command, configuration, analysis, on_progress, verb=self.verb)
        counted, circumstances = found
        return self.finish(counted, configuration, circumstances)
