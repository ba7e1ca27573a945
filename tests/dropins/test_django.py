"""A Django site in a process of its own, with the backend that its settings name."""

import asyncio
import base64
import json
import os
import subprocess
import sys
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.http import served

from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.model import Delivery, Lane, RecipientKind
from postroom.http import service as keys
from postroom.http.asgi import build_app
from postroom.post.address import Address
from postroom.runtime.endpoint import ASGIApp, Message, Receive, Scope, Send

pytest.importorskip("django", reason="Django is not installed: its backend is NOT tested")

SITE = """
import json, sys
from email.mime.image import MIMEImage
import django
from django.conf import settings

configuration = json.load(sys.stdin)
settings.configure(
    EMAIL_BACKEND="postroom.dropins.django.EmailBackend",
    DEFAULT_FROM_EMAIL="Site <site@example.org>",
    DATABASES=configuration["databases"],
    POSTROOM=configuration["postroom"],
    USE_TZ=True,
)
django.setup()

from django.core import mail
from django.core.mail import EmailMessage, EmailMultiAlternatives, get_connection, send_mail, send_mass_mail
from django.db import connection, transaction

try:
    exec(configuration["program"])
except Exception as error:
    result = f"{type(error).__name__}: {error}"
print(json.dumps(result))
"""


def database_settings(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path.lstrip("/"),
            "USER": parts.username,
            "PASSWORD": parts.password,
            "HOST": parts.hostname,
            "PORT": parts.port,
        }
    }


def in_site(
    program: str, *, databases: dict[str, Any], postroom: dict[str, Any], environment: dict[str, str] | None = None
) -> Any:
    """The `result` of a program of the site, or the error that ended it."""
    configuration = json.dumps({"program": program, "databases": databases, "postroom": postroom})
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SITE],
        input=configuration,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def run(program: str, url: str, **postroom: Any) -> Any:
    """The program in a site whose own database holds the room."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: mail in Django's own transaction is NOT tested")
    return await asyncio.to_thread(in_site, program, databases=database_settings(url), postroom=postroom)


async def found(pool: Pool) -> list[Delivery]:
    """Every delivery, oldest first."""
    listed, _cursor = await service.list_deliveries(pool, DeliveryFilter())
    return [await service.get_delivery(pool, each.id) for each in reversed(listed)]


def addresses(delivery: Delivery, kind: RecipientKind) -> list[str]:
    return [each.address for each in delivery.recipients if each.kind is kind]


WHOLE = """
message = EmailMultiAlternatives(
    "Grüße", "Hällo", "Shop <shop@example.org>", ["Ada <ada@example.org>"], cc=["bob@example.org"],
    bcc=["cyd@example.org"], reply_to=["help@example.org"],
    headers={"X-Order": "7", "X-Postroom-Tag": "kind=greeting", "X-Postroom-Lane": "bulk"},
)
message.attach_alternative("<p>Hällo <img src='cid:logo'></p>", "text/html")
message.attach("über.txt", "über", "text/plain")
message.attach("bill.pdf", b"%PDF")
image = MIMEImage(b"GIF89a", _subtype="gif")
image.add_header("Content-ID", "<logo>")
message.attach(image)
result = message.send()
"""


async def test_a_message_is_a_delivery(room: Room, database_url: str) -> None:
    """Everything a Django message holds arrives, in the room of the site's own database."""
    assert await run(WHOLE, database_url) == 1
    (delivery,) = await found(room.pool)
    assert (delivery.source, delivery.lane, delivery.tags) == ("django", Lane.BULK, {"kind": "greeting"})
    assert delivery.sender == Address("shop@example.org", "Shop")
    assert (delivery.subject, delivery.text) == ("Grüße", "Hällo")
    assert delivery.html == "<p>Hällo <img src='cid:logo'></p>"
    assert addresses(delivery, RecipientKind.TO) == ["ada@example.org"]
    assert addresses(delivery, RecipientKind.CC) == ["bob@example.org"]
    assert addresses(delivery, RecipientKind.BCC) == ["cyd@example.org"]
    assert addresses(delivery, RecipientKind.REPLY_TO) == ["help@example.org"]
    assert delivery.headers == {"X-Order": "7"}
    files = [(file.filename, file.content_type, file.content_id) for file in delivery.attachments]
    assert files == [
        ("über.txt", "text/plain", None),
        ("bill.pdf", "application/pdf", None),
        ("attachment-3.gif", "image/gif", "logo"),
    ]
    contents = [base64.b64decode(file.content) for file in delivery.attachments]
    assert contents == ["über".encode(), b"%PDF", b"GIF89a"]


async def test_mail_is_part_of_the_sites_transaction(room: Room, database_url: str) -> None:
    """A mail is sent if its transaction commits, and not if it rolls back."""
    program = """
try:
    with transaction.atomic():
        send_mail("Gone", "x", None, ["ada@example.org"])
        raise KeyError
except KeyError:
    pass
with transaction.atomic():
    result = send_mail("Kept", "x", None, ["ada@example.org"])
"""
    assert await run(program, database_url) == 1
    assert [each.subject for each in await found(room.pool)] == ["Kept"]


async def test_a_refused_mail_leaves_the_transaction_usable(room: Room, database_url: str) -> None:
    """With fail_silently a bad address costs one mail and not the site's transaction."""
    program = """
with transaction.atomic():
    bad = send_mail("Bad", "x", None, ["nonsense"], fail_silently=True)
    worse = send_mail("Worse", "x\\0", None, ["ada@example.org"], fail_silently=True)
    result = [bad, worse, send_mail("Good", "x", None, ["ada@example.org"])]
"""
    assert await run(program, database_url) == [0, 0, 1]
    assert [each.subject for each in await found(room.pool)] == ["Good"]


async def test_missing_schema_is_reported(room: Room, database_url: str) -> None:
    """A missing room is named, or nothing is raised with fail_silently; the transaction goes on."""
    program = """
with transaction.atomic():
    silent = send_mail("x", "x", None, ["ada@example.org"], fail_silently=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
try:
    send_mail("x", "x", None, ["ada@example.org"])
except Exception as error:
    result = [silent, type(error).__name__]
"""
    assert await run(program, database_url, ROOM="nowhere") == [0, "RoomMissing"]


async def test_a_bad_address_is_an_error_that_names_it(room: Room, database_url: str) -> None:
    """Without fail_silently the site learns what is wrong."""
    result = await run('result = send_mail("x", "x", None, ["nonsense"])', database_url)
    assert result == "BadInput: to[0]: An email address must have an @-sign."


async def test_the_count_is_of_those_that_were_taken(room: Room, database_url: str) -> None:
    """Mass mail returns the number of accepted messages; one without recipients is not counted."""
    program = """
mails = [("One", "x", None, ["ada@example.org"]), ("None", "x", None, []), ("Two", "x", None, ["bob@example.org"])]
result = send_mass_mail(mails)
"""
    assert await run(program, database_url) == 2
    assert [each.subject for each in await found(room.pool)] == ["One", "Two"]


async def test_the_default_sender_is_the_sites(room: Room, database_url: str) -> None:
    """DEFAULT_FROM_EMAIL is who writes; a source can be chosen."""
    await run('result = send_mail("x", "x", None, ["ada@example.org"])', database_url, SOURCE="shop")
    (delivery,) = await found(room.pool)
    assert (delivery.sender, delivery.source) == (Address("site@example.org", "Site"), "shop")


async def test_html_alone_needs_no_text(room: Room, database_url: str) -> None:
    """A message of subtype html, or one whose text is empty, is HTML."""
    program = """
message = EmailMessage("One", "<p>x</p>", None, ["ada@example.org"])
message.content_subtype = "html"
message.send()
result = send_mail("Two", "", None, ["ada@example.org"], html_message="<p>x</p>")
"""
    await run(program, database_url)
    assert [(each.text, each.html) for each in await found(room.pool)] == [(None, "<p>x</p>")] * 2


async def test_blind_copies_alone_do_not_see_each_other(room: Room, database_url: str) -> None:
    """One message, as many deliveries as blind copies, counted once."""
    program = """
blind = ["ada@example.org", "bob@example.org"]
result = EmailMessage("x", "x", None, [], blind, headers={"Idempotency-Key": "k"}).send()
"""
    assert await run(program, database_url) == 1
    assert [addresses(each, RecipientKind.TO) for each in await found(room.pool)] == [
        ["ada@example.org"],
        ["bob@example.org"],
    ]


async def test_an_idempotency_key_is_kept(room: Room, database_url: str) -> None:
    """The same message under the same key is one delivery; another message is an error."""
    program = """
def send(subject):
    return EmailMessage(subject, "x", None, ["ada@example.org"], headers={"Idempotency-Key": "order-7"}).send()
first = [send("One"), send("One")]
try:
    send("Two")
except Exception as error:
    result = [*first, type(error).__name__]
"""
    assert await run(program, database_url) == [1, 1, "IdempotencyConflict"]
    assert len(await found(room.pool)) == 1


async def test_headers_of_the_message_choose_sender_and_answer(room: Room, database_url: str) -> None:
    """Django lets From and Reply-To be written as headers; so they are read."""
    program = """
answered = "a@example.org, Jörg <b@example.org>"
headers = {"From": "Ann <ann@example.org>", "Reply-To": answered, "Message-ID": "<1@example.org>"}
result = EmailMessage("x", "x", None, ["ada@example.org"], headers=headers).send()
"""
    await run(program, database_url)
    (delivery,) = await found(room.pool)
    assert delivery.sender == Address("ann@example.org", "Ann")
    assert addresses(delivery, RecipientKind.REPLY_TO) == ["a@example.org", "b@example.org"]
    assert [each.name for each in delivery.recipients] == [None, None, "Jörg"]
    assert delivery.headers == {"Message-ID": "<1@example.org>"}


async def test_a_template_can_be_named(room: Room, database_url: str) -> None:
    """Marks choose one of our templates instead of the bodies."""
    program = """
headers = {"X-Postroom-Template": "login-code", "X-Postroom-Variables": '{"code": "123"}'}
result = EmailMessage("ignored", "ignored", None, ["ada@example.org"], headers=headers).send()
"""
    assert await run(program, database_url) == 1
    (delivery,) = await found(room.pool)
    assert (delivery.template_id, delivery.variables) == ("login-code", {"code": "123"})


async def test_a_forwarded_message_is_a_file(room: Room, database_url: str) -> None:
    """A message attached to a message stays whole."""
    program = """
inner = EmailMessage("Inner", "x", None, ["bob@example.org"])
message = EmailMessage("Outer", "x", None, ["ada@example.org"])
message.attach("inner.eml", inner, "message/rfc822")
result = message.send()
"""
    assert await run(program, database_url) == 1
    (delivery,) = await found(room.pool)
    (file,) = delivery.attachments
    assert file.content_type == "message/rfc822"
    assert b"Subject: Inner" in base64.b64decode(file.content)


async def test_a_message_that_the_site_wrapped_is_its_own_file(room: Room, database_url: str) -> None:
    """The headers of a part that holds a message belong to the part, not to the message inside."""
    program = """
from email.message import EmailMessage as Mail
from email.mime.message import MIMEMessage
inner = Mail()
inner["Subject"] = "Inner"
inner.set_content("x")
message = EmailMessage("Outer", "x", None, ["ada@example.org"])
message.attach(MIMEMessage(inner))
result = message.send()
"""
    assert await run(program, database_url) == 1
    (delivery,) = await found(room.pool)
    (file,) = delivery.attachments
    assert (file.filename, file.content_type) == ("attachment-1.eml", "message/rfc822")
    assert base64.b64decode(file.content).startswith(b"Subject: Inner")


async def test_an_invitation_can_be_sent(room: Room, database_url: str) -> None:
    """A calendar beside the text is a file whose type keeps its method; so is one that was attached."""
    program = """
message = EmailMultiAlternatives("x", "x", None, ["ada@example.org"])
message.attach_alternative("BEGIN:VCALENDAR", "text/calendar; method=REQUEST")
message.attach("über.csv", "über", "text/csv; charset=iso-8859-1")
result = message.send()
"""
    assert await run(program, database_url) == 1
    (delivery,) = await found(room.pool)
    files = [(file.filename, file.content_type, base64.b64decode(file.content)) for file in delivery.attachments]
    assert files == [
        ("über.csv", "text/csv; charset=iso-8859-1", b"\xfcber"),
        ("invite.ics", "text/calendar; method=REQUEST", b"BEGIN:VCALENDAR"),
    ]


async def test_headers_say_who_is_shown(room: Room, database_url: str) -> None:
    """`To` and `Cc` among the headers rule what is seen, the message who receives; Date and Sender are Postroom's."""
    program = """
headers = {"To": 'Ada "A" <ada@example.org>, all@example.org', "Date": "yesterday", "Sender": "x@example.org"}
result = EmailMessage("x", "x", None, ["ada@example.org", "bob@example.org"], headers=headers).send()
"""
    assert await run(program, database_url) == 1
    (delivery,) = await found(room.pool)
    assert addresses(delivery, RecipientKind.TO) == ["ada@example.org"]
    assert addresses(delivery, RecipientKind.BCC) == ["bob@example.org"]
    assert (delivery.recipients[0].name, delivery.headers) == ("Ada A", {})


ALTERNATIVE = """
message = EmailMultiAlternatives("x", "x", None, ["ada@example.org"])
message.attach_alternative("<x/>", "text/x-amp-html")
result = message.send()
"""
TWO_TEXTS = """
message = EmailMultiAlternatives("x", "x", None, ["ada@example.org"])
message.attach_alternative("y", "text/plain")
result = message.send()
"""
SUBTYPE = """
message = EmailMessage("x", "x", None, ["ada@example.org"])
message.content_subtype = "calendar"
result = message.send()
"""
INJECTION = """
result = send_mail("x\\nBcc: eve@example.org", "x", None, ["ada@example.org"])
"""
UNSENDABLE = {
    "alternative": (ALTERNATIVE, "alternatives[0]: text/x-amp-html"),
    "two texts": (TWO_TEXTS, "alternatives[0]: there is a body"),
    "subtype": (SUBTYPE, "content_subtype"),
    "injection": (INJECTION, "subject"),
}


@pytest.mark.parametrize("program, problem", UNSENDABLE.values(), ids=UNSENDABLE.keys())
async def test_unsupported_message_is_refused(room: Room, database_url: str, program: str, problem: str) -> None:
    """Nothing is left out in silence."""
    result = await run(program, database_url)
    assert result.startswith(f"BadInput: {problem}")
    assert await found(room.pool) == []


async def over_http(room: Room, program: str, *, key: str | None = None, **postroom: Any) -> Any:
    made, _row = await keys.create_key(room.pool, "shop", scopes=("deliveries:write",), actor="tests")
    async with served(build_app(room)) as url:
        chosen = {"URL": url, "KEY": key or made, **postroom}
        return await asyncio.to_thread(in_site, program, databases={}, postroom=chosen)


async def test_a_site_with_another_database_sends_over_http(room: Room) -> None:
    """With a URL and a key the same message arrives by the API, under the key's name."""
    assert await over_http(room, WHOLE) == 1
    (delivery,) = await found(room.pool)
    assert (delivery.source, delivery.subject, delivery.text) == ("shop", "Grüße", "Hällo")
    assert addresses(delivery, RecipientKind.BCC) == ["cyd@example.org"]
    assert [file.content_id for file in delivery.attachments] == [None, None, "logo"]


REFUSED = {
    "address": ({}, ["nonsense"], "BadInput: to[0]: An email address must have an @-sign."),
    "key": ({"key": "pr_" + "x" * 43}, ["ada@example.org"], "Unauthenticated: "),
    "path": ({"URL": "http://127.0.0.1:1"}, ["ada@example.org"], "URLError: "),
    "scheme": ({"URL": "ftp://127.0.0.1"}, ["ada@example.org"], "ImproperlyConfigured: "),
}


@pytest.mark.parametrize("options, to, problem", REFUSED.values(), ids=REFUSED.keys())
async def test_a_refusal_over_http_is_an_error(
    room: Room, options: dict[str, Any], to: list[str], problem: str
) -> None:
    """A rejection by the API and an unreachable server raise named errors."""
    result = await over_http(room, f"result = send_mail('x', 'x', None, {to})", **options)
    assert result.startswith(problem)


async def test_trouble_over_http_can_be_silent(room: Room) -> None:
    """With fail_silently a server that is not there is a count of none."""
    program = "result = send_mail('x', 'x', None, ['ada@example.org'], fail_silently=True)"
    assert await over_http(room, program, URL="http://127.0.0.1:1") == 0


async def test_a_key_is_kept_over_http(room: Room) -> None:
    """The key travels; another message under it is an error."""
    program = """
def send(subject):
    return EmailMessage(subject, "x", None, ["ada@example.org"], headers={"Idempotency-Key": "order-7"}).send()
send("One"), send("One"), send("Two")
"""
    assert (await over_http(room, program)).startswith("IdempotencyConflict: ")
    assert len(await found(room.pool)) == 1


async def test_the_ttl_of_keys_is_that_of_the_environment(room: Room, database_url: str) -> None:
    """In the site's own database keys live as long as in Postroom's processes."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: mail in Django's own transaction is NOT tested")
    program = "result = EmailMessage('x', 'x', None, ['a@example.org'], headers={'Idempotency-Key': 'k'}).send()"
    done = await asyncio.to_thread(
        in_site,
        program,
        databases=database_settings(database_url),
        postroom={},
        environment={"POSTROOM_IDEMPOTENCY_TTL": "3h"},
    )
    assert done == 1
    async with room.pool.acquire() as connection:
        lives = await connection.fetchval("SELECT idempotency_expires_at - created_at FROM deliveries")
    assert lives == timedelta(hours=3)


async def test_a_message_id_makes_a_mail_happen_once(room: Room) -> None:
    """As by SMTP: one that the site wrote is a key, together with those who receive it."""
    program = """
def send(*to):
    return EmailMessage("x", "x", None, to, headers={"Message-ID": "<7@example.org>"}).send()
result = [send("Ada <ada@example.org>"), send("Ada <ada@example.org>"), send("bob@example.org")]
"""
    assert await over_http(room, program) == [1, 1, 1]
    assert len(await found(room.pool)) == 2


def deaf_at_first(app: ASGIApp) -> ASGIApp:
    """The application behind a network that loses its first response after the commit."""
    asked_again = asyncio.Event()
    count = 0

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal count
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        count += 1
        if count > 1:
            asked_again.set()
            await app(scope, receive, send)
            return

        async def lost(_message: Message) -> None:
            """The response is lost."""

        await app(scope, receive, lost)
        await asked_again.wait()

    return answer


@pytest.mark.parametrize("recipients", ["to=['ada@example.org']", "bcc=['ada@example.org', 'bob@example.org']"])
async def test_an_answer_that_never_came_does_not_send_twice(room: Room, recipients: str) -> None:
    """The site's second try is given the first delivery; sending on purpose once more is another mail."""
    program = f"""
message = EmailMessage("x", "x", None, {recipients})
try:
    message.send()
except OSError as error:
    before = [isinstance(error, TimeoutError)]
settings.POSTROOM["TIMEOUT"] = 60
message.connection = None
before += [message.send()]
message.subject = "y"
result = [*before, message.send(), message.send()]
"""
    key, _row = await keys.create_key(room.pool, "shop", scopes=("deliveries:write",), actor="tests")
    async with served(deaf_at_first(build_app(room))) as url:
        chosen = {"URL": url, "KEY": key, "TIMEOUT": 3}
        result = await asyncio.to_thread(in_site, program, databases={}, postroom=chosen)
    assert result == [True, 1, 1, 1]
    subjects = [each.subject for each in await found(room.pool)]
    people = 2 if "bob" in recipients else 1
    assert subjects == ["x"] * people + ["y"] * people * 2


MISCONFIGURED = {
    "unknown": ({"URI": "http://127.0.0.1"}, "POSTROOM has unknown settings: URI."),
    "no key": ({"URL": "http://127.0.0.1"}, "POSTROOM['KEY']"),
    "no room": ({}, "The database 'default' cannot hold a room"),
}


@pytest.mark.parametrize("postroom, problem", MISCONFIGURED.values(), ids=MISCONFIGURED.keys())
def test_wrong_settings_are_named(postroom: dict[str, Any], problem: str) -> None:
    """An invalid setting raises at the first mail, also with fail_silently."""
    sqlite = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
    program = "result = send_mail('x', 'x', None, ['ada@example.org'], fail_silently=True)"
    result = in_site(program, databases=sqlite, postroom=postroom)
    assert result.startswith(f"ImproperlyConfigured: {problem}")
