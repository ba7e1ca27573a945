"""One delivery as a timeline: acceptance, attempts, operators, opens, clicks, reports; and the person's other mail."""

from datetime import timedelta

import pytest
from tests.support.builders import BUSY, DELIVERED, NOON, Recording, a_compose, a_mail, a_worker, accepted
from tests.support.dashboard import Guest, ambiguous, captured, open_guest, text_of, tried

from postroom.dashboard.timeline import engagement_entries
from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.attempt import RenderFailed
from postroom.delivery.model import Lane, Outgoing
from postroom.delivery.worker import WorkerOptions
from postroom.post.reply import Content, Envelope
from postroom.tracking.model import DeliveryEngagement


@pytest.fixture
async def guest(room: Room) -> Guest:
    return await open_guest(room)


def in_order(text: str, *parts: str) -> bool:
    """True if the text has these parts in this order."""
    position = 0
    for part in parts:
        position = text.find(part, position)
        if position < 0:
            return False
    return True


async def test_the_story_is_told_in_order(room: Room, guest: Guest) -> None:
    """Accepted, deferred with the server's words, retried by an operator, sent, opened, clicked."""
    [delivery_id] = await accepted(room.pool, a_mail(source="shop", idempotency_key="order-7"))
    await a_worker(room.pool, Recording(BUSY), options=WorkerOptions(until_empty=True)).run()
    waiting = text_of(await guest.get(f"/deliveries/{delivery_id}"))
    assert in_order(
        waiting, "Accepted from shop", "order-7", "Attempt 1: deferred", "451 4.3.0 try later", "Next attempt"
    )
    assert "451 4.3.0 try later" in waiting.partition("Recipients As Address")[2]
    await service.retry(room.pool, delivery_id, actor="cli:ada")
    await a_worker(room.pool, Recording(DELIVERED), options=WorkerOptions(until_empty=True)).run()
    await room.pool.execute(
        "INSERT INTO engagements (delivery_id, first_at, first_open_at, first_human_open_at)"
        " VALUES ($1, now(), now() + interval '1 minute', now() + interval '2 minutes')",
        delivery_id,
    )
    text = text_of(await guest.get(f"/deliveries/{delivery_id}"))
    assert in_order(
        text,
        "Attempt 1: deferred",
        "next attempt",
        "delivery.retry by cli:ada",
        "Attempt 2: sent",
        "250 2.0.0 queued as 7",
        "host mx.example.org:25",
        "TLS TLSv1.3",
        "Opened by a machine",
        "Opened",
    )
    assert "try later" not in text.partition("Recipients As Address")[2]  # the reply of the attempt before
    [shown] = await tried(
        room.pool, a_mail(template="welcome", variables={"name": "Ada", "product": "Quill", "url": "https://q.example"})
    )
    assert in_order(
        text_of(await guest.get(f"/deliveries/{shown}")), "Accepted from", "Rendered", "template welcome", "Attempt 1"
    )


async def test_a_captured_mail_is_one_click_away(room: Room, guest: Guest) -> None:
    """The message in the inbox has the source, the headers and the checks."""
    [delivery_id, other] = await tried(room.pool, a_mail(), a_mail())
    message = await captured(room.pool, b"Subject: Hello\r\n\r\nHello\r\n", delivery_id=delivery_id)
    assert f'href="/inbox/{message}?view=source"'.encode() in (await guest.get(f"/deliveries/{delivery_id}")).body
    assert b'href="/inbox/' not in (await guest.get(f"/deliveries/{other}")).body


async def test_operators_actions_are_for_keys_that_read_the_audit_log(room: Room) -> None:
    """A key without audit:read sees the attempts, and no names of operators."""
    guest = await open_guest(room, "deliveries:read", name="reader")
    [delivery_id] = await accepted(room.pool, a_mail())
    await service.cancel(room.pool, delivery_id, actor="cli:ada")
    text = text_of(await guest.get(f"/deliveries/{delivery_id}"))
    assert "Cancelled" in text
    assert "cli:ada" not in text


async def test_mail_that_cannot_be_rendered_shows_why(room: Room, guest: Guest) -> None:
    """The end has reason and detail: of the first rendering and, after an attempt, of a later one."""

    def compose(outgoing: Outgoing) -> tuple[Envelope, Content]:
        if outgoing.attempt_no == 2 or outgoing.lane is Lane.AUTH:
            raise RenderFailed("welcome/html: no such block")
        return a_compose()(outgoing)

    at_once, later = await accepted(room.pool, a_mail(lane=Lane.AUTH), a_mail())
    for _ in range(2):
        worker = a_worker(room.pool, Recording(BUSY), compose=compose, options=WorkerOptions(until_empty=True))
        await worker.run()
        await room.pool.execute("UPDATE deliveries SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL")
    first, second = [text_of(await guest.get(f"/deliveries/{each}")) for each in (at_once, later)]
    assert in_order(first, "Accepted", "Failed", "render failed: welcome/html: no such block")
    assert "Attempt 1" not in first
    assert in_order(second, "Attempt 1: deferred", "Failed", "render failed: welcome/html: no such block")
    assert "Attempt 2" not in second


async def test_an_ambiguous_delivery_explains_each_button(room: Room, guest: Guest) -> None:
    """The page has the known facts, the effect of each button, and its risk."""
    text = text_of(await guest.get(f"/deliveries/{await ambiguous(room.pool)}"))
    assert "Known so far" in text
    assert "If it had arrived, the person gets it twice." in text
    assert "It counts as sent and is not sent again." in text
    assert "Attempt 1: ambiguous" in text
    explained = text.partition("Known so far")[2].partition("Timeline")[0]
    for button in ("Try again…", "Mark as sent…", "Resend…", "Edit and send"):
        assert button in text
        assert button.removesuffix("…") in explained


async def test_other_deliveries_to_the_same_person_are_shown(room: Room, guest: Guest) -> None:
    """The newest ones to the first recipient, not this one, and none to others."""
    [one, two] = await tried(room.pool, a_mail(subject="First"), a_mail(subject="Second"))
    await tried(room.pool, a_mail("bob@example.org", subject="Elsewhere"))
    page = await guest.get(f"/deliveries/{one}")
    related = text_of(page).partition("Other deliveries to this person")[2]
    assert "Second" in related
    assert "First" not in related
    assert "Elsewhere" not in related
    assert f'<a href="/deliveries/{two}">'.encode() in page.body


def test_opens_by_machines_are_not_counted_as_people() -> None:
    """A first hit by a machine and a later one by a person are two entries; a person's own first hit is one."""
    later = NOON + timedelta(minutes=1)
    found = [*engagement_entries(DeliveryEngagement(NOON, later, NOON, NOON))]
    assert [(entry.title, entry.at) for entry in found] == [
        ("Opened by a machine", NOON),
        ("Opened", later),
        ("Clicked", NOON),
    ]
    assert [*engagement_entries(None)] == []
