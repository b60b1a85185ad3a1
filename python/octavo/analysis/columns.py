"""Rows as one wide Arrow table, with columns that stay the same from run to run."""

from collections.abc import Sequence

import pyarrow as pa

from octavo.analysis.rows import Row

_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("process", pa.int32()),
    ("region", pa.string()),
    ("region_kind", pa.string()),
    ("path", pa.string()),
    ("start", pa.uint64()),
    ("bytes", pa.uint64()),
    ("mappings", pa.int64()),
    ("component", pa.string()),
    ("counter", pa.string()),
    ("value", pa.int64()),
    ("stream", pa.string()),
    ("page_size", pa.int64()),
    ("entries", pa.int64()),
    ("ways", pa.int64()),
    ("accesses", pa.int64()),
    ("hits", pa.int64()),
    ("misses", pa.int64()),
    ("mpki", pa.float64()),
    ("added_cycles", pa.int64()),
    ("touched_bytes", pa.int64()),
    ("growth", pa.float64()),
    ("peak_resident_bytes", pa.int64()),
]

SCHEMA = pa.schema(_COLUMNS)


def to_table(rows: Sequence[Row]) -> pa.Table:
    """The rows in order; a column that does not apply to a row is null."""
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)
