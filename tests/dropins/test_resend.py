"""Resend's own client library against a served Postroom."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
import resend
from resend.exceptions import InvalidApiKeyError, MissingRequiredFieldsError, ResendError, ValidationError
from tests.support.builders import Recording, a_worker, accepted
from tests.support.http import Browser, Response, served

from postroom.dashboard.endpoints import build_dashboard
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery import service as deliveries
from postroom.delivery.model import (
    Channel,
    Delivery,
    DeliveryRequest,
    DeliveryState,
    Lane,
    RecipientKind,
    RecipientOutcome,
)
from postroom.dropins.resend.answers import email_of, last_event, refusal
from postroom.dropins.resend.shapes import parse_schedule
from postroom.errors import BadInput
from postroom.http import service as keys
from postroom.http.asgi import HttpApplication, build_app
from postroom.mail.compose import Composer
from postroom.post.address import Address
from postroom.settings import Settings

MAIL = {"from": "Shop <shop@example.org>", "to": "ada@example.org", "subject": "Hello", "text": "Hello, Ada."}

PAGES = (
    "/webhooks",
    "/templates",
    "/suppressions",
    "/events",
    "/webhooks/1",
    "/templates/x/publish",
    "/contacts/a@b.example",
)
"""Paths of Resend's API; the dashboard has pages at some of them."""


def app_of(room: Room) -> HttpApplication:
    return build_app(room)


@dataclass(frozen=True, slots=True)
class Shop:
    """The library, pointed at a served room."""

    room: Room
    key: str

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.to_thread(function, *arguments)

    async def send(self, options: dict[str, str] | None = None, **changes: Any) -> Any:
        return await self.call(resend.Emails.send, {**MAIL, **changes}, options)

    async def sent(self, options: dict[str, str] | None = None, **changes: Any) -> Delivery:
        answer = await self.send(options, **changes)
        return await deliveries.get_delivery(self.room.pool, int(answer["id"]))


@contextlib.asynccontextmanager
async def opened(room: Room, monkeypatch: pytest.MonkeyPatch, *scopes: str) -> AsyncIterator[Shop]:
    key, _row = await keys.create_key(room.pool, "shop", scopes=scopes or ("*",), actor="tests")
    async with served(app_of(room)) as url:
        monkeypatch.setattr(resend, "api_url", url)
        monkeypatch.setattr(resend, "api_key", key)
        yield Shop(room, key)


@pytest.fixture
async def shop(room: Room, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    async with opened(room, monkeypatch) as one:
        yield one


def addresses(delivery: Delivery, kind: RecipientKind) -> list[str]:
    return [each.address for each in delivery.recipients if each.kind is kind]


async def count(pool: Pool) -> int:
    async with pool.acquire() as connection:
        return int(await connection.fetchval("SELECT count(*) FROM deliveries"))


async def test_a_mail_is_a_delivery(shop: Shop) -> None:
    """A mail sent by the library is committed when the call returns, with the key's name as source."""
    delivery = await shop.sent(
        html="<p>Hello</p>",
        cc=["bob@example.org"],
        bcc="cyd@example.org",
        reply_to=["help@example.org"],
        headers={"X-Order": "7"},
        tags=[{"name": "kind", "value": "greeting"}, {"name": "bare"}],
    )
    assert (delivery.state, delivery.source) == (DeliveryState.QUEUED, "shop")
    assert delivery.sender == Address("shop@example.org", "Shop")
    assert (delivery.subject, delivery.text, delivery.html) == ("Hello", "Hello, Ada.", "<p>Hello</p>")
    assert addresses(delivery, RecipientKind.TO) == ["ada@example.org"]
    assert addresses(delivery, RecipientKind.CC) == ["bob@example.org"]
    assert addresses(delivery, RecipientKind.BCC) == ["cyd@example.org"]
    assert addresses(delivery, RecipientKind.REPLY_TO) == ["help@example.org"]
    assert delivery.headers == {"X-Order": "7"}
    assert delivery.tags == {"kind": "greeting", "bare": ""}


@pytest.mark.parametrize(
    "content",
    [base64.b64encode(b"%PDF").decode(), list(b"%PDF"), {"type": "Buffer", "data": list(b"%PDF")}],
    ids=["base64", "numbers", "buffer"],
)
async def test_files_come_in_every_way_clients_write_them(shop: Shop, content: Any) -> None:
    """Base64, a list of bytes and a Buffer of Node.js are the same file."""
    delivery = await shop.sent(attachments=[{"filename": "bill.pdf", "content": content, "content_id": "bill"}])
    (file,) = delivery.attachments
    assert (file.filename, file.content_type, file.content_id) == ("bill.pdf", "application/pdf", "bill")
    assert base64.b64decode(file.content) == b"%PDF"


async def test_a_file_by_url_is_refused_by_name(shop: Shop) -> None:
    """We fetch nothing, and say so."""
    with pytest.raises(ValidationError, match=r"attachments\[0\].path: is not supported"):
        await shop.send(attachments=[{"path": "https://example.org/bill.pdf", "filename": "bill.pdf"}])


async def test_a_file_without_content_is_refused(shop: Shop) -> None:
    """A file needs its content."""
    with pytest.raises(MissingRequiredFieldsError, match=r"attachments\[0\].content: is required"):
        await shop.send(attachments=[{"filename": "bill.pdf"}])


async def test_a_template_of_ours_can_be_named(shop: Shop) -> None:
    """The template's id and variables become the delivery's."""
    template = {"id": "login-code", "variables": {"code": "123", "minutes": 10}}
    delivery = await shop.sent(template=template, subject=None, text=None)
    assert (delivery.template_id, delivery.variables) == ("login-code", {"code": "123", "minutes": 10})


@pytest.mark.parametrize("field", ["subject", "text", "html"])
async def test_content_beside_a_template_is_refused_by_name(shop: Shop, field: str) -> None:
    """A subject or a body that would be dropped is rejected."""
    content: dict[str, Any] = {"subject": None, "text": None, field: "x"}
    with pytest.raises(ValidationError, match=f"{field}: cannot be given together with a template"):
        await shop.send(template={"id": "login-code"}, **content)


async def test_two_tags_of_one_name_are_refused(shop: Shop) -> None:
    """A mail has one value for each name."""
    with pytest.raises(ValidationError, match="tags: kind is given twice"):
        await shop.send(tags=[{"name": "kind", "value": "a"}, {"name": "kind", "value": "b"}])


async def test_a_file_keeps_what_its_type_says(shop: Shop) -> None:
    """An invitation is one by its method."""
    file = {"filename": "i.ics", "content": "eA==", "content_type": "text/calendar;method=REQUEST; name=i.ics"}
    (kept,) = (await shop.sent(attachments=[file])).attachments
    assert kept.content_type == "text/calendar; method=REQUEST"


async def test_a_mail_can_wait(shop: Shop) -> None:
    """A scheduled mail is due at its moment, and says that it is scheduled."""
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    delivery = await shop.sent(scheduled_at=moment.isoformat())
    assert delivery.next_attempt_at == moment
    shown = await shop.call(resend.Emails.get, str(delivery.id))
    assert shown["last_event"] == "scheduled"
    assert datetime.fromisoformat(shown["scheduled_at"]) == moment


@pytest.mark.parametrize(
    "written,later",
    [
        ("in 1 min", timedelta(minutes=1)),
        ("in 5 minutes", timedelta(minutes=5)),
        ("In an hour", timedelta(hours=1)),
        ("in 2 hrs", timedelta(hours=2)),
        ("in 3 days", timedelta(days=3)),
        ("in 1 week", timedelta(weeks=1)),
        ("in 30 secs", timedelta(seconds=30)),
    ],
)
def test_a_time_from_now_is_understood(written: str, later: timedelta) -> None:
    """Resend's clients write such times in words."""
    now = datetime(2030, 1, 31, 9, tzinfo=UTC)
    assert parse_schedule(written, now=now) == now + later


@pytest.mark.parametrize("written", ["in 1 fortnight", "in minutes", "in 1.5 hours", "tomorrow", "in -1 min"])
def test_other_words_are_refused(written: str) -> None:
    """An invalid schedule is rejected with an example of a valid one."""
    with pytest.raises(BadInput, match="scheduled_at: must be a time such as"):
        parse_schedule(written)


async def test_a_time_from_now_with_a_key_is_accepted_once(shop: Shop) -> None:
    """The repetition means another time, and is the same mail; another mail is still a conflict."""
    options = {"idempotency_key": "order-7"}
    first = await shop.send(options, scheduled_at="in 1 hour")
    again = await shop.send(options, scheduled_at="in 1 hour")
    assert first["id"] == again["id"]
    with pytest.raises(ResendError) as refused:
        await shop.send(options, scheduled_at="in 1 hour", subject="Another")
    assert refused.value.code == 409


@pytest.mark.parametrize(
    "method,path,status,name",
    [
        ("GET", "/domains", 404, "not_found"),
        ("POST", "/audiences", 404, "not_found"),
        ("POST", "/emails/1/attachments", 404, "not_found"),
        *((method, path, 404, "not_found") for method in ("GET", "POST") for path in PAGES),
        ("DELETE", "/emails/1", 405, "method_not_allowed"),
        ("GET", "/emails?page=2", 422, "validation_error"),
    ],
)
async def test_a_call_that_is_missing_here_is_refused_in_its_words(
    shop: Shop, method: str, path: str, status: int, name: str
) -> None:
    """A library of Resend reads the error of an unsupported call, also where the dashboard answers other paths."""
    app = build_app(shop.room, sites=[build_dashboard(shop.room, secret=bytes(32))])
    response = await Browser(app, shop.key).ask(method, path)
    assert (response.status, response.headers["content-type"]) == (status, "application/json")
    assert (response.json["statusCode"], response.json["name"]) == (status, name)


@pytest.mark.parametrize("path", ["/webhooks", "/templates", "/suppressions", "/webhooks/new"])
async def test_pages_of_those_names_stay_for_browsers(room: Room, path: str) -> None:
    """A request without an API key gets the dashboard."""
    app = build_app(room, sites=[build_dashboard(room, secret=bytes(32))])
    response = await Browser(app, None).ask("GET", path)
    assert (response.status, response.headers["location"].partition("?")[0]) == (303, "/sign-in")


@pytest.mark.parametrize("path", ["/", "/receiving", "/v1/emails", "/deliveries", "/settings/x"])
async def test_unknown_path_is_refused_in_the_words_of_the_client(room: Room, path: str) -> None:
    """A call that Resend adds later is recognised by the name of its library."""
    app = build_app(room, sites=[build_dashboard(room, secret=bytes(32))])
    response = await Browser(app, None).ask("GET", path, headers={"User-Agent": "resend-python:9.0.0"})
    assert (response.status, response.json["name"]) == (404, "not_found")


@pytest.mark.parametrize(
    "call",
    [resend.Webhooks.list, resend.Templates.list, resend.Domains.list, resend.Broadcasts.list, resend.Contacts.list],
)
async def test_other_calls_raise_the_exception_of_the_library(
    room: Room, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]
) -> None:
    """The library reads its own error beside a dashboard that has pages of the same names."""
    key, _row = await keys.create_key(room.pool, "shop", scopes=("*",), actor="tests")
    async with served(build_app(room, sites=[build_dashboard(room, secret=bytes(32))])) as url:
        monkeypatch.setattr(resend, "api_url", url)
        monkeypatch.setattr(resend, "api_key", key)
        with pytest.raises(ResendError, match="does not have this endpoint"):
            await asyncio.to_thread(call)


async def test_the_same_key_is_the_same_mail(shop: Shop) -> None:
    """A repetition gets the first id; another mail under the same key is refused."""
    options = {"idempotency_key": "order-7"}
    first, again = await shop.send(options), await shop.send(options)
    assert first["id"] == again["id"]
    with pytest.raises(ResendError) as refused:
        await shop.send(options, subject="Another")
    assert (refused.value.code, refused.value.error_type) == (409, "invalid_idempotent_request")
    assert await count(shop.room.pool) == 1


async def test_a_key_that_cannot_be_one_is_refused(shop: Shop) -> None:
    """An idempotency key is visible ASCII of limited length."""
    with pytest.raises(ResendError) as refused:
        await shop.send({"idempotency_key": "k" * 300})
    assert (refused.value.code, refused.value.error_type) == (400, "invalid_idempotency_key")


async def test_a_mail_can_be_read_back(shop: Shop) -> None:
    """The library's `get` finds what it sent, in Resend's words."""
    sent = await shop.send(cc="bob@example.org", tags=[{"name": "a", "value": "b"}])
    shown = await shop.call(resend.Emails.get, sent["id"])
    assert (shown["object"], shown["id"], shown["last_event"]) == ("email", sent["id"], "queued")
    assert (shown["from"], shown["to"], shown["cc"]) == (
        "Shop <shop@example.org>",
        ["ada@example.org"],
        ["bob@example.org"],
    )
    assert (shown["subject"], shown["text"], shown["html"]) == ("Hello", "Hello, Ada.", None)
    assert shown["tags"] == [{"name": "a", "value": "b"}]


@pytest.mark.parametrize("email_id", ["999", "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794", "9" * 40])
async def test_an_unknown_id_is_not_found(shop: Shop, email_id: str) -> None:
    """An unknown number or one of Resend's own ids gets an error in Resend's format."""
    with pytest.raises(ResendError) as refused:
        await shop.call(resend.Emails.get, email_id)
    assert (refused.value.code, refused.value.error_type) == (404, "not_found")


async def test_a_waiting_mail_can_be_cancelled_once(shop: Shop) -> None:
    """Cancelling ends it; a second time there is nothing to cancel."""
    sent = await shop.send()
    answer = await shop.call(resend.Emails.cancel, sent["id"])
    assert (answer["object"], answer["id"]) == ("email", sent["id"])
    shown = await shop.call(resend.Emails.get, sent["id"])
    assert shown["last_event"] == "canceled"
    with pytest.raises(ValidationError):
        await shop.call(resend.Emails.cancel, sent["id"])


async def test_a_waiting_mail_is_rescheduled(shop: Shop) -> None:
    """The library's `update` moves it, an operator can see who did, and the past means now."""
    later, latest = (datetime.now(UTC) + timedelta(days=days) for days in (1, 2))
    sent = await shop.send(scheduled_at=later.isoformat())
    answer = await shop.call(resend.Emails.update, {"id": sent["id"], "scheduled_at": latest.isoformat()})
    assert (answer["object"], answer["id"]) == ("email", sent["id"])
    delivery = await deliveries.get_delivery(shop.room.pool, int(sent["id"]))
    assert delivery.next_attempt_at == latest
    async with shop.room.pool.acquire() as connection:
        audit = await connection.fetchrow("SELECT actor, action FROM audit_log ORDER BY id DESC LIMIT 1")
    assert tuple(audit) == ("key:1:shop", "delivery.reschedule")
    await shop.call(resend.Emails.update, {"id": sent["id"], "scheduled_at": "2001-01-01T00:00:00Z"})
    assert (await shop.call(resend.Emails.get, sent["id"]))["last_event"] == "queued"


@pytest.mark.parametrize(
    "change", ["state = 'cancelled', next_attempt_at = NULL, finished_at = now(), reason = 'x'", "attempt_count = 1"]
)
async def test_a_mail_that_ended_or_was_tried_is_not_rescheduled(shop: Shop, change: str) -> None:
    """A mail that may have been delivered keeps its schedule."""
    sent = await shop.send()
    async with shop.room.pool.acquire() as connection:
        await connection.execute(f"UPDATE deliveries SET {change}")
    with pytest.raises(ValidationError, match="rescheduled"):
        await shop.call(resend.Emails.update, {"id": sent["id"], "scheduled_at": "2030-01-01T00:00:00Z"})


@pytest.mark.parametrize("moment", ["soon", "9999-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"])
async def test_invalid_time_is_refused_by_name(shop: Shop, moment: str) -> None:
    """Neither sending nor rescheduling takes it."""
    sent = await shop.send()
    with pytest.raises(ValidationError, match="scheduled_at"):
        await shop.call(resend.Emails.update, {"id": sent["id"], "scheduled_at": moment})
    with pytest.raises(ValidationError, match="scheduled_at"):
        await shop.send(scheduled_at=moment)


async def test_mails_are_listed_page_by_page(shop: Shop) -> None:
    """Newest first, forwards by the last id and backwards by the first, with a word about what follows."""
    ids = [(await shop.send(subject=f"Number {number}"))["id"] for number in range(5)][::-1]

    async def page(**params: Any) -> tuple[list[str], bool]:
        answer = await shop.call(resend.Emails.list, params)
        assert answer["object"] == "list"
        return [each["id"] for each in answer["data"]], answer["has_more"]

    assert await page() == (ids, False)
    assert await page(limit=2) == (ids[:2], True)
    assert await page(limit=2, after=ids[1]) == (ids[2:4], True)
    assert await page(limit=2, after=ids[3]) == (ids[4:], False)
    assert await page(limit=2, before=ids[4]) == (ids[2:4], True)
    assert await page(limit=2, before=ids[2]) == (ids[:2], False)
    assert await page(before=ids[0]) == ([], False)


async def test_a_line_of_the_listing_says_what_a_mail_is(shop: Shop) -> None:
    """The listing has sender, recipients, time and state, without bodies and without webhooks."""
    later = datetime.now(UTC) + timedelta(days=1)
    sent = await shop.send(cc=["bob@example.org"], reply_to="help@example.org", scheduled_at=later.isoformat())
    async with shop.room.pool.acquire() as connection:
        await connection.execute(
            "INSERT INTO deliveries (lane, channel, next_attempt_at, ladder, source, recipient_email)"
            " VALUES ('transactional', 'webhook', now(), 'webhook', 'test', 'https://shop.example.org/hook')"
        )
    (line,) = (await shop.call(resend.Emails.list))["data"]
    assert (line["id"], line["subject"], line["last_event"]) == (sent["id"], "Hello", "scheduled")
    assert (line["from"], line["to"], line["cc"], line["bcc"], line["reply_to"]) == (
        "Shop <shop@example.org>", ["ada@example.org"], ["bob@example.org"], [], ["help@example.org"],
    )  # fmt: skip
    assert datetime.fromisoformat(line["scheduled_at"]) == later
    assert not {"text", "html"} & line.keys()


@pytest.mark.parametrize(
    "params", [{"limit": 0}, {"limit": 101}, {"after": "x"}, {"before": "-1"}, {"after": "1", "before": "2"}]
)
async def test_a_page_that_cannot_be_is_refused(shop: Shop, params: dict[str, Any]) -> None:
    """422 in Resend's form names the parameter."""
    with pytest.raises(ValidationError, match=r"limit|after|before"):
        await shop.call(resend.Emails.list, params)


async def test_looking_at_the_list_needs_its_scope(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that only sends neither lists nor reschedules."""
    async with opened(room, monkeypatch, "deliveries:write") as shop:
        sent = await shop.send()
        for function, arguments in (
            (resend.Emails.list, ()),
            (resend.Emails.update, ({"id": sent["id"], "scheduled_at": "2030-01-01T00:00:00Z"},)),
        ):
            with pytest.raises(ResendError) as refused:
                await shop.call(function, *arguments)
            assert refused.value.error_type == "restricted_api_key"


async def test_a_batch_is_taken_together(shop: Shop) -> None:
    """Every mail of a batch gets an id, in order, and the batch's key makes it happen once."""
    mails = [{**MAIL, "subject": f"Number {n}"} for n in range(3)]
    options = {"idempotency_key": "batch-1"}
    first = await shop.call(resend.Batch.send, mails, options)
    again = await shop.call(resend.Batch.send, mails, options)
    ids = [each["id"] for each in first["data"]]
    assert ids == [each["id"] for each in again["data"]]
    found = [await deliveries.get_delivery(shop.room.pool, int(each)) for each in ids]
    assert [each.subject for each in found] == ["Number 0", "Number 1", "Number 2"]


async def test_one_wrong_mail_refuses_a_strict_batch(shop: Shop) -> None:
    """All or none, and the wrong one is named."""
    with pytest.raises(ValidationError, match=r"\[1\]: to: "):
        await shop.call(resend.Batch.send, [MAIL, {**MAIL, "to": "nonsense"}])
    assert await count(shop.room.pool) == 0


async def test_a_conflict_refuses_the_whole_batch(shop: Shop) -> None:
    """A batch whose key was used for another one leaves nothing behind."""
    options = {"idempotency_key": "batch-1"}
    await shop.call(resend.Batch.send, [MAIL], options)
    with pytest.raises(ResendError) as refused:
        await shop.call(resend.Batch.send, [{**MAIL, "subject": "Another"}, MAIL], options)
    assert refused.value.code == 409
    assert await count(shop.room.pool) == 1


async def test_a_permissive_batch_takes_what_is_right(shop: Shop) -> None:
    """A client may have the valid mails accepted; the invalid ones are reported by their position."""
    answer = await shop.call(resend.Batch.send, [{"to": 7}, MAIL], {"batch_validation": "permissive"})
    assert len(answer["data"]) == 1
    assert [error["index"] for error in answer["errors"]] == [0]


async def test_missing_field_is_named(shop: Shop) -> None:
    """A mail without recipients raises the library's own exception."""
    with pytest.raises(MissingRequiredFieldsError, match="to: is required"):
        await shop.call(resend.Emails.send, {"from": "a@example.org", "subject": "x", "text": "y"})


@pytest.mark.parametrize(
    "changes", [{"to": "nonsense"}, {"topic_id": "x"}, {"subject": "a\r\nBcc: b@example.org"}, {"text": None}]
)
async def test_invalid_mail_is_refused(shop: Shop, changes: dict[str, Any]) -> None:
    """Bad addresses, unknown fields, broken headers and no content store nothing."""
    with pytest.raises(ValidationError):
        await shop.send(**changes)
    assert await count(shop.room.pool) == 0


async def test_a_wrong_key_is_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library raises its own exception for a key that is not valid."""
    monkeypatch.setattr(resend, "api_key", "re_123")
    with pytest.raises(InvalidApiKeyError):
        await shop.send()


async def test_a_key_needs_its_scope(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that may only send can neither look nor cancel."""
    async with opened(room, monkeypatch, "deliveries:write") as shop:
        sent = await shop.send()
        for function in (resend.Emails.get, resend.Emails.cancel):
            with pytest.raises(ResendError) as refused:
                await shop.call(function, sent["id"])
            assert (refused.value.code, refused.value.error_type) == (401, "restricted_api_key")


async def test_without_a_key_nothing_is_read(room: Room) -> None:
    """A request without a key is refused in Resend's form."""
    response: Response = await Browser(app_of(room)).post("/emails", content=b"x" * 1000)
    assert response.status == 401
    assert response.json["name"] == "missing_api_key"
    assert response.json["statusCode"] == 401


@pytest.mark.parametrize("content", [b"", b"nonsense", b"[]", b"[" * 100_000, b'"\xff"'])
async def test_a_body_that_is_no_mail_is_refused(room: Room, content: bytes) -> None:
    """Any invalid bytes get an error in Resend's format."""
    key, _row = await keys.create_key(room.pool, "shop", scopes=("*",), actor="tests")
    response = await Browser(app_of(room), key).post("/emails", content=content)
    assert response.status == 422
    assert response.json["name"] == "validation_error"


async def test_a_body_without_end_is_refused(room: Room) -> None:
    """More than the limit is not read."""
    key, _row = await keys.create_key(room.pool, "shop", scopes=("*",), actor="tests")
    content = b" " * ((room.settings.max_body_mb << 20) + 1)
    response = await Browser(app_of(room), key).post("/emails", content=content)
    assert (response.status, response.json["name"]) == (422, "validation_error")
    assert "larger than" in response.json["message"]


STATES: dict[str, tuple[dict[str, Any], str]] = {
    "waiting": ({}, "queued"),
    "rendered": ({"state": DeliveryState.RENDERED}, "queued"),
    "deferred": ({"attempt_count": 1}, "delivery_delayed"),
    "sending": ({"state": DeliveryState.SENDING}, "queued"),
    "sent": ({"state": DeliveryState.SENT}, "sent"),
    "failed": ({"state": DeliveryState.FAILED}, "failed"),
    "dead letter": ({"state": DeliveryState.DEAD_LETTER}, "failed"),
    "cancelled": ({"state": DeliveryState.CANCELLED}, "canceled"),
    "suppressed": ({"state": DeliveryState.SUPPRESSED}, "suppressed"),
}


async def test_every_state_has_one_of_its_words(shop: Shop) -> None:
    """Wherever a delivery stands, clients of Resend know the word."""
    delivery = await shop.sent()
    now = datetime.now(UTC) + timedelta(seconds=1)
    words = {name: last_event(replace(delivery, **change), now=now) for name, (change, _word) in STATES.items()}
    assert words == {name: word for name, (_change, word) in STATES.items()}
    assert {change.get("state", DeliveryState.QUEUED) for change, _word in STATES.values()} == set(DeliveryState)
    refused = tuple(msgspec.structs.replace(each, outcome=RecipientOutcome.REFUSED) for each in delivery.recipients)
    assert last_event(replace(delivery, state=DeliveryState.FAILED, recipients=refused), now=now) == "bounced"


async def test_one_time_codes_stay_hidden(shop: Shop) -> None:
    """Content with a one-time code is not shown."""
    delivery = await shop.sent(html="<p>123</p>")
    shown = email_of(replace(delivery, lane=Lane.AUTH), Settings(), now=datetime.now(UTC))
    assert (shown.subject, shown.text, shown.html) == (None, None, None)


def test_a_database_that_does_not_answer_is_said_in_its_words() -> None:
    """Clients can try again; a bug of ours is not dressed up."""
    answer = refusal(ConnectionRefusedError(), without_key=False)
    assert answer is not None
    assert (answer.status, answer.value.name) == (503, "application_error")
    assert refusal(KeyError(), without_key=False) is None


@pytest.mark.parametrize("ask", ["GET", "PATCH", "POST"])
async def test_a_webhook_is_no_mail(shop: Shop, ask: str) -> None:
    """It is in no listing, and is neither shown nor changed by its id."""
    request = DeliveryRequest(to=(Address("https://example.org/hook"),), text="{}", channel=Channel.WEBHOOK)
    [hook] = await accepted(shop.room.pool, request)
    before = await deliveries.get_delivery(shop.room.pool, hook)
    path = f"/emails/{hook}/cancel" if ask == "POST" else f"/emails/{hook}"
    body = {"scheduled_at": "2030-01-31T09:00:00Z"} if ask == "PATCH" else {}
    answer = await Browser(app_of(shop.room), shop.key).ask(ask, path, json=body)
    assert (answer.status, answer.json["name"]) == (404, "not_found")
    assert await deliveries.get_delivery(shop.room.pool, hook) == before


async def test_a_mail_says_which_message_id_it_carries(shop: Shop) -> None:
    """The caller's own or ours, the same that leaves; none once the headers are deleted."""
    own = (await shop.send(headers={"message-id": "<7@example.org>"}))["id"]
    ours = (await shop.send())["id"]
    domain = shop.room.settings.message_domain.upper()
    composer = Composer(default_sender=Address("post@example.org"), message_domain=domain)
    way_out = Recording()
    compose = partial(composer.compose, now=datetime.now(UTC))
    await a_worker(shop.room.pool, way_out, compose=compose).run_once(Lane.TRANSACTIONAL)
    carried = {str(envelope.delivery_id): envelope.message_id for envelope in way_out.envelopes}
    assert carried[own] == "<7@example.org>"
    for each in (own, ours):
        assert (await shop.call(resend.Emails.get, each))["message_id"] == carried[each]
    await shop.room.pool.execute("DELETE FROM delivery_payloads")
    assert (await shop.call(resend.Emails.get, own))["message_id"] is None


async def test_a_batch_that_grew_is_a_conflict(shop: Shop) -> None:
    """A key stands for the batch that was taken with it; what was added is not taken beside it."""
    options = {"idempotency_key": "batch-1"}
    await shop.call(resend.Batch.send, [MAIL, MAIL], options)
    with pytest.raises(ResendError) as refused:
        await shop.call(resend.Batch.send, [MAIL, MAIL, MAIL], options)
    assert refused.value.code == 409
    assert await count(shop.room.pool) == 2
