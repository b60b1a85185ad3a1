"""A program that is started through a symbolic link is shown with the link's name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fakes import process, region
from octavo.tracing.program import use_started_name, with_started_name

if TYPE_CHECKING:
    from octavo._core import Process

LINK, FILE = "/usr/bin/redis-server", "/usr/bin/redis-check-rdb"


def started(program: str = FILE, *more: str) -> Process:
    names = ("redis-check-rdb text", "redis-check-rdb data", *more)
    regions = [region(name, "text", path=FILE) for name in names]
    made = process(0, regions=[*regions, region("heap"), region("libc.so text", path="/libc.so")])
    made["program"] = program
    return made


def names_of(made: Process) -> list[str]:
    return [region["name"] for region in made["regions"]]


def test_regions_of_the_file_behind_a_link_have_the_name_of_the_link() -> None:
    made = started()
    use_started_name([made], LINK, FILE)
    assert made["program"] == LINK
    assert names_of(made) == ["redis-server text", "redis-server data", "heap", "libc.so text"]
    assert made["regions"][0]["path"] == FILE


def test_another_program_and_a_script_keep_the_name_of_their_file() -> None:
    other = started("/bin/sh")
    use_started_name([other], LINK, FILE)
    assert other == started("/bin/sh")
    interpreted = started(FILE)
    use_started_name([interpreted], "/home/script.py", "/home/script.py")
    assert interpreted == started(FILE)


def test_no_two_regions_get_one_name() -> None:
    made = started()
    made["regions"].append(region("redis-server text", "text", path="/opt/redis-server"))
    use_started_name([made], LINK, FILE)
    assert names_of(made).count("redis-server text") == 1
    assert "redis-server data" in names_of(made)


def test_regions_of_classified_misses_are_renamed() -> None:
    misses = {"name": "redis-check-rdb text", "path": FILE}
    made = {"program": FILE, "streams": [{"classes": [{"regions": [misses]}]}, {"classes": []}]}
    use_started_name([made], LINK, FILE)
    assert misses["name"] == "redis-server text"


def test_a_status_names_programs_as_they_were_started(tmp_path: Path) -> None:
    (tmp_path / "redis-check-rdb").touch()
    link = tmp_path / "redis-server"
    link.symlink_to("redis-check-rdb")
    progress: Any = {"programs": [str(tmp_path / "redis-check-rdb"), "/bin/sh"], "references": 3}
    named = with_started_name(progress, link)
    assert named == {"programs": [str(link), "/bin/sh"], "references": 3}
