"""Malformed commands: by reason, one command, edit and resubmit, dismiss, and redrive after a dry run."""

import msgspec
import pytest
from tests.support.dashboard import Guest, open_guest, text_of
from tests.support.intake import PAYLOAD, entries, keys_of, raw

from postroom.db.room import Room
from postroom.intake import service

BROKEN = b"{not json \xff"


@pytest.fixture
async def guest(room: Room) -> Guest:
    return await open_guest(room)


async def recorded(room: Room, *raws: bytes) -> list[int]:
    """Malformed commands; returns their ids."""
    await service.accept_commands(room.pool, entries(*raws))
    rows = await room.pool.fetch("SELECT id FROM malformed_commands ORDER BY id")
    return [row["id"] for row in rows]


async def actions_of(room: Room) -> list[str]:
    rows = await room.pool.fetch("SELECT action FROM audit_log WHERE action LIKE 'malformed%' ORDER BY id")
    return [row["action"] for row in rows]


async def test_commands_are_grouped_by_reason(room: Room, guest: Guest) -> None:
    """Counts by reason, filters, and the content of one, also if it is not JSON."""
    assert "No command is malformed." in text_of(await guest.get("/malformed"))
    ids = await recorded(room, BROKEN, BROKEN + b"2", raw(payload_mode="fax"))
    page = text_of(await guest.get("/malformed"))
    assert "not a command 2" in page
    assert "bad field 1" in page
    assert "payload_mode: must be rendered or template" in page
    assert "not a command" not in text_of(await guest.get("/malformed?reason=bad_field")).split("Status")[-1]
    assert "Nothing matches" in text_of(await guest.get("/malformed?source=none&state=waiting"))
    assert (await guest.get("/malformed?state=odd")).status == 400
    assert "{not json \\xff" in text_of(await guest.get(f"/malformed/{ids[0]}"))
    assert (await guest.get("/malformed/999")).status == 404


async def test_a_command_is_corrected_and_resubmitted(room: Room, guest: Guest) -> None:
    """An invalid correction is explained and keeps the text; a valid one becomes a delivery."""
    [command_id] = await recorded(room, raw(payload_mode="fax", request_id="r1", idempotency_key="k9"))
    path = f"/malformed/{command_id}"
    page = (await guest.get(path)).body.decode()
    assert "&quot;subject&quot;: &quot;" in page  # the payload is shown as an object
    unchanged = await guest.submit(path, f"{path}/resubmit")
    assert (unchanged.status, "payload_mode: must be" in text_of(unchanged)) == (400, True)
    for wrong in ("{", "[]", '{"source": 1}'):
        answer = await guest.submit(path, f"{path}/resubmit", content=wrong)
        assert (wrong, answer.status) == (wrong, 400)
    better = {**msgspec.json.decode(raw()), "idempotency_key": "k9", "payload_json": {**PAYLOAD, "subject": "Better"}}
    done = await guest.submit(path, f"{path}/resubmit", content=msgspec.json.encode(better).decode())
    assert "The command is accepted." in text_of(await guest.get(done.headers["location"]))
    assert await keys_of(room.pool) == ["k9"]
    assert "resubmitted" in text_of(await guest.get(path))
    assert (await guest.submit("/keys/new", f"{path}/resubmit")).status == 409
    assert await actions_of(room) == ["malformed_command.resubmit"]
    after = await room.pool.fetchval("SELECT after::text FROM audit_log WHERE action LIKE 'malformed%'")
    assert msgspec.json.decode(after)["changed"] == ["payload_json", "payload_mode", "request_id"]


async def test_a_command_is_dismissed(room: Room, guest: Guest) -> None:
    [command_id] = await recorded(room, BROKEN)
    path = f"/malformed/{command_id}"
    await guest.submit(path, f"{path}/dismiss")
    assert "dismissed" in text_of(await guest.get("/malformed?state=dismissed"))
    assert "Waiting, by reason" not in text_of(await guest.get("/malformed"))
    assert await actions_of(room) == ["malformed_command.dismiss"]


async def test_commands_are_redriven_after_a_dry_run(room: Room, guest: Guest) -> None:
    """The dry run counts the valid ones and changes nothing; later commands are not among them."""
    await recorded(room, BROKEN, raw(payload_mode="fax", idempotency_key="bad"))
    for key in ("a", "b"):  # valid commands, rejected by an older version
        await room.pool.execute(
            "INSERT INTO malformed_commands (source, reason, raw) VALUES ('shop', 'bad_field', $1)",
            raw(idempotency_key=key),
        )
    ask = "/malformed/redrive?reason=bad_field"
    assert "2 commands are valid now and would be accepted; 1 would stay malformed." in text_of(await guest.get(ask))
    assert await keys_of(room.pool) == []
    before = await room.pool.fetchval("SELECT max(id) + 1 FROM malformed_commands")
    await room.pool.execute(
        "INSERT INTO malformed_commands (source, reason, raw) VALUES ('shop', 'bad_field', $1)",
        raw(idempotency_key="later"),
    )
    done = await guest.submit(ask, "/malformed/redrive", reason="bad_field", before=str(before))
    assert "2 accepted, 1 still malformed." in text_of(await guest.get(done.headers["location"]))
    assert sorted(await keys_of(room.pool)) == ["a", "b"]
    assert await actions_of(room) == ["malformed_command.resubmit"] * 2
    assert (await guest.submit(ask, "/malformed/redrive", before="x")).status == 400
    nothing = await guest.get("/malformed/redrive?reason=not_a_command")
    assert b"Resubmit the valid ones" not in nothing.body


async def test_malformed_commands_need_their_scopes(room: Room) -> None:
    """A reader sees the list but no content; an operator resubmits unchanged, and edits only with deliveries:write."""
    [command_id] = await recorded(room, raw(payload_mode="fax"))
    path = f"/malformed/{command_id}"
    reader = await open_guest(room, "deliveries:read", name="reader")
    assert "Redrive…" not in text_of(await reader.get("/malformed"))
    assert (await reader.get(path)).status == 403
    token = {"token": await reader.token("/")}
    posts = [f"{path}/resubmit", f"{path}/dismiss", "/malformed/redrive"]
    operator = await open_guest(room, "deliveries:read", "deliveries:operate", name="operator")
    for each in posts:
        assert (each, (await reader.post(each, token)).status) == (each, 403)
        assert (each, (await operator.post(each, {"token": "forged"})).status) == (each, 403)
    assert b"<textarea" not in (await operator.get(path)).body
    assert (await operator.submit(path, f"{path}/resubmit", content="{}")).status == 403
