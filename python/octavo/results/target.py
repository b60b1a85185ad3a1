"""Results in files: a directory, or one Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from octavo.base.errors import UsageError
from octavo.base.files import NewFile, OutputDirectory
from octavo.base.text import quoted

if TYPE_CHECKING:
    from octavo.results.archive import InFiles

_SUFFIX = ".parquet"
_OTHER_SUFFIXES = (".csv", ".tsv", ".json", ".html", ".arrow", ".feather", ".xlsx")
"""Suffixes of file formats that Octavo does not write; a directory is not meant by such a name."""


class OutputTarget:
    """The place that `--out` names: a file where it ends in .parquet, else a directory."""

    def __init__(self, name: str, *, force: bool) -> None:
        """Checks that it can be written. Raises UsageError or CannotRun."""
        names_directory = name.endswith("/") or Path(name).is_dir()
        if Path(name).suffix in _OTHER_SUFFIXES and not names_directory:
            raise UsageError(
                f"--out `{quoted(name)}`: give a directory, or a file that ends with {_SUFFIX}; "
                "--json writes JSON."
            )
        self._place = Path(name)
        self._file: NewFile | None = None
        self._directory: OutputDirectory | None = None
        self._earlier_figures: list[str] = []
        if name.endswith(_SUFFIX):
            self._file = NewFile(name, force=force, option="--out")
        else:
            from octavo.results.archive import drawn_figures

            self._directory = OutputDirectory(name, force=force)
            self._earlier_figures = drawn_figures(self._place)

    @property
    def has_report(self) -> bool:
        """Whether a report is written, as in a directory."""
        return self._directory is not None

    def write(self, result: InFiles) -> None:
        """Writes the files of a result, all or none."""
        from octavo.results.archive import ONLY_SOME, files_of, rows_writer

        if self._directory is not None:
            earlier = [*ONLY_SOME, *self._earlier_figures]
            self._directory.write(files_of(result), optional=earlier)
        elif self._file is not None:
            self._file.write(rows_writer(result))

    def close(self) -> None:
        """Removes unfinished files."""
        if self._directory is not None:
            self._directory.close()
