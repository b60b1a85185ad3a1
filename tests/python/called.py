"""The command line, called in this process."""

from typing import Any

from typer.testing import CliRunner, Result

from octavo.cli import app


def invoke(*arguments: object, **options: Any) -> Result:
    """The result of `octavo` with these arguments."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, words, prog_name="octavo", **options)
