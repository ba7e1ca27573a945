"""A greeting through a whole process: settings, scheduler, worker, signature, guard."""

import base64

import pytest
from tests.support.schedule import person, statuses, works_until
from tests.support.webhook_server import Receiver, is_genuine, receiving

from postroom.db.room import Room, open_room
from postroom.schedule import service
from postroom.schedule.model import User
from postroom.settings import read_settings

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


async def greeted(room: Room) -> User:
    """Create a person whose greeting is due, and run a process until the greeting has ended."""
    user = await service.create_user(room.pool, person(), policy=service.policy_of(room.settings), actor="tests")
    await room.pool.execute("UPDATE scheduled_events SET target_timestamp_utc = now() - interval '1 second'")
    await works_until(room, "EXISTS (SELECT FROM scheduled_events WHERE status IN ('COMPLETED', 'FAILED'))")
    return user


@pytest.mark.parametrize("allowed", ["1", "0"])
async def test_process_sends_a_due_greeting(database_url: str, allowed: str) -> None:
    """A signed greeting reaches loopback where it is allowed; otherwise the event fails without a request."""
    async with receiving(Receiver()) as receiver:
        settings = read_settings(
            {
                "POSTROOM_DATABASE_URL": database_url,
                "POSTROOM_SCHEDULE_WEBHOOK_URL": receiver.url,
                "POSTROOM_WEBHOOK_SECRET": SECRET,
                "POSTROOM_WEBHOOK_ALLOW_PRIVATE": allowed,
                "POSTROOM_WEBHOOK_TIMEOUT": "60s",
                "POSTROOM_LEASE": "1h",
            }
        )
        async with open_room(settings) as room:
            user = await greeted(room)
            ended = await room.pool.fetchrow(
                "SELECT e.status::text, e.failure_reason, e.idempotency_key, d.state::text, a.enhanced_code"
                " FROM scheduled_events AS e JOIN deliveries AS d ON d.id = e.delivery_id"
                " JOIN attempts AS a ON a.delivery_id = d.id WHERE e.status <> 'PENDING'"
            )
            assert len(await statuses(room.pool, user.id)) == 2
    if allowed == "1":
        [request] = receiver.requests
        assert is_genuine(SECRET, request.headers, request.body)
        assert request.headers["X-Idempotency-Key"] == ended["idempotency_key"]
        assert (ended["status"], ended["state"], ended["enhanced_code"]) == ("COMPLETED", "sent", "HTTP 200")
    else:
        assert receiver.requests == []
        assert (ended["status"], ended["state"], ended["enhanced_code"]) == ("FAILED", "failed", "forbidden")
        assert "POSTROOM_WEBHOOK_ALLOW_PRIVATE" in ended["failure_reason"]
