"""The last resort of every command: an error becomes one sentence and an exit status."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer

from octavo._core import OctavoError
from octavo.errors import FAILED, status_of

_INTERRUPTED = 130
_DEBUG_VARIABLE = "OCTAVO_DEBUG"


@contextmanager
def guarded() -> Iterator[None]:
    """Lets no traceback reach a user; OCTAVO_DEBUG=1 lets those of our own bugs through."""
    try:
        yield
    except OctavoError as error:
        sentence = str(error)
        _end(sentence if sentence.endswith((".", "?", ")")) else f"{sentence}.", status_of(error))
    except KeyboardInterrupt:
        _end("interrupted.", _INTERRUPTED)
    except OSError as error:
        where = f" `{error.filename}`" if error.filename else ""
        _end(f"{error.strerror or error}{where}.", FAILED)
    except typer.Exit:
        raise
    except Exception as error:
        if os.environ.get(_DEBUG_VARIABLE):
            raise
        _end(
            f"a bug in Octavo ({type(error).__name__}: {error}); "
            f"{_DEBUG_VARIABLE}=1 shows where. Please report it.",
            FAILED,
        )


def _end(sentence: str, status: int) -> None:
    with suppress(OSError):
        print(f"octavo: {sentence}", file=sys.stderr, flush=True)
    raise typer.Exit(status)
