"""The actions of a person on the pages of People and Events, in the order of a day."""

from tests.support.dashboard_actions import Step, Walker
from tests.support.intake import PAYLOAD, entries, raw

from postroom.delivery.model import Channel, Lane
from postroom.delivery.worker import Worker, WorkerOptions
from postroom.events import Event, EventStore
from postroom.intake.service import accept_commands
from postroom.outbox.webhooks.writer import WebhookWriter
from postroom.runtime.secrets import SecretBox
from postroom.transports.webhook.transport import WebhookTransport

# ── People ─────────────────────────────────────────────────────────────────────────────────────────────────────────


PEOPLE = (
    Step(
        route="/people/new",
        at="/people",
        way=("New person",),
        fields={
            "first_name": "Grace",
            "last_name": "Hopper",
            "date_of_birth": "1906-12-09",
            "timezone": "America/New_York",
            "email": "grace@example.org",
        },
        shows="The person is created, and their next greeting is planned.",
        holds="EXISTS (SELECT FROM users JOIN scheduled_events ON user_id = users.id WHERE last_name = 'Hopper')",
        audit="user.create",
    ),
    Step(
        route="/people/{user_id:uuid}/edit",
        at="/people",
        way=("Grace Hopper", "Edit"),
        fields={"timezone": "Europe/London"},
        shows="The person is saved; 1 planned message moved.",
        holds="EXISTS (SELECT FROM users WHERE timezone = 'Europe/London')",
        audit="user.update",
    ),
    Step(
        route="/people/{user_id:uuid}/occasions/new",
        at="/people",
        way=("Grace Hopper", "New occasion", "anniversary"),
        fields={"date": "1952-05-02", "message": "The compiler's birthday"},
        shows="The occasion is added, and its first message is planned.",
        holds="EXISTS (SELECT FROM user_occasions WHERE event_type = 'ANNIVERSARY')",
        audit="occasion.add",
    ),
    Step(
        route="/people/{user_id:uuid}/events/{event_id:uuid}/move",
        at="/people",
        way=("Grace Hopper", "Move…"),
        fields={"at": "2030-12-10T10:30"},
        shows="The message moved to Tue 2030-12-10 10:30 in Europe/London.",
        holds="EXISTS (SELECT FROM scheduled_events WHERE moved_from IS NOT NULL)",
        audit="scheduled_event.move",
    ),
    Step(
        route="/people/{user_id:uuid}/events/{event_id:uuid}/cancel",
        at="/people",
        way=("Grace Hopper",),
        shows="The message is cancelled; the next one is planned.",
        holds="EXISTS (SELECT FROM scheduled_events WHERE failure_reason LIKE 'cancelled: by operator%')",
        audit="scheduled_event.cancel",
    ),
    Step(
        route="/people/{user_id:uuid}/occasions/{occasion_id:uuid}/remove",
        at="/people",
        way=("Grace Hopper",),
        shows="No message besides the birthday greeting.",
        holds="NOT EXISTS (SELECT FROM user_occasions)",
        audit="occasion.remove",
    ),
    Step(
        route="/people/{user_id:uuid}/delete",
        at="/people",
        way=("Grace Hopper",),
        shows="The person and their planned messages are deleted.",
        holds="NOT EXISTS (SELECT FROM users)",
        audit="user.delete",
    ),
    Step(
        route="/accounts/new",
        at="/accounts",
        way=("New account",),
        fields={"email": "linus@example.org", "login": "linus", "locale": "en"},
        shows="The account is created, and its activation mail is queued.",
        holds="EXISTS (SELECT FROM accounts WHERE login = 'linus' AND status = 'provisioned')",
        audit="account.create",
    ),
    Step(
        route="/accounts/{account_id:int}/reissue",
        at="/accounts",
        way=("linus@example.org",),
        shows="A new activation mail is queued.",
        holds="(SELECT count(*) FROM tokens) = 2",
        audit="account.reissue",
    ),
    Step(
        route="/accounts/{account_id:int}/suspend",
        at="/accounts",
        way=("linus@example.org",),
        shows="The account is suspended.",
        holds="EXISTS (SELECT FROM accounts WHERE status = 'suspended')",
        audit="account.suspend",
    ),
    Step(
        route="/accounts/{account_id:int}/unsuspend",
        at="/accounts",
        way=("linus@example.org",),
        shows="The account is provisioned.",
        holds="EXISTS (SELECT FROM accounts WHERE status = 'provisioned' AND unsuspended_at IS NOT NULL)",
        audit="account.unsuspend",
    ),
    Step(
        route="/erasures/preview",
        at="/erasures",
        way=("Erase a person",),
        fields={"email": "linus@example.org"},
        shows="These rows have the address",
        audit=None,
        reason="it counts rows",
    ),
    Step(
        route="/erasures/new",
        at="/erasures",
        way=("Erase a person",),
        asked={"email": "linus@example.org"},
        fields={"typed": "linus@example.org"},
        shows=" is done.",
        holds="NOT EXISTS (SELECT FROM accounts WHERE email = 'linus@example.org')",
        audit="erasure.begin erasure.finish",
    ),
)

# ── Events ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_PROGRESS = "EXISTS (SELECT FROM outbox_topic_progress WHERE publisher = 'log' AND {})"


async def _order_placed(walker: Walker) -> None:
    await EventStore(walker.office.pool).append(Event.of("OrderPlaced", {"total": 42}, order=41))


async def _receiver_was_down(walker: Walker) -> None:
    """The worker tries the queued webhook while its endpoint is disabled, so that it fails."""
    pool, box = walker.office.pool, SecretBox(walker.office.room.settings.sealing_keys)
    transport = WebhookTransport(allow_private=True)
    writers, routes = {Channel.WEBHOOK: WebhookWriter(pool, box)}, {Channel.WEBHOOK: dict.fromkeys(Lane, transport)}
    await Worker(pool, writers=writers, routes=routes, options=WorkerOptions(until_empty=True)).run()
    await transport.close()


async def _malformed(walker: Walker) -> None:
    """Two commands that are invalid, and one that an older version has rejected."""
    pool = walker.office.pool
    await accept_commands(pool, entries(raw(payload_mode="fax"), b"{not json"))
    await pool.execute(
        "INSERT INTO malformed_commands (source, reason, raw) VALUES ('shop', 'bad_payload', $1)",
        raw(idempotency_key="k2"),
    )
    walker.values["command"] = raw(PAYLOAD, idempotency_key="k9").decode()


EVENTS = (
    Step(
        route="/outbox/topics/new",
        at="/outbox/topics",
        way=("New topic",),
        fields={"name": "orders", "types": "OrderPlaced", "publishers": "log webhook intake"},
        shows="The topic is created.",
        holds="(SELECT count(*) FROM outbox_topic_progress WHERE topic = 'orders') = 3",
        audit="outbox.topic.create",
    ),
    Step(
        route="/outbox/topics/{name}",
        at="/outbox/topics",
        way=("orders",),
        fields={"types": "OrderPlaced\nOrderPaid", "required_keys": "order"},
        shows="The conditions are saved.",
        holds="EXISTS (SELECT FROM outbox_topics WHERE types = '{OrderPlaced,OrderPaid}')",
        audit="outbox.topic.save",
    ),
    Step(
        route="/outbox/topics/{name}/publishers",
        at="/outbox/topics",
        way=("orders", "Add a publisher"),
        fields={"publisher": "nats", "start": "beginning"},
        shows="The publisher is subscribed.",
        holds="EXISTS (SELECT FROM outbox_topic_progress WHERE publisher = 'nats')",
        audit="outbox.publisher.add",
    ),
    Step(
        route="/outbox/{topic}/{publisher}/remove",
        at="/outbox",
        way=("nats",),
        shows="nats is no longer subscribed to orders.",
        holds="NOT EXISTS (SELECT FROM outbox_topic_progress WHERE publisher = 'nats')",
        audit="outbox.publisher.remove",
    ),
    Step(
        route="/outbox/{topic}/{publisher}/pause",
        at="/outbox",
        way=("log",),
        shows="The publisher is paused.",
        holds=_PROGRESS.format("status = 'PAUSED'"),
        audit="outbox.pause",
    ),
    Step(
        before=_order_placed,
        route="/outbox/{topic}/{publisher}/skip",
        at="/outbox",
        way=("log",),
        shows="was skipped.",
        holds=_PROGRESS.format("last_position = (SELECT max(position) FROM events)"),
        audit="outbox.skip",
    ),
    Step(
        route="/outbox/{topic}/{publisher}/reset",
        at="/outbox",
        way=("log", "Reset…"),
        asked={"position": "0"},
        shows="It continues after position 0.",
        holds=_PROGRESS.format("last_position = 0"),
        audit="outbox.reset",
    ),
    Step(
        route="/outbox/{topic}/{publisher}/resume",
        at="/outbox",
        way=("log",),
        shows="The publisher continues.",
        holds=_PROGRESS.format("status = 'ACTIVE'"),
        audit="outbox.resume",
    ),
    Step(
        route="/outbox/rules/new",
        at="/outbox/rules",
        way=("New rule",),
        fields={"event_type": "OrderPlaced", "template": "welcome", "recipient_path": "customer.email"},
        shows="The rule is created.",
        holds="EXISTS (SELECT FROM outbox_mail_rules WHERE template = 'welcome')",
        audit="outbox.rule.add",
    ),
    Step(
        route="/outbox/rules/{rule_id:int}/delete",
        at="/outbox/rules",
        row="OrderPlaced",
        shows="The rule is deleted.",
        holds="NOT EXISTS (SELECT FROM outbox_mail_rules)",
        audit="outbox.rule.delete",
    ),
    Step(
        route="/webhooks/new",
        at="/webhooks",
        way=("Add an endpoint",),
        fields={"url": "https://shop.example/hooks", "topics": "orders", "description": "the shop"},
        shows="Copy it now",
        holds="EXISTS (SELECT FROM webhook_endpoints WHERE url = 'https://shop.example/hooks')",
        audit="webhook.register",
    ),
    Step(
        route="/webhooks/{endpoint_id:int}/test",
        at="/webhooks",
        way=("https://shop.example/hooks",),
        shows="The test event is delivery",
        holds="EXISTS (SELECT FROM deliveries WHERE channel = 'webhook' AND state = 'queued')",
        audit="webhook.test",
    ),
    Step(
        route="/webhooks/{endpoint_id:int}/disable",
        at="/webhooks",
        way=("https://shop.example/hooks",),
        shows="The endpoint is disabled.",
        holds="EXISTS (SELECT FROM webhook_endpoints WHERE status = 'disabled')",
        audit="webhook.disabled",
    ),
    Step(
        before=_receiver_was_down,
        route="/webhooks/{endpoint_id:int}/enable",
        at="/webhooks",
        way=("https://shop.example/hooks",),
        shows="The endpoint is enabled.",
        holds="EXISTS (SELECT FROM webhook_endpoints WHERE status = 'enabled')",
        audit="webhook.enabled",
    ),
    Step(
        route="/webhooks/{endpoint_id:int}/recover",
        at="/webhooks",
        way=("https://shop.example/hooks", "Recover…"),
        asked={"since": "2026-01-01T00:00"},
        shows="The recovery is started; 1 webhook is in the queue so far.",
        holds="EXISTS (SELECT FROM deliveries WHERE channel = 'webhook' AND state = 'queued')",
        audit="delivery.mass_retry delivery.mass_resend",
    ),
    Step(
        route="/webhooks/{endpoint_id:int}/rotate",
        at="/webhooks",
        way=("https://shop.example/hooks",),
        shows="The old secret signs too until",
        holds="EXISTS (SELECT FROM webhook_endpoints WHERE previous_secret IS NOT NULL)",
        audit="webhook.rotate",
    ),
    Step(
        route="/webhooks/{endpoint_id:int}/change",
        at="/webhooks",
        way=("https://shop.example/hooks", "Change"),
        fields={"description": "the shop in Kyoto", "format": "cloudevents"},
        shows="The endpoint is changed.",
        holds="EXISTS (SELECT FROM webhook_endpoints WHERE description = 'the shop in Kyoto')",
        audit="webhook.change",
    ),
    Step(
        route="/webhooks/{endpoint_id:int}/delete",
        at="/webhooks",
        way=("https://shop.example/hooks",),
        shows="The endpoint is deleted.",
        holds="NOT EXISTS (SELECT FROM webhook_endpoints)",
        audit="webhook.delete",
    ),
    Step(
        route="/outbox/topics/{name}/delete",
        at="/outbox/topics",
        way=("orders",),
        shows="The topic is deleted.",
        holds="NOT EXISTS (SELECT FROM outbox_topics)",
        audit="outbox.topic.delete",
    ),
    Step(
        before=_malformed,
        route="/malformed/{command_id:int}/resubmit",
        at="/malformed",
        way=("payload_mode",),
        fields={"content": "{command}"},
        shows="The command is accepted.",
        holds="EXISTS (SELECT FROM malformed_commands WHERE resubmitted_at IS NOT NULL)",
        audit="malformed_command.resubmit",
    ),
    Step(
        route="/malformed/{command_id:int}/dismiss",
        at="/malformed?reason=not_a_command",
        way=("waiting",),
        shows="The command is dismissed.",
        holds="EXISTS (SELECT FROM malformed_commands WHERE dismissed_at IS NOT NULL)",
        audit="malformed_command.dismiss",
    ),
    Step(
        route="/malformed/redrive",
        at="/malformed",
        way=("Redrive…",),
        shows="1 accepted, 0 still malformed.",
        holds="EXISTS (SELECT FROM deliveries WHERE idempotency_key = 'k2')",
        audit="malformed_command.resubmit",
    ),
)
