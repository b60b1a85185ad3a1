"""Limits of the process (`ulimit`) as the cause of an error."""

import errno
import resource

_LIMITS = {
    errno.ENOMEM: (resource.RLIMIT_AS, "address space", "v"),
    errno.EAGAIN: (resource.RLIMIT_NPROC, "processes", "u"),
    errno.EMFILE: (resource.RLIMIT_NOFILE, "open files", "n"),
}
"""By errno: the limit that may cause it, its name, and its option of `ulimit`."""


def limit_behind(error: OSError | MemoryError) -> str:
    """`; the limit of …`: an addition to the message of an error that a limit may have caused. It
    is empty where there is no such limit.
    """
    number = errno.ENOMEM if isinstance(error, MemoryError) else error.errno
    if number not in _LIMITS:
        return ""
    limit, name, option = _LIMITS[number]
    value = resource.getrlimit(limit)[0]
    if value == resource.RLIM_INFINITY:
        return ""
    text = f"; the limit of {name} (`ulimit -{option}`) is "
    if number == errno.ENOMEM:
        return f"{text}{value // 1024} KiB, and `ulimit -{option} unlimited` lifts it"
    return f"{text}{value}"
