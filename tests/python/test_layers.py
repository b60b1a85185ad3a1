"""The folders of the package, on the levels that ARCHITECTURE.md gives them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from octavo.base import text

PACKAGE = Path(text.__file__).parents[1]
DATA = "presets"


def documented_levels() -> dict[str, int]:
    """The level of each folder in the table; a row without a level has that of the row above."""
    page = (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = page.split("## The Python package")[1].split("\n## ")[0]
    levels, level = {}, 0
    for number, folders in re.findall(r"^\| (\d?) ?\| (`[^|]+) \|", section, re.MULTILINE):
        level = int(number or level)
        levels.update(dict.fromkeys(re.findall(r"`(\w+)/`", folders), level))
    return levels


def imported(path: Path) -> Iterator[str]:
    """Names of modules that a file imports, also those of functions and of types alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_every_folder_has_a_level() -> None:
    found = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__", DATA}
    assert set(documented_levels()) == found


def test_the_root_has_the_public_names_alone() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_a_folder_imports_only_those_of_lower_levels() -> None:
    levels = documented_levels()
    wrong = []
    for folder, level in levels.items():
        for path in (PACKAGE / folder).rglob("*.py"):
            for name in imported(path):
                package, _, rest = name.partition(".")
                other = rest.split(".")[0]
                if package != "octavo" or other in (folder, "_core"):
                    continue
                if levels.get(other, level) >= level:
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong
