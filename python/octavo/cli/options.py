"""Options that several commands share."""

from typing import Annotated

import typer

Layout = Annotated[
    str,
    typer.Option(
        metavar="native|as-traced",
        help="Place mappings where Linux would have put them, or where Valgrind did.",
    ),
]
Tracer = Annotated[
    str | None,
    typer.Option(
        metavar="octavo|lackey",
        help="Octavo's own Valgrind tool (the default), or Lackey's text through a pipe (very "
        "slow).",
    ),
]
Follow = Annotated[
    bool | None,
    typer.Option("--follow/--no-follow", help="Trace child processes too, or do not."),
]
SkipInstructions = Annotated[
    str,
    typer.Option(metavar="N", help="Begin to count after so many instructions (10M, 2G)."),
]
MaxInstructions = Annotated[
    str | None,
    typer.Option(metavar="N", help="End the run after counting so many instructions."),
]
Marks = Annotated[
    bool,
    typer.Option("--marks", help="Count only between the begin and end marks of octavo.h."),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors on standard error.")
]
ReadFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="The trace's format, where its first bytes do not tell.",
    ),
]
TraceName = Annotated[
    str,
    typer.Argument(metavar="TRACE", help="A trace: a file, - for standard input, or synth:…."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a number of the machine (tlb.l2.entries=2048)."
    ),
]
JsonName = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write everything as JSON; - is standard output."),
]
