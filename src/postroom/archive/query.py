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

from postroom.archive.export import working_directory
from postroom.archive.model import HAS_FILE, ArchiveOptions
from postroom.archive.objects import objects_of
from postroom.archive.service import list_segments
from postroom.db.pool import Pool
from postroom.db.queries import load
from postroom.errors import ArchiveExtraMissing, BadInput

_FENCE = load("postroom.archive", "fence.sql")


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """A table."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


async def query_archive(pool: Pool, options: ArchiveOptions, sql: str, *, limit: int = 10_000) -> QueryAnswer:
    """The first rows of the answer. Files of a bucket are brought here first, those of the tables that are named."""
    _load_duckdb()
    named = [table for table in options.tables if re.search(rf"\b{re.escape(table)}\b", sql)]
    segments = [segment for segment in await list_segments(pool, limit=1_000_000) if segment.state in HAS_FILE]
    with working_directory(options) as directory:
        local_files: dict[str, list[str]] = {table: [] for table in named}
        for segment in segments:
            if segment.table_name in local_files:
                local = Path(directory) / f"{segment.id}.parquet"
                await objects_of(segment, options).fetch(segment.path, local)
                local_files[segment.table_name].append(str(local))
        return await asyncio.to_thread(_answer, sql, local_files, limit)


def _answer(sql: str, tables: dict[str, list[str]], limit: int) -> QueryAnswer:
    duckdb = _load_duckdb()
    with duckdb.connect() as engine:
        try:
            _refuse_all_but_questions(engine, sql)
            for table, of_table in tables.items():
                if of_table:
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
