"""Renders pages from templates, with figures, tables, advice and the libraries for the figures."""

import json
import re
import shlex
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from octavo.base.text import html_with_code, printable_document, printable_lines
from octavo.report.bundle import read_bundle
from octavo.report.theme import for_page
from octavo.tracing.manifest import cautions, warnings


def render_page(
    template: str, manifest: dict[str, Any], charts: dict[str, Any], **content: Any
) -> str:
    """A page by one of the templates.

    `charts` are specifications by the identifier of their place in the page, some with data from
    which the reader chooses: see `chosen`.
    """
    drawn = {
        name: {**chart, "spec": for_page(chart["spec"])}
        if "selects" in chart
        else {"spec": for_page(chart)}
        for name, chart in charts.items()
    }
    page: str = (
        _environment()
        .get_template(template)
        .render(
            manifest=manifest,
            command=shlex.join(manifest["command"]),
            cautions=[*cautions(manifest), *warnings(manifest)],
            facts=_facts(manifest),
            charts=_for_script(drawn),
            bundle=read_bundle(),
            **content,
        )
    )
    return page


def chosen(
    spec: dict[str, Any], data: dict[str, Any], selects: list[str], first: dict[str, str]
) -> dict[str, Any]:
    """A chart whose reader chooses the data.

    `data` has one level of keys for each of `selects`; `first` has the initial choice for each.
    """
    bare = {name: value for name, value in spec.items() if name != "data"}
    return {"spec": bare, "data": data, "selects": selects, "first": first}


def in_parts(text: str) -> tuple[str, str, str]:
    """The parts of an answer: the question, the first sentence, and the other sentences."""
    asks = re.match(r"(For the part that ran: )?(Which|How) ", text)
    question, _, rest = text.rpartition("? ") if asks else ("", "", text)
    lead, *others = re.split(r"(?<=\.) (?=\w)", rest, maxsplit=1)
    return f"{question}?" if question else "", lead, " ".join(others)


def _facts(manifest: dict[str, Any]) -> list[tuple[str, str]]:
    """The manifest, flattened to names and values."""
    facts: list[tuple[str, str]] = []

    def visit(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                visit(f"{name}.{key}" if name else key, inner)
        elif value is not None:
            facts.append((name, value if isinstance(value, str) else json.dumps(value)))

    hidden = ("notes", "warnings", "processes")
    visit("", {key: value for key, value in manifest.items() if key not in hidden})
    return facts


def _for_script(value: Any) -> str:
    """JSON that may stand inside a script element: no text can close it."""
    return json.dumps(printable_document(value), separators=(",", ":")).replace("<", "\\u003c")


def _finalize(value: Any) -> Any:
    """A value as a page shows it; Octavo's own markup, scripts and styles are not changed."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return printable_lines(value) if is_text else value


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("octavo.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["in_parts"] = in_parts
    environment.filters["coded"] = lambda text: Markup(html_with_code(text))
    return environment
