"""The state machine: model, diagram, trigger and behaviour agree."""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.support.builders import LEASE, NOON, Hands, a_mail, accepted, attempts_of, claimed, finished, state_of

from postroom.db.pool import Pool, Session
from postroom.delivery import store
from postroom.delivery.decision import AttemptResult, complete_columns, unwritable, unwritable_columns
from postroom.delivery.model import ENDED, TRANSITIONS, WAITING, DeliveryState, Lane, Outgoing

DRAWING = Path(__file__).parents[2] / "docs" / "architecture.md"

_WAITING = "next_attempt_at = now(), claim_id = NULL, finished_at = NULL, reason = NULL"
COLUMNS = {
    DeliveryState.QUEUED: _WAITING,
    DeliveryState.RENDERED: _WAITING,
    DeliveryState.SENDING: "next_attempt_at = NULL, claim_id = 1, finished_at = NULL, reason = NULL",
}
ENDED_COLUMNS = "next_attempt_at = NULL, claim_id = NULL, finished_at = now(), reason = 'test'"


def columns_of(state: DeliveryState) -> str:
    """The columns that the CHECKs require in this state."""
    return COLUMNS.get(state, ENDED_COLUMNS)


# ── model, drawing and trigger agree ──────────────────────────────────────────────────────────────────────────────────


def test_the_drawing_is_the_model() -> None:
    """The arrows of the architecture diagram are exactly the transitions of the model."""
    states = {state.value for state in DeliveryState}
    arrows = re.findall(r"^\s*(\w+) --> (\w+)", DRAWING.read_text("utf-8"), re.MULTILINE)
    drawn = {(DeliveryState(old), DeliveryState(new)) for old, new in arrows if {old, new} <= states}
    assert drawn == TRANSITIONS


async def test_the_trigger_is_the_model(pool: Pool) -> None:
    """Exactly the model's transitions pass a raw UPDATE; every other is rejected as PR004."""
    async with pool.acquire() as connection:
        delivery = await connection.fetchval(
            "INSERT INTO deliveries (next_attempt_at, ladder, source, recipient_email, template_id,"
            " template_version_id) VALUES (now(), 'generic', 'test', 'ada@example.org', 'welcome', 1) RETURNING id"
        )
        passed = {
            (old, new)
            for old in DeliveryState
            for new in DeliveryState
            if old is not new and await passes(connection, delivery, old, new)
        }
    assert passed == TRANSITIONS


async def passes(connection: Session, delivery: int, old: DeliveryState, new: DeliveryState) -> bool:
    """Put the row into one state without the trigger, then try the transition with it."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute("ALTER TABLE deliveries DISABLE TRIGGER deliveries_guard")
        await move(connection, delivery, old)
        await connection.execute("ALTER TABLE deliveries ENABLE TRIGGER deliveries_guard")
        await move(connection, delivery, new)
    except asyncpg.PostgresError as error:
        if error.sqlstate != "PR004":
            raise
        return False
    else:
        return True
    finally:
        await transaction.rollback()


async def move(connection: Session, delivery: int, state: DeliveryState) -> None:
    await connection.execute(f"UPDATE deliveries SET state = '{state}', {columns_of(state)} WHERE id = $1", delivery)


@pytest.mark.parametrize(
    "broken",
    [
        "next_attempt_at = NULL",
        "state = 'sending'",
        "state = 'sending', next_attempt_at = NULL",
        "claim_id = 1",
        "finished_at = now()",
        "state = 'cancelled', next_attempt_at = NULL, reason = 'x'",
        "state = 'cancelled', next_attempt_at = NULL, finished_at = now()",
        "state = 'rendered', template_version_id = NULL",
        "idempotency_key = 'k'",
        "idempotency_key = 'k', request_fingerprint = 0",
        "request_fingerprint = 0",
        "attempt_count = -1",
        "max_retries = 101",
        "give_up_after = interval '31 days'",
        "expires_at = '10000-01-01Z'",
        "dated_at = '-infinity'",
    ],
)
async def test_a_row_that_contradicts_itself_is_refused(pool: Pool, broken: str) -> None:
    """The table checks that each state has exactly its columns, in an update and in a new row."""
    [delivery] = await accepted(pool, a_mail(template="welcome"))
    async with pool.acquire() as connection:
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute(f"UPDATE deliveries SET {broken} WHERE id = $1", delivery)
        await connection.execute("CREATE TEMPORARY TABLE copied AS SELECT * FROM deliveries")
        await connection.execute("UPDATE copied SET id = id + 1")
        await connection.execute("INSERT INTO deliveries SELECT * FROM copied")
        await connection.execute(f"UPDATE copied SET id = id + 1, {broken}")
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute("INSERT INTO deliveries SELECT * FROM copied")


def test_waiting_sending_and_ended_are_all_states() -> None:
    """Each state is in exactly one group."""
    assert WAITING | ENDED | {DeliveryState.SENDING} == set(DeliveryState)
    assert not WAITING & ENDED


def test_ends_are_ends() -> None:
    """No final state has a transition, except a dead letter."""
    assert {old for old, _ in TRANSITIONS} & ENDED == {DeliveryState.DEAD_LETTER}


# ── a late worker ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def late(pool: Pool) -> AsyncIterator[tuple[Outgoing, Hands]]:
    """A worker whose lease expired and whose delivery another worker has claimed."""
    hands = Hands()
    await accepted(pool, now=hands())
    [outgoing] = await claimed(pool, now=hands(), worker_id=1)
    hands.forward(minutes=2)
    async with pool.acquire() as connection:
        await store.recover_claims(connection, held_lanes=[], batch_limit=10, now=hands())
    [taken] = await claimed(pool, now=hands(), worker_id=2)
    assert taken.id == outgoing.id
    yield outgoing, hands
    assert await state_of(pool, outgoing.id) is DeliveryState.SENDING
    async with pool.acquire() as connection:
        held = await connection.fetchrow("SELECT claim_id, attempt_count FROM deliveries")
    assert tuple(held) == (taken.claim_id, 1)
    assert await attempts_of(pool, outgoing.id) == []


async def test_a_late_worker_cannot_complete(pool: Pool, late: tuple[Outgoing, Hands]) -> None:
    """Its result changes neither the delivery nor a recipient nor the ledger."""
    outgoing, hands = late
    async with pool.acquire() as connection:
        assert (
            await store.complete(connection, worker_id=1, now=hands(), **complete_columns(finished([outgoing])))
            == set()
        )


async def test_a_late_worker_cannot_fail_what_it_could_not_render(pool: Pool, late: tuple[Outgoing, Hands]) -> None:
    """A delivery that another worker has claimed does not end, and keeps its attempt count."""
    outgoing, hands = late
    columns = unwritable_columns([unwritable(outgoing, "unknown variable: name")])
    async with pool.acquire() as connection:
        assert await store.fail_unwritable(connection, worker_id=1, now=hands(), **columns) == []


async def test_a_late_worker_cannot_release(pool: Pool, late: tuple[Outgoing, Hands]) -> None:
    """A late worker releases nothing."""
    outgoing, hands = late
    async with pool.acquire() as connection:
        released = await store.release(
            connection, worker_id=1, claim_id=outgoing.claim_id, delivery_ids=[outgoing.id], now=hands()
        )
    assert released == []


async def test_a_late_worker_cannot_start(pool: Pool, late: tuple[Outgoing, Hands]) -> None:
    """A late worker learns that its claim is lost before anything is sent."""
    outgoing, hands = late
    async with pool.acquire() as connection:
        assert not await store.mark_started(
            connection, worker_id=1, claim_id=outgoing.claim_id, started_through=1, lease=LEASE, now=hands()
        )


async def test_a_late_worker_cannot_renew(pool: Pool, late: tuple[Outgoing, Hands]) -> None:
    """A recovered claim cannot be renewed."""
    outgoing, hands = late
    async with pool.acquire() as connection:
        kept = await store.renew_claims(
            connection, worker_id=1, claim_ids=[outgoing.claim_id], lease=LEASE, now=hands()
        )
    assert kept == {}


async def test_a_lease_that_ran_out_cannot_be_started_even_before_recovery(pool: Pool) -> None:
    """Nothing is sent under an expired lease, even before its recovery."""
    await accepted(pool, now=NOON)
    [outgoing] = await claimed(pool, now=NOON)
    late = NOON + LEASE
    async with pool.acquire() as connection:
        assert not await store.mark_started(
            connection, worker_id=1, claim_id=outgoing.claim_id, started_through=1, lease=LEASE, now=late
        )


# ── a random walk ─────────────────────────────────────────────────────────────────────────────────────────────────────

WATCH = """
    CREATE TABLE seen (old text, new text);
    CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF OLD.state <> NEW.state THEN
            INSERT INTO seen VALUES (OLD.state, NEW.state);
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER watch AFTER UPDATE ON deliveries FOR EACH ROW EXECUTE FUNCTION watch();
"""

INVARIANTS = {
    "a dead letter has its row, and only a dead letter": """
        SELECT count(*) FROM deliveries AS d FULL JOIN dead_letters AS l ON l.delivery_id = d.id
        WHERE (d.state = 'dead_letter') IS DISTINCT FROM (l.delivery_id IS NOT NULL)""",
    "a delivery is in the queue while it waits, with the same time": """
        SELECT count(*) FROM (SELECT * FROM deliveries WHERE next_attempt_at IS NOT NULL) AS d
        FULL JOIN due_deliveries AS w ON w.id = d.id
        WHERE (w.due_at, w.lane, w.channel, w.campaign_id, nullif(w.watch_at, '-infinity')) IS DISTINCT FROM
            (d.next_attempt_at, d.lane, d.channel, d.campaign_id,
                CASE WHEN w.watch_at IS DISTINCT FROM '-infinity' THEN d.expires_at END)""",
    "only a queued template is to be tried": """
        SELECT count(*) FROM due_deliveries AS w JOIN deliveries AS d ON d.id = w.id
        WHERE w.watch_at = '-infinity' AND (d.state <> 'queued' OR d.template_id IS NULL)""",
    "what is being sent is held by a claim": """
        SELECT count(*) FROM deliveries AS d
        WHERE state = 'sending' AND NOT EXISTS (SELECT FROM claims WHERE claims.id = d.claim_id)""",
    "every attempt has a number of its own": """
        SELECT count(*) FROM (SELECT FROM attempts GROUP BY delivery_id, attempt_no HAVING count(*) > 1) AS twice""",
    "attempts are counted": """
        SELECT count(*) FROM deliveries AS d
        WHERE attempt_count - (state = 'sending')::int
            <> (SELECT count(*) FROM attempts AS a WHERE a.delivery_id = d.id)""",
    "what is rendered is proven to render": """
        SELECT count(*) FROM deliveries AS d
        WHERE state = 'rendered'
            AND NOT EXISTS (SELECT FROM delivery_payloads WHERE delivery_id = d.id AND rendered_at IS NOT NULL)
            AND NOT EXISTS (SELECT FROM attempts AS a WHERE a.delivery_id = d.id AND a.message_id IS NOT NULL)""",
    "what is sent was attempted": """
        SELECT count(*) FROM deliveries AS d
        WHERE state = 'sent' AND NOT EXISTS (SELECT FROM attempts AS a WHERE a.delivery_id = d.id)""",
    "a delivered recipient is not delivered to again": """
        SELECT count(*) FROM delivery_recipients AS r JOIN deliveries AS d ON d.id = r.delivery_id
        WHERE r.outcome = 'delivered' AND d.state NOT IN ('sent')""",
}


class Walker:
    """One connection that takes random steps with the claims it believes to hold."""

    def __init__(self, pool: Pool, number: int, chance: random.Random, hands: Hands) -> None:
        self.pool, self.number, self.chance, self.hands = pool, number, chance, hands
        self.held: list[Outgoing] = []

    def steps(self) -> list[Callable[[Session], Awaitable[Any]]]:
        return [
            self.accept, self.render, self.claim, self.claim, self.claim, self.start, self.complete, self.complete,
            self.release, self.renew, self.cancel, self.retry, self.expire, self.recover, self.redrive, self.settle,
            self.resend, self.reschedule, self.shift, self.change_by_hand, self.time_passes,
        ]  # fmt: skip

    async def walk(self, steps: int) -> None:
        async with self.pool.acquire() as connection:
            for _ in range(steps):
                try:
                    await self.chance.choice(self.steps())(connection)
                except asyncpg.TransactionRollbackError:
                    continue  # a deadlock: PostgreSQL aborted this transaction

    async def any_id(self, connection: Session) -> int:
        return int(await connection.fetchval("SELECT coalesce(max(id), 1) FROM deliveries")) - self.chance.randrange(12)

    async def accept(self, _connection: Session) -> None:
        fields: dict[str, Any] = {"lane": self.chance.choice(list(Lane))}
        if self.chance.random() < 0.4:
            fields["template"] = "welcome"
        if self.chance.random() < 0.3:
            fields["send_at"] = self.hands() + LEASE
        if self.chance.random() < 0.3:
            fields["expires_at"] = self.hands() + LEASE * self.chance.random() * 5
        await accepted(self.pool, a_mail(**fields), now=self.hands())

    async def render(self, connection: Session) -> None:
        async with connection.transaction():
            ids = [delivery.id for delivery in await store.lock_unrendered(connection, batch_limit=2)]
            if ids and self.chance.random() < 0.2:
                await store.fail_unwritable(
                    connection,
                    delivery_id=ids,
                    claim_id=[],
                    reason=["render_failed"] * len(ids),
                    detail=["no"] * len(ids),
                    now=self.hands(),
                )
            elif ids:
                await store.mark_rendered(connection, delivery_id=ids, now=self.hands())

    async def claim(self, _connection: Session) -> None:
        lane = self.chance.choice(list(Lane))
        self.held += await claimed(self.pool, lane, now=self.hands(), limit=3, worker_id=self.number)

    async def start(self, connection: Session) -> None:
        for outgoing in self.held[:1]:
            await store.mark_started(
                connection, worker_id=1, claim_id=outgoing.claim_id, started_through=2, lease=LEASE, now=self.hands()
            )

    async def complete(self, connection: Session) -> None:
        """Complete with any outcome, sometimes twice."""
        outgoing = self.held[0] if self.held else None
        if outgoing is None:
            return
        if self.chance.random() < 0.8:
            self.held.pop(0)
        ends = [("sent", "sent"), ("failed", "failed"), ("suppressed", "suppressed"), ("cancelled", "cancelled")]
        result = AttemptResult(
            outgoing=outgoing,
            outcome="deferred",
            state="waiting",
            retry_in=LEASE,
            reason="deferred",
            message_id=self.chance.choice([None, "<1@example.org>"]),
        )
        match self.chance.randrange(4):
            case 0:
                outcome, state = self.chance.choice(ends)
                result = AttemptResult(outgoing=outgoing, outcome=outcome, state=state, reason="test")
            case 1:
                reason = self.chance.choice(["ambiguous", "max_age", "attempts_exhausted"])
                result = AttemptResult(
                    outgoing=outgoing,
                    outcome="ambiguous",
                    state="dead_letter",
                    reason=reason,
                    dead_letter_reason=reason,
                )
            case 2:
                columns = unwritable_columns([unwritable(outgoing, "test")])
                await store.fail_unwritable(connection, worker_id=1, now=self.hands(), **columns)
                return
        await store.complete(connection, worker_id=1, now=self.hands(), **complete_columns([result]))

    async def release(self, connection: Session) -> None:
        if self.held:
            outgoing = self.held.pop()
            await store.release(
                connection, worker_id=1, claim_id=outgoing.claim_id, delivery_ids=[outgoing.id], now=self.hands()
            )

    async def renew(self, connection: Session) -> None:
        claim_ids = [outgoing.claim_id for outgoing in self.held]
        await store.renew_claims(connection, worker_id=self.number, claim_ids=claim_ids, lease=LEASE, now=self.hands())

    async def cancel(self, connection: Session) -> None:
        await store.cancel(connection, delivery_ids=[await self.any_id(connection)], reason="test", now=self.hands())

    async def retry(self, connection: Session) -> None:
        await store.retry_now(connection, delivery_ids=[await self.any_id(connection)], now=self.hands())

    async def expire(self, connection: Session) -> None:
        await store.expire_waiting(connection, batch_limit=2, now=self.hands())

    async def recover(self, connection: Session) -> None:
        await store.recover_claims(connection, held_lanes=["bulk"], batch_limit=2, now=self.hands())

    async def redrive(self, connection: Session) -> None:
        ids = await connection.fetch("SELECT delivery_id FROM dead_letters LIMIT 1")
        await store.redrive(connection, delivery_ids=[row["delivery_id"] for row in ids], now=self.hands())

    async def settle(self, connection: Session) -> None:
        await store.settle_ambiguous(connection, delivery_id=await self.any_id(connection))

    async def resend(self, connection: Session) -> None:
        await store.resend(connection, delivery_ids=[await self.any_id(connection)], now=self.hands())

    async def reschedule(self, connection: Session) -> None:
        send_at = self.hands() + LEASE * self.chance.randrange(3)
        await store.reschedule(connection, delivery_id=await self.any_id(connection), send_at=send_at, now=self.hands())

    async def shift(self, connection: Session) -> None:
        """Hold or release mail, as a pause of a campaign does."""
        by = self.chance.choice([-LEASE, LEASE])
        await connection.execute("SELECT shift_deliveries(ARRAY[$1::bigint], $2)", await self.any_id(connection), by)

    async def change_by_hand(self, connection: Session) -> None:
        """An operator's UPDATE in psql."""
        change = self.chance.choice(
            [
                "next_attempt_at = next_attempt_at + interval '1 minute'",
                "lane = 'auth'",
                "expires_at = next_attempt_at + interval '1 minute'",
                "state = 'cancelled', next_attempt_at = NULL, finished_at = now(), reason = 'by_hand'",
            ]
        )
        await connection.execute(
            f"UPDATE deliveries SET {change} WHERE id = $1 AND next_attempt_at IS NOT NULL",
            await self.any_id(connection),
        )

    async def time_passes(self, _connection: Session) -> None:
        self.hands.forward(seconds=self.chance.randrange(1, 40))


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_the_ledger_stays_true(pool: Pool, seed: int) -> None:
    """Four connections take random steps: no CHECK fails and every invariant holds."""
    async with pool.acquire() as connection:
        await connection.execute(WATCH)
    hands = Hands()
    walkers = [Walker(pool, number, random.Random(seed * 10 + number), hands) for number in range(4)]
    for _ in range(10):
        await asyncio.gather(*(walker.walk(30) for walker in walkers))
        async with pool.acquire() as connection:
            for promise, violations in INVARIANTS.items():
                assert await connection.fetchval(violations) == 0, promise
    async with pool.acquire() as connection:
        seen = {
            (DeliveryState(old), DeliveryState(new))
            for old, new in await connection.fetch("SELECT DISTINCT old, new FROM seen")
        }
    assert seen <= TRANSITIONS
    assert len(seen) >= 10, "the walk went nowhere"
