"""Diagnosis of a failed run: one sentence from Valgrind's messages."""

import re

_MARK = re.compile(r"^==\d+==")
_UNKNOWN_INSTRUCTION = re.compile(r"Unrecognised instruction at address (0x[0-9a-f]+)", re.I)
_BYTES = re.compile(r"unhandled instruction bytes: ((?:0x[0-9A-F]{2} ?)+)", re.I)
_CONFINED = re.compile(r"^octavo tracer: (.+ confined its system calls .+)", re.M)
_UNTRACED = re.compile(r"^octavo tracer: (.+) ran untraced: (.+)", re.M)
_COMPLAINT = re.compile(r"^(?:valgrind: +)(.+)", re.M)


def diagnose(diagnostics: str) -> str | None:
    """The cause of a failure, without a full stop; None if Valgrind's message names none.

    The whole of Valgrind's words is in the JSON.
    """
    confined = seccomp_death(diagnostics)
    if confined is not None:
        return confined
    text = _bare(diagnostics)
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


def seccomp_death(diagnostics: str) -> str | None:
    """Which program died of seccomp, and why that may be the tracer's doing."""
    confined = _CONFINED.search(_bare(diagnostics))
    return confined[1] if confined else None


def untraced_program(diagnostics: str) -> tuple[str, str] | None:
    """The first program that ran untraced, and why."""
    untraced = _UNTRACED.search(_bare(diagnostics))
    return (untraced[1], untraced[2]) if untraced else None


def _bare(diagnostics: str) -> str:
    """The text without the mark that Valgrind puts before each line."""
    return "\n".join(_MARK.sub("", line).strip() for line in diagnostics.splitlines())


def first_line(diagnostics: str) -> str | None:
    """The first line that says anything, for what `diagnose` does not know."""
    return next((line.rstrip(".") for line in _bare(diagnostics).splitlines() if line), None)
