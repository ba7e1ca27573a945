"""A redrive is a mass action: a retry of the dead letters that a filter selects."""

from datetime import timedelta
from typing import Any

import pytest
from tests.support.builders import (
    NO_ANSWER,
    NOON,
    Hands,
    Recording,
    a_mail,
    a_worker,
    accepted,
    attempts_of,
    redrive,
    state_of,
)
from tests.support.http import open_browser

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery import service as deliveries
from postroom.delivery.errors import DeadLetterNotFound, DeliveryNotFound
from postroom.delivery.filter import DeliveryFilter, StateFilter
from postroom.delivery.mass import service
from postroom.delivery.mass.model import MassKind
from postroom.delivery.model import DeliveryId, DeliveryState, Lane

ADA = "cli:ada"


async def given_up(pool: Pool, count: int = 1, *, hands: Hands | None = None, **fields: Any) -> list[DeliveryId]:
    """Dead letters: bulk mail that may have arrived."""
    ids = await accepted(pool, *(a_mail(lane=Lane.BULK, **fields) for _ in range(count)))
    clock = {} if hands is None else {"clock": hands}
    await a_worker(pool, Recording(NO_ANSWER), **clock).run_once(Lane.BULK)
    return ids


@pytest.mark.parametrize(
    "chosen, count",
    [
        ({}, 3),
        ({"reason": "ambiguous"}, 3),
        ({"reason": "max_age"}, 0),
        ({"source": "shop"}, 1),
        ({"template_id": "welcome"}, 0),
        ({"finished_before": NOON - timedelta(days=9999)}, 0),
        ({"ids": ()}, 0),
    ],
)
async def test_a_redrive_takes_what_its_filter_says(pool: Pool, chosen: dict[str, Any], count: int) -> None:
    """A preview counts the dead letters of the redrive and changes nothing."""
    await given_up(pool, 2)
    await given_up(pool, source="shop")
    letters = DeliveryFilter(state=StateFilter.DEAD_LETTER, **chosen)
    assert (await service.preview(pool, MassKind.RETRY, letters)).changed == count
    assert len((await deliveries.list_dead_letters(pool))[0]) == 3
    assert (await redrive(pool, **chosen)).changed == count
    assert len((await deliveries.list_dead_letters(pool))[0]) == 3 - count


async def test_a_redrive_of_an_unknown_id_names_it(pool: Pool) -> None:
    """No dead letter returns, not even those that could, and no action is stored."""
    [delivery] = await given_up(pool)
    letters = DeliveryFilter(state=StateFilter.DEAD_LETTER, ids=(delivery, 999999))
    with pytest.raises(DeadLetterNotFound, match=r"no dead letter with the id 999999\."):
        await service.preview(pool, MassKind.RETRY, letters)
    with pytest.raises(DeadLetterNotFound, match=r"no dead letter with the id 999999\."):
        await service.start(pool, MassKind.RETRY, letters, actor=ADA)
    with pytest.raises(DeliveryNotFound):
        await service.start(pool, MassKind.CANCEL, DeliveryFilter(ids=(999999,)), actor=ADA)
    assert await state_of(pool, delivery) is DeliveryState.DEAD_LETTER
    assert await service.list_mass_actions(pool) == ([], None)


async def test_a_repeated_redrive_by_id_gets_the_first_one(pool: Pool) -> None:
    """The ids are no dead letters any more; the key is known."""
    [delivery] = await given_up(pool)
    letters = DeliveryFilter(state=StateFilter.DEAD_LETTER, ids=(delivery,))
    first, again = [
        await service.start(pool, MassKind.RETRY, letters, actor=ADA, idempotency_key="k") for _ in range(2)
    ]
    assert (first.id, first.changed, again) == (again.id, 1, first)


async def test_a_redriven_letter_is_due_at_once(pool: Pool) -> None:
    """The next worker sends it; the audit entry has the filter and the count."""
    ids = await given_up(pool, 3)
    await redrive(pool)
    transport = Recording()
    await a_worker(pool, transport).run_once(Lane.BULK)
    assert sorted(transport.delivery_ids) == ids
    rows = await pool.fetch("SELECT action, subject, after ->> 'changed' AS changed FROM audit_log")
    assert [tuple(row) for row in rows] == [("delivery.mass_retry", "mass_action:1", "3")]
    assert [attempt.outcome for attempt in await attempts_of(pool, ids[0])] == ["ambiguous", "sent"]


async def test_a_redrive_goes_on_until_all_are_back(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded steps, one transaction each; the workers continue them."""
    monkeypatch.setattr(service, "STEP", 1)
    monkeypatch.setattr(service, "FIRST_STEPS", 2)
    await given_up(pool, 5)
    begun = await redrive(pool)
    while await service.run_unfinished(pool):
        pass
    assert (begun.changed, (await service.get_mass_action(pool, begun.id)).changed) == (2, 5)


async def test_later_dead_letters_are_not_redriven(pool: Pool) -> None:
    """Accepted before the count and given up after it: `finished_before` excludes it."""
    hands = Hands()
    [early, late] = await accepted(pool, *[a_mail(lane=Lane.BULK)] * 2)
    await pool.execute("UPDATE deliveries SET next_attempt_at = $2 WHERE id = $1", late, hands() + timedelta(hours=1))
    worker = a_worker(pool, Recording(NO_ANSWER), clock=hands)
    await worker.run_once(Lane.BULK)
    counted_at = hands() + timedelta(seconds=1)
    hands.forward(hours=2)
    await worker.run_once(Lane.BULK)
    assert (await redrive(pool, finished_before=counted_at, now=hands())).changed == 1
    assert [await state_of(pool, each) for each in (early, late)] == [DeliveryState.QUEUED, DeliveryState.DEAD_LETTER]


async def test_withdrawn_dead_letters_are_skipped(pool: Pool) -> None:
    """Their cause was deleted: they are counted as ended, and not as redriven."""
    ids = await given_up(pool)
    await pool.execute("SELECT withdraw_deliveries($1, 'user_deleted')", ids)
    done = await redrive(pool)
    assert (done.changed, done.skipped) == (0, {"ended": 1})


async def test_resent_dead_letters_are_skipped(pool: Pool) -> None:
    """The copy may have arrived; a person can still retry the original by itself."""
    [delivery] = await given_up(pool)
    await deliveries.resend(pool, delivery, actor=ADA)
    done = await redrive(pool)
    assert (done.changed, done.skipped) == (0, {"resent": 1})
    await deliveries.retry(pool, delivery, actor=ADA)
    assert await state_of(pool, delivery) is DeliveryState.QUEUED


async def test_ids_and_a_message_id_select_what_has_both(pool: Pool) -> None:
    """Neither of two exact filters is ignored."""
    one, two = await accepted(pool, *[a_mail(headers={"Message-ID": f"<{n}@example.org>"}) for n in (1, 2)])
    both = DeliveryFilter(ids=(one,), message_id="1@example.org")
    assert (await service.preview(pool, MassKind.CANCEL, both)).changed == 1
    with pytest.raises(DeliveryNotFound):
        await service.preview(pool, MassKind.CANCEL, DeliveryFilter(ids=(two,), message_id="1@example.org"))


async def test_a_redrive_over_http(room: Room) -> None:
    """Ids and filters as JSON; an id that is no dead letter is 404."""
    [first, second] = await given_up(room.pool, 2)
    browser = await open_browser(room, "deliveries:read", "deliveries:operate")
    letters = {"kind": "retry", "status": "dead_letter", "reason": "ambiguous"}
    assert (await browser.post("/v1/mass-actions/preview", json=letters)).json["changed"] == 2
    done = await browser.post("/v1/mass-actions", json={**letters, "ids": [first]})
    assert (done.status, done.json["changed"], done.json["filter"]["ids"]) == (202, 1, [first])
    again = await browser.post("/v1/mass-actions", json={**letters, "ids": [first]})
    assert (again.status, again.json["code"]) == (404, "dead_letter_not_found")
    assert (await browser.post("/v1/mass-actions", json=letters)).json["changed"] == 1
    assert await state_of(room.pool, second) is DeliveryState.QUEUED


@pytest.mark.parametrize(
    "body,field",
    [
        ({"source": "\x00"}, "source"),
        ({"ids": [2**63]}, "ids[0]"),
        ({"ids": ["1"]}, "ids[0]"),
        ({"finished_before": "9999-12-31T23:59:59-23:00"}, "finished_before"),
        ({"dry_run": True}, "dry_run"),
        ({"all": True}, "all"),
    ],
)
async def test_a_bad_redrive_names_its_field(room: Room, body: dict[str, object], field: str) -> None:
    """An unknown field is rejected: a typing error must not redrive everything."""
    browser = await open_browser(room, "deliveries:operate")
    response = await browser.post("/v1/mass-actions", json={"kind": "retry", "status": "dead_letter", **body})
    assert response.status == 400
    assert [name.removesuffix("[...]") for name in response.fields] in ([field], [field.partition("[")[0]])
