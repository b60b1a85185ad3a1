"""The page of each command, made from its help: usage, arguments, options with defaults."""

from __future__ import annotations

import re

import click
import typer

from octavo.cli import COMMANDS, app

__all__ = ["COMMANDS", "command_page"]


def command_page(name: str) -> str:
    """The page of a command as Markdown."""
    group = typer.main.get_command(app)
    context = click.Context(group, info_name="octavo")
    command = group.get_command(context, name)  # type: ignore[attr-defined]
    inner = click.Context(command, info_name=name, parent=context)
    usage = " ".join(command.get_usage(inner).removeprefix("Usage: ").split())
    lines = [f"# octavo {name}", "", "```text", usage, "```", ""]
    lines += [_prose(command.help or ""), "", *_table(command, inner)]
    if command.epilog:
        lines += ["", _prose(command.epilog)]
    return "\n".join(lines) + "\n"


def _prose(text: str) -> str:
    """Paragraphs of help as Markdown; paragraphs with fixed lines become blocks of text."""
    parts = []
    for part in text.replace("\r", "").split("\n\n"):
        kept = part.startswith("\b\n") or any(line.startswith("  ") for line in part.split("\n"))
        body = part.removeprefix("\b\n").rstrip()
        parts.append(f"```text\n{body}\n```" if kept else _escaped(body))
    return "\n\n".join(parts)


def _table(command: click.Command, context: click.Context) -> list[str]:
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            names, text = record
            rows.append(f"| `{names}` | {_escaped(' '.join(text.split()))} |")
    return ["| option | meaning |", "| --- | --- |", *rows]


def _escaped(text: str) -> str:
    """Text with escapes for Markdown and HTML; text between backticks stays code."""
    parts = re.split(r"(`[^`]+`)", text)
    parts[::2] = [re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)
