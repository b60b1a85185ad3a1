"""Calls of the command line in this process."""

from typing import Any

from typer.testing import CliRunner, Result

from octavo.cli import app


def invoke(*arguments: object, **options: Any) -> Result:
    """The result of `octavo` with these arguments."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, words, prog_name="octavo", **options)


def octavo_sim(*arguments: str) -> tuple[int, str]:
    """The exit status of `octavo sim`, and its text on standard error."""
    done = invoke("sim", *arguments)
    return done.exit_code, done.stderr
