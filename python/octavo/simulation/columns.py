"""Rows of a simulation as one Arrow table, with columns that stay the same from run to run."""

from collections.abc import Sequence

import pyarrow as pa

from octavo.simulation.rows import SimRow

_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("process", pa.int32()),
    ("design", pa.string()),
    ("interval", pa.int32()),
    ("component", pa.string()),
    ("counter", pa.string()),
    ("value", pa.int64()),
]

SCHEMA = pa.schema(_COLUMNS)


def to_table(rows: Sequence[SimRow]) -> pa.Table:
    """The rows in order; a column that does not apply to a row is null."""
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)
