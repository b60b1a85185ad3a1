"""`octavo convert`: write a trace in another format."""

from dataclasses import dataclass

from octavo.base import units
from octavo.base.errors import CannotRun, UsageError
from octavo.base.units import counted, format_bytes
from octavo.cli import options
from octavo.cli.groups import argument, command, flag, option, optional
from octavo.cli.guard import guarded
from octavo.terminal.console import make_console, say
from octavo.terminal.live import LiveLine, trace_text
from octavo.traces.by_name import formats
from octavo.traces.conversion import Conversion, Selection, convert_trace
from octavo.traces.sampling import parse_sample, sentences_on
from octavo.traces.survey import own_notes_on, sample_of

_MOST_EXPANDED_BYTES = 1 << 62
"""More than any file expands to."""
_EPILOG = f"""\b
Examples:
  octavo convert trace.lackey.gz trace.oct
  octavo convert --process 2 trace.oct trace.champsim.xz
  octavo convert --layout native trace.oct trace.din
  octavo convert - trace.oct < trace.din
  octavo convert --to csv trace.oct - | head
  octavo convert --sample 10% long.oct short.oct

\b
Formats: {", ".join(known["name"] for known in formats())}.
"""


@dataclass(frozen=True)
class ConvertOptions:
    """The part of IN that is written, and its addresses."""

    process: int | None = option(
        None,
        "N",
        "Only this process (`octavo info` numbers them).",
        parser=options.process_of_trace,
    )
    layout: str = option(
        "as-traced",
        "as-traced|native",
        "Write addresses as Valgrind placed memory, or as Linux would have placed it: `octavo "
        "run`, `curves` and `sim` use the latter. Only for traces of `octavo record`.",
    )
    keep_partial: bool = flag("Where IN is broken, keep the part before that.")
    sample: str | None = option(
        None,
        "SHARE",
        "Keep only this share, in windows of instructions: 10%, or 10%,window=1M,seed=1. "
        "The sampling error is measured, shown, and stored in a native OUT.",
    )

    def selection(self) -> Selection:
        """The selection of the options. Raises UsageError."""
        sample = optional(parse_sample, self.sample)
        return Selection(self.process, self.layout, self.keep_partial, sample)


@command("convert", epilog=_EPILOG)
def convert(
    source: str = argument("IN", "A trace: a file, - for standard input, or synth:…."),
    target: str | None = argument(
        "[OUT]",
        "The file to write, or -o OUT; - is standard output. Its suffix selects the format, and "
        ".gz, .xz, .bz2 or .zst after that a compression.",
        None,
    ),
    read_format: str | None = option(
        None, "FORMAT", "IN's format, if it cannot be recognised.", "--from"
    ),
    write_format: str | None = option(
        None, "FORMAT", "OUT's format, if its suffix selects none.", "--to"
    ),
    max_expansion: str | None = option(
        None, "SIZE", "Limit of the expanded size of a compressed IN (default 64GiB)."
    ),
    out: str | None = option(None, "OUT", "The file to write.", "--out", "-o"),
    *,
    asked: ConvertOptions,
    output: options.DocumentOutput,
) -> None:
    """Write the trace IN as OUT, in the format that OUT's suffix selects.

    Data that the format cannot hold is listed. OUT appears whole or not at all.
    """
    with guarded():
        place = _output_name(target, out)
        write_document = output.document_file(beside=place, inputs=[source])
        console = make_console()
        with LiveLine(console, quiet=output.quiet, text=trace_text) as line:
            done = convert_trace(
                source,
                place,
                line.show,
                asked.selection(),
                read_format=read_format,
                write_format=write_format,
                force=output.force,
                max_expanded_bytes=optional(_expanded_bytes, max_expansion),
            )
        if not output.quiet:
            say(console, _headline(source, place, done), "bold")
            for loss in done.converted["losses"]:
                say(console, f"Left out: {loss.rstrip('.')}.")
            for note in own_notes_on(done.converted["facts"]):
                say(console, note)
            statement = sample_of(done.converted["facts"])
            for sentence in [] if statement is None else sentences_on(statement):
                say(console, sentence)
        write_document(lambda: done.document(source, place))
        if done.converted["fault"] is not None:
            fault = done.converted["fault"].rstrip(".")
            raise CannotRun(f"{fault}; what came before is kept.")


def _expanded_bytes(text: str) -> int:
    """The value of `--max-expansion`. Nothing expands to more than the largest limit."""
    return min(units.byte_size(text, "--max-expansion"), _MOST_EXPANDED_BYTES)


def _output_name(target: str | None, out: str | None) -> str:
    """The file to write, given as the argument OUT or by `--out`. Raises UsageError."""
    if (target is None) == (out is None):
        given = "no OUT given" if out is None else f"`{target}` and -o `{out}`: OUT given twice"
        raise UsageError(f"{given}; write octavo convert IN OUT, or octavo convert IN -o OUT.")
    return target or out or ""


def _headline(source: str, target: str, done: Conversion) -> str:
    counts = done.converted
    where = "standard output" if target == "-" else target
    size = ""
    if counts["bytes"] and counts["references"]:
        each = counts["bytes"] / counts["references"]
        size = f"{format_bytes(counts['bytes'])}, {each:.3f} bytes per reference, "
    return (
        f"{source} ({counts['facts']['format']}) to {where} ({done.format}): "
        f"{counted(counts['references'], 'reference')}, "
        f"{counted(counts['instructions'], 'instruction')}, {size}{done.elapsed_seconds:.1f} s"
    )
