"""SQL queries of the archive."""

from pathlib import Path

import pytest
from tests.support.archive import FEBRUARY, JANUARY, add_attempts, files_of, options_for, run

from postroom.archive.errors import ArchiveDamaged
from postroom.archive.query import query_archive
from postroom.db.room import Room
from postroom.errors import BadInput


@pytest.fixture
async def filled(room: Room, tmp_path: Path) -> Room:
    await add_attempts(room.pool, JANUARY, 12)
    await add_attempts(room.pool, FEBRUARY, 8, first=101)
    await run(room, options_for(tmp_path))
    return room


async def test_all_files_of_a_table_are_one_view(filled: Room, tmp_path: Path) -> None:
    """A query counts and groups across months, with timestamps as timestamps."""
    answer = await query_archive(
        filled.pool,
        options_for(tmp_path),
        "SELECT date_trunc('month', finished_at AT TIME ZONE 'UTC') AS month, count(*) AS n "
        "FROM attempts GROUP BY 1 ORDER BY 1",
    )
    assert answer.columns == ("month", "n")
    assert [(row[0].month, row[1]) for row in answer.rows] == [(1, 12), (2, 8)]


@pytest.mark.parametrize(
    "sql",
    [
        "DROP VIEW attempts",
        "SELECT 1; SELECT 2",
        "COPY attempts TO 'stolen.csv'",
        "ATTACH 'elsewhere.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
    ],
)
async def test_only_one_select_is_accepted(filled: Room, tmp_path: Path, sql: str) -> None:
    """Other statements, and two statements, are rejected."""
    with pytest.raises(BadInput, match="one SELECT"):
        await query_archive(filled.pool, options_for(tmp_path), sql)


async def test_only_the_archive_can_be_read(filled: Room, tmp_path: Path) -> None:
    """A query cannot read other local files."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with pytest.raises(BadInput, match="Permission"):
        await query_archive(filled.pool, options_for(tmp_path), f"SELECT * FROM read_csv('{secret}')")


async def test_query_error_has_duckdb_s_message(filled: Room, tmp_path: Path) -> None:
    """DuckDB's own message is part of the error."""
    with pytest.raises(BadInput, match="nonsense"):
        await query_archive(filled.pool, options_for(tmp_path), "SELECT nonsense FROM attempts")


@pytest.mark.parametrize(
    "sql, rows",
    [
        ("SELECT count(*) FROM ATTEMPTS", [(20,)]),
        ("select COUNT(*) from Attempts where Delivery_Id < 101", [(12,)]),
        ("SELECT count(*), max(opened_at) FROM open_events WHERE NOT is_machine", [(0, None)]),
    ],
)
async def test_table_names_are_case_insensitive(filled: Room, tmp_path: Path, sql: str, rows: object) -> None:
    """A table of which nothing was archived is an empty view."""
    assert (await query_archive(filled.pool, options_for(tmp_path), sql)).rows == rows


async def test_damaged_file_fails_the_query(filled: Room, tmp_path: Path) -> None:
    """The error names the file by its path in the archive."""
    first = files_of(tmp_path)[0]
    whole = first.read_bytes()
    first.write_bytes(whole[:40] + bytes(byte ^ 0xFF for byte in whole[40:80]) + whole[80:])
    with pytest.raises(ArchiveDamaged, match=str(first.relative_to(tmp_path))):
        await query_archive(filled.pool, options_for(tmp_path), "SELECT count(*) FROM attempts")
