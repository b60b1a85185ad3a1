"""The common part of the commands of engines: `octavo curves` and `octavo sim`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from octavo.cli.guard import guarded
from octavo.cli.options import Output, SharedTracing
from octavo.cli.output_files import Files, end
from octavo.terminal.console import make_console
from octavo.terminal.live import LiveLine, progress_text, trace_text
from octavo.tracing.engine import Engine
from octavo.tracing.run import means_traces

if TYPE_CHECKING:
    from rich.console import Console

    from octavo.simulation.api import SimResult
    from octavo.tlb_curves.api import CurvesResult

Outcome = TypeVar("Outcome", "CurvesResult", "SimResult")


def run_engine(
    engine: Engine[Any, Outcome],
    command: Sequence[str],
    choices: Callable[[], dict[str, Any]],
    tracing: SharedTracing,
    output: Output,
    show: Callable[[Console, Outcome], None],
    otherwise: str,
) -> None:
    """Runs a program or reads traces, shows the result and writes its files. `choices` returns the
    arguments of the engine's configuration, or raises UsageError; `otherwise` is the message where
    no output file was requested.
    """
    with guarded(), ExitStack() as stack:
        is_trace = means_traces(
            command, processes=tracing.processes, verb=engine.verb, **tracing.of_traces()
        )
        configuration = engine.configure(**choices(), **tracing.scope())
        files = Files(stack, output, command if is_trace else ())
        text = trace_text if is_trace else progress_text
        with output.program_output(), LiveLine(quiet=output.quiet, text=text) as line:
            format = tracing.format if is_trace else None
            result = engine.execute(command, configuration, line.show, is_trace, format)
        console = make_console()
        if not output.quiet:
            show(console, result)
        files.write(console, result, otherwise)
        end(result)
