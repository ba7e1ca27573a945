"""Questions to the archive, in SQL, answered by DuckDB from the files themselves.

Every archived table is a view of its own name. Only a question is taken: one statement, and it must be a SELECT. The
engine lives in memory and may read the archive's files and nothing else.
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
    """A table."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


async def query_archive(pool: Pool, options: ArchiveOptions, sql: str, *, limit: int = 10_000) -> QueryAnswer:
    """The first rows of the answer. Files of a bucket are brought here first, those of the tables that are named."""
    _load_duckdb()
    named = [table for table in options.tables if re.search(rf"\b{re.escape(table)}\b", sql, re.IGNORECASE)]
    with working_directory(options) as directory:
        files = {table: await _bring(pool, options, table, Path(directory)) for table in named}
        return await asyncio.to_thread(_answer, sql, files, limit)


async def _bring(pool: Pool, options: ArchiveOptions, table: str, directory: Path) -> list[str]:
    """The files of a table, on this machine; a table without any gets one without rows."""
    brought = []
    async for segment in each_with_file(pool, table):
        brought.append(directory / f"{segment.id}.parquet")
        await fetch_proven(objects_of(segment, options), segment, brought[-1])
    if not brought:
        async with pool.acquire() as connection:
            columns = await store.list_columns(connection, source_name=table)
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
    """From here on the engine reads these files and nothing else, and nobody can change that."""
    engine.execute(_FENCE["allow_files"].sql, [list(paths)])
    engine.execute(_FENCE["close_everything_else"].sql)
    engine.execute(_FENCE["lock_settings"].sql)


def _load_duckdb() -> Any:
    try:
        return import_module("duckdb")
    except ImportError as error:
        raise ArchiveExtraMissing("duckdb") from error
