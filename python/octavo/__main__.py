"""The `octavo` command, also as `python -m octavo`."""

import io
import sys

_INTERRUPTED = 130
_FAILED = 125


def _escape_what_standard_output_lacks() -> None:
    """Has characters that the encoding of standard output lacks written as escapes, unless the
    user has chosen otherwise (PYTHONIOENCODING).
    """
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
        stream.reconfigure(errors="backslashreplace")


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line. Handles Ctrl-C before it imports anything else."""
    try:
        from octavo.base.signals import leave_at_once_on_interrupt

        leave_at_once_on_interrupt()
        _escape_what_standard_output_lacks()
        import atexit
        import gc

        # Frozen objects are not searched for garbage at exit, so that the interpreter ends sooner.
        atexit.register(gc.freeze)
        from octavo.cli import app

        app(arguments, prog_name="octavo")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except OSError as error:
        # `octavo.cli.guard` reports errors of commands; this one is of the help or the version.
        from octavo.base.files import discard_standard_output

        discard_standard_output()
        print(f"octavo: cannot write to standard output: {error.strerror}.", file=sys.stderr)
        sys.exit(_FAILED)


if __name__ == "__main__":
    main()
