"""Traces as Parquet: a row for each reference, read and written in batches beside the main thread.

Columns: `kind` (the words of the CSV format, or 0 fetch, 1 load, 2 store, 3 modify), `address`
(unsigned), and optionally `size` in bytes and `thread`. Other columns are ignored.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from octavo._core import OctavoError, open_columns, start_convert_to_columns
from octavo.base.background import outcome_of
from octavo.base.errors import CannotRun
from octavo.base.files import failing_with, open_for_arrow, replace_file, words_of
from octavo.base.text import MOST_QUOTED, printable, quoted

if TYPE_CHECKING:
    from octavo._core import ColumnDrain, ColumnFeed, Converted, JobProgress, Trace

KINDS = ("fetch", "load", "store", "modify")
_BATCH_ROWS = 64 * 1024
_MOST_OF_ARROW = 300
"""Limit of characters of Arrow's messages, which quote whole values."""
_WORDS = {
    **{word: code for code, word in enumerate(KINDS)},
    **{letter: code for code, letter in enumerate("ILSM")},
    "R": 1,
    "W": 2,
}
"""The spellings of kinds: words in lower case and capital letters."""
_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("address", pa.uint64(), nullable=False),
        pa.field("size", pa.uint16(), nullable=False),
        pa.field("thread", pa.uint32(), nullable=False),
    ]
)


Column = Any
"""An Arrow array; the type stubs are incomplete for arrays of strings and dictionaries."""


class _Wrong(Exception):
    """An error in a column, without a full stop."""


# --- reading ---------------------------------------------------------------------------------


def open_parquet(name: str) -> Trace:
    """Opens a Parquet file as a trace. Raises OctavoError."""
    try:
        stored = open_for_arrow(Path(name), "rb")
        file = pq.ParquetFile(stored, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise CannotRun(f"`{name}` cannot be read as Parquet: {_sentence(error)}.") from None
    names = file.schema_arrow.names
    if {"component", "counter"} <= {*names}:
        raise CannotRun(
            f"`{name}` has the rows of a result, and no trace: any reader of Parquet takes it, and "
            "`octavo diff` compares directories of results."
        )
    for wanted in ("kind", "address"):
        if names.count(wanted) != 1:
            raise CannotRun(f"`{name}` has no column `{wanted}`; a trace has kind and address.")
    trace, feed = open_columns(printable(name))
    threading.Thread(target=_feed, args=(file, feed), daemon=True).start()
    return trace


def _feed(file: pq.ParquetFile, feed: ColumnFeed) -> None:
    """Passes all rows to the extension, or the error that prevents it."""
    columns = [name for name in _SCHEMA.names if name in file.schema_arrow.names]
    try:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
            if not _push(batch, feed):
                return
        feed.close()
    except _Wrong as wrong:
        feed.fail(str(wrong))
    except Exception as error:  # An error must not look like the end of the trace.
        feed.fail(f"cannot be read on: {_sentence(error)}")
    finally:
        file.close()


def _push(batch: pa.RecordBatch, feed: ColumnFeed) -> bool:
    numbers = {
        name: _numbers(batch.column(name), name, _SCHEMA.field(name).type)
        for name in batch.schema.names
        if name != "kind"
    }
    kinds = _kinds(batch.column("kind"))
    return feed.push(kinds, numbers["address"], numbers.get("size"), numbers.get("thread"))


def _kinds(column: Column) -> bytes:
    if column.null_count:
        raise _Wrong("a kind is missing (null)")
    if pa.types.is_integer(column.type):
        return _bytes(_cast(column, "kind", pa.uint8()))
    if pa.types.is_dictionary(column.type):
        words = _codes(column.dictionary)
        return _bytes(pc.take(words, column.indices))
    return _bytes(_codes(column))


def _codes(words: Column) -> Column:
    """The code of each word. Raises _Wrong for an unknown word."""
    if not (pa.types.is_string(words.type) or pa.types.is_large_string(words.type)):
        raise _Wrong(f"kinds are of type {words.type}: give words, or the numbers 0 to 3")
    known = pa.array(list(_WORDS), words.type)
    found: Column = pc.index_in(words, value_set=known)
    if found.null_count:
        unknown = words.filter(pc.is_null(found)).slice(0, 1)
        # A word may have any length: only the part that is shown is copied.
        shown = pc.utf8_slice_codeunits(unknown, 0, MOST_QUOTED + 1)[0].as_py()
        raise _Wrong(f"`{quoted(shown)}` is not a kind of reference: these are {', '.join(KINDS)}")
    return pc.take(pa.array(_WORDS.values(), pa.uint8()), found)


def _numbers(column: Column, name: str, wanted: pa.DataType) -> bytes:
    if column.null_count:
        raise _Wrong(f"a value of the column `{name}` is missing (null)")
    if not pa.types.is_integer(column.type):
        raise _Wrong(f"the column `{name}` is of type {column.type}: give whole numbers")
    return _bytes(_cast(column, name, wanted))


def _cast(column: Column, name: str, wanted: pa.DataType) -> Column:
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid as error:
        raise _Wrong(f"the column `{name}`: {_sentence(error)}") from None


def _bytes(column: Column) -> bytes:
    """The buffer of a column of numbers."""
    width = column.type.bit_width // 8
    values = column.buffers()[1]
    if values is None:
        return b""
    whole: bytes = values.slice(column.offset * width, len(column) * width).to_pybytes()
    return whole


def _sentence(error: Exception) -> str:
    """The first line of Arrow's message; for system errors, the system's message."""
    if isinstance(error, OSError) and error.errno is not None:
        return words_of(error)
    text = str(error).strip() or type(error).__name__
    return quoted(text.splitlines()[0].rstrip("."), _MOST_OF_ARROW)


# --- writing ---------------------------------------------------------------------------------


def write_parquet(
    trace: Trace,
    target: str,
    on_progress: Callable[[JobProgress], None],
    about: str,
    selected: Mapping[str, Any],
    *,
    force: bool,
) -> Converted:
    """Writes the selected part as a whole Parquet file, or no file; `force` overwrites an existing
    one. Raises OctavoError.
    """
    written: list[Converted] = []

    def write(place: Path) -> None:
        job, drain = start_convert_to_columns(trace, printable(target), **selected)
        drained = _Drained(drain, place, about)
        try:
            converted = outcome_of(job, on_progress)
        except OctavoError:
            # The conversion failed because the drain did.
            if drained.error() is not None:
                raise CannotRun(f"cannot write `{target}`: {drained.error()}.") from None
            raise
        if drained.error() is not None:
            raise CannotRun(f"cannot write `{target}`: {drained.error()}.")
        written.append({**converted, "bytes": place.stat().st_size})

    with failing_with(f"`{target}`"):
        replace_file(Path(target), write, overwrite=force)
    return written[0]


class _Drained:
    """A thread that writes the rows of a drain to a file."""

    def __init__(self, drain: ColumnDrain, path: Path, about: str) -> None:
        self._error: str | None = None
        self._thread = threading.Thread(target=self._write, args=(drain, path, about), daemon=True)
        self._thread.start()

    def error(self) -> str | None:
        """Waits for the end of writing; returns the error, or None."""
        self._thread.join()
        return self._error

    def _write(self, drain: ColumnDrain, path: Path, about: str) -> None:
        schema = _SCHEMA.with_metadata({"octavo": about})
        try:
            with (
                open_for_arrow(path, "wb") as stored,
                pq.ParquetWriter(
                    stored,
                    schema,
                    compression="zstd",
                    use_dictionary=["kind"],  # type: ignore[arg-type]
                    write_page_checksum=True,
                    column_encoding={"address": "DELTA_BINARY_PACKED"},
                ) as writer,
            ):
                while (columns := drain.next()) is not None:
                    writer.write_batch(_batch(columns, schema))
        except OctavoError:
            # The conversion failed, and reports its own error.
            pass
        except Exception as error:
            self._error = _sentence(error)
        finally:
            drain.close()


def _batch(columns: tuple[bytes, bytes, bytes, bytes], schema: pa.Schema) -> pa.RecordBatch:
    kinds, addresses, sizes, threads = columns
    rows = len(kinds)

    def array(bytes_: bytes, type_: pa.DataType) -> Column:
        return pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(bytes_)])

    words = pa.DictionaryArray.from_arrays(array(kinds, pa.int8()), pa.array(KINDS))
    return pa.RecordBatch.from_arrays(
        [
            words,
            array(addresses, pa.uint64()),
            array(sizes, pa.uint16()),
            array(threads, pa.uint32()),
        ],
        schema=schema,
    )
