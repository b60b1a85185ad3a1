"""The libraries that draw the figures of a page, as one script.

The build makes it once: `python -m octavo.report.bundle FILE`.
"""

import sys
from functools import cache
from pathlib import Path

_NAME = "vega.js"
PLACES = (
    Path(__file__).with_name(_NAME),
    Path(__file__).resolve().parents[3] / "build" / _NAME,
)
"""The place in the package, and that in a checkout."""

_EXPORT = "window.vegaEmbed = vegaEmbed;"


@cache
def read_bundle() -> str:
    """The script with Vega, Vega-Lite and Vega-Embed; made here, in a second or two, where the
    build has not.
    """
    for place in PLACES:
        if place.is_file():
            return place.read_text(encoding="utf-8")
    return make_bundle()


def make_bundle() -> str:
    """The script, in a form that may stand in a script element: no text in it closes that."""
    import vl_convert

    return vl_convert.javascript_bundle(_EXPORT).replace("</script", "<\\/script")


if __name__ == "__main__":
    from octavo.base.files import replace_text

    replace_text(Path(sys.argv[1]), make_bundle())
