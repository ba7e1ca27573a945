"""The caller pays for its rows and nothing else: accepting takes no shared lock and writes no other table."""

import pytest
from tests.support.acceptance import WAYS, Accept

from postroom.db.pool import connect
from postroom.delivery.model import Lane

ADVISORY = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
WRITTEN = """
    SELECT relname::text, n_tup_ins, n_tup_upd, n_tup_del
    FROM pg_stat_xact_user_tables
    WHERE n_tup_ins + n_tup_upd + n_tup_del > 0
    ORDER BY relname
"""


@pytest.mark.parametrize("send", WAYS.values(), ids=WAYS)
async def test_accepting_takes_no_advisory_lock_and_inserts_three_rows(database_url: str, send: Accept) -> None:
    """In the open transaction of the caller: the delivery, its content, and its place in the queue."""
    connection = await connect(database_url, "postroom")  # a new one: the figures include its earlier transactions
    try:
        async with connection.transaction():
            await send(connection, Lane.TRANSACTIONAL)
            assert await connection.fetchval(ADVISORY) == 0
            assert [tuple(row) for row in await connection.fetch(WRITTEN)] == [
                ("deliveries", 1, 0, 0),
                ("delivery_payloads", 1, 0, 0),
                ("due_deliveries", 1, 0, 0),
            ]
    finally:
        await connection.close()
