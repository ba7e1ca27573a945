"""Index bloat, found without an extension and without false alarms."""

from postroom.cli import room_checks
from postroom.db.pool import Pool
from postroom.runtime.finding import Severity

MEGABYTE = 1024 * 1024

FILL = """
    INSERT INTO deliveries (
        state, finished_at, ladder, source, recipient_email, idempotency_key, request_fingerprint,
        idempotency_expires_at
    )
    SELECT 'sent', now(), 'generic', 'test', 'ada@example.org', md5(n::text), n, now()
    FROM generate_series(1, 40000) AS n
"""


async def test_bloated_index_is_named_with_its_reindex_statement(pool: Pool) -> None:
    """An index that keeps every tenth of 40,000 entries is reported; after the REINDEX it is not."""
    async with pool.acquire() as connection:
        await connection.execute(FILL)
        await connection.execute("SELECT pg_stat_force_next_flush()")
        await connection.execute("VACUUM ANALYZE")
        assert (await room_checks.examine_indexes(connection, least_waste=MEGABYTE)).verdict is Severity.OK
        await connection.execute("DELETE FROM deliveries WHERE id % 10 <> 0")
        await connection.execute("SELECT pg_stat_force_next_flush()")
        await connection.execute("VACUUM ANALYZE")
        found = await room_checks.examine_indexes(connection, least_waste=MEGABYTE)
        assert found.verdict is Severity.WARN
        assert found.found.startswith("deliveries_idempotency_idx")
        assert found.advice == 'REINDEX INDEX CONCURRENTLY "postroom"."deliveries_idempotency_idx"'
        await connection.execute(found.advice)
        again = await room_checks.examine_indexes(connection, least_waste=MEGABYTE)
        assert "deliveries_idempotency_idx" not in again.found


async def test_a_new_room_has_nothing_to_rebuild(pool: Pool) -> None:
    """Empty indexes are small, whatever the statistics say."""
    async with pool.acquire() as connection:
        assert (await room_checks.examine_indexes(connection)).verdict is Severity.OK
