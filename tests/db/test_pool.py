"""Settings of every connection, and translation of constraint errors."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.conftest import SCHEMA
from tests.support.schedule import POSTING, person

from postroom.db.pool import Pool, connect, open_pool
from postroom.errors import BadInput
from postroom.schedule import service


async def test_session_time_zone_is_utc(pool: Pool, database_url: str) -> None:
    """In a pool and on a single connection, independent of the database's time zone."""
    name = await pool.fetchval("SELECT current_database()")
    await pool.execute(f"ALTER DATABASE \"{name}\" SET timezone = 'Pacific/Kiritimati'")
    async with await open_pool(database_url, SCHEMA, size=1) as fresh:
        assert await fresh.fetchval("SHOW timezone") == "UTC"
    session = await connect(database_url, SCHEMA)
    assert await session.fetchval("SHOW timezone") == "UTC"
    await session.close()


async def test_constraint_error_names_the_field(pool: Pool) -> None:
    """A process whose clock is ahead passes a date that the table rejects; the error equals the service's own."""
    now = datetime.now(UTC)
    with pytest.raises(BadInput) as refused:
        await service.create_user(
            pool, person(date_of_birth=now.date()), policy=POSTING, now=now + timedelta(days=1), actor="tests"
        )
    assert [error.field for error in refused.value.errors] == ["date_of_birth"]
