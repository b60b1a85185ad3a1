"""Numbers of the paper on software-managed address translation."""

from __future__ import annotations

from fractions import Fraction

from octavo.studies.softvm import COSTS, EVENTS

TABLE_1 = {
    "i": ("96.7%", "0.01%", "3.2%", "0.03%", "0.008%", "0.0001%"),
    "d": ("95.8%", "0.06%", "3.9%", "0.09%", "0.12%", "0.0009%"),
}
"""By side, the rows in the order of octavo.studies.softvm.TABLE_1."""

TABLE_2 = {
    "Ultrix": ("2.03%", "0.042"),
    "OSF/1": ("5.81%", "0.101"),
    "Mach3": ("8.21%", "0.162"),
    "Mach3+AFSin": ("7.77%", "0.220"),
    "Mach3+AFSout": ("8.88%", "0.281"),
}
"""TLB overhead of operating systems on DECstations: of the run time, in CPI. Quoted: they were
measured on machines of 1992 to 1994.
"""

TABLE_3 = {
    "m88ksim": 0.003,
    "li": 0.003,
    "go": 0.004,
    "compress95": 0.009,
    "perl": 0.019,
    "ijpeg": 0.052,
    "vortex": 0.060,
    "gcc": 0.097,
}
AVERAGE_CPI, AVERAGE_CPI_WITH_WRITE_BACKS = 0.033, 0.050

TABLE_4 = tuple(Fraction(per_million, 10**6) for per_million in (697, 4756, 596, 32, 53, 985, 35))
"""Frequencies of gcc, for each instruction, in the order of octavo.studies.softvm.EVENTS."""

TABLE_5 = {
    "compress": Fraction("2.8"),
    "jpeg_play": Fraction("3.4"),
    "IOzone": Fraction("5.1"),
    "mab": Fraction("15.7"),
    "mpeg_play": Fraction("19.0"),
    "gcc": Fraction("22.3"),
    "ousterhout": Fraction("23.8"),
}
"""Page-protection modifications in Mach 3, for a million instructions."""

LINES_OF_A_PAGE = (256, 256)
LINES_THERE = (10, 50)
"""Section 5.4: assumed, of a page of 4 KiB in lines of 16 bytes, at each level."""


def overheads() -> tuple[Fraction, ...]:
    """The last column of Table 4: CPI of each row."""
    return tuple(
        frequency * cycles for frequency, cycles in zip(TABLE_4, COSTS.of_events(), strict=True)
    )


def total() -> Fraction:
    """The last row of Table 4."""
    return sum(overheads(), Fraction(0))


def cycles_per_change() -> int:
    """Section 5.4: 10 * 5 + 246 * 3 + 50 * 40 + 206 * 20."""
    return int(COSTS.of_change(LINES_OF_A_PAGE, LINES_THERE))


def protection_cpi(per_million: Fraction) -> Fraction:
    """The overhead of so many changes of protection in a million instructions."""
    return per_million * cycles_per_change() / 10**6


assert len(TABLE_4) == len(EVENTS)
