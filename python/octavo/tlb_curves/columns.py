"""Rows of curves as one wide Arrow table, with columns that stay the same from run to run."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from octavo.tlb_curves.rows import Block

_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("process", pa.int32()),
    ("thread", pa.int32()),
    ("component", pa.string()),
    ("counter", pa.string()),
    ("value", pa.int64()),
    ("stream", pa.string()),
    ("machine", pa.string()),
    ("page_size", pa.int64()),
    ("small", pa.int64()),
    ("large", pa.int64()),
    ("threshold_blocks", pa.int64()),
    ("policy_window_refs", pa.int64()),
    ("index", pa.string()),
    ("entries", pa.int64()),
    ("ways", pa.int64()),
    ("sets", pa.int64()),
    ("line_bytes", pa.int64()),
    ("cache_bytes", pa.int64()),
    ("misses", pa.int64()),
    ("misses_low", pa.int64()),
    ("misses_high", pa.int64()),
    ("small_misses", pa.int64()),
    ("large_misses", pa.int64()),
    ("invalidated", pa.int64()),
    ("second_probes", pa.int64()),
    ("mpki", pa.float64()),
    ("miss_ratio", pa.float64()),
    ("cpi_tlb", pa.float64()),
    ("critical_penalty_increase", pa.float64()),
    ("larger", pa.int64()),
    ("compulsory", pa.int64()),
    ("capacity", pa.int64()),
    ("conflict", pa.int64()),
    ("page_size_misses", pa.int64()),
    ("name", pa.string()),
    ("kind", pa.string()),
    ("path", pa.string()),
    ("source", pa.string()),
    ("line", pa.int64()),
    ("window_refs", pa.int64()),
    ("average_bytes", pa.float64()),
    ("average_bytes_low", pa.float64()),
    ("average_bytes_high", pa.float64()),
    ("normalised", pa.float64()),
    ("normalised_low", pa.float64()),
    ("normalised_high", pa.float64()),
]

SCHEMA = pa.schema(_COLUMNS)


def to_table(blocks: Iterable[Block]) -> pa.Table:
    """The rows in order; a column that does not apply to a row is null."""
    return pa.concat_tables([_table(block) for block in blocks] or [SCHEMA.empty_table()])


def _table(block: Block) -> pa.Table:
    same: dict[str, Any] = dict(block.same)
    length = len(next(iter(block.columns.values()))) if block.columns else 1
    columns = [
        pa.array(block.columns[field.name], type=field.type)
        if field.name in block.columns
        else pa.repeat(pa.scalar(same.get(field.name), type=field.type), length)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)
