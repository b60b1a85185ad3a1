"""One clear sentence out of what Valgrind prints when something goes wrong."""

import re

_MARK = re.compile(r"^==\d+==")
_UNKNOWN_INSTRUCTION = re.compile(r"Unrecognised instruction at address (0x[0-9a-f]+)", re.I)
_BYTES = re.compile(r"unhandled instruction bytes: ((?:0x[0-9A-F]{2} ?)+)", re.I)
_COMPLAINT = re.compile(r"^(?:valgrind: +)(.+)", re.M)


def diagnose(diagnostics: str) -> str | None:
    """What went wrong, without a full stop; None when Valgrind only told what everyone can see.

    The whole of Valgrind's words is in the JSON.
    """
    text = "\n".join(_MARK.sub("", line).strip() for line in diagnostics.splitlines())
    unknown = _UNKNOWN_INSTRUCTION.search(text)
    if unknown is not None:
        found = _BYTES.search(text)
        code = f" ({found[1].strip()})" if found else ""
        return (
            f"the program executed an instruction that Valgrind does not know{code} at "
            f"{unknown[1]}, such as one of AVX-512; build it for an older processor"
        )
    complaint = _COMPLAINT.search(text)
    return f"Valgrind says: {complaint[1].rstrip('.')}" if complaint else None


def first_line(diagnostics: str) -> str | None:
    """The first line that says anything, for what `diagnose` does not know."""
    lines = (_MARK.sub("", line).strip() for line in diagnostics.splitlines())
    return next((line.rstrip(".") for line in lines if line), None)
