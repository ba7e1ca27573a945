"""SQL queries of the archive, run by DuckDB on the files.

Each archived table is a view of the same name. Only one statement is accepted, and it must be a SELECT. DuckDB runs in
memory and can read only the archive's files.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from postroom.archive import store
from postroom.archive.errors import ArchiveExtraMissing
from postroom.archive.export import fetch_proven, working_directory
from postroom.archive.model import ArchiveOptions, Column
from postroom.archive.objects import objects_of
from postroom.archive.parquet import ParquetFile
from postroom.archive.service import each_with_file
from postroom.db.pool import Pool
from postroom.db.queries import load
from postroom.errors import BadInput

_FENCE = load("postroom.archive", "fence.sql")


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The result of a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


async def query_archive(pool: Pool, options: ArchiveOptions, sql: str, *, limit: int = 10_000) -> QueryAnswer:
    """The first rows of the result. Files in a bucket are downloaded first, for the tables named in the query."""
    _load_duckdb()
    named = [table for table in options.tables if re.search(rf"\b{re.escape(table)}\b", sql, re.IGNORECASE)]
    with working_directory(options) as directory:
        files = {table: await _bring(pool, options, table, Path(directory)) for table in named}
        return await asyncio.to_thread(_answer, sql, files, limit)


async def _bring(pool: Pool, options: ArchiveOptions, table: str, directory: Path) -> list[str]:
    """The local files of a table; a table without files gets an empty one."""
    brought = []
    async for segment in each_with_file(pool, table):
        brought.append(directory / f"{segment.id}.parquet")
        await fetch_proven(objects_of(segment, options), segment, brought[-1])
    if not brought:
        columns = await store.list_columns(pool, source_name=table)
        brought.append(directory / f"{table}.parquet")
        await asyncio.to_thread(_write_empty, brought[-1], columns)
    return [str(path) for path in brought]


def _write_empty(path: Path, columns: Sequence[Column]) -> None:
    with ParquetFile(path, columns, time_column=None) as file:
        file.finish()


def _answer(sql: str, tables: dict[str, list[str]], limit: int) -> QueryAnswer:
    duckdb = _load_duckdb()
    with duckdb.connect() as engine:
        try:
            _refuse_all_but_questions(engine, sql)
            for table, of_table in tables.items():
                engine.read_parquet(of_table, union_by_name=True).create_view(table)
            _fence(engine, [path for of_table in tables.values() for path in of_table])
            reader = engine.sql(sql).limit(limit).to_arrow_table()
        except duckdb.Error as error:
            raise BadInput.of("sql", str(error)) from error
    return QueryAnswer(tuple(reader.column_names), [tuple(row.values()) for row in reader.to_pylist()])


def _refuse_all_but_questions(engine: Any, sql: str) -> None:
    statements: Sequence[Any] = engine.extract_statements(sql)
    if len(statements) != 1 or statements[0].type.name != "SELECT":
        raise BadInput.of("sql", "must be one SELECT")


def _fence(engine: Any, paths: Sequence[str]) -> None:
    """Restrict DuckDB to these files and lock its settings."""
    engine.execute(_FENCE["allow_files"].sql, [list(paths)])
    engine.execute(_FENCE["close_everything_else"].sql)
    engine.execute(_FENCE["lock_settings"].sql)


def _load_duckdb() -> Any:
    try:
        return import_module("duckdb")
    except ImportError as error:
        raise ArchiveExtraMissing("duckdb") from error
