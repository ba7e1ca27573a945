"""Mass actions in the dashboard: count, ask, act once, and only with the scope."""

import pytest
from tests.support.builders import a_mail, accepted, state_of
from tests.support.dashboard import Guest, hidden_fields, open_guest, text_of

from postroom.db.room import Room
from postroom.delivery.mass import service
from postroom.delivery.model import DeliveryState
from postroom.events.audit import list_audit

NEW = "/deliveries/mass-actions/new"


@pytest.fixture
async def guest(room: Room) -> Guest:
    return await open_guest(room)


async def fields_of(guest: Guest, page: str) -> dict[str, str]:
    return hidden_fields(await guest.get(page))


async def test_all_deliveries_of_a_filter_are_counted_then_cancelled(room: Room, guest: Guest) -> None:
    """The buttons carry the filter; the page says how many and why not others; the result is audited once."""
    [first, second] = await accepted(room.pool, *[a_mail(source="shop")] * 2)
    [other] = await accepted(room.pool, a_mail(source="other"))
    listing = (await guest.get("/deliveries?source=shop")).body.decode()
    assert f'href="{NEW}?kind=cancel&amp;source=shop"' in listing
    asked = text_of(await guest.get(f"{NEW}?kind=cancel&source=shop"))
    assert "2 deliveries would be cancelled." in asked
    assert "source is shop" in asked
    fields = await fields_of(guest, f"{NEW}?kind=cancel&source=shop")
    answers = [await guest.post("/deliveries/mass-actions", fields) for _ in range(2)]
    assert answers[0].headers["location"] == answers[1].headers["location"]
    shown = text_of(await guest.get(answers[0].headers["location"]))
    assert "Mass action 1: cancel done" in shown
    assert "Changed 2" in shown
    states = [await state_of(room.pool, each) for each in (first, second, other)]
    assert states == [DeliveryState.CANCELLED, DeliveryState.CANCELLED, DeliveryState.QUEUED]
    entries, _more = await list_audit(room.pool, action="delivery")
    assert [(entry.action, entry.subject) for entry in entries] == [("delivery.mass_cancel", "mass_action:1")]
    assert "source is shop" in text_of(await guest.get("/deliveries/mass-actions"))
    assert "Skipped: 2 ended already." in text_of(await guest.get(f"{NEW}?kind=cancel&source=shop"))


async def test_an_unfinished_action_loads_again(room: Room, guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a script: the header asks the browser to."""
    monkeypatch.setattr(service, "STEP", 1)
    monkeypatch.setattr(service, "FIRST_STEPS", 1)
    await accepted(room.pool, *[a_mail()] * 3)
    answer = await guest.post("/deliveries/mass-actions", await fields_of(guest, f"{NEW}?kind=retry"))
    shown = await guest.get(answer.headers["location"])
    assert (shown.headers.get("refresh"), "running" in text_of(shown)) == ("2", True)


async def test_only_operators_of_this_session_start_one(room: Room, guest: Guest) -> None:
    """A reader sees no button and may not ask; a form without its token, or with another filter's text, is refused."""
    [delivery] = await accepted(room.pool, a_mail(source="<script>alert(1)</script>"[:60]))
    reader = await open_guest(room, "deliveries:read")
    assert "mass-actions/new" not in (await reader.get("/deliveries")).body.decode()
    assert (await reader.get(f"{NEW}?kind=cancel")).status == 403
    fields = await fields_of(guest, f"{NEW}?kind=cancel&source=%3Cscript%3Ealert(1)%3C/script%3E")
    assert (await guest.post("/deliveries/mass-actions", {**fields, "token": "x"})).status == 403
    assert (await guest.post("/deliveries/mass-actions", fields, sec_fetch_site="cross-site")).status == 403
    for wrong in ({"filter": "{"}, {"filter": '{"state": 1}'}, {"before_id": "x"}, {"kind": "delete"}, {"key": ""}):
        assert (wrong, (await guest.post("/deliveries/mass-actions", {**fields, **wrong})).status) == (wrong, 400)
    assert await state_of(room.pool, delivery) is DeliveryState.QUEUED
    done = await guest.post("/deliveries/mass-actions", fields)
    for path in (done.headers["location"], "/deliveries/mass-actions"):
        assert b"<script>alert" not in (await guest.get(path)).body
    assert await state_of(room.pool, delivery) is DeliveryState.CANCELLED


async def test_recipients_are_found_by_a_part_of_their_address(room: Room, guest: Guest) -> None:
    """A whole address is looked up, anything else is searched."""
    await accepted(room.pool, a_mail("ada@example.org", subject="Hello Ada"), a_mail("bob@example.org", subject="Hi"))
    for part, is_found in (("ada", True), ("ADA@exam", True), ("ada@example.org", True), ("da@example.org", False)):
        found = "Hello Ada" in text_of(await guest.get(f"/deliveries?recipient={part}"))
        assert (part, found) == (part, is_found)
