"""What every connection of the room has in common, and what a table's refusal becomes."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.conftest import SCHEMA
from tests.support.schedule import POSTING, person

from postroom.db.pool import Pool, connect, open_pool
from postroom.errors import BadInput
from postroom.schedule import service


async def test_the_day_is_the_day_in_utc(pool: Pool, database_url: str) -> None:
    """In a pool and on a connection of its own, whatever the database says."""
    name = await pool.fetchval("SELECT current_database()")
    await pool.execute(f"ALTER DATABASE \"{name}\" SET timezone = 'Pacific/Kiritimati'")
    async with await open_pool(database_url, SCHEMA, size=1) as fresh:
        assert await fresh.fetchval("SHOW timezone") == "UTC"
    session = await connect(database_url, SCHEMA)
    assert await session.fetchval("SHOW timezone") == "UTC"
    await session.close()


async def test_a_day_that_only_the_table_refuses_names_its_field(pool: Pool) -> None:
    """A process whose clock is ahead takes today for the past; the table does not, and says so as the service would."""
    now = datetime.now(UTC)
    with pytest.raises(BadInput) as refused:
        await service.create_user(pool, person(date_of_birth=now.date()), policy=POSTING, now=now + timedelta(days=1))
    assert [error.field for error in refused.value.errors] == ["date_of_birth"]
