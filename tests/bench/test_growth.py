"""The rooms in which growth is measured."""

from urllib.parse import urlsplit, urlunsplit

from bench.growth import CLAIMED_AT_ONCE, FilledRoom, add_waiting, claim
from tests.conftest import TestServer

from postroom.db.pool import Pool

COUNT_WAITING = """
    SELECT count(*) FROM due_deliveries AS w JOIN deliveries AS d ON d.id = w.id
    WHERE d.state = 'queued' AND d.finished_at IS NULL AND d.next_attempt_at = w.due_at AND w.due_at <= now()
"""
COUNT_DUE = "SELECT count(*) FROM due_deliveries"


async def test_waiting_mail_is_claimed_and_waits_again(server: TestServer, database_url: str, pool: Pool) -> None:
    """Each copy is due and agrees with its record. A measured claim takes a hundred of them and is rolled back."""
    url = urlunsplit(urlsplit(server.superuser_url)._replace(path=urlsplit(database_url).path))  # triggers are off
    await add_waiting(FilledRoom(url, pool, 2 * CLAIMED_AT_ONCE))
    async with pool.acquire() as connection:
        assert await claim(connection) > 0
        found = [await connection.fetchval(statement) for statement in (COUNT_WAITING, COUNT_DUE)]
    assert found == [2 * CLAIMED_AT_ONCE + 1] * 2
