"""The `octavo` command: `python -m octavo` is the same."""

import sys

_AFTER_INTERRUPT = 130


def main() -> None:
    """Runs the command line; Ctrl-C while it is still loading ends it quietly."""
    try:
        from octavo.cli import app
    except KeyboardInterrupt:
        sys.exit(_AFTER_INTERRUPT)
    app(prog_name="octavo")


if __name__ == "__main__":
    main()
