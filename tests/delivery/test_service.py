"""Operations of operators, their audit entries, and listings."""

from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import (
    BUSY,
    NO_ANSWER,
    NOON,
    Hands,
    Recording,
    a_mail,
    a_worker,
    accepted,
    addresses,
    claimed,
    outcomes_of,
    redrive,
    state_of,
)
from tests.support.retention import swept

from postroom.db.pool import Pool
from postroom.delivery import service
from postroom.delivery.errors import BodyGone, DeadLetterNotFound, DeliveryExpired, DeliveryNotFound, WrongState
from postroom.delivery.maintenance import RETENTION
from postroom.delivery.model import DeliveryId, DeliveryState, Lane
from postroom.events.audit import list_audit

ADA = "cli:ada"


async def audited(pool: Pool) -> list[tuple[str, str, str]]:
    """The audit entries, oldest first."""
    entries, _more = await list_audit(pool, limit=100)
    return [(entry.actor, entry.action, entry.subject) for entry in reversed(entries)]


async def given_up(pool: Pool, count: int = 1, **fields: Any) -> list[DeliveryId]:
    """Dead letters: bulk mail that may have arrived."""
    ids = await accepted(pool, *(a_mail(lane=Lane.BULK, **fields) for _ in range(count)))
    await a_worker(pool, Recording(NO_ANSWER)).run_once(Lane.BULK)
    return ids


# ── cancel, retry, resend ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_waiting_delivery_can_be_cancelled(pool: Pool) -> None:
    """A cancelled delivery names its actor and is never sent."""
    [delivery] = await accepted(pool)
    await service.cancel(pool, delivery, actor=ADA)
    found = await service.get_delivery(pool, delivery)
    assert (found.state, found.reason) == (DeliveryState.CANCELLED, "cancelled_by_operator")
    assert await claimed(pool) == []
    assert await audited(pool) == [(ADA, "delivery.cancel", f"delivery:{delivery}")]


async def test_delivery_being_sent_cannot_be_cancelled(pool: Pool) -> None:
    """A delivery being sent is rejected with its state; no audit entry is written."""
    [delivery] = await accepted(pool)
    await claimed(pool)
    with pytest.raises(WrongState, match="sending cannot be cancelled"):
        await service.cancel(pool, delivery, actor=ADA)
    assert await audited(pool) == []


async def test_a_retry_brings_the_next_attempt_forward(pool: Pool) -> None:
    """A retry makes the next attempt due at once."""
    hands = Hands()
    [delivery] = await accepted(pool, now=hands())
    await a_worker(pool, Recording(BUSY), clock=hands).run_once(Lane.TRANSACTIONAL)
    assert await claimed(pool, now=hands()) == []
    await service.retry(pool, delivery, actor=ADA, now=hands())
    assert [outgoing.id for outgoing in await claimed(pool, now=hands())] == [delivery]
    assert await audited(pool) == [(ADA, "delivery.retry", f"delivery:{delivery}")]


async def test_sent_delivery_cannot_be_retried(pool: Pool) -> None:
    """A sent delivery can be resent but not retried."""
    [delivery] = await accepted(pool)
    await a_worker(pool, Recording()).run_once(Lane.TRANSACTIONAL)
    with pytest.raises(WrongState, match="sent cannot be retried"):
        await service.retry(pool, delivery, actor=ADA)


async def test_a_resend_is_a_new_delivery(pool: Pool) -> None:
    """The copy has content and recipients, no key, and refers to the original, which is unchanged."""
    [original] = await accepted(pool, a_mail("a@example.org", cc=addresses("b@example.org"), idempotency_key="k"))
    await a_worker(pool, Recording()).run_once(Lane.TRANSACTIONAL)
    before = await service.get_delivery(pool, original)
    clone = await service.resend(pool, original, actor=ADA)
    found = await service.get_delivery(pool, clone)
    assert (found.resend_of, found.state, found.idempotency_key) == (original, DeliveryState.QUEUED, None)
    assert (found.subject, found.text) == (before.subject, before.text)
    assert await outcomes_of(pool, clone) == {"a@example.org": "pending", "b@example.org": "pending"}
    assert await service.get_delivery(pool, original) == before
    assert await audited(pool) == [(ADA, "delivery.resend", f"delivery:{original}")]


async def test_a_resend_is_never_taken_for_a_replay(pool: Pool) -> None:
    """After a resend the key still refers to the original."""
    [original] = await accepted(pool, a_mail(idempotency_key="k"))
    await service.cancel(pool, original, actor=ADA)
    await service.resend(pool, original, actor=ADA)
    assert await accepted(pool, a_mail(idempotency_key="k")) == [original]


async def test_waiting_delivery_cannot_be_resent(pool: Pool) -> None:
    """A waiting delivery cannot be resent, because both would be sent."""
    [delivery] = await accepted(pool)
    with pytest.raises(WrongState, match="queued cannot be resent"):
        await service.resend(pool, delivery, actor=ADA)


@pytest.mark.parametrize("action", [service.cancel, service.retry, service.resend])
async def test_unknown_delivery_is_not_found(pool: Pool, action: Any) -> None:
    """An unknown id raises an error that names it."""
    with pytest.raises(DeliveryNotFound, match="no delivery with the id 404"):
        await action(pool, 404, actor=ADA)
    with pytest.raises(DeliveryNotFound):
        await service.list_attempts(pool, 404)


async def test_a_resend_expires_with_its_original(pool: Pool) -> None:
    """A resend keeps the expiry of the original; an expired one is rejected."""
    hands = Hands()
    [offer] = await accepted(pool, a_mail(expires_at=NOON + timedelta(minutes=10)), now=hands())
    await a_worker(pool, Recording(), clock=hands).run_once(Lane.TRANSACTIONAL)
    clone = await service.resend(pool, offer, actor=ADA, now=hands())
    assert (await service.get_delivery(pool, clone)).expires_at == NOON + timedelta(minutes=10)
    with pytest.raises(DeliveryExpired, match=f"Delivery {offer} cannot be resent: its expires_at has passed"):
        await service.resend(pool, offer, actor=ADA, now=hands.forward(minutes=10))


# ── dead letters ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_settled_letter_is_sent(pool: Pool) -> None:
    """A settled delivery is sent, its recipients are delivered, and it is not sent again."""
    [delivery] = await given_up(pool)
    await service.settle(pool, delivery, actor=ADA)
    found = await service.get_delivery(pool, delivery)
    assert (found.state, found.reason) == (DeliveryState.SENT, "settled_by_operator")
    assert await outcomes_of(pool, delivery) == {"ada@example.org": "delivered"}
    assert await service.list_dead_letters(pool) == ([], None)
    assert await audited(pool) == [(ADA, "dead_letter.settle", f"delivery:{delivery}")]


async def test_only_an_ambiguous_letter_can_be_settled(pool: Pool) -> None:
    """A delivery that was certainly not sent cannot be settled."""
    hands = Hands()
    [delivery] = await accepted(pool, a_mail(ladder="greeting"), now=hands())
    worker = a_worker(pool, Recording(BUSY), clock=hands)
    for _ in range(4):
        await worker.run_once(Lane.TRANSACTIONAL)
        hands.forward(minutes=1)
    assert await state_of(pool, delivery) is DeliveryState.DEAD_LETTER
    with pytest.raises(DeadLetterNotFound):
        await service.settle(pool, delivery, actor=ADA)
    assert await state_of(pool, delivery) is DeliveryState.DEAD_LETTER


async def test_a_letter_without_its_body_is_not_sent_empty(pool: Pool) -> None:
    """A redrive skips a dead letter without content, and a retry is rejected."""
    [delivery] = await given_up(pool)
    await pool.execute("DELETE FROM delivery_payloads")
    assert (await redrive(pool)).skipped == {"content_deleted": 1}
    with pytest.raises(BodyGone, match=r"cannot be retried\. Content is kept for POSTROOM_PAYLOAD_RETENTION"):
        await service.retry(pool, delivery, actor=ADA)
    with pytest.raises(BodyGone, match=r"cannot be resent\. Content is kept for POSTROOM_PAYLOAD_RETENTION"):
        await service.resend(pool, delivery, actor=ADA)
    assert await state_of(pool, delivery) is DeliveryState.DEAD_LETTER


async def test_a_dead_letter_keeps_its_body_until_it_goes_itself(pool: Pool) -> None:
    """Retention keeps dead letters for a month, so that they can be redriven."""
    older, _ = await given_up(pool, 2)
    await pool.execute("UPDATE deliveries SET finished_at = finished_at - interval '29 days'")
    assert await swept(pool, RETENTION) == 0
    await pool.execute("UPDATE deliveries SET finished_at = finished_at - interval '2 days' WHERE id = $1", older)
    assert await swept(pool, RETENTION) == 1
    assert (await redrive(pool)).changed == 1


async def test_dead_letters_are_paged_newest_first(pool: Pool) -> None:
    """Every letter once, over as many pages as it takes, though all have the same time."""
    ids = await given_up(pool, 5)
    seen: list[int] = []
    cursor: str | None = None
    for _ in range(3):
        page, cursor = await service.list_dead_letters(pool, cursor=cursor, limit=2)
        seen += [letter.delivery_id for letter in page]
    assert (seen, cursor) == (ids[::-1], None)


async def test_a_resend_keeps_headers_but_not_the_message_id(pool: Pool) -> None:
    """A resend drops the Message-ID in any spelling; the original keeps it."""
    given = {"MESSAGE-id": "<7@example.com>", "X-Order": "7"}
    kept, bare = await accepted(pool, a_mail(headers=given), a_mail())
    await a_worker(pool, Recording()).run_once(Lane.TRANSACTIONAL)
    clones = [await service.resend(pool, each, actor=ADA) for each in (kept, bare)]
    found = [(await service.get_delivery(pool, each)).headers for each in (kept, *clones)]
    assert found == [given, {"X-Order": "7"}, {}]
