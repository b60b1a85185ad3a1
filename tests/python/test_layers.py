"""The folders of the package import only from lower levels of ARCHITECTURE.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from octavo.base import text

PACKAGE = Path(text.__file__).parents[1]
DATA = "presets"


def documented_levels() -> dict[str, int]:
    """The levels in the table; a row without a level has that of the row above."""
    page = (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = page.split("## The Python package")[1].split("\n## ")[0]
    levels, level = {}, 0
    for number, folders in re.findall(r"^\| (\d?) ?\| (`[^|]+) \|", section, re.MULTILINE):
        level = int(number or level)
        levels.update(dict.fromkeys(re.findall(r"`(\w+)(?:/|\.py)`", folders), level))
    return levels


def imported(path: Path) -> Iterator[str]:
    """Names of modules that a file imports, including imports in functions and for types."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_every_module_except_the_public_names_has_a_level() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__", DATA}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert set(documented_levels()) == folders | modules


def test_imports_are_of_lower_levels() -> None:
    levels = documented_levels()
    wrong = []
    for place, level in levels.items():
        for path in (PACKAGE / f"{place}.py", *(PACKAGE / place).rglob("*.py")):
            if not path.exists():
                continue
            for name in imported(path):
                package, _, rest = name.partition(".")
                other = rest.split(".")[0]
                if package != "octavo" or other in (place, "_core"):
                    continue
                if levels.get(other, level) >= level:
                    wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong
