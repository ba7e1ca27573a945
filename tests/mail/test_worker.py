"""The renderer: lane order, isolated failures, and no loss after a crash."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import NOON, Hands, Recording, a_mail, a_worker, accepted, attempts_of, claimed, state_of
from tests.support.loops import looping

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery import service, store
from postroom.delivery.lane import LaneWakeups
from postroom.delivery.model import DeliveryRequest, DeliveryState, Lane
from postroom.mail.catalog import Catalog
from postroom.mail.render import Rendered, RenderError
from postroom.mail.service import render_waiting
from postroom.mail.worker import RenderWorker

PARTS = {
    "note/en/subject": "Hello {{ name }}",
    "note/en/text": "Dear {{ name }},",
    "note/fr/subject": "Bonjour {{ name }}",
    "note/fr/text": "Cher {{ name }},",
}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    for name, source in PARTS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, "utf-8")
    return Catalog.load(tmp_path)


def a_note(**fields: Any) -> DeliveryRequest:
    return a_mail(**{"template": "note", "variables": {"name": "Ada"}, **fields})


async def test_a_template_is_rendered_and_stored(pool: Pool, catalog: Catalog) -> None:
    """The content is stored before the first attempt, and the delivery can be claimed."""
    [delivery] = await accepted(pool, a_note())
    batch = await render_waiting(pool, catalog, now=NOON)
    assert (batch.rendered, batch.failed, batch.lanes) == (1, 0, frozenset({Lane.TRANSACTIONAL}))
    found = await service.get_delivery(pool, delivery)
    assert (found.state, found.subject, found.rendered_at) == (DeliveryState.RENDERED, "Hello Ada", NOON)
    assert [outgoing.id for outgoing in await claimed(pool)] == [delivery]


@pytest.mark.parametrize(
    "locale, subject",
    [("fr", "Bonjour Ada"), ("fr-FR", "Bonjour Ada"), ("en", "Hello Ada"), ("de", "Hello Ada"), (None, "Hello Ada")],
)
async def test_the_locale_chooses_the_language(pool: Pool, catalog: Catalog, locale: str | None, subject: str) -> None:
    """From the country to the language to English."""
    [delivery] = await accepted(pool, a_note(locale=locale))
    await render_waiting(pool, catalog)
    assert (await service.get_delivery(pool, delivery)).subject == subject


@pytest.mark.parametrize(
    "fields, detail", [({"variables": {}}, "name"), ({"template": "missing"}, "missing")], ids=["variable", "template"]
)
async def test_what_cannot_be_rendered_fails_and_says_why(
    pool: Pool, catalog: Catalog, fields: dict[str, Any], detail: str
) -> None:
    """An unknown variable or template ends the delivery as render_failed; its neighbours are rendered."""
    before, broken, after = await accepted(pool, a_note(), a_note(**fields), a_note())
    batch = await render_waiting(pool, catalog)
    assert (batch.rendered, batch.failed) == (2, 1)
    found = await service.get_delivery(pool, broken)
    assert (found.state, found.reason) == (DeliveryState.FAILED, "render_failed")
    assert detail in (found.detail or "")
    assert {await state_of(pool, delivery) for delivery in (before, after)} == {DeliveryState.RENDERED}
    assert await attempts_of(pool, broken) == []


async def test_lanes_are_rendered_in_their_order(pool: Pool, catalog: Catalog) -> None:
    """However many campaign mails were accepted first: codes, then receipts, then the rest."""
    bulk, receipt, code = await accepted(
        pool, a_note(lane=Lane.BULK), a_note(lane=Lane.TRANSACTIONAL), a_note(lane=Lane.AUTH)
    )
    order = []
    for _ in range(3):
        await render_waiting(pool, catalog, batch_limit=1)
        states = {delivery: await state_of(pool, delivery) for delivery in (bulk, receipt, code)}
        order.append([delivery for delivery, state in states.items() if state is DeliveryState.RENDERED])
    assert order == [[code], [receipt, code], [bulk, receipt, code]]


async def test_what_has_no_template_is_left_alone(pool: Pool, catalog: Catalog) -> None:
    """Deliveries without a template are not rendered."""
    [delivery] = await accepted(pool)
    assert (await render_waiting(pool, catalog)).total == 0
    assert await state_of(pool, delivery) is DeliveryState.QUEUED


class Dying(Catalog):
    """A catalog that raises at the second message, like a killed process."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._left = catalog, 2

    def render(self, template: str, *, locale: str | None, variables: Any) -> Rendered | RenderError:
        self._left -= 1
        if self._left == 0:
            raise SystemExit
        return self._catalog.render(template, locale=locale, variables=variables)


async def test_a_death_while_rendering_leaves_everything_as_it_was(pool: Pool, catalog: Catalog) -> None:
    """After a crash nothing of the batch is rendered, and the next renderer takes all of it."""
    ids = await accepted(pool, a_note(), a_note(), a_note())
    with pytest.raises(SystemExit):
        await render_waiting(pool, Dying(catalog))
    assert {await state_of(pool, delivery) for delivery in ids} == {DeliveryState.QUEUED}
    assert (await service.get_delivery(pool, ids[0])).subject is None
    assert (await render_waiting(pool, catalog)).rendered == 3


async def test_renderers_do_not_wait_for_each_other(pool: Pool, catalog: Catalog) -> None:
    """A renderer skips rows that another has locked."""
    ids = await accepted(pool, a_note(), a_note())
    async with pool.acquire() as connection, connection.transaction():
        [held] = await store.lock_unrendered(connection, batch_limit=1)
        assert (await render_waiting(pool, catalog)).rendered == 1
    states = {delivery: await state_of(pool, delivery) for delivery in ids}
    assert states == {held.id: DeliveryState.QUEUED, ids[1]: DeliveryState.RENDERED}


async def test_a_cancelled_delivery_is_not_rendered(pool: Pool, catalog: Catalog) -> None:
    """A delivery cancelled before rendering is skipped."""
    [delivery] = await accepted(pool, a_note())
    await service.cancel(pool, delivery, actor="cli:ada")
    assert (await render_waiting(pool, catalog)).total == 0


async def test_a_retry_is_not_rendered_again(pool: Pool, catalog: Catalog) -> None:
    """Rendered content is kept over all attempts: a changed template does not change accepted mail."""
    hands = Hands()
    [delivery] = await accepted(pool, a_note(), now=hands())
    await render_waiting(pool, catalog, now=hands())
    [outgoing] = await claimed(pool, now=hands())
    async with pool.acquire() as connection:
        await store.release(connection, claim_id=outgoing.claim_id, delivery_ids=[delivery], now=hands())
    assert await state_of(pool, delivery) is DeliveryState.RENDERED
    assert (await render_waiting(pool, catalog)).total == 0


async def test_a_template_that_waits_for_its_time_is_rendered_ahead(pool: Pool, catalog: Catalog) -> None:
    """Rendering does not wait for `send_at`; sending does."""
    [delivery] = await accepted(pool, a_note(send_at=NOON + timedelta(hours=1)), now=NOON)
    await render_waiting(pool, catalog, now=NOON)
    assert await state_of(pool, delivery) is DeliveryState.RENDERED
    assert await claimed(pool, now=NOON) == []


@pytest.fixture
async def running(room: Room, catalog: Catalog) -> AsyncIterator[LaneWakeups]:
    """A renderer with a poll interval of an hour."""
    waker = LaneWakeups()
    renderer = RenderWorker(room.pool, catalog, waker=waker, poll_interval=timedelta(hours=1))
    async with looping(renderer.loop()):
        yield waker


async def test_a_notification_wakes_the_renderer_and_the_lane(room: Room, running: LaneWakeups) -> None:
    """A notification wakes the renderer, which then wakes the lane."""
    [delivery] = await accepted(room.pool, a_note(lane=Lane.AUTH))
    running.notified("transactional")
    assert await running.wait(Lane.AUTH, timedelta(seconds=60))
    transport = Recording()
    await a_worker(room.pool, transport).run_once(Lane.AUTH)
    assert transport.delivery_ids == [delivery]
