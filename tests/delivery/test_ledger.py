"""The ledger: every attempt keeps recipients, Message-ID and the application's data after its delivery is retired."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from tests.support.builders import (
    BUSY,
    DELIVERED,
    NOON,
    REFUSED,
    Hands,
    Recording,
    a_compose,
    a_mail,
    a_worker,
    accepted,
    addresses,
    claimed,
    per_recipient,
    suppress,
)
from tests.support.retention import swept

from postroom.db.pool import Pool, Session
from postroom.delivery import decision, store
from postroom.delivery.decision import AttemptPolicy, AttemptResult, complete_columns
from postroom.delivery.ledger import _record_results
from postroom.delivery.maintenance import RETENTION, Maintenance, MaintenanceOptions
from postroom.delivery.model import Lane, Outgoing
from postroom.delivery.outcome import classify
from postroom.post.message_id import make_message_id
from postroom.post.reply import Envelope, Reply, Stage
from postroom.senders.model import HealthPolicy

DATA = {
    "tags": {"kind": "receipt", "campaign_id": "spring"},
    "custom_data": {"order": 17},
    "idempotency_key": "order-17",
}


async def ledger(pool: Pool) -> list[dict[str, Any]]:
    rows = await pool.fetch("SELECT *, tags::text AS tags, custom_data::text AS custom_data FROM send_logs ORDER BY id")
    return [dict(row) for row in rows]


async def test_the_ledger_is_complete_after_the_delivery_is_retired(pool: Pool) -> None:
    """Retention deletes the delivery after seven days; the attempt keeps every column that send_logs shows."""
    await accepted(pool, a_mail("Ada@Example.org", "bob@example.org", **DATA))
    transport = Recording()
    await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL)
    before = await ledger(pool)
    await swept(pool, RETENTION, clock=Hands(NOON + timedelta(days=3650)))
    assert await pool.fetchval("SELECT count(*) FROM deliveries") == 0
    after = await ledger(pool)
    assert after == before
    [row] = after
    assert (row["recipient_email"], row["other_recipients"]) == ("ada@example.org", ["bob@example.org"])
    assert row["message_id"] == transport.envelopes[0].message_id
    assert (row["idempotency_key"], row["custom_data"]) == ("order-17", '{"order": 17}')
    assert (row["campaign_id"], row["tags"]) == ("spring", '{"kind": "receipt", "campaign_id": "spring"}')


async def test_each_attempt_names_the_recipients_it_was_for(pool: Pool) -> None:
    """The second attempt is for the recipient that was deferred, not for the one that was served."""
    clock = Hands()
    mail = a_mail("ada@example.org", cc=addresses("bob@example.org"), reply_to=addresses("c@example.org"))
    await accepted(pool, mail, now=NOON)
    transport = Recording(per_recipient({"bob@example.org": (451, "4.3.0")}), DELIVERED)
    worker = a_worker(pool, transport, clock=clock)
    await worker.run_once(Lane.TRANSACTIONAL)
    clock.forward(hours=1)
    await worker.run_once(Lane.TRANSACTIONAL)
    rows = await pool.fetch("SELECT recipient, other_recipients FROM attempts ORDER BY attempt_no")
    assert rows == [("ada@example.org", ["bob@example.org"]), ("bob@example.org", None)]


@pytest.mark.parametrize("answer", [BUSY, REFUSED])
async def test_a_failed_attempt_is_recorded_as_completely_as_a_sent_one(pool: Pool, answer: Any) -> None:
    """The outcome does not decide which columns are filled."""
    await accepted(pool, a_mail(**DATA))
    await a_worker(pool, Recording(answer)).run_once(Lane.TRANSACTIONAL)
    [row] = await ledger(pool)
    assert row["message_id"].startswith("<pr.")
    assert (row["recipient_email"], row["idempotency_key"]) == ("ada@example.org", "order-17")


async def test_an_attempt_without_a_message_still_names_the_recipient(pool: Pool) -> None:
    """A recipient that was suppressed after acceptance: no message was composed, so there is no Message-ID."""
    await accepted(pool, a_mail(**DATA))
    await suppress(pool, "ada@example.org")
    await a_worker(pool, Recording()).run_once(Lane.TRANSACTIONAL)
    [row] = await ledger(pool)
    assert (row["status"], row["recipient_email"], row["message_id"]) == ("rejected", "ada@example.org", None)


async def test_results_of_one_statement_keep_their_own_values(pool: Pool) -> None:
    """Columns are cut where their last value repeats; each attempt has its own claim, reply, address and domain."""
    people = ("Ada@Example.ORG", "bob@example.net", "ÄNNE@BÜCHER.example", "cy@example.org")
    await accepted(pool, *(a_mail(person) for person in people))
    batch = [*await claimed(pool, limit=2), *await claimed(pool, limit=2)]
    replies = [Reply(Stage.FINAL, 250, "2.0.0", f"queued as {number}", remote_host="mx") for number in range(3)]
    results = [taken(outgoing, reply) for outgoing, reply in zip(batch, [*replies, REFUSED], strict=True)]
    async with pool.acquire() as connection:
        await store.complete(connection, worker_id=1, now=None, **complete_columns(results))
    rows = await pool.fetch("SELECT * FROM attempts ORDER BY delivery_id")
    assert [row["claim_id"] for row in rows] == [outgoing.claim_id for outgoing in batch]
    assert [row["recipient"] for row in rows] == [person.lower() for person in people]
    assert [row["domain"] for row in rows] == ["example.org", "example.net", "bücher.example", "example.org"]
    assert [row["reply_text"] for row in rows] == ["queued as 0", "queued as 1", "queued as 2", REFUSED.text]
    assert [row["outcome"] for row in rows] == ["sent", "sent", "sent", "failed"]
    assert [row["remote_host"] for row in rows] == ["mx", "mx", "mx", REFUSED.remote_host]


def taken(outgoing: Outgoing, reply: Reply) -> AttemptResult:
    """The result of a reply, by the short way if it is plain."""
    short = decision.accepted(outgoing, reply, elapsed=timedelta(), transport="smtp", message_id=f"<{outgoing.id}@x>")
    if short is not None:
        return short
    outcome = classify(reply, Envelope(outgoing.id, "", "", outgoing.open_addresses))
    policy = AttemptPolicy(0, ())
    return decision.decide(outgoing, reply, outcome, policy, elapsed=timedelta(), transport="smtp")


async def test_plain_results_take_one_round_trip(pool: Pool) -> None:
    """Delivery, attempt, step and soft bounce in one statement, which needs no transaction around it."""
    await accepted(pool, *(a_mail(f"p{number}@example.org") for number in range(3)))
    results = [taken(outgoing, DELIVERED) for outgoing in await claimed(pool)]
    said: list[str] = []
    async with pool.acquire() as connection:
        record = partial(_record_results, connection, worker_id=1, policy=HealthPolicy(), now=None)
        await record(results[:1])  # the driver looks up types once per connection
        async with statements_of(connection, said):
            assert await record(results[1:]) == {result.outgoing.id for result in results[1:]}
    assert len(said) == 1


@asynccontextmanager
async def statements_of(connection: Session, said: list[str]) -> AsyncIterator[None]:
    """Collect the statements of a connection."""

    def hear(record: Any) -> None:
        said.append(record.query)

    connection.add_query_logger(hear)
    try:
        yield
    finally:
        connection.remove_query_logger(hear)


async def test_an_attempt_of_a_dead_worker_is_recorded_as_completely(pool: Pool) -> None:
    """The worker that takes over writes the same columns as the one that died would have."""
    await accepted(
        pool, a_mail("Ada@example.org", "bob@example.org", headers={"Message-ID": "<mine@example.org>"}, **DATA)
    )
    [outgoing] = await claimed(pool, now=NOON + timedelta(days=1))
    async with pool.acquire() as connection:
        now = NOON + timedelta(days=1, seconds=1)
        await store.mark_started(
            connection, worker_id=1, claim_id=outgoing.claim_id, started_through=1, lease=timedelta(seconds=1), now=now
        )
    await Maintenance(pool, clock=Hands(NOON + timedelta(days=2))).recover()
    [row] = await ledger(pool)
    assert (row["error_code"], row["recipient_email"], row["other_recipients"]) == (
        None,
        "ada@example.org",
        ["bob@example.org"],
    )
    assert (row["message_id"], row["custom_data"]) == ("<mine@example.org>", '{"order": 17}')
    assert await pool.fetchval("SELECT domain FROM attempts") == "example.org"


async def test_a_message_of_a_dead_worker_has_its_message_id(pool: Pool) -> None:
    """An operator who must decide about it finds it in the log of the relay."""
    await accepted(pool, a_mail(), now=NOON)
    [outgoing] = await claimed(pool, now=NOON)
    async with pool.acquire() as connection:
        await store.mark_started(
            connection, worker_id=1, claim_id=outgoing.claim_id, started_through=1, lease=timedelta(seconds=1), now=NOON
        )
    options = MaintenanceOptions(message_id=partial(make_message_id, domain="example.org", key=None))
    await Maintenance(pool, options, clock=Hands(NOON + timedelta(days=2))).recover()
    envelope, _ = a_compose()(outgoing)
    assert [row["message_id"] for row in await ledger(pool)] == [envelope.message_id]
