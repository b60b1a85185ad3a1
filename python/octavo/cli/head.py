"""`octavo head`: the first references and events of a trace."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from octavo.base import units
from octavo.base.background import interruptible
from octavo.base.errors import CannotRun, check_range
from octavo.base.text import printable
from octavo.cli import options
from octavo.cli.groups import command, flag, option
from octavo.cli.guard import guarded
from octavo.traces.by_name import open_trace
from octavo.tracing.scope import MOST_INSTRUCTIONS

if TYPE_CHECKING:
    from octavo._core import Entry

SCHEMA = "octavo/head/1"
_LINES_AT_ONCE = 10_000


@command("head")
def head(
    trace: options.TraceName,
    lines: int = option(
        20, "N", "How many lines.", "--lines", "-n", parser=options.whole_number(1)
    ),
    start: str = option("0", "N", "Begin at this instruction of each process.", "--from"),
    process: int | None = option(
        None,
        "N",
        "Only this process (`octavo info` numbers them).",
        parser=options.process_of_trace,
    ),
    events: bool = flag("Leave the references out."),
    format: options.ReadFormat = None,
    *,
    output: options.TextOutput,
) -> None:
    """List the first references and events of TRACE: instruction, kind, address and size.

    The number of an instruction is the number of instructions of its process before it.
    """
    with guarded():
        shown = output.shown(trace)
        first = units.count(start, "--from")
        check_range("--from", first, 0, MOST_INSTRUCTIONS, "an instruction")
        opened = open_trace(trace, format=format)
        entries, fault = interruptible(
            lambda: opened.list(
                entries=lines, from_instruction=first, stream=process, events_only=events
            )
        )
        if not entries and fault is None and (first > 0 or process is not None):
            owner = "" if process is None else f" of process {process}"
            place = "" if first == 0 else f" from instruction {first:,} on"
            raise CannotRun(f"`{trace}` has nothing{owner}{place}.")
        if entries or fault is None:
            shown.write_text(_pieces(_text_lines(list(entries))))
        shown.write_json(
            lambda: {"schema": SCHEMA, "trace": trace, "entries": list(entries), "fault": fault}
        )
        if fault is not None:
            raise CannotRun(f"{fault.rstrip('.')}.")


def _pieces(lines: Iterator[str]) -> Iterator[str]:
    """The lines, joined into pieces for writing."""
    gathered: list[str] = []
    for line in lines:
        gathered.append(line)
        if len(gathered) == _LINES_AT_ONCE:
            yield "".join(gathered)
            gathered.clear()
    yield "".join(gathered)


def _text_lines(entries: "list[Entry]") -> Iterator[str]:
    """The lines of the table, with a column for the process where there are several."""
    several = len({entry["stream"] for entry in entries}) > 1
    digits = max((len(str(entry["instruction"])) for entry in entries), default=0)
    width = max(len("instruction"), digits)
    label = "process  " if several else ""
    yield f"{label}{'instruction':>{width}}  {'kind':<6}  {'address':>18}  size\n"
    for entry in entries:
        label = f"{entry['stream']:>7}  " if several else ""
        yield f"{label}{entry['instruction']:>{width}}  {_description(entry)}\n"


def _description(entry: "Entry") -> str:
    if entry["kind"] == "event":
        return f"event   {printable(entry['event'])}"
    atomic = "  atomic" if entry["atomic"] else ""
    return f"{entry['kind']:<6}  {entry['address']:#18x}  {entry['size']:>4}{atomic}"
