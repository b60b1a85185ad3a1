"""Splits command lines into options of `octavo` and the traced program with its arguments.

In `octavo run PROGRAM ARGUMENTS…` every word after PROGRAM goes to the program, as with `env`.
A trace has no arguments, so options may follow it. After `--` no word is an option of Octavo.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose usage names required arguments without braces."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of the usage after the command's name."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the command line; says of an unknown option which command has it."""
        try:
            return self.read_words(ctx, args)
        except Exception as error:
            # typer has its own copy of click's exceptions, or click's, by version.
            if type(error).__name__ != "NoSuchOption":
                raise
            from octavo.cli.unknown_options import refuse

            refuse(error, ctx)

    def read_words(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the command line."""
        self._check_repeated(ctx, args)
        return super().parse_args(ctx, args)

    def _check_repeated(self, ctx: Any, args: Sequence[str]) -> None:
        """Refuses a second value of an option that holds one."""
        if ctx.resilient_parsing:
            return
        values, _, given = self.make_parser(ctx).parse_args([*args])
        if values.get("help"):
            return
        options: list[Any] = [one for one in given if one.param_type_name == "option"]
        for one, times in Counter(options).items():
            if times > 1 and not (one.is_flag or one.multiple):
                name = max(one.opts, key=len)
                often = "twice" if times == 2 else f"{times} times"
                ctx.fail(f"{name} is given {often}; give it once.")


class ProgramCommand(Command):
    """A command on a program with its arguments."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of the usage: `[OPTIONS] [--] PROGRAM [ARGUMENTS]...`."""
        *options, program = super().collect_usage_pieces(ctx)
        line = f"{program.strip('[]')} [ARGUMENTS]..."
        return [*options, "[--]", f"[{line}]" if program.startswith("[") else line]

    def read_words(self, ctx: Any, args: list[str]) -> list[str]:
        """Splits the command line at the first word that is not an option of Octavo."""
        words, values = self._split(ctx, args)
        if not self.needs_program(values):
            ctx.allow_interspersed_args = not words
            return super().read_words(ctx, args)
        if args and not words and not values.get("help") and not ctx.resilient_parsing:
            ctx.fail(f"no PROGRAM given; write it after the options: {ctx.command_path} -- PROGRAM")
        if words and not _is_after_separator(args, words):
            if self.takes_options_after(words, values):
                ctx.allow_interspersed_args = True
            elif not values.get("quiet"):
                self._note_ambiguous(ctx, words)
        return super().read_words(ctx, args)

    def needs_program(self, values: dict[str, Any]) -> bool:
        """Whether the command needs a program with these options."""
        return True

    def takes_options_after(self, words: Sequence[str], values: dict[str, Any]) -> bool:
        """Whether options of Octavo may follow `words[0]`; `values` are the options before it."""
        return False

    def _split(self, ctx: Any, args: list[str]) -> tuple[list[str], dict[str, Any]]:
        """The words from the first that is no option, and the values of the options before it."""
        ctx.allow_interspersed_args = False
        values, _, _ = self.make_parser(ctx).parse_args([*args])
        words = values.get("command")
        # The marker of an absent value differs between versions of click.
        return list(words) if isinstance(words, (list, tuple)) else [], values

    def _note_ambiguous(self, ctx: Any, words: Sequence[str]) -> None:
        """Prints a note that an option with the name of one of Octavo's goes to the program."""
        params = self.get_params(ctx)
        own = {name for one in params for name in (*one.opts, *one.secondary_opts)}
        program, *arguments = words
        name = next((word for word in arguments if word.partition("=")[0] in own), None)
        if name is None:
            return
        with suppress(OSError, AttributeError):
            print(
                f"octavo: note: `{name}` after `{program}` is an option of the program; options of "
                f"octavo go before it. `octavo {self.name} [OPTIONS] -- {program} …` is without "
                "this note.",
                file=sys.stderr,
                flush=True,
            )


class TraceCommand(ProgramCommand):
    """A command on a program with its arguments, or on a trace."""

    def takes_options_after(self, words: Sequence[str], values: dict[str, Any]) -> bool:
        """Options may follow a trace, and a file that a `--format` after it makes a trace."""
        from octavo.traces.by_name import is_no_program, names_a_trace

        format = values.get("format")
        if names_a_trace(words[:1], format if isinstance(format, str) else None):
            return True
        names_format = any(word.partition("=")[0] == "--format" for word in words[1:])
        return names_format and is_no_program(words[0])


def _is_after_separator(args: Sequence[str], words: Sequence[str]) -> bool:
    """Whether `--` precedes the words, which are the end of `args`."""
    place = len(args) - len(words) - 1
    return place >= 0 and args[place] == "--"
