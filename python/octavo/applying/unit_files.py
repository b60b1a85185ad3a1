"""Reads the unit file of a systemd service with its drop-ins, as far as `octavo apply` needs it.

Syntax: systemd.syntax(7), systemd.service(5). Specifiers such as %i are not expanded.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from octavo.base.errors import CannotRun, UsageError, nearest
from octavo.base.text import quoted

DIRECTORIES = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
"""Directories of unit files, in order of precedence: systemd.unit(5)."""
_SUFFIX = ".service"
_PREFIXES = "@-:+!|"
"""Characters before a command: systemd.service(5), "Special executable prefixes"."""


@dataclass(frozen=True)
class Unit:
    """A service: its name with suffix, and the settings under [Service] in its files."""

    name: str
    settings: dict[str, list[str]]
    """The values of each key; an empty value has removed the ones before it."""

    def has(self, *keys: str) -> bool:
        """Whether one of these keys is set."""
        return any(self.settings.get(key) for key in keys)

    def command(self) -> list[str]:
        """The words of the first command that it starts; empty where there is none."""
        started = self.settings.get("ExecStart")
        if not started:
            return []
        first, *words = shlex.split(started[0])
        program = first.lstrip(_PREFIXES)
        # With the prefix @, the second word is argv[0] of the program.
        return [program, *(words[1:] if "@" in first[: -len(program)] else words)]

    def command_with(self, arguments: tuple[str, ...]) -> str:
        """The command line with words inserted after the program."""
        line = self.settings["ExecStart"][0]
        match = re.match(rf"[{re.escape(_PREFIXES)}]*", line)
        words = 2 if match is not None and "@" in match[0] else 1
        head = re.match(rf"(?:\S+\s*){{{words}}}", line)
        at = len(head[0].rstrip()) if head is not None else len(line)
        return " ".join([line[:at], shlex.join(arguments), line[at:].lstrip()]).rstrip()

    def environment(self) -> dict[str, str]:
        """The variables that it sets."""
        words = (
            word for value in self.settings.get("Environment", []) for word in shlex.split(value)
        )
        return dict(word.split("=", 1) for word in words if "=" in word)


def unit_name(text: str) -> str:
    """`redis` → `redis.service`. Raises UsageError for names that no service has."""
    name = text if "." in text else f"{text}{_SUFFIX}"
    if not name.endswith(_SUFFIX) or not re.fullmatch(r"[A-Za-z0-9:_.\\@-]+", name):
        raise UsageError(f"--unit `{quoted(text)}`: name a service, such as redis-server.service.")
    return name


def read_unit(name: str, root: Path = Path("/")) -> Unit | None:
    """The unit with a name that `unit_name` returned; None without a file. Raises CannotRun."""
    directories = [root / directory for directory in DIRECTORIES]
    template = re.sub(r"@.*(?=\.service$)", "@", name)
    files = [place / one for one in (name, template) for place in directories]
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        return None
    drop_ins: dict[str, Path] = {}
    for file in reversed(files):
        for drop_in in file.with_name(f"{file.name}.d").glob("*.conf"):
            drop_ins[drop_in.name] = drop_in
    settings: defaultdict[str, list[str]] = defaultdict(list)
    for file in (found, *(drop_ins[key] for key in sorted(drop_ins))):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise CannotRun(f"cannot read `{file}`: {error.strerror}.") from None
        for key, value in _service_settings(text):
            if value:
                settings[key].append(value)
            else:
                settings[key].clear()
    return Unit(name, dict(settings))


def similar_unit(name: str, root: Path = Path("/")) -> str | None:
    """The service whose name is spelt most like this one."""
    places = (root / directory for directory in DIRECTORIES)
    # Compared without the common suffix, which would make all names similar.
    names = {file.stem for place in places for file in place.glob(f"*{_SUFFIX}")}
    found = nearest(name.removesuffix(_SUFFIX), names)
    return None if found is None else f"{found}{_SUFFIX}"


def _service_settings(text: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in text.replace("\\\n", " ").splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and line[0] not in "#;":
            key, _, value = line.partition("=")
            yield key.strip(), value.strip()
