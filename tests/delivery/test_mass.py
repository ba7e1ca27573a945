"""Mass actions: previews, steps, repeated requests, and what is skipped and why."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.builders import (
    DELIVERED,
    NO_ANSWER,
    Recording,
    a_mail,
    a_worker,
    accepted,
    claimed,
    finished,
    state_of,
)
from tests.support.http import open_browser
from tests.support.retention import swept

from postroom.background import RETENTION
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery import store as deliveries
from postroom.delivery.decision import complete_columns
from postroom.delivery.errors import MassActionNotFound
from postroom.delivery.filter import DeliveryFilter, StateFilter
from postroom.delivery.listing import pages
from postroom.delivery.mass import service
from postroom.delivery.mass.model import MassKind, Obstacle, read_filter
from postroom.delivery.model import DeliveryState, Lane
from postroom.delivery.worker import WorkerOptions
from postroom.errors import IdempotencyConflict
from postroom.post.reply import Content, Envelope, Reply

ADA = "cli:ada"
SHOP = DeliveryFilter(source="shop")


async def audited(pool: Pool) -> list[tuple[str, str, Any]]:
    rows = await pool.fetch("SELECT actor, action, after::text FROM audit_log ORDER BY id")
    return [(row["actor"], row["action"], row["after"]) for row in rows]


async def states(pool: Pool, ids: list[Any]) -> list[DeliveryState]:
    return [await state_of(pool, each) for each in ids]


async def waiting(pool: Pool, count: int, **fields: Any) -> list[Any]:
    return list(await accepted(pool, *(a_mail(source="shop", **fields) for _ in range(count))))


async def test_a_preview_counts_and_changes_nothing(pool: Pool) -> None:
    """It says how many would be changed and why the others would not."""
    ids = await waiting(pool, 3)
    await a_worker(pool, Recording(DELIVERED)).run_once(Lane.TRANSACTIONAL)
    ids += await waiting(pool, 2)
    await accepted(pool, a_mail(source="other"))
    found = await service.preview(pool, MassKind.CANCEL, SHOP)
    assert (found.changed, found.skipped, found.is_complete) == (2, {"ended": 3}, True)
    assert (await states(pool, ids))[3:] == [DeliveryState.QUEUED] * 2


async def test_a_preview_of_very_many_says_that_it_is_not_complete(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It examines a bounded number of deliveries."""
    monkeypatch.setattr(service, "WINDOW", 2)
    monkeypatch.setattr(service, "WINDOWS", 2)
    await waiting(pool, 5)
    found = await service.preview(pool, MassKind.CANCEL, SHOP)
    assert (found.changed, found.is_complete) == (4, False)


async def test_an_action_is_done_in_steps_and_audited_once(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request runs the first steps, the worker's loop the others; one audit entry has the filter and the counts."""
    monkeypatch.setattr(service, "STEP", 2)
    monkeypatch.setattr(service, "FIRST_STEPS", 1)
    ids = await waiting(pool, 5)
    begun = await service.start(pool, MassKind.CANCEL, SHOP, actor=ADA)
    assert (begun.changed, begun.finished_at, await audited(pool)) == (2, None, [])
    while await service.run_unfinished(pool):
        pass
    done = await service.get_mass_action(pool, begun.id)
    assert (done.changed, done.finished_at is not None) == (5, True)
    assert await states(pool, ids) == [DeliveryState.CANCELLED] * 5
    [(actor, action, after)] = await audited(pool)
    assert (actor, action) == (ADA, "delivery.mass_cancel")
    assert '"source": "shop"' in after
    assert '"changed": 5' in after


async def test_the_same_key_starts_nothing_again(pool: Pool) -> None:
    """A repeated request gets the action of the first; the key with another filter is a conflict."""
    await waiting(pool, 1)
    await a_worker(pool, Recording(DELIVERED)).run_once(Lane.TRANSACTIONAL)
    first = await service.start(pool, MassKind.RESEND, SHOP, actor=ADA, idempotency_key="a")
    again = await service.start(pool, MassKind.RESEND, SHOP, actor=ADA, idempotency_key="a")
    assert (first.id, first.changed) == (again.id, again.changed) == (first.id, 1)
    assert await pool.fetchval("SELECT count(*) FROM deliveries") == 2
    with pytest.raises(IdempotencyConflict):
        await service.start(pool, MassKind.RESEND, DeliveryFilter(), actor=ADA, idempotency_key="a")


async def test_a_resend_copies_each_delivery_once(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies match the filter too, and are not copied; deliveries after a preview are not touched."""
    monkeypatch.setattr(service, "STEP", 2)
    ids = await waiting(pool, 3)
    await a_worker(pool, Recording(DELIVERED)).run_once(Lane.TRANSACTIONAL)
    seen = await service.preview(pool, MassKind.RESEND, SHOP)
    [late] = await waiting(pool, 1)
    done = await service.start(pool, MassKind.RESEND, SHOP, actor=ADA, before_id=seen.before_id)
    assert (done.changed, done.skipped) == (3, {})
    copied = await pool.fetch("SELECT resend_of FROM deliveries WHERE resend_of IS NOT NULL ORDER BY resend_of")
    assert [row["resend_of"] for row in copied] == ids
    assert late not in ids
    again = await service.start(pool, MassKind.RESEND, SHOP, actor=ADA, before_id=seen.before_id)
    assert (again.changed, again.skipped) == (0, {"resent": 3})


async def test_a_retry_makes_waiting_ones_due_and_returns_dead_letters(pool: Pool) -> None:
    """As the retry of one delivery does; mail in the hands of a worker is skipped."""
    dead = list(await accepted(pool, a_mail(source="shop", lane=Lane.BULK)))
    await a_worker(pool, Recording(NO_ANSWER)).run_once(Lane.BULK)
    [held] = await waiting(pool, 1)
    await claimed(pool)
    later = await waiting(pool, 1)
    await pool.execute("UPDATE deliveries SET next_attempt_at = now() + interval '1 day' WHERE id = $1", later[0])
    done = await service.start(pool, MassKind.RETRY, SHOP, actor=ADA)
    assert (done.changed, done.skipped) == (2, {"sending": 1})
    assert await state_of(pool, held) is DeliveryState.SENDING
    due = await pool.fetch("SELECT id FROM due_deliveries WHERE due_at <= now() ORDER BY id")
    assert [row["id"] for row in due] == dead + later


async def test_deliveries_that_cannot_leave_again_are_skipped_with_the_reason(pool: Pool) -> None:
    """Cancelled campaigns, deleted content, expired mail, and mail that has not ended."""
    cancelled, bare, expired, _good, _other = await waiting(pool, 5)
    await a_worker(pool, Recording(DELIVERED)).run_once(Lane.TRANSACTIONAL)
    campaign = await pool.fetchval(
        "INSERT INTO campaigns (name, subject, text_body, status, started_at, finished_at)"
        " VALUES ('x', 'x', 'x', 'cancelled', now(), now()) RETURNING id"
    )
    await pool.execute("UPDATE deliveries SET campaign_id = $2 WHERE id = $1", cancelled, campaign)
    await pool.execute("DELETE FROM delivery_payloads WHERE delivery_id = $1", bare)
    await pool.execute("UPDATE deliveries SET expires_at = now() WHERE id = $1", expired)
    await waiting(pool, 1)
    done = await service.start(pool, MassKind.RESEND, SHOP, actor=ADA)
    reasons = (Obstacle.CAMPAIGN_CANCELLED, Obstacle.CONTENT_DELETED, Obstacle.EXPIRED, Obstacle.WAITING)
    assert done.skipped == {reason.value: 1 for reason in reasons}
    assert done.changed == 2


async def test_cancel_is_unfinished_while_a_delivery_is_locked(pool: Pool) -> None:
    """A step does not wait for a lock: it would block, or deadlock with, a worker. A later one looks again."""
    ids = await waiting(pool, 2)
    async with pool.acquire() as other, other.transaction():
        await other.execute("SELECT FROM deliveries WHERE id = $1 FOR UPDATE", ids[0])
        begun = await service.start(pool, MassKind.CANCEL, SHOP, actor=ADA)
        assert (begun.changed, begun.skipped, begun.finished_at) == (1, {"sending": 1}, None)
        assert await states(pool, ids) == [DeliveryState.QUEUED, DeliveryState.CANCELLED]
    assert await service.run_unfinished(pool) is False
    done = await service.get_mass_action(pool, begun.id)
    assert (done.changed, done.skipped, done.finished_at is not None) == (2, {}, True)
    assert await states(pool, ids) == [DeliveryState.CANCELLED] * 2


@pytest.mark.parametrize("state", [None, StateFilter.QUEUED, StateFilter.WAITING])
async def test_cancel_is_unfinished_while_a_worker_holds_mail(pool: Pool, state: StateFilter | None) -> None:
    """Mail that returns to the queue is claimed by no worker until it is cancelled; mail that was sent has ended."""
    await waiting(pool, 4)
    held = await claimed(pool, limit=3)
    begun = await service.start(pool, MassKind.CANCEL, replace(SHOP, state=state), actor=ADA)
    assert (begun.changed, begun.skipped, begun.finished_at) == (1, {"sending": 3}, None)
    async with pool.acquire() as connection:
        back = [held[0].id, held[1].id]
        await deliveries.release(connection, worker_id=1, claim_id=held[0].claim_id, delivery_ids=back, now=None)
    assert await claimed(pool) == []
    await service.run_unfinished(pool)
    waits = await service.get_mass_action(pool, begun.id)
    assert (waits.changed, waits.skipped, waits.finished_at) == (3, {"sending": 1}, None)
    async with pool.acquire() as connection:
        await deliveries.complete(connection, worker_id=1, now=None, **complete_columns(finished(held[2:])))
    while await service.run_unfinished(pool):
        pass
    done = await service.get_mass_action(pool, begun.id)
    assert (done.changed, done.skipped, done.finished_at is not None) == (3, {"ended": 1}, True)
    assert await states(pool, [each.id for each in held]) == [DeliveryState.CANCELLED] * 2 + [DeliveryState.SENT]
    assert [action for _actor, action, _after in await audited(pool)] == ["delivery.mass_cancel"]


async def test_claimed_mail_that_a_cancel_covers_is_not_started(pool: Pool) -> None:
    """A worker that starts a chunk releases what a cancel has covered since the claim: only mail in flight leaves."""
    ids = await waiting(pool, 4)
    transport = Recording()

    class Stopping(Recording):
        async def send(self, envelope: Envelope, content: Content) -> Reply:
            if not transport.envelopes:
                await service.start(pool, MassKind.CANCEL, SHOP, actor=ADA)
            return await transport.send(envelope, content)

    options = WorkerOptions(chunk=1)
    await a_worker(pool, Stopping(), options=options).run_once(Lane.TRANSACTIONAL)
    await service.run_unfinished(pool)
    assert len(transport.envelopes) <= 2  # with the next chunk, which had started meanwhile
    assert (await states(pool, ids)).count(DeliveryState.CANCELLED) >= 2


async def test_two_processes_do_not_run_the_same_step(pool: Pool) -> None:
    """While a transaction holds the action, another process leaves it alone."""
    await waiting(pool, 1)
    action = await pool.fetchval(
        "INSERT INTO mass_actions (kind, actor, filter, before_id) VALUES ('resend', $1, '{}', 1000) RETURNING id", ADA
    )
    async with pool.acquire() as other, other.transaction():
        await other.execute("SELECT FROM mass_actions WHERE id = $1 FOR UPDATE", action)
        assert await service.run_unfinished(pool) is False
        assert (await service.get_mass_action(pool, action)).finished_at is None


async def test_frequent_and_rare_tags_are_read_completely(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the tag's index if it is rare, among all deliveries if it is frequent: each delivery once."""
    monkeypatch.setattr(service, "STEP", 4)
    rare = await waiting(pool, 1, tags={"kind": "rare"})
    frequent = await waiting(pool, 9, tags={"kind": "news"})
    for most in (0, 5_000):
        monkeypatch.setattr(pages, "EXAMINED", most)
        for ids, kind in ((rare, "rare"), (frequent, "news")):
            done = await service.start(pool, MassKind.RETRY, DeliveryFilter(tags={"kind": kind}), actor=ADA)
            assert (most, kind, done.changed) == (most, kind, len(ids))


async def test_an_action_over_http(room: Room) -> None:
    """Preview, start with a key, follow and list; a key that only reads may not start one."""
    ids = await waiting(room.pool, 2)
    browser = await open_browser(room, "deliveries:read", "deliveries:operate")
    reader = await open_browser(room, "deliveries:read")
    body = {"kind": "cancel", "source": "shop"}
    counted = await browser.post("/v1/mass-actions/preview", json=body)
    assert (counted.json["changed"], counted.json["is_complete"]) == (2, True)
    assert (await reader.post("/v1/mass-actions", json=body)).status == 403
    headers = {"idempotency-key": "k"}
    started = [await browser.post("/v1/mass-actions", json=body, headers=headers) for _ in range(2)]
    assert [answer.status for answer in started] == [202, 202]
    assert started[0].json == started[1].json
    shown = await reader.get(f"/v1/mass-actions/{started[0].json['id']}")
    assert (shown.json["changed"], shown.json["filter"]) == (2, {"source": "shop"})
    assert (await reader.get("/v1/mass-actions")).json["items"] == [shown.json]
    assert (await reader.get("/v1/mass-actions/99")).status == 404
    assert await states(room.pool, ids) == [DeliveryState.CANCELLED] * 2


async def test_old_actions_are_deleted(room: Room) -> None:
    """Finished ones after ninety days; unfinished ones never."""
    old = await service.start(room.pool, MassKind.CANCEL, SHOP, actor=ADA)
    young = await service.start(room.pool, MassKind.CANCEL, SHOP, actor=ADA)
    await room.pool.execute("UPDATE mass_actions SET finished_at = now() - interval '91 days' WHERE id = $1", old.id)
    await swept(room.pool, RETENTION)
    with pytest.raises(MassActionNotFound):
        await service.get_mass_action(room.pool, old.id)
    assert (await service.get_mass_action(room.pool, young.id)).id == young.id


async def test_one_retry_selects_all_mail_that_waits(pool: Pool) -> None:
    """After an outage `waiting` selects mail that had an attempt and mail that had none."""
    ids = await waiting(pool, 2)
    await pool.execute("UPDATE deliveries SET next_attempt_at = now() + interval '1 hour'")
    await pool.execute(
        "UPDATE deliveries SET state = 'rendered', template_id = 'welcome', template_version_id = 1 WHERE id = $1",
        ids[0],
    )
    chosen = read_filter('{"state": "waiting", "source": "shop"}')
    found = await service.preview(pool, MassKind.RETRY, chosen)
    assert (found.changed, found.skipped) == (2, {})
    await service.start(pool, MassKind.RETRY, chosen, actor=ADA)
    assert await pool.fetchval("SELECT count(*) FROM due_deliveries WHERE due_at <= now()") == 2
