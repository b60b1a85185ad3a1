"""Fake measurements for tests of the study of perforated pages."""

from octavo.base.units import MIB
from octavo.studies.perforated_pages.random_accesses import Size

SMALL = Size(table_bytes=64 * MIB, warm_references=20_000, references=40_000)
"""32 regions: more than the second-level TLB of the tests holds."""
