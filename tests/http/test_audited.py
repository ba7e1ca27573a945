"""Every changing endpoint of the API writes an audit entry under its key, or says here why it writes none."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.accounts import sign_up
from tests.support.builders import a_mail, accepted
from tests.support.campaigns import csv_of
from tests.support.dashboard import ambiguous, captured, tried
from tests.support.http import Browser, Response, open_browser
from tests.support.intake import PAYLOAD, entries, raw
from tests.support.smtp_server import smtp_server
from tests.support.templates import write_templates

from postroom.db.room import Room
from postroom.delivery import service as deliveries
from postroom.events import Event, EventStore
from postroom.http.asgi import api_endpoints
from postroom.http.request import Routes
from postroom.intake.service import accept_commands
from postroom.outbox.webhooks import service as webhooks

PREVIEW = "It changes nothing."
SENDING = "Accepting mail is the hot path; the delivery itself records its source, its key and its time."
SIGN_UP = "A person acts through an application; accounts and tokens record their own changes."
PROVIDER = "A mail provider reports bounces by its own signature; the bounces are the record."
FOREIGN = "It answers with an error: Postroom does not have this call."

NOT_AUDITED = {
    **dict.fromkeys(
        (
            *("POST /v1/deliveries", "POST /v1/deliveries/batch", "POST /v1/login-codes"),
            *("POST /emails", "POST /emails/batch", "POST /v2/email/outbound-emails"),
        ),
        SENDING,
    ),
    **dict.fromkeys(
        (
            "POST /v1/mass-actions/preview",
            "POST /v1/campaigns/{campaign_id:int}/preview",
            "POST /v1/templates/{template_id}/preview",
        ),
        PREVIEW,
    ),
    **dict.fromkeys(
        (
            *("POST /v1/accounts", "POST /v1/activations", "POST /v1/password-recoveries", "POST /v1/tokens/consume"),
            *("POST /activate", "POST /recover"),
        ),
        SIGN_UP,
    ),
    **dict.fromkeys((f"POST /v1/feedback/{name}" for name in ("ses", "sendgrid", "mailgun", "postmark")), PROVIDER),
    **dict.fromkeys((f"{verb} /v2/email/{{call:path}}" for verb in ("DELETE", "PATCH", "POST", "PUT")), FOREIGN),
    "POST /": FOREIGN,
    "POST /v1/events": "The event log is the record: events cannot be changed or deleted.",
    "PATCH /v1/inbox/{message_id:int}": "Reading a message marks it as read, as in a mail client.",
}


@dataclass(frozen=True, slots=True)
class Changing:
    """A call that changes something, and its action in the audit log.

    `{names}` in the path and the body are values that earlier answers had: `keeps` names the value of this one's id.
    """

    audit: str
    method: str
    path: str
    body: Any = None
    keeps: str | None = None
    content: bytes | None = None
    media_type: str | None = None


ADA = {"first_name": "Ada", "last_name": "Lovelace", "date_of_birth": "1815-12-10", "timezone": "Europe/London"}
CAMPAIGN = {"name": "Spring", "subject": "Spring is here", "text": "Hello"}
SMTP = {"auth_type": "smtp", "smtp_host": "127.0.0.1", "smtp_use_tls": False, "email": "news@example.org"}

CALLS = (
    Changing("delivery.cancel", "POST", "/v1/deliveries/{waiting}/cancel"),
    Changing("delivery.retry", "POST", "/v1/deliveries/{other}/retry"),
    Changing("delivery.resend", "POST", "/v1/deliveries/{sent}/resend"),
    Changing("dead_letter.settle", "POST", "/v1/dead-letters/{ambiguous}/settle"),
    Changing("delivery.mass_cancel", "POST", "/v1/mass-actions", {"kind": "cancel", "source": "shop"}),
    Changing("delivery.reschedule", "PATCH", "/emails/{email}", {"scheduled_at": "2030-01-01T00:00:00Z"}),
    Changing("delivery.cancel", "POST", "/emails/{email}/cancel"),
    Changing("malformed_command.dismiss", "POST", "/v1/malformed-commands/{command}/dismiss"),
    Changing(
        "malformed_command.resubmit",
        "POST",
        "/v1/malformed-commands/{command}/resubmit",
        {"payload": PAYLOAD, "fields": {"payload_mode": "rendered"}},
    ),
    Changing("account.suspend", "POST", "/v1/accounts/{account}/suspend"),
    Changing("account.unsuspend", "POST", "/v1/accounts/{account}/unsuspend"),
    Changing("account.reissue", "POST", "/v1/accounts/{account}/activation"),
    Changing("user.create", "POST", "/v1/users", ADA, keeps="user"),
    Changing("user.update", "PUT", "/v1/users/{user}", {"timezone": "Asia/Tokyo"}),
    Changing(
        "occasion.add",
        "POST",
        "/v1/users/{user}/occasions",
        {"kind": "REMINDER", "rule": {"at": "2030-01-01T09:00"}},
        keeps="occasion",
    ),
    Changing("occasion.remove", "DELETE", "/v1/users/{user}/occasions/{occasion}"),
    Changing(
        "scheduled_event.move",
        "POST",
        "/v1/scheduled-events/{event}/move",
        {"at": "2030-12-10T10:30:00", "version": 2},
    ),
    Changing("scheduled_event.cancel", "POST", "/v1/scheduled-events/{event}/cancel", {}),
    Changing("user.delete", "DELETE", "/v1/users/{user}"),
    Changing("outbox.topic.create", "POST", "/v1/outbox/topics", {"name": "orders", "publishers": ["log", "webhook"]}),
    Changing("outbox.topic.save", "PUT", "/v1/outbox/topics/orders", {"types": ["OrderPlaced"]}),
    Changing("outbox.publisher.add", "PUT", "/v1/outbox/orders/nats", {}),
    Changing("outbox.publisher.remove", "DELETE", "/v1/outbox/orders/nats"),
    Changing("outbox.pause", "POST", "/v1/outbox/orders/log/pause"),
    Changing("outbox.reset", "POST", "/v1/outbox/orders/log/reset", {"position": 0}),
    Changing("outbox.skip", "POST", "/v1/outbox/orders/log/skip", {"position": "{position}"}),
    Changing("outbox.resume", "POST", "/v1/outbox/orders/log/resume"),
    Changing(
        "outbox.rule.add",
        "POST",
        "/v1/outbox/rules",
        {"topic": "orders", "event_type": "OrderPlaced", "template": "welcome", "recipient_path": "email"},
        keeps="rule",
    ),
    Changing("outbox.rule.delete", "DELETE", "/v1/outbox/rules/{rule}"),
    Changing(
        "webhook.register",
        "POST",
        "/v1/webhooks",
        {"url": "https://shop.example/hooks", "topics": ["orders"]},
        keeps="webhook",
    ),
    Changing("webhook.change", "PATCH", "/v1/webhooks/{webhook}", {"description": "the shop"}),
    Changing("webhook.rotate", "POST", "/v1/webhooks/{webhook}/rotate", {}),
    Changing("delivery.resend", "POST", "/v1/webhooks/{webhook}/replay", {"delivery_id": "{posted}"}),
    Changing("webhook.delete", "DELETE", "/v1/webhooks/{webhook}"),
    Changing("outbox.topic.delete", "DELETE", "/v1/outbox/topics/orders"),
    Changing("sender.create", "POST", "/v1/senders", {**SMTP, "smtp_port": "{smtp}"}, keeps="sender"),
    Changing("sender.change", "PATCH", "/v1/senders/{sender}", {"daily_limit": 700}),
    Changing("sender.test", "POST", "/v1/senders/{sender}/test"),
    Changing("sender.pause", "POST", "/v1/senders/{sender}/pause"),
    Changing("sender.resume", "POST", "/v1/senders/{sender}/resume"),
    Changing("sender.delete", "DELETE", "/v1/senders/{sender}"),
    Changing("domain.put", "PUT", "/v1/domains/example.net", {"max_connections": 3}),
    Changing("domain.delete", "DELETE", "/v1/domains/example.net"),
    Changing("campaign.create", "POST", "/v1/campaigns", CAMPAIGN, keeps="draft"),
    Changing("campaign.delete", "DELETE", "/v1/campaigns/{draft}"),
    Changing("campaign.create", "POST", "/v1/campaigns", CAMPAIGN, keeps="campaign"),
    Changing("campaign.update", "PATCH", "/v1/campaigns/{campaign}", {"subject": "Spring at last"}),
    Changing(
        "campaign.upload",
        "POST",
        "/v1/campaigns/{campaign}/recipients",
        content=csv_of(3),
        media_type="text/csv",
    ),
    Changing("campaign.test", "POST", "/v1/campaigns/{campaign}/test", {"to": ["boss@example.org"]}),
    Changing("campaign.start", "POST", "/v1/campaigns/{campaign}/start"),
    Changing("campaign.reopen", "POST", "/v1/campaigns/{campaign}/reopen"),
    Changing("campaign.start", "POST", "/v1/campaigns/{campaign}/start"),
    Changing("campaign.pause", "POST", "/v1/campaigns/{campaign}/pause"),
    Changing("campaign.resume", "POST", "/v1/campaigns/{campaign}/resume"),
    Changing("campaign.cancel", "POST", "/v1/campaigns/{campaign}/cancel"),
    Changing("suppression.add", "POST", "/v1/suppressions", {"email": "gone@example.org"}),
    Changing("suppression.lift", "DELETE", "/v1/suppressions?email=gone@example.org"),
    Changing(
        "suppression.import",
        "POST",
        "/v1/suppressions/import",
        content=b"email\none@example.org\n",
        media_type="text/csv",
    ),
    Changing("erasure.begin erasure.finish", "POST", "/v1/erasures", {"email": "gone@example.org"}),
    Changing("template.publish", "POST", "/v1/templates/publish"),
    Changing("inbox.request_links", "POST", "/v1/inbox/{message}/links"),
    Changing("inbox.release", "POST", "/v1/inbox/{message}/release", {"to": "boss@example.com"}),
    Changing("inbox.delete", "DELETE", "/v1/inbox/{message}"),
    Changing("inbox.clear", "DELETE", "/v1/inbox"),
    Changing("key.create", "POST", "/v1/keys", {"name": "shop", "scopes": ["deliveries:write"]}, keeps="key"),
    Changing("key.change", "PATCH", "/v1/keys/{key}", {"daily_quota": 5000}),
    Changing("key.revoke", "DELETE", "/v1/keys/{key}"),
    Changing("operator.add", "POST", "/v1/operators", {"email": "ada@example.org", "role": "support"}, keeps="person"),
    Changing("operator.role", "PATCH", "/v1/operators/{person}", {"role": "read-only"}),
    Changing("operator.disable", "POST", "/v1/operators/{person}/disable"),
    Changing("operator.enable", "POST", "/v1/operators/{person}/enable"),
    Changing("operator.end_sessions", "POST", "/v1/operators/{person}/end-sessions"),
    Changing("operator.second_factor", "POST", "/v1/operators/{person}/remove-second-factor"),
    Changing("operator.remove", "DELETE", "/v1/operators/{person}"),
)


async def test_changing_endpoints_are_audited(room: Room, tmp_path: Path) -> None:
    """Each call writes the entry of its action, with the key as the actor; a new endpoint is called too, or listed."""
    write_templates(tmp_path, {"note/en/subject": "Hello", "note/en/html": "<p>Hello</p>"})
    settings = replace(
        room.settings,
        secret_key=bytes(range(32)),
        inbox_release_relay="smtp://127.0.0.1:1",
        senders_allow_private=True,
        template_dir=tmp_path,
    )
    endpoints = api_endpoints(settings)
    left, routes = {f"{each.method} {each.path}" for each in endpoints if each.method != "GET"}, Routes(endpoints)
    browser = await open_browser(replace(room, settings=settings), name="ci")
    problems: list[str] = []
    async with smtp_server() as relay:
        values = {**await fill(room), "smtp": relay.port}
        for each in CALLS:
            await learn(room, values)
            last = await room.pool.fetchval("SELECT coalesce(max(id), 0) FROM audit_log")
            response = await ask(browser, each, values)
            if each.keeps is not None and response.status < 300:
                values[each.keeps] = response.json["id"]
            rows = await room.pool.fetch("SELECT actor, action FROM audit_log WHERE id > $1 ORDER BY id", last)
            expected = [("key:1:ci", action) for action in each.audit.split()]
            if [(row["actor"], row["action"]) for row in rows] != expected:
                problems.append(f"{each.method} {each.path}: {response.status} {response.body[:300]!r} {rows}")
            left -= {f"{each.method} {routes.find(target_of(each, values), each.method)[0].path}"}
    assert "\n".join(problems) == ""
    assert left == NOT_AUDITED.keys()
    for route, reason in NOT_AUDITED.items():
        sys.stdout.write(f"{route} is not audited: {reason}\n")


async def fill(room: Room) -> dict[str, Any]:
    """Rows that the calls change."""
    pool = room.pool
    [sent] = await tried(pool, a_mail())
    waiting, other, email, _shop = await accepted(pool, a_mail(), a_mail(), a_mail(), a_mail(source="shop"))
    await accept_commands(pool, entries(raw(payload_mode="fax")))
    await EventStore(pool).append(Event.of("OrderPlaced", {}, order=41))
    return {
        "waiting": waiting,
        "other": other,
        "email": email,
        "sent": sent,
        "ambiguous": await ambiguous(pool),
        "command": 1,
        "account": await sign_up(pool),
        "message": await captured(pool, b"Subject: Hello\r\n\r\nHello"),
        "position": await pool.fetchval("SELECT max(position) FROM events"),
    }


async def learn(room: Room, values: dict[str, Any]) -> None:
    """Ids that no answer has: of the planned event, and of the webhook that was posted. Operators use an app."""
    await room.pool.execute("UPDATE operators SET second_factor_since = now(), totp_secret = '', totp_key_id = 'key'")
    values["event"] = await room.pool.fetchval("SELECT id FROM scheduled_events WHERE status = 'PENDING' LIMIT 1")
    if "webhook" in values and "posted" not in values:
        values["posted"] = await webhooks.send_test(room.pool, values["webhook"], actor="tests")
        await deliveries.cancel(room.pool, values["posted"], actor="tests")


async def ask(browser: Browser, each: Changing, values: dict[str, Any]) -> Response:
    given: dict[str, Any] = {}
    if each.body is not None:
        given["json"] = {name: filled(value, values) for name, value in each.body.items()}
    if each.content is not None:
        given |= {"content": each.content, "headers": {"content-type": each.media_type or ""}}
    return await browser.ask(each.method, each.path.format(**values), **given)


def target_of(each: Changing, values: dict[str, Any]) -> str:
    return each.path.format(**values).partition("?")[0]


def filled(value: Any, values: dict[str, Any]) -> Any:
    """The value, or the one that it names."""
    is_named = isinstance(value, str) and value.startswith("{")
    return values[value.strip("{}")] if is_named else value
