"""Acceptance: atomic, once per idempotency key, in any caller's transaction."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import asyncpg
import pytest
from tests.support.builders import (
    NOON,
    a_checked_mail,
    a_mail,
    accepted,
    addresses,
    outcomes_of,
    state_of,
    suppress,
    until,
)

from postroom.db.pool import Pool, Session, connect
from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.check import check_batch
from postroom.delivery.model import Acceptance, DeliveryRequest, DeliveryState, Lane
from postroom.errors import BadInput, IdempotencyConflict
from postroom.post.address import Address
from postroom.post.mime import Attachment

WEEK = timedelta(days=7)


@asynccontextmanager
async def connections(room: Room, count: int) -> AsyncIterator[list[Session]]:
    """Open this many connections."""
    async with AsyncExitStack() as stack:
        opened = await asyncio.gather(*(connect(room.url, room.name) for _ in range(count)))
        for connection in opened:
            stack.push_async_callback(connection.close)
        yield list(opened)


async def count(pool: Pool) -> int:
    async with pool.acquire() as connection:
        return int(await connection.fetchval("SELECT count(*) FROM deliveries"))


# ── what is stored ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_accepted_request_is_queued(pool: Pool) -> None:
    """A request without a template is queued and can be claimed."""
    [delivery] = await accepted(pool)
    assert await state_of(pool, delivery) is DeliveryState.QUEUED
    assert await outcomes_of(pool, delivery) == {"ada@example.org": "pending"}


async def test_everything_that_was_asked_for_is_stored(pool: Pool) -> None:
    """Every field of a request can be read back from its delivery."""
    request = DeliveryRequest(
        to=(Address("a@example.org", "Ann"),),
        cc=addresses("c@example.org"),
        bcc=addresses("d@example.org"),
        reply_to=addresses("r@example.org"),
        sender=Address("s@example.org", "Desk"),
        subject="Grüße",
        text="Hi",
        html="<p>Hi</p>",
        headers={"X-Campaign": "spring"},
        attachments=(Attachment("a.txt", "text/plain", "aGk=", "cid-1"),),
        tags={"kind": "test"},
        custom_data={"order": [1, 2.5, None, {"deep": True}]},
        lane=Lane.BULK,
        source="shop",
        idempotency_key="order-7",
        send_at=NOON + timedelta(hours=1),
        expires_at=NOON + timedelta(hours=2),
        ladder="greeting",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    [delivery] = await accepted(pool, request, now=NOON)
    found = await service.get_delivery(pool, delivery)
    recipients = [(r.kind.value, r.position, r.address, r.name) for r in found.recipients]
    assert recipients == [
        ("to", 0, "a@example.org", "Ann"),
        ("cc", 0, "c@example.org", None),
        ("bcc", 0, "d@example.org", None),
        ("reply_to", 0, "r@example.org", None),
    ]
    for name in ("subject", "text", "html", "headers", "attachments", "tags", "custom_data", "lane", "source"):
        assert getattr(found, name) == getattr(request, name)
    for name in ("idempotency_key", "expires_at", "ladder", "traceparent", "sender"):
        assert getattr(found, name) == getattr(request, name)
    assert (found.next_attempt_at, found.created_at) == (request.send_at, NOON)


@pytest.mark.parametrize(
    "request_, ladder",
    [(a_mail(), "generic"), (a_mail(lane=Lane.AUTH), "auth"), (a_mail(lane=Lane.BULK), "generic")],
    ids=["transactional", "auth", "bulk"],
)
async def test_a_lane_brings_its_ladder(pool: Pool, request_: DeliveryRequest, ladder: str) -> None:
    """A request without a ladder gets the ladder of its lane."""
    [delivery] = await accepted(pool, request_)
    assert (await service.get_delivery(pool, delivery)).ladder == ladder


async def test_bad_input_stores_nothing(pool: Pool) -> None:
    """One invalid request rejects its whole batch and names the request and the field."""
    async with pool.acquire() as connection:
        with pytest.raises(BadInput) as caught:
            await service.accept_batch(connection, check_batch([a_mail(), a_mail(subject="two\r\nlines")]))
    assert [error.field for error in caught.value.errors] == ["[1].subject"]
    assert await count(pool) == 0


async def test_an_empty_batch_is_nothing(pool: Pool) -> None:
    """An empty batch returns no answers and runs no statement."""
    async with pool.acquire() as connection:
        assert await service.accept_batch(connection, []) == []


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_thirty_two_clients_with_one_key_make_one_delivery(room: Room) -> None:
    """Thirty-two connections bring the same key at once: one row, one accepted, all with the same id."""
    async with connections(room, 32) as clients:
        answers = await asyncio.gather(
            *(service.accept(client, a_checked_mail(idempotency_key="order-7")) for client in clients)
        )
    assert len({answer.id for answer in answers}) == 1
    assert Counter(answer.acceptance for answer in answers) == {Acceptance.ACCEPTED: 1, Acceptance.REPLAYED: 31}
    assert {answer.state for answer in answers} == {DeliveryState.QUEUED}
    assert await count(room.pool) == 1


async def test_the_second_waits_for_the_first_to_commit(room: Room) -> None:
    """A request waits for an open transaction with its key; after a rollback it gets the key."""
    async with connections(room, 2) as (first, second):
        transaction = first.transaction()
        await transaction.start()
        lost = await service.accept(first, a_checked_mail(idempotency_key="k"))
        waiting = asyncio.create_task(service.accept(second, a_checked_mail(idempotency_key="k")))
        await until(room.pool, "EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        assert not waiting.done()
        await transaction.rollback()
        answer = await asyncio.wait_for(waiting, 60)
    assert answer.acceptance is Acceptance.ACCEPTED
    assert answer.id != lost.id


async def test_a_key_with_another_body_is_a_conflict(pool: Pool) -> None:
    """The same key with another body is rejected and stores nothing."""
    await accepted(pool, a_mail(idempotency_key="k"))
    async with pool.acquire() as connection:
        with pytest.raises(IdempotencyConflict):
            await service.accept(connection, a_checked_mail(idempotency_key="k", text="Something else."))
    assert await count(pool) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "Other"},
        {"html": "<p>Other</p>"},
        {"to": addresses("bob@example.org")},
        {"cc": addresses("bob@example.org")},
        {"to": (Address("ada@example.org", "Ada"),)},
        {"headers": {"X-A": "1"}},
        {"tags": {"a": "1"}},
        {"custom_data": {"a": 1}},
        {"lane": Lane.BULK},
        {"send_at": NOON},
        {"sender": Address("other@example.org")},
        {"attachments": (Attachment("a.txt", "text/plain", "aGk="),)},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_any_difference_in_content_is_a_conflict(pool: Pool, change: dict[str, object]) -> None:
    """Every part of what is sent belongs to the fingerprint."""
    await accepted(pool, a_mail(idempotency_key="k"))
    async with pool.acquire() as connection:
        [answer] = await service.accept_batch(connection, [a_checked_mail(idempotency_key="k", **change)])
    assert answer.acceptance is Acceptance.CONFLICT


async def test_text_that_moves_to_html_is_a_conflict(pool: Pool) -> None:
    """The fingerprint keeps text and HTML apart."""
    await accepted(pool, a_mail(idempotency_key="k", text="ab", html="c"))
    async with pool.acquire() as connection:
        [answer] = await service.accept_batch(connection, [a_checked_mail(idempotency_key="k", text="a", html="bc")])
    assert answer.acceptance is Acceptance.CONFLICT


async def test_a_trace_is_not_part_of_the_request(pool: Pool) -> None:
    """A retry with a new trace is the same request."""
    [first] = await accepted(pool, a_mail(idempotency_key="k", traceparent="00-a-b-01"))
    [second] = await accepted(pool, a_mail(idempotency_key="k", traceparent="00-c-d-01"))
    assert first == second


async def test_the_order_of_variables_does_not_matter(pool: Pool) -> None:
    """Two spellings of the same object are the same request."""
    [first] = await accepted(pool, a_mail(template="welcome", variables={"a": 1, "b": 2}, idempotency_key="k"))
    [second] = await accepted(pool, a_mail(template="welcome", variables={"b": 2, "a": 1}, idempotency_key="k"))
    assert first == second


async def test_a_replay_answers_the_state_of_now(pool: Pool) -> None:
    """A replay returns the first id with the present state of the delivery."""
    [delivery] = await accepted(pool, a_mail(idempotency_key="k"))
    await service.cancel(pool, delivery, actor="cli:ada")
    async with pool.acquire() as connection:
        answer = await service.accept(connection, a_checked_mail(idempotency_key="k"))
    assert (answer.id, answer.state, answer.replayed) == (delivery, DeliveryState.CANCELLED, True)


async def test_an_expired_key_can_be_used_again(pool: Pool) -> None:
    """An expired key creates a new delivery; the old one keeps its row."""
    [old] = await accepted(pool, a_mail(idempotency_key="k"), now=NOON)
    [same] = await accepted(pool, a_mail(idempotency_key="k"), now=NOON + WEEK - timedelta(seconds=1))
    [new] = await accepted(pool, a_mail(idempotency_key="k", text="Other."), now=NOON + WEEK)
    assert (same == old, new == old) == (True, False)
    assert (await service.get_delivery(pool, old)).idempotency_key is None
    assert (await service.get_delivery(pool, new)).idempotency_key == "k"


async def test_many_clients_take_an_expired_key_once(room: Room) -> None:
    """Eight requests with the same expired key create one delivery."""
    await accepted(room.pool, a_mail(idempotency_key="k"), now=NOON)
    later = NOON + WEEK
    async with connections(room, 8) as clients:
        answers = await asyncio.gather(
            *(service.accept(client, a_checked_mail(idempotency_key="k"), now=later) for client in clients)
        )
    assert len({answer.id for answer in answers}) == 1
    assert await count(room.pool) == 2


async def test_keys_belong_to_their_source(pool: Pool) -> None:
    """Two sources may use the same key independently."""
    ids = await accepted(
        pool, a_mail(idempotency_key="k", source="shop"), a_mail(idempotency_key="k", source="forum", text="Other.")
    )
    assert len(set(ids)) == 2


async def test_duplicates_inside_a_batch_are_recognised(pool: Pool) -> None:
    """The order of the batch decides: accepted, then replayed, then conflict."""
    async with pool.acquire() as connection:
        answers = await service.accept_batch(
            connection,
            [
                a_checked_mail(idempotency_key="k"),
                a_checked_mail(),
                a_checked_mail(idempotency_key="k"),
                a_checked_mail(idempotency_key="k", text="Other."),
            ],
        )
    assert [answer.acceptance.value for answer in answers] == ["accepted", "accepted", "replayed", "conflict"]
    assert answers[0].id == answers[2].id == answers[3].id
    assert await count(pool) == 2


async def test_batches_in_opposite_order_do_not_lock_each_other_up(room: Room) -> None:
    """Many batches with the same keys, forwards and backwards at once: no deadlock, one row per key."""
    requests = [a_checked_mail(f"p{n}@example.org", idempotency_key=f"k{n}") for n in range(500)]
    async with connections(room, 8) as clients:
        batches = [requests if n % 2 else requests[::-1] for n in range(8)]
        await asyncio.gather(
            *(service.accept_batch(client, batch) for client, batch in zip(clients, batches, strict=True))
        )
    assert await count(room.pool) == 500


async def test_new_known_repeated_and_expired_keys_share_a_batch(pool: Pool) -> None:
    """Each request has its own answer, and every new one is stored with its content and waits in the queue."""
    known, expired = await accepted(pool, a_mail(idempotency_key="known"), a_mail(idempotency_key="expired"), now=NOON)
    keys = ["new", "known", "expired", "new", "known", "expired", None, "other"]
    batch = [a_checked_mail(idempotency_key=key) for key in keys]
    async with pool.acquire() as connection:
        await connection.execute(
            "UPDATE deliveries SET idempotency_expires_at = $1 WHERE id = $2", NOON + timedelta(hours=1), expired
        )
        answers = await service.accept_batch(connection, batch, now=NOON + timedelta(hours=2))
        stored = await connection.fetch(
            "SELECT id FROM due_deliveries JOIN deliveries USING (id) JOIN delivery_payloads ON delivery_id = id"
        )
    assert [answer.replayed for answer in answers] == [False, True, False, True, True, True, False, False]
    ids = [answer.id for answer in answers]
    assert ids[1] == ids[4] == known
    assert (ids[3], ids[5]) == (ids[0], ids[2])
    assert {row["id"] for row in stored} == {known, expired, *ids}
    assert len(stored) == 6


async def test_a_batch_waits_for_every_transaction_that_has_one_of_its_keys(room: Room) -> None:
    """A conflict rolls the batch back to its start; that many in a row do not make it fail."""
    async with connections(room, 9) as (batch, *others):
        transactions = [other.transaction() for other in others]
        for number, (other, transaction) in enumerate(zip(others, transactions, strict=True)):
            await transaction.start()
            await service.accept(other, a_checked_mail(idempotency_key=f"k{number}"))
        requests = [a_checked_mail(idempotency_key=f"k{n}") for n in range(10)]
        accepting = asyncio.create_task(service.accept_batch(batch, requests))
        blockers = f"pg_blocking_pids({batch.get_server_pid()})"
        for other, transaction in zip(others, transactions, strict=True):
            await until(room.pool, f"{blockers} = ARRAY[{other.get_server_pid()}]")
            await transaction.commit()
        answers = await accepting
    assert [answer.replayed for answer in answers] == [True] * 8 + [False] * 2
    assert await count(room.pool) == 10


async def test_a_key_that_the_snapshot_cannot_see_fails_the_transaction(room: Room) -> None:
    """At REPEATABLE READ, a key stored since the snapshot is a serialization failure (40001), and nothing is stored."""
    async with connections(room, 1) as [connection], connection.transaction(isolation="repeatable_read"):
        await connection.fetchval("SELECT count(*) FROM deliveries")  # takes the snapshot
        await accepted(room.pool, a_mail(idempotency_key="k"))
        with pytest.raises(asyncpg.SerializationError):
            async with connection.transaction():
                await service.accept_batch(connection, [a_checked_mail(idempotency_key=key) for key in ("k", "l")])
    assert await count(room.pool) == 1


async def test_ids_follow_the_order_of_the_batch(pool: Pool) -> None:
    """Ids increase in the order of the requests."""
    ids = await accepted(pool, *(a_mail(idempotency_key=f"k{n}") for n in (3, 1, 2)), a_mail())
    assert ids == sorted(ids)


# ── the caller's transaction ──────────────────────────────────────────────────────────────────────────────────────────


async def test_rollback_removes_the_delivery(pool: Pool) -> None:
    """A rollback of the caller's transaction removes the delivery."""
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await service.accept(connection, a_checked_mail())
        await transaction.rollback()
    assert await count(pool) == 0


async def test_delivery_is_invisible_before_the_commit(room: Room) -> None:
    """Other connections cannot claim a delivery before its commit."""
    async with connections(room, 1) as (mine,):
        async with mine.transaction():
            await service.accept(mine, a_checked_mail())
            assert await count(room.pool) == 0
        assert await count(room.pool) == 1


async def test_a_foreign_connection_names_the_room(room: Room) -> None:
    """An application's own connection, with its search path and codecs, only needs `room`."""
    foreign = await asyncpg.connect(room.url, server_settings={"search_path": "pg_temp, public"})
    try:
        await foreign.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        await foreign.execute("CREATE TABLE public.deliveries (id int)")
        async with foreign.transaction():
            await foreign.execute("INSERT INTO public.deliveries VALUES (1)")
            request = a_checked_mail(
                template="welcome", variables={"name": "Ada"}, tags={"a": "b"}, idempotency_key="k"
            )
            answer = await service.accept_from_application(foreign, request, room="postroom")
        assert await foreign.fetchval("SHOW search_path") == "pg_temp, public"
    finally:
        await foreign.close()
    found = await service.get_delivery(room.pool, answer)
    assert (found.variables, found.tags) == ({"name": "Ada"}, {"a": "b"})


# ── suppression ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "scope, lane, state",
    [
        ("bulk", Lane.BULK, DeliveryState.SUPPRESSED),
        ("bulk", Lane.TRANSACTIONAL, DeliveryState.QUEUED),
        ("bulk", Lane.AUTH, DeliveryState.QUEUED),
        ("all", Lane.BULK, DeliveryState.SUPPRESSED),
        ("all", Lane.TRANSACTIONAL, DeliveryState.SUPPRESSED),
        ("all", Lane.AUTH, DeliveryState.SUPPRESSED),
    ],
)
async def test_suppression_holds_for_its_lanes(pool: Pool, scope: str, lane: Lane, state: DeliveryState) -> None:
    """An unsubscribed address gets codes but no bulk mail; a bounced address gets nothing."""
    await suppress(pool, "ada@example.org", scope=scope)
    [delivery] = await accepted(pool, a_mail("Ada@Example.org", lane=lane))
    assert await state_of(pool, delivery) is state


async def test_suppression_is_per_recipient(pool: Pool) -> None:
    """One suppressed address does not affect the others."""
    await suppress(pool, "b@example.org")
    [delivery] = await accepted(pool, a_mail("a@example.org", cc=addresses("b@example.org")))
    assert await state_of(pool, delivery) is DeliveryState.QUEUED
    assert await outcomes_of(pool, delivery) == {"a@example.org": "pending", "b@example.org": "suppressed"}


async def test_a_suppression_ends_with_its_time(pool: Pool) -> None:
    """A soft bounce suppresses an address for a limited time."""
    await suppress(pool, "ada@example.org", until=NOON)
    [before] = await accepted(pool, now=NOON - timedelta(seconds=1))
    [after] = await accepted(pool, now=NOON)
    assert await state_of(pool, before) is DeliveryState.SUPPRESSED
    assert await state_of(pool, after) is DeliveryState.QUEUED


async def test_a_suppressed_reply_to_does_not_matter(pool: Pool) -> None:
    """Suppression ignores Reply-To, which receives nothing."""
    await suppress(pool, "desk@example.org")
    [delivery] = await accepted(pool, a_mail(reply_to=addresses("desk@example.org")))
    assert await state_of(pool, delivery) is DeliveryState.QUEUED


async def test_a_suppressed_delivery_says_why(pool: Pool) -> None:
    """A suppressed delivery ends at once with a reason and is never claimed."""
    await suppress(pool, "ada@example.org")
    [delivery] = await accepted(pool, now=NOON)
    found = await service.get_delivery(pool, delivery)
    assert (found.reason, found.finished_at, found.next_attempt_at) == ("recipient_suppressed", NOON, None)
