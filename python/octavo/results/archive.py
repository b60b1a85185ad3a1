"""The files of a result directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.analysis.allocations import folded
from octavo.analysis.stored_result import (
    DATA_SET,
    DOCUMENT,
    MANIFEST,
    REPORT_DATA,
    check_parts,
    check_whole,
    read_json,
)
from octavo.base.errors import CannotRun
from octavo.base.files import (
    failing_with,
    replace_file,
    replace_text,
    text_writer,
    to_json,
    write_parquet,
)
from octavo.report import curves_data, sim_data
from octavo.report.curves import curves_figures, render_curves
from octavo.report.run import render_run, run_charts
from octavo.report.sim import render_sim, sim_figures
from octavo.report.theme import Spec
from octavo.runs.result import SCHEMA, RunResult

if TYPE_CHECKING:
    from octavo.simulation.api import SimResult
    from octavo.tlb_curves.api import CurvesResult

    InFiles = RunResult | CurvesResult | SimResult
    """A result that has a place (`octavo.results.target`)."""

ROWS = "rows.parquet"
REPORT = "report.html"
FOLDED = "walks.folded"
"""The file of stacks of data misses, for flame-graph viewers."""
ONLY_SOME = (FOLDED, DOCUMENT, REPORT_DATA)
"""Files that the results of some commands have."""
FIGURES = "figures"

Files = dict[str, Callable[[Path], None]]
"""A writer for each file by name."""

_MAKERS: dict[str, tuple[Callable[[Any], str], Callable[[Any], dict[str, Spec]]]] = {
    SCHEMA: (render_run, run_charts),
    curves_data.SCHEMA: (render_curves, curves_figures),
    sim_data.SCHEMA: (render_sim, sim_figures),
}
"""The page and the figures of a document, by its schema."""


def files_of(result: InFiles) -> Files:
    """The files that `--out` writes for a result of any command."""
    from octavo.tlb_curves.api import CurvesResult

    if isinstance(result, RunResult):
        kept, data = DOCUMENT, result.document()
    elif isinstance(result, CurvesResult):
        kept, data = REPORT_DATA, curves_data.report_data(result)
    else:
        kept, data = REPORT_DATA, sim_data.report_data(result)
    render, _ = _MAKERS[data["schema"]]
    files: Files = {
        ROWS: rows_writer(result),
        MANIFEST: text_writer(to_json(result.manifest, indent=2)),
        kept: text_writer(to_json(data)),
        REPORT: text_writer(render(data)),
    }
    if isinstance(result, RunResult) and result.allocations is not None:
        files[FOLDED] = text_writer(folded(result.allocations))
    return files


def rows_writer(result: InFiles) -> Callable[[Path], None]:
    """A writer of all rows, as Parquet."""
    return lambda path: write_parquet(result.table(), path)


def write_report(document: Mapping[str, Any], directory: Path) -> None:
    """Writes the report of a document, which `read_document` returned. Raises CannotRun."""
    render, _ = _MAKERS[document["schema"]]
    with failing_with(f"`{directory / REPORT}`"):
        replace_text(directory / REPORT, render(document))


def write_figures(document: Mapping[str, Any], directory: Path, formats: Iterable[str]) -> Path:
    """Draws the figures of a document, which `read_document` returned, into a folder.

    Returns the folder. Raises CannotRun.
    """
    from octavo.report.figures import figure_files

    _, draw = _MAKERS[document["schema"]]
    place = directory / FIGURES
    with failing_with(f"to `{place}`"):
        place.mkdir(exist_ok=True)
        for name, writer in figure_files(draw(document), formats).items():
            replace_file(place / name, writer)
    return place


def drawn_figures(directory: Path) -> list[str]:
    """Names in the directory of all figures that `write_figures` draws of the result in it; none
    where it has no folder of them, or no result that can be read.
    """
    if not (directory / FIGURES).is_dir():
        return []
    from octavo.report.figures import FORMATS

    try:
        document = read_document(directory)
        _, draw = _MAKERS[document["schema"]]
        return [f"{FIGURES}/{name}.{format}" for name in draw(document) for format in FORMATS]
    except (CannotRun, LookupError, TypeError, ValueError, AttributeError):
        # Of another version, for example.
        return []


def read_document(directory: Path) -> Mapping[str, Any]:
    """The document from which the report of a directory of results is made. Raises CannotRun."""
    if directory.is_file():
        raise CannotRun(f"`{directory}` is a file: give the directory that --out named.")
    path = directory / REPORT_DATA
    if not path.exists():
        path = directory / DOCUMENT
    if not path.exists() and (directory / DATA_SET).exists():
        raise CannotRun(
            f"`{directory}` is a data set of many simulations: `octavo study query` and `octavo "
            "study diff` take its study file, and `octavo.sweep` its directory as `out`."
        )
    document = read_json(path)
    if not isinstance(document, dict) or document.get("schema") not in _MAKERS:
        raise CannotRun(
            f"`{path}` is not a result of `octavo run`, `curves` or `sim` (its schema is none of "
            f"{', '.join(_MAKERS)})."
        )
    check_whole(directory)
    is_of_run = document["schema"] == SCHEMA
    check_parts(document, path, ["run", *(["rows", "programs", "advice"] if is_of_run else [])])
    return document
