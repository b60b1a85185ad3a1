"""Keeping huge pages off one program, by prctl or by systemd.

References: PR_SET_THP_DISABLE(2const); systemd.exec(5), `MemoryTHP=`.
"""

import re
from pathlib import Path

from octavo.base.huge_pages import HugePages
from octavo.base.linux import PR_SET_THP_DISABLE, PR_THP_DISABLE_EXCEPT_ADVISED

_EXCEPT_ADVISED_SINCE = (6, 18)
_MEMORY_THP_SINCE = 260
_SYSTEMD_PLACES = ("usr/lib/systemd", "lib/systemd", "usr/lib64/systemd")


def keep_small_prefix(host: HugePages, root: Path = Path("/")) -> tuple[tuple[str, ...], str]:
    """Words before a program that keep unasked huge pages off it, and a sentence about them."""
    flags = PR_THP_DISABLE_EXCEPT_ADVISED if host.kernel >= _EXCEPT_ADVISED_SINCE else 0
    code = (
        "import ctypes,os,sys; "
        f"ctypes.CDLL(None).prctl({PR_SET_THP_DISABLE},1,{flags},0,0); "
        "os.execvp(sys.argv[1],sys.argv[1:])"
    )
    text = "PR_SET_THP_DISABLE keeps them off for this program and its children"
    if flags:
        text += ", except where they ask for them"
    text += "."
    if (systemd_version(root) or 0) >= _MEMORY_THP_SINCE:
        setting = "madvise" if flags else "disable"
        text += f" For a service, `MemoryTHP={setting}` in its unit does the same."
    return ("python3", "-c", code), text


def systemd_version(root: Path = Path("/")) -> int | None:
    """From the name of systemd's own library; None where there is no systemd."""
    for place in _SYSTEMD_PLACES:
        for library in sorted((root / place).glob("libsystemd-shared-*.so")):
            match = re.search(r"shared-(\d+)", library.name)
            if match is not None:
                return int(match[1])
    return None
