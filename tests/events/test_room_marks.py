"""The marks of the room: one number that every accepted mail reads in place of the table `event_clock`."""

import asyncio
from datetime import UTC, datetime

import pytest
from tests.events.conftest import Opener
from tests.support.events import LEVELS
from tests.support.sessions import until_blocked

import postroom
from postroom.db.pool import Pool
from postroom.delivery.model import DeliveryId
from postroom.events.service import adopt_restored_events
from postroom.rooms.lifecycle import migrate_room
from postroom.settings import Settings

ADA = "ada@example.org"
FORGET = "SELECT setval('room_marks', 0)"
KNOWN = "SELECT are_marks_known(room_marks())"
MARKS = "SELECT room_marks()"


async def send(connection: object) -> DeliveryId:
    return await postroom.send(connection, to=ADA, subject="Hello", text="Hello Ada")


async def test_a_migrated_room_has_known_marks(pool: Pool, database_url: str) -> None:
    """Otherwise every mail would take the longer way."""
    await pool.execute(FORGET)
    await migrate_room(database_url, Settings(), actor="tests")
    assert await pool.fetchval(MARKS) == 0


async def test_a_change_that_is_rolled_back_leaves_marks_unknown(pool: Pool) -> None:
    """A sequence is not rolled back. Unknown marks are always correct, and verifying reads the table."""
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT mark_room(p_has_limits => true)")
        await transaction.rollback()
    assert not await pool.fetchval(KNOWN)
    assert not await adopt_restored_events(pool)
    assert await pool.fetchval(MARKS) == 0


async def test_marks_stay_unknown_while_a_change_is_open(pool: Pool, opened: Opener) -> None:
    """With the marks of before the change, mail would be accepted although the room is closed. No process waits."""
    changing = await opened()
    async with changing.transaction():
        await changing.execute("SELECT mark_room(p_has_erased => true, p_has_limits => true)")
        assert not await adopt_restored_events(pool)
        assert not await pool.fetchval(KNOWN)
    assert not await adopt_restored_events(pool)
    assert await pool.fetchval(MARKS) == 3


async def test_a_change_waits_for_marks_that_are_being_verified(pool: Pool, opened: Opener) -> None:
    """A change that was committed between reading the table and setting the sequence would be lost."""
    await pool.execute(FORGET)
    verifying = await opened()
    async with verifying.transaction():
        await verifying.execute("SELECT verify_room_marks()")
        changing = asyncio.ensure_future(pool.execute("SELECT mark_room(p_has_limits => true)"))
        await until_blocked(pool, unless=changing)
        assert await pool.fetchval(MARKS) == 0
    await changing
    assert not await pool.fetchval(KNOWN)


@pytest.mark.parametrize("change", ["DELETE FROM room_limits", "SELECT adopt_restored_events(true)"])
async def test_a_transaction_does_not_verify_its_own_change(pool: Pool, opened: Opener, change: str) -> None:
    """A sequence is not rolled back: the marks of the change would stay, and mail be accepted in a closed room."""
    connection = await opened()
    await connection.execute("INSERT INTO room_limits (expires_at) VALUES ($1)", datetime(2026, 1, 1, tzinfo=UTC))
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(change)
    await connection.execute("SELECT adopt_restored_events()")
    await transaction.rollback()
    assert not await pool.fetchval(KNOWN)
    assert not await adopt_restored_events(pool)
    assert await pool.fetchval(MARKS) == 2


async def test_marks_are_verified_beside_an_open_append(pool: Pool, opened: Opener) -> None:
    """An append at a stricter isolation level locks the clock against changes until it ends."""
    await pool.execute(FORGET)
    appending = await opened()
    async with appending.transaction():
        await appending.execute("SELECT epoch FROM event_clock FOR SHARE")
        assert not await adopt_restored_events(pool)
        assert await pool.fetchval(MARKS) == 0


async def test_marks_of_a_copy_on_the_same_server_are_unknown(pool: Pool) -> None:
    """pg_dump reads a sequence as it is, and tables by its snapshot: the marks may be later than the table."""
    copied = await pool.fetchval("SELECT last_value FROM room_marks")
    await pool.execute("DROP SEQUENCE room_marks")
    await pool.execute("CREATE SEQUENCE room_marks MINVALUE 0")
    await pool.execute("SELECT setval('room_marks', $1)", copied)
    assert not await pool.fetchval(KNOWN)


async def test_marks_of_a_later_server_are_unknown(pool: Pool) -> None:
    """A room that was moved comes with the marks of another server, which may have started later than this one."""
    await pool.execute("SELECT setval('room_marks', base_of_marks() + (1 << 17))")
    assert not await pool.fetchval(KNOWN)


@pytest.mark.parametrize("is_known", [True, False])
async def test_limits_apply_whether_marks_are_known_or_not(pool: Pool, opened: Opener, is_known: bool) -> None:  # noqa: FBT001 - a case
    """Marks that are unknown stand for every mark."""
    connection = await opened()
    await connection.execute("INSERT INTO room_limits (expires_at) VALUES ($1)", datetime(2026, 1, 1, tzinfo=UTC))
    assert not await adopt_restored_events(pool)
    assert await connection.fetchval(MARKS) == 2
    if not is_known:
        await connection.execute(FORGET)
    with pytest.raises(postroom.errors.PostroomError, match="accepts no mail since"):
        await send(connection)


@pytest.mark.parametrize("is_known", [True, False])
async def test_erased_addresses_are_found_whether_marks_are_known_or_not(
    pool: Pool,
    opened: Opener,
    is_known: bool,  # noqa: FBT001 - a case
) -> None:
    """Mail to a person who was erased is suppressed."""
    connection = await opened()
    await connection.execute("SELECT make_erasure_key()")
    await connection.execute(
        "INSERT INTO suppressions (address, scope, reason) VALUES (erased_address($1), 'all', 'manual')", ADA
    )
    assert not await adopt_restored_events(pool)
    assert await connection.fetchval(MARKS) == 1
    if not is_known:
        await connection.execute(FORGET)
    await send(connection)
    assert await connection.fetchval("SELECT state::text FROM deliveries") == "suppressed"


@pytest.mark.parametrize("level", LEVELS)
async def test_mail_with_an_old_snapshot_is_of_the_new_epoch(pool: Pool, opened: Opener, level: str) -> None:
    """A mail of the ended epoch would come before facts that followers have read."""
    connection = await opened()
    async with connection.transaction(isolation=level):
        await connection.fetchval("SELECT epoch FROM event_clock")
        assert await adopt_restored_events(pool, force=True)
        assert not await adopt_restored_events(pool)
        assert await pool.fetchval(MARKS) == 4
        await send(connection)
    assert await pool.fetchval("SELECT transaction_id::text::bigint >> 48 FROM all_steps") == 1


async def test_mail_waits_for_an_epoch_that_is_about_to_begin(pool: Pool, opened: Opener) -> None:
    """It would be committed after the facts of the new epoch, with a transaction id before them."""
    forcing, sending = await opened(), await opened()
    async with forcing.transaction():
        await forcing.execute("SELECT adopt_restored_events(true)")
        mail = asyncio.ensure_future(send(sending))
        await until_blocked(pool, unless=mail)
    await mail
    assert await pool.fetchval("SELECT transaction_id::text::bigint >> 48 FROM all_steps") == 1


async def test_an_epoch_waits_for_mail_that_has_read_the_marks(pool: Pool, opened: Opener) -> None:
    """The mail has an id of the old epoch and has written nothing yet: all followers would skip its fact."""
    locking, sending = await opened(), await opened()
    await pool.execute("INSERT INTO room_limits (expires_at) VALUES ($1)", datetime(2126, 1, 1, tzinfo=UTC))
    assert not await adopt_restored_events(pool)
    async with locking.transaction():
        await locking.execute("LOCK TABLE room_limits")
        mail = asyncio.ensure_future(send(sending))
        await until_blocked(pool, unless=mail)
        forced = asyncio.ensure_future(adopt_restored_events(pool, force=True))
        await until_blocked(pool, 2, unless=forced)
        assert not forced.done()
    await mail
    assert await forced
    assert await pool.fetchval("SELECT transaction_id::text::bigint >> 48 FROM all_steps") == 0
