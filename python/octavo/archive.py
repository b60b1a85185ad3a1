"""The files of a result directory."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from octavo.output import text_writer, to_json
from octavo.report import render
from octavo.result import RunResult

ROWS = "rows.parquet"
DOCUMENT = "result.json"
MANIFEST = "manifest.json"
REPORT = "report.html"


def result_files(result: RunResult) -> dict[str, Callable[[Path], None]]:
    """A writer for each file by name."""
    document = result.document()

    def write_rows(path: Path) -> None:
        pq.write_table(result.table(), path, compression="zstd")

    return {
        ROWS: write_rows,
        DOCUMENT: text_writer(to_json(document)),
        REPORT: text_writer(render(document)),
        MANIFEST: text_writer(to_json(result.manifest, indent=2)),
    }
