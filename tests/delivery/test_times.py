"""The time of a delivery: read from the clock with its id, so that listings find a time by ids."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.support.builders import a_checked_mail, accepted, suppress

from postroom.db.pool import Pool, Session, connect
from postroom.db.room import Room
from postroom.delivery import service, store
from postroom.delivery.filter import DeliveryFilter

Accept = Callable[[Session, int], Awaitable[object]]

SEND = "SELECT send(ARRAY[$1], 'Late', 'Late.')"
ENQUEUE = """
    SELECT enqueue_deliveries(ARRAY[nextval('deliveries_id_seq')], ARRAY[now()], '{NULL}', '{late@example.org}',
        '{NULL}', '{NULL}', 'bulk', 'shop', 7, now())
"""
WAYS: dict[str, Accept] = {
    "accept": lambda connection, _ended: service.accept(connection, a_checked_mail()),
    "send": lambda connection, _ended: connection.execute(SEND, "late@example.org"),
    "send to a suppressed address": lambda connection, _ended: connection.execute(SEND, "stopped@example.org"),
    "enqueue": lambda connection, _ended: connection.execute(ENQUEUE),
    "resend": lambda connection, ended: store.resend(connection, delivery_ids=[ended], now=None),
}
"""Ways to accept a mail on a connection; the second parameter is an ended delivery."""


@pytest.fixture
async def long(room: Room) -> AsyncIterator[Session]:
    """A connection of an application."""
    connection = await connect(room.url, room.name)
    yield connection
    await connection.close()


async def an_ended_mail(pool: Pool) -> int:
    [ended] = await accepted(pool)
    await service.cancel(pool, ended, actor="cli:ada")
    return ended


@pytest.mark.parametrize("accept", WAYS.values(), ids=WAYS)
async def test_times_follow_ids_in_a_long_transaction(pool: Pool, long: Session, accept: Accept) -> None:
    """A mail is listed at the time at which it got its id, not at the start of its transaction."""
    await suppress(pool, "stopped@example.org")
    ended = await an_ended_mail(pool)
    async with long.transaction():
        await long.execute("SELECT now()")
        [between] = await accepted(pool)
        moment = await pool.fetchval("SELECT clock_timestamp()")
        await accept(long, ended)
    [late], _ = await service.list_deliveries(pool, DeliveryFilter(created_from=moment))
    [newest, *_], _ = await service.list_deliveries(pool, DeliveryFilter(created_before=moment))
    assert late.id > newest.id == between


async def test_the_date_is_the_time_of_acceptance(pool: Pool, long: Session) -> None:
    """Claims read the Date of a mail only if it differs from the time at which it was accepted."""
    ended = await an_ended_mail(pool)
    async with long.transaction():
        for accept in WAYS.values():
            await accept(long, ended)
    assert await pool.fetchval("SELECT bool_and(dated_at = created_at) FROM deliveries")


async def test_mail_cancelled_in_its_own_transaction_ends_after_its_start(pool: Pool, long: Session) -> None:
    """A delivery that finished before a time was accepted before it: listings rely on that."""
    async with long.transaction():
        await long.execute("SELECT now()")
        accepted_one = await service.accept(long, a_checked_mail())
        await long.execute("SELECT cancel_deliveries(ARRAY[$1::bigint], 'test')", accepted_one.id)
    assert await pool.fetchval("SELECT finished_at >= created_at FROM deliveries")
