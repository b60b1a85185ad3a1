"""Curves in files: a directory, or one Parquet file."""

from __future__ import annotations

from pathlib import Path

from octavo.archive import MANIFEST, ROWS
from octavo.curves_result import CurvesResult
from octavo.output import (
    OutputDirectory,
    check_new_file,
    failing_with,
    replace_file,
    text_writer,
    to_json,
)

_SUFFIX = ".parquet"


class CurvesOutput:
    """The place that `--out` names: a file where it ends in .parquet, else a directory."""

    def __init__(self, name: str, *, force: bool) -> None:
        """Checks that it can be written."""
        self._file: Path | None = None
        self._directory: OutputDirectory | None = None
        if name.endswith(_SUFFIX):
            check_new_file(name, force=force, option="--out")
            self._file = Path(name)
        else:
            self._directory = OutputDirectory(name, force=force)

    def write(self, result: CurvesResult) -> None:
        """Writes the rows, whole or not at all."""

        def write_rows(path: Path) -> None:
            import pyarrow.parquet as pq

            pq.write_table(result.table(), path, compression="zstd")

        if self._directory is not None:
            manifest = text_writer(to_json(result.manifest, indent=2))
            self._directory.write({ROWS: write_rows, MANIFEST: manifest})
        elif self._file is not None:
            with failing_with(f"`{self._file}`"):
                replace_file(self._file, write_rows)

    def close(self) -> None:
        """Removes what was in the making."""
        if self._directory is not None:
            self._directory.close()
