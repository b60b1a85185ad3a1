"""The output options, which are the same in every command: --out, --json, --quiet and --force."""

import sys
from contextlib import suppress
from typing import Annotated

import typer

from octavo.base.errors import UsageError

JsonName = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write everything as JSON; - is standard output."),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors on standard error.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Overwrite files that exist, and results in a DIR.")
]
OutputTarget = Annotated[
    str | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR|FILE.parquet",
        help="Write every number and a report (rows.parquet, report.html, …) to DIR, or the rows "
        "alone to FILE.parquet.",
    ),
]
TextFile = Annotated[
    str | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="Write the output to FILE; - is standard output."
    ),
]
OldOutput = Annotated[str | None, typer.Option("--output", hidden=True)]
"""The name that `--out` had in `record` and `snapshot`; accepted for one more release."""


def current_name(out: str | None, old: str | None, *, quiet: bool) -> str | None:
    """The value of `--out`, which may be given by its old name. Raises UsageError."""
    if old is None:
        return out
    if out is not None:
        raise UsageError("--output is the old name of --out: give one of them.")
    if not quiet:
        with suppress(OSError, AttributeError):
            print(
                "octavo: note: --output is now --out, or -o; the next release drops the old name.",
                file=sys.stderr,
                flush=True,
            )
    return old
