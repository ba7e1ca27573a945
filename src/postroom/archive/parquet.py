"""Convert rows to Parquet and back through CSV, which PostgreSQL and Arrow write byte for byte alike.

Verification relies on that: the SHA-256 of a table's CSV must equal that of the CSV made from the file. Every function
here blocks and must run in a thread; memory is bounded by the largest step.
"""

import hashlib
import io
from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Self, TypeAlias

from postroom.archive.errors import ArchiveDamaged, ArchiveExtraMissing
from postroom.archive.model import Column, Manifest

Table: TypeAlias = Any  # pyarrow.Table; the package is imported on demand and has no type hints
SCHEMA_VERSION = 1  # raised when the columns of the files change their meaning
_READ_AT_ONCE = 1024 * 1024  # bounds the memory of a checksum; smaller reads cost more system calls


class ParquetFile:
    """A Parquet file being written: `write` CSV step by step, then `finish`."""

    def __init__(self, path: Path, columns: Sequence[Column], *, time_column: str | None) -> None:
        arrow, parquet = load_arrow(), load_arrow("parquet")
        self._path, self._columns, self._time_column = path, tuple(columns), time_column
        self._schema = arrow.schema([(column.name, _arrow_type(column.type)) for column in columns])
        noted = self._schema.with_metadata({"postroom.schema_version": str(SCHEMA_VERSION)})
        self._writer = parquet.ParquetWriter(path, noted, compression="zstd")
        self._content = hashlib.sha256()
        self._rows = 0
        self._times: tuple[datetime | None, datetime | None] = (None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._writer.close()

    def write(self, csv: bytes) -> None:
        """Write the rows of one CSV step as a row group."""
        if csv:
            self.write_table(_parse(csv, self._schema), csv)

    def write_table(self, table: Table, csv: bytes | None = None) -> None:
        """Write an Arrow table as a row group."""
        if table.num_rows == 0:
            return
        self._content.update(render(table) if csv is None else csv)
        self._rows += table.num_rows
        self._note_times(table)
        self._writer.write_table(table)

    def finish(self) -> Manifest:
        """Close the file and return its manifest."""
        self._writer.close()
        return Manifest(
            rows=self._rows,
            bytes=self._path.stat().st_size,
            min_time=self._times[0],
            max_time=self._times[1],
            columns=self._columns,
            file_sha256=file_sha256(self._path),
            content_sha256=self._content.hexdigest(),
        )

    def _note_times(self, table: Table) -> None:
        if self._time_column is None:
            return
        found = load_arrow("compute").min_max(table.column(self._time_column)).as_py()
        known = [moment for moment in (*self._times, found["min"], found["max"]) if moment is not None]
        self._times = (min(known), max(known)) if known else (None, None)


def read_csv(path: Path) -> Iterator[bytes]:
    """Yield the rows of a file as CSV, one row group at a time, as COPY and the checksum take them."""
    for table in read_tables(path):
        yield render(table)


def read_tables(path: Path) -> Iterator[Table]:
    """Yield the row groups of a file."""
    arrow, parquet = load_arrow(), load_arrow("parquet")
    try:
        with parquet.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                yield file.read_row_group(number, use_threads=False)
    except (arrow.ArrowException, OSError, OverflowError) as error:  # depends on which byte is damaged
        raise ArchiveDamaged(f"{path.name} is damaged: it is not a valid Parquet file: {error}") from error


def file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_AT_ONCE):
            digest.update(chunk)
    return digest.hexdigest()


def text_columns(columns: Sequence[Column]) -> list[str]:
    """The columns that CSV quotes, to distinguish an empty text from NULL."""
    return [column.name for column in columns if column.type == "text"]


def load_arrow(part: str | None = None) -> Any:
    """Import Arrow or a part of it; raises `ArchiveExtraMissing` if it is not installed."""
    try:
        return import_module(f"pyarrow.{part}" if part else "pyarrow")
    except ImportError as error:
        raise ArchiveExtraMissing("pyarrow") from error


def _parse(csv: bytes, schema: Any) -> Table:
    arrow_csv = load_arrow("csv")
    return arrow_csv.read_csv(
        io.BytesIO(csv),
        read_options=arrow_csv.ReadOptions(column_names=schema.names, block_size=len(csv), use_threads=False),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=arrow_csv.ConvertOptions(
            column_types=schema,
            null_values=[""],
            true_values=["true"],
            false_values=["false"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def render(table: Table) -> bytes:
    """Rows as CSV, in the format of PostgreSQL's COPY."""
    arrow_csv = load_arrow("csv")
    rendered = io.BytesIO()
    arrow_csv.write_csv(table, rendered, arrow_csv.WriteOptions(include_header=False))
    return rendered.getvalue()


def _arrow_type(name: str) -> Any:
    arrow = load_arrow()
    kinds = {
        "int16": arrow.int16(),
        "int32": arrow.int32(),
        "int64": arrow.int64(),
        "bool": arrow.bool_(),
        "date": arrow.date32(),
        "timestamp": arrow.timestamp("us", "UTC"),
        "text": arrow.string(),
    }
    return kinds[name]
