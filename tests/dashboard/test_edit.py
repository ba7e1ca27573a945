"""Edit and send: a changed copy of an ended delivery."""

from importlib.resources import files
from pathlib import Path

from tests.support.builders import a_mail, accepted, state_of
from tests.support.dashboard import Guest, ambiguous, given_up, hidden_fields, open_guest, text_of
from tests.support.templates import published

from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.model import DeliveryRequest, DeliveryState, Lane
from postroom.post.address import Address

HOSTILE = '"><script>alert(1)</script>'


async def send_edited(guest: Guest, delivery_id: int, **fields: str) -> int:
    """Send the form with a key of its own; returns the new delivery's id."""
    path = f"/deliveries/{delivery_id}/edit"
    sent = await guest.submit(path, path, key="k1", **fields)
    assert sent.status == 303, text_of(sent)
    return int(sent.headers["location"].split("/")[2].partition("?")[0])


async def test_a_dead_letter_is_edited_and_sent_as_new_mail(room: Room) -> None:
    """The copy has the changed address and text, the original stays, and a second click finds the first copy."""
    guest = await open_guest(room)
    dead = await given_up(room.pool, a_mail(subject=HOSTILE, tags={"order": "42"}, source="shop", max_retries=3))
    page = await guest.get(f"/deliveries/{dead}/edit")
    assert b"<script>alert" not in page.body
    assert f"/deliveries/{dead}/edit" in (await guest.get(f"/deliveries/{dead}")).body.decode()
    fields = {"to": "Ada <ada@example.org>\r\nbob@example.org\r\n", "subject": "Order 42", "text": "One\r\nTwo"}
    copy = await send_edited(guest, dead, **fields)
    made = await service.get_delivery(room.pool, copy)
    assert [(each.address, each.name) for each in made.recipients] == [
        ("ada@example.org", "Ada"),
        ("bob@example.org", None),
    ]
    assert (made.subject, made.text, made.tags, made.source) == ("Order 42", "One\nTwo", {"order": "42"}, "shop")
    assert (made.max_retries, made.ladder) == (3, "generic")
    assert await send_edited(guest, dead, **fields) == copy
    assert await state_of(room.pool, dead) is DeliveryState.DEAD_LETTER
    audited = await room.pool.fetchrow("SELECT actor, subject, after FROM audit_log WHERE action = 'delivery.edit'")
    assert (audited["actor"], audited["subject"]) == ("key:1:operator", f"delivery:{dead}")


async def test_variables_of_a_template_are_edited(room: Room, tmp_path: Path) -> None:
    """The form shows them as JSON; text that is no object is refused by name, and nothing is sent."""
    await published(room.pool, tmp_path, {"note/en/subject": "Hello {{ name }}", "note/en/html": "<p>{{ name }}</p>"})
    guest = await open_guest(room)
    mail = DeliveryRequest(to=(Address("ada@example.org"),), template="note", variables={"name": "Ada"}, locale="en")
    dead = await given_up(room.pool, mail)
    path = f"/deliveries/{dead}/edit"
    refused = await guest.submit(path, path, key="k1", to="ada@example.org", variables="[1]", locale="en")
    assert refused.status == 400
    assert "variables: must be a JSON object" in text_of(refused)
    copy = await send_edited(guest, dead, to="ada@example.org", variables='{"name": "Grace"}', locale="en")
    assert (await service.get_delivery(room.pool, copy)).variables == {"name": "Grace"}


async def test_invalid_addresses_are_named(room: Room) -> None:
    """The form comes back with the values and the field's name."""
    guest = await open_guest(room)
    dead = await given_up(room.pool)
    path = f"/deliveries/{dead}/edit"
    refused = await guest.submit(path, path, key="k1", to="ada@example.org\nnobody", subject="S", text="T")
    assert refused.status == 400
    assert "to[1]" in text_of(refused)
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries") == 1


async def test_only_ended_mail_of_applications_is_edited_by_those_who_may_send(room: Room) -> None:
    """Waiting mail and one-time codes are refused; without deliveries:write the page is not offered."""
    guest = await open_guest(room)
    [waiting] = await accepted(room.pool, a_mail())
    code = await given_up(room.pool, a_mail(lane=Lane.AUTH))
    for delivery_id in (waiting, code):
        assert (await guest.get(f"/deliveries/{delivery_id}/edit")).status == 409
    support = await open_guest(room, "deliveries:read", "deliveries:operate", name="support")
    dead = await ambiguous(room.pool)
    assert b"/edit" not in (await support.get(f"/deliveries/{dead}")).body
    assert (await support.get(f"/deliveries/{dead}/edit")).status == 403
    token = {"token": await support.token("/")}
    assert (await support.post(f"/deliveries/{dead}/edit", {**token, "to": "a@example.org"})).status == 403
    assert (await guest.post(f"/deliveries/{dead}/edit", {"to": "a@example.org"})).status == 403


async def test_a_new_mail_is_sent_once(room: Room) -> None:
    """By its content or by a template; a form sent twice sends it once; wrong fields keep the form."""
    guest = await open_guest(room)
    assert b'href="/deliveries/new"' in (await guest.get("/deliveries")).body
    fields = {**hidden_fields(await guest.get("/deliveries/new")), "lane": "transactional"}
    mail = {**fields, "to": "Ada <ada@example.org>\r\nbob@example.org", "subject": "Hello", "text": "Lunch?"}
    sent = [await guest.post("/deliveries/new", mail) for _ in range(2)]
    paths = {answer.headers["location"].partition("?")[0] for answer in sent}
    assert len(paths) == 1
    shown = text_of(await guest.get(paths.pop()))
    assert ("Hello" in shown, "bob@example.org" in shown, "Lunch?" in shown) == (True, True, True)
    sample = files("postroom.mail").joinpath("builtin_templates/welcome/_samples/ada.json").read_text("utf-8")
    templated = {**fields, "key": "other", "to": "ada@example.org", "template": "welcome", "variables": sample}
    assert (await guest.post("/deliveries/new", templated)).status == 303
    for wrong in (
        {"to": "ada"},
        {"to": ""},
        {"subject": ""},
        {"lane": "auth"},
        {"template": "welcome", "variables": "{"},
    ):
        answer = await guest.post("/deliveries/new", {**mail, "key": "x", **wrong})
        assert (wrong, answer.status) == (wrong, 400)
    actions = await room.pool.fetch("SELECT DISTINCT action FROM audit_log WHERE action LIKE 'delivery%'")
    assert [row["action"] for row in actions] == ["delivery.send"]
    reader = await open_guest(room, "deliveries:read", name="reader")
    assert b"/deliveries/new" not in (await reader.get("/deliveries")).body
    assert (await reader.get("/deliveries/new")).status == 403
