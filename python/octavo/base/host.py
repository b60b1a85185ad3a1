"""Facts about the machine and the software that a run was made with."""

import errno
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from octavo._core import VERSION

_THP = Path("/sys/kernel/mm/transparent_hugepage")
_VIRTIO_BALLOON = "0x0005"
_PAGE_REPORTING = 5
"""The number of the feature bit."""


def versions(valgrind: str | None) -> dict[str, str]:
    """Versions of all software that may change a result; `valgrind` is None where no tracer ran."""
    return {
        "octavo": VERSION,
        **({"valgrind": valgrind} if valgrind is not None else {}),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def describe_host() -> dict[str, Any]:
    """Processor, memory and huge-page settings; what cannot be read is None."""
    return {
        "cpu_model": cpu_field("model name"),
        "cores": os.cpu_count(),
        "memory_bytes": memory_bytes(),
        "thp_enabled": read_setting(_THP / "enabled"),
        "thp_defrag": read_setting(_THP / "defrag"),
    }


def memory_bytes() -> int:
    """The memory of this machine that the kernel manages."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def configuration_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """The directory of files about this machine: `octavo` in $XDG_CONFIG_HOME, or in ~/.config
    where that is not set.
    """
    configured = environment.get("XDG_CONFIG_HOME", "")
    # The XDG Base Directory Specification: a relative path is invalid and ignored.
    base = Path(configured) if configured.startswith("/") else Path("~/.config").expanduser()
    return base / "octavo"


def busy_processors(seconds: float, root: Path = Path("/")) -> float:
    """The mean number of busy processors over the next `seconds`, in which this process sleeps:
    busy with other programs, or with other virtual machines (steal).
    """
    before = _busy_seconds(root)
    time.sleep(seconds)
    return max(0.0, _busy_seconds(root) - before) / seconds


def _busy_seconds(root: Path) -> float:
    """Seconds since boot that processors were neither idle nor waiting for a device, summed."""
    first = (read_text(root / "proc/stat") or "").partition("\n")[0].split()
    # proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user.
    ticks = [int(field) for field in first[1:9] if field.isdecimal()]
    return (sum(ticks) - sum(ticks[3:5])) / os.sysconf("SC_CLK_TCK")


def cpu_field(name: str, root: Path = Path("/")) -> str | None:
    """The first processor's field in /proc/cpuinfo."""
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def reports_free_memory(root: Path = Path("/")) -> bool:
    """Whether this virtual machine reports free memory to its host, which can then reclaim it:
    free page reporting of a virtio balloon (Virtio 1.2, section 5.5).
    """
    for device in (root / "sys/bus/virtio/devices").glob("*"):
        features = (read_text(device / "features") or "").strip()
        is_balloon = (read_text(device / "device") or "").strip() == _VIRTIO_BALLOON
        if is_balloon and features[_PAGE_REPORTING : _PAGE_REPORTING + 1] == "1":
            return True
    return False


def read_setting(path: Path) -> str | None:
    """The chosen word of a sysfs file such as `always [madvise] never`."""
    text = read_text(path)
    if text is None:
        return None
    chosen = [word for word in text.split() if word.startswith("[")]
    return chosen[0].strip("[]") if chosen else text.strip()


def open_regular(path: Path, errors: str = "strict") -> TextIO:
    """Opens a text file in UTF-8; `errors` is that of `open`. Raises OSError for a pipe, which
    might block for ever, and for a device, which may have no end.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is not a regular file, but a pipe, a socket or a device")
    return path.open(encoding="utf-8", errors=errors)


def read_text(path: Path) -> str | None:
    """The file's text, or None where there is none to read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
