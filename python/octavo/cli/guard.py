"""Error handling of every command: an error becomes one sentence and an exit status."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

from octavo._core import OctavoError
from octavo.base.errors import FAILED, status_of
from octavo.base.limits import limit_behind
from octavo.base.signals import Interruptions
from octavo.base.text import printable

_READER_GONE = 141
_DEBUG_VARIABLE = "OCTAVO_DEBUG"


@contextmanager
def guarded() -> Iterator[None]:
    """Prints an error as one sentence and exits. With OCTAVO_DEBUG=1, a bug in Octavo prints its
    traceback.

    Signals that end the command unwind it, so that no unfinished files are left.
    """
    with Interruptions() as signals:
        try:
            yield
        except OctavoError as error:
            sentence = str(error)
            _end(
                sentence if sentence.endswith((".", "?", ")")) else f"{sentence}.",
                status_of(error),
            )
        except KeyboardInterrupt:
            _end("interrupted.", 128 + (signals.number or signal.SIGINT))
        except BrokenPipeError:
            # The exit status of a program that SIGPIPE ends, as in `octavo … | head`.
            raise typer.Exit(_READER_GONE) from None
        except typer.Exit:
            raise
        except Exception as error:
            if signals.number is not None:
                _end("interrupted.", 128 + signals.number)
            _end(*_failure(error))


def _failure(error: Exception) -> tuple[str, int]:
    """The sentence about a system error or a bug, and the exit status."""
    if isinstance(error, OSError):
        if not error.filename and _is_directory_gone():
            return "the current directory is gone; change to one that exists.", FAILED
        where = f" `{error.filename}`" if error.filename else ""
        return f"{error.strerror or error}{where}{limit_behind(error)}.", FAILED
    if isinstance(error, MemoryError):
        return f"memory is full{limit_behind(error)}.", FAILED
    if os.environ.get(_DEBUG_VARIABLE):
        raise error
    return (
        f"a bug in Octavo ({type(error).__name__}: {error}); "
        f"{_DEBUG_VARIABLE}=1 shows where. Please report it.",
        FAILED,
    )


def _is_directory_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _end(sentence: str, status: int) -> None:
    with suppress(OSError):
        print(f"octavo: {printable(sentence)}", file=sys.stderr, flush=True)
    raise typer.Exit(status)
