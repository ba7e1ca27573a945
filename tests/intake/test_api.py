"""Malformed commands over HTTP."""

import base64

import pytest
from tests.support.http import Browser, open_browser
from tests.support.intake import PAYLOAD, entries, keys_of, raw

from postroom.db.room import Room
from postroom.http.asgi import build_app
from postroom.intake import service
from postroom.intake.api import ENDPOINTS
from postroom.intake.errors import MalformedCommandNotFound


async def browse(room: Room, *scopes: str) -> Browser:
    known = {(endpoint.method, endpoint.path) for endpoint in build_app(room).endpoints}
    missing = [endpoint for endpoint in ENDPOINTS if (endpoint.method, endpoint.path) not in known]
    return await open_browser(room, *scopes, app=build_app(room, more=missing))


async def test_malformed_commands_are_listed_without_their_bytes(room: Room) -> None:
    """The list says why, whose and how large; filters choose and cursors go on."""
    await service.accept_commands(room.pool, entries(b"junk", raw(payload_mode="x")))
    browser = await browse(room, "deliveries:read")
    page = (await browser.get("/v1/malformed-commands?limit=1")).json
    rest = (await browser.get(f"/v1/malformed-commands?cursor={page['next_cursor']}")).json
    assert [item["reason"] for item in [*page["items"], *rest["items"]]] == ["bad_field", "not_a_command"]
    assert (rest["items"][0]["size"], "raw" in rest["items"][0]) == (4, False)
    chosen = (await browser.get("/v1/malformed-commands?source=shop&reason=bad_field&resubmitted=false")).json
    assert len(chosen["items"]) == 1
    assert [answer["waiting"] for answer in (page, rest, chosen)] == [2, 2, 2]  # all of them, whatever is chosen


async def test_waiting_commands_are_measured(room: Room) -> None:
    """Prometheus sees how many malformed commands wait for a person."""
    await service.accept_commands(room.pool, entries(b"junk", raw(payload_mode="x"), raw()))
    browser = await browse(room)
    assert b"postroom_malformed_commands_waiting 2.0" in (await browser.get("/metrics")).body
    mended = {"fields": {"payload_mode": "rendered", "idempotency_key": "mended"}}
    assert (await browser.post("/v1/malformed-commands/2/resubmit", json=mended)).status == 202
    assert b"postroom_malformed_commands_waiting 1.0" in (await browser.get("/metrics")).body


async def test_the_bytes_are_for_operators(room: Room) -> None:
    """A command may hold anything a mail holds: the scope to read lists is not enough."""
    await service.accept_commands(room.pool, entries(b"\xff junk"))
    reader, operator = await browse(room, "deliveries:read"), await browse(room, "deliveries:operate")
    assert (await reader.get("/v1/malformed-commands/1")).status == 403
    shown = (await operator.get("/v1/malformed-commands/1")).json
    assert base64.b64decode(shown["raw"]) == b"\xff junk"


async def test_command_is_corrected_and_resubmitted(room: Room) -> None:
    """202 with the delivery; the second time 409 names it."""
    await service.accept_commands(room.pool, entries(raw({**PAYLOAD, "to": "ada"}, bogus="x")))
    browser = await browse(room)
    mend = {"payload": PAYLOAD, "fields": {"bogus": None, "idempotency_key": "mended"}}
    answer = await browser.post("/v1/malformed-commands/1/resubmit", json=mend)
    assert (answer.status, answer.json["status"], answer.json["replayed"]) == (202, "queued", False)
    assert await keys_of(room.pool) == ["mended"]
    again = await browser.post("/v1/malformed-commands/1/resubmit", json=mend)
    assert (again.status, again.json["code"]) == (409, "already_resubmitted")
    listed = (await browser.get("/v1/malformed-commands?resubmitted=true")).json["items"]
    assert [item["delivery_id"] for item in listed] == [answer.json["delivery_id"]]


async def test_fields_that_are_still_invalid_are_named(room: Room) -> None:
    """400 names the fields; the command stays."""
    await service.accept_commands(room.pool, entries(raw(payload_mode="x")))
    answer = await (await browse(room)).post("/v1/malformed-commands/1/resubmit", json={})
    assert (answer.status, answer.fields) == (400, ["payload_mode"])
    assert await service.count_malformed_commands(room.pool) == 1


async def test_a_malformed_command_is_dismissed(room: Room) -> None:
    """It waits no longer, which is audited; again is the same; one that became a delivery is not dismissed."""
    await service.accept_commands(room.pool, entries(b"junk", raw(payload_mode="x")))
    browser = await browse(room)
    answer = await browser.post("/v1/malformed-commands/1/dismiss")
    assert (answer.status, answer.json["id"], answer.json["dismissed_at"] is not None) == (200, 1, True)
    again = await browser.post("/v1/malformed-commands/1/dismiss")
    assert (again.status, again.json["dismissed_at"]) == (200, answer.json["dismissed_at"])
    assert b"postroom_malformed_commands_waiting 1.0" in (await browser.get("/metrics")).body
    assert [item["id"] for item in (await browser.get("/v1/malformed-commands?dismissed=false")).json["items"]] == [2]
    mended = {"fields": {"payload_mode": "rendered"}}
    assert (await browser.post("/v1/malformed-commands/2/resubmit", json=mended)).status == 202
    late = await browser.post("/v1/malformed-commands/2/dismiss")
    assert (late.status, late.json["code"]) == (409, "already_resubmitted")
    actions = await room.pool.fetch("SELECT action, subject FROM audit_log WHERE action LIKE 'malformed%' ORDER BY id")
    assert [tuple(row) for row in actions] == [
        ("malformed_command.dismiss", "malformed_command:1"),
        ("malformed_command.resubmit", "malformed_command:2"),
    ]


async def test_dismissing_is_for_all_or_none(room: Room) -> None:
    """An id that is not there leaves the others waiting."""
    await service.accept_commands(room.pool, entries(b"junk"))
    with pytest.raises(MalformedCommandNotFound):
        await service.dismiss(room.pool, [1, 7], actor="tests")
    assert await service.count_malformed_commands(room.pool) == 1


async def test_an_unknown_command_is_404(room: Room) -> None:
    """Asking for what is not there says so."""
    browser = await browse(room)
    assert (await browser.get("/v1/malformed-commands/7")).status == 404
    assert (await browser.post("/v1/malformed-commands/7/resubmit", json={})).json["code"] == (
        "malformed_command_not_found"
    )


async def test_a_changed_command_needs_the_right_to_send(room: Room) -> None:
    """An operator may accept a command as it is; changing it is sending."""
    await service.accept_commands(room.pool, entries(raw(payload_mode="x")))
    operator = await browse(room, "deliveries:operate")
    for change in ({"fields": {"payload_mode": "rendered"}}, {"payload": {"to": "eve@example.org"}}):
        answer = await operator.post("/v1/malformed-commands/1/resubmit", json=change)
        assert (answer.status, "deliveries:write" in answer.json["detail"]) == (403, True)
    assert (await operator.post("/v1/malformed-commands/1/resubmit", json={})).status == 400
