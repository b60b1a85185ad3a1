"""The few bytes of an ELF header that say which machine a program was built for.

Layout and numbers: System V ABI, chapter 4, and /usr/include/elf.h.
"""

from dataclasses import dataclass
from pathlib import Path

ELF_MAGIC = b"\x7fELF"
HEADER_BYTES = 20

_EI_CLASS = 4
_EI_DATA = 5
_E_MACHINE = slice(18, 20)
_CLASS_BITS = {1: 32, 2: 64}
_BIG_ENDIAN = 2
_X86_64 = 62
_MACHINES = {
    2: "SPARC",
    3: "x86",
    8: "MIPS",
    20: "PowerPC",
    21: "PowerPC64",
    22: "S/390",
    40: "Arm",
    43: "SPARC V9",
    50: "Itanium",
    _X86_64: "x86-64",
    183: "AArch64",
    243: "RISC-V",
    258: "LoongArch",
}


@dataclass(frozen=True)
class ElfTarget:
    """The word size and instruction set of a program."""

    bits: int
    machine: int

    @property
    def is_traceable(self) -> bool:
        """True for 64-bit x86-64 programs alone; x32 programs are 32-bit ones of that machine."""
        return self.bits == 64 and self.machine == _X86_64

    def __str__(self) -> str:
        name = _MACHINES.get(self.machine, f"ELF machine {self.machine}")
        return f"{self.bits}-bit {name}"


def read_target(header: bytes) -> ElfTarget | None:
    """Reads the target from the first bytes of a file; None when they are no ELF header."""
    if len(header) < HEADER_BYTES or not header.startswith(ELF_MAGIC):
        return None
    bits = _CLASS_BITS.get(header[_EI_CLASS])
    if bits is None:
        return None
    big_endian = header[_EI_DATA] == _BIG_ENDIAN
    machine = int.from_bytes(header[_E_MACHINE], "big" if big_endian else "little")
    return ElfTarget(bits, machine)


def is_elf_file(path: str | None) -> bool:
    """Whether the file is an ELF program or library; False where it cannot be read."""
    try:
        with Path(path or "").open("rb") as file:
            return file.read(len(ELF_MAGIC)) == ELF_MAGIC
    except OSError:
        return False
