"""Helpers of archive tests: months of attempts, an archive in a folder, the ids in tables and files."""

from datetime import UTC, datetime
from pathlib import Path

from postroom.archive.model import ArchiveOptions, RunReport
from postroom.archive.service import run_archive
from postroom.db.pool import Pool
from postroom.db.room import Room

NOW = datetime(2030, 6, 15, 12, tzinfo=UTC)
JANUARY, FEBRUARY, MAY = (datetime(2030, month, 1, tzinfo=UTC) for month in (1, 2, 5))
ACTOR = "tests"


def at_now() -> datetime:
    return NOW


def options_for(folder: Path, **chosen: object) -> ArchiveOptions:
    """Options with small steps and without pauses."""
    usual = {"url": str(folder), "pages": 2, "batch_limit": 50, "work_dir": folder / "work"}
    return ArchiveOptions(**{**usual, **chosen})  # type: ignore[arg-type]


async def run(room: Room, options: ArchiveOptions, now: datetime = NOW) -> RunReport:
    return await run_archive(room, options, actor=ACTOR, clock=lambda: now)


async def make_months(pool: Pool, *months: datetime) -> None:
    for month in months:
        await pool.execute(
            f"CREATE TABLE attempts_{month:%Y_%m} PARTITION OF attempts "
            f"FOR VALUES FROM ('{month:%Y-%m-01}Z') TO ('{month:%Y-%m-01}Z'::timestamptz + interval '1 month')"
        )


async def add_attempts(pool: Pool, month: datetime, count: int, *, first: int = 1) -> None:
    """Add attempts within a month, with values that are hard to encode."""
    await pool.execute(
        """
        INSERT INTO attempts (delivery_id, attempt_no, outcome, lane, code, started_at, finished_at, transport,
            reply_text, remote_host, campaign_id, domain)
        SELECT n, 1, 'sent', 'bulk', CASE WHEN n % 3 = 0 THEN 250 END, $1::timestamptz,
            $1::timestamptz + n * interval '1.000001 s',
            CASE WHEN n % 5 = 0 THEN '' ELSE 'smtp' END,
            CASE n % 4 WHEN 0 THEN NULL WHEN 1 THEN E'two\nlines, "quoted"\r\n' WHEN 2 THEN 'ünïcödé \\N' ELSE ' ' END,
            'mx.example.org:25', CASE WHEN n % 2 = 0 THEN n END, 'example.org'
        FROM generate_series($2::bigint, $2 + $3 - 1) AS n
        """,
        month,
        first,
        count,
    )


async def delivery_ids(pool: Pool, table: str = "attempts") -> list[int]:
    return [row[0] for row in await pool.fetch(f"SELECT delivery_id FROM {table} ORDER BY 1")]


async def tables(pool: Pool, like: str = "attempts%") -> list[str]:
    rows = await pool.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'postroom'::regnamespace AND relkind IN ('r', 'p') "
        "AND relname LIKE $1 ORDER BY 1",
        like,
    )
    return [row[0] for row in rows]


def files_of(folder: Path, table: str = "attempts") -> list[Path]:
    """The files of a table, of all rooms that share the folder."""
    return sorted(folder.glob(f"*/{table}/*/*.parquet"))


def archived_ids(folder: Path, table: str = "attempts") -> list[int]:
    """The ids of all rows in all files, read without the database."""
    from postroom.archive.parquet import read_tables

    found = files_of(folder, table)
    return sorted(
        value for path in found for part in read_tables(path) for value in part.column("delivery_id").to_pylist()
    )
