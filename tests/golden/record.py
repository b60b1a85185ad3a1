"""Records the current rows of all cases or of CASE…: `python -m tests.golden.record [CASE…]`.

Only for changes that are meant to change rows; the commit message names the rows and the reason."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from . import corpus


def main(names: list[str]) -> None:
    cases = corpus.Cases.read()
    unknown = [name for name in names if name not in cases.commands]
    if unknown:
        sys.exit(f"cases.toml has no case `{unknown[0]}`: give SECTION-NAME, such as sim-pages")
    if corpus.Renames.read(corpus.RENAMES.read_text()).all():
        # Rows recorded before a rename and rows recorded after it are indistinguishable.
        if names:
            sys.exit("renames.toml is not empty: record all cases, and empty it")
        print("renames.toml is no longer needed: empty it", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_CONFIG_HOME"] = directory  # no calibration of this machine
        os.chdir(directory)
        cases.make_inputs(Path(directory))
        for name in names or cases.commands:
            rows = corpus.run(cases.commands[name])
            corpus.keep(name, rows)
            print(f"{name}: {len(rows)} rows")
    for path in corpus.ROWS.iterdir():
        if path not in map(corpus.kept_in, cases.commands):
            path.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
