"""Rows for every page of the dashboard's groups People and Events."""

from tests.support.accounts import sign_up
from tests.support.schedule import person

from postroom.db.pool import Pool
from postroom.events import Event, EventStore
from postroom.outbox import topics
from postroom.outbox.model import Topic
from postroom.outbox.webhooks import service as webhooks
from postroom.runtime.secrets import SecretBox
from postroom.schedule.model import SchedulePolicy
from postroom.schedule.service import add_occasion, create_user


async def fill_people_and_events(pool: Pool, text: str) -> list[str]:
    """Rows with this text in every field that a stranger can write; returns the pages that show them."""
    event = await EventStore(pool).append(
        Event("Said", {text: text}, (f"a={text[:400]}",), correlation_id=text[:100], causation_id=text[:100])
    )
    await topics.create_topic(pool, Topic(name="orders", types=(text[:64],)), publishers=["log"], actor="tests")
    endpoint, _secret = await webhooks.register(
        pool, SecretBox([bytes(32)]), url="https://x.example/", topics=["orders"], actor="tests"
    )
    await pool.execute("UPDATE webhook_endpoints SET url = $1, description = $1, disabled_reason = $1", text)
    await pool.execute("UPDATE outbox_topic_progress SET last_error = $1, failed_position = 1", text)
    await pool.execute(
        "UPDATE outbox_topic_progress SET leader_instance = $1, leader_since = now(), leader_heartbeat = now()", text
    )
    await pool.execute(
        "INSERT INTO outbox_mail_rules (topic, event_type, template, recipient_path)"
        " VALUES ('orders', $1, 'welcome', $1)",
        text,
    )
    await pool.execute(
        "INSERT INTO commands (transaction_id, type, command_id, data, result, metadata)"
        " SELECT transaction_id, left($1, 64), $1, to_jsonb($1::text), to_jsonb($1::text), to_jsonb($1::text)"
        " FROM events WHERE position = $2",
        text,
        event.position,
    )
    command = await pool.fetchval(
        "INSERT INTO malformed_commands (source, reason, detail, entry, raw) VALUES ($1, $1, $1, $1, $2) RETURNING id",
        text,
        text.encode(),
    )
    user = await create_user(pool, person(email="ada@example.org"), policy=SchedulePolicy(), actor="tests")
    await add_occasion(
        pool, user.id, "REMINDER", rule={"at": "2030-01-01T09:00"}, message=text, policy=SchedulePolicy(), actor="tests"
    )
    await pool.execute("UPDATE users SET first_name = left($1, 100), last_name = left($1, 100)", text)
    await pool.execute("UPDATE scheduled_events SET delivery_payload = jsonb_build_object('message', $1::text)", text)
    account = await sign_up(pool)
    await pool.execute("UPDATE accounts SET login = left($1, 254)", text)
    paths = ["/events", f"/events/{event.transaction_id}/{event.position}", "/events/commands", "/outbox"]
    paths += [
        f"/events/transactions/{event.transaction_id}",
        "/outbox/orders/log",
        "/outbox/orders/log/reset?position=0",
    ]
    paths += ["/outbox/topics", "/outbox/topics/orders", "/outbox/topics/new", "/outbox/rules", "/outbox/rules/new"]
    paths += [
        "/webhooks",
        f"/webhooks/{endpoint.id}",
        f"/webhooks/{endpoint.id}/recover",
        f"/webhooks/{endpoint.id}/change",
    ]
    paths += ["/malformed", f"/malformed/{command}", "/malformed/redrive", "/schedule", "/people", f"/people/{user.id}"]
    return [*paths, "/accounts", f"/accounts/{account}", "/accounts/new", "/webhooks/new"]
