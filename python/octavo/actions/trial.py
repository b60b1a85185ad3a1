"""Asks this kernel for large pages in a child process, to see what it gives under its settings.

The first touch of a fresh mapping makes a whole page resident, so the growth of its resident size
is the size of the page that the kernel gave; that needs no privileges. A child process does it, so
that nothing of a trial stays in this one.
"""

import json
import mmap
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache

from octavo.base.linux import MADV_COLLAPSE, PR_GET_THP_DISABLE
from octavo.base.units import KIB

_SECONDS = 5

# The child has no site packages and imports little, so that it takes some 20 ms.
_CHILD = f"""
import ctypes, json, mmap
libc = ctypes.CDLL(None, use_errno=True)
HUGE = 2 << 20

def mapping():
    memory = mmap.mmap(-1, 4 * HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return memory, -address % HUGE, address

def advise(address, advice):
    return libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(HUGE), advice)

def resident(address):
    inside = False
    for line in open('/proc/self/smaps'):
        head = line.split(None, 1)[0]
        if '-' in head:
            first, last = (int(part, 16) for part in head.split('-'))
            inside = first <= address < last
        elif inside and head == 'Rss:':
            return int(line.split()[1])

def given(asks):
    memory, offset, address = mapping()
    if asks and advise(address + offset, {mmap.MADV_HUGEPAGE}):
        return 0
    before = resident(address + offset)
    memory[offset + 5 * {KIB}] = 1
    return {KIB} * (resident(address + offset) - before)

def collapses():
    memory, offset, address = mapping()
    for at in range(offset, offset + HUGE, 4096):
        memory[at] = 1
    return not advise(address + offset, {MADV_COLLAPSE})

found = dict(
    disabled=libc.prctl({PR_GET_THP_DISABLE}, 0, 0, 0, 0) == 1,
    asked=given(True), unasked=given(False), collapses=collapses(),
)
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Trial:
    """Pages that this kernel gave a child of this process, under its present settings."""

    asked: int
    """Size in bytes of the page that a fault got in memory with MADV_HUGEPAGE; 0 where the kernel
    refuses the advice."""
    unasked: int
    """Size in bytes of the page that a fault got in memory without advice."""
    collapses: bool
    """Whether MADV_COLLAPSE made a 2 MiB page of memory in use."""
    disabled: bool
    """Whether PR_SET_THP_DISABLE is on for this process, and so for programs that it starts."""


@lru_cache(maxsize=1)
def try_pages() -> Trial | None:
    """Runs the trial, once in the life of this process; None where the child fails."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _CHILD],
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
        return Trial(**json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
