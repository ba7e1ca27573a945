"""AWS's own client library against a served Postroom."""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any

import boto3
import msgspec
import pytest
import typer
from botocore.exceptions import ClientError
from tests.support.http import Browser, served
from tests.support.ses import KEY_999_999, SECRET_KEY, SIMPLE, TO, Shop, app_of, client_to, opened, pair_of
from typer.testing import CliRunner

from postroom.dashboard.endpoints import build_dashboard
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery import service as deliveries
from postroom.delivery.model import Delivery, DeliveryState, RecipientKind
from postroom.dropins.ses.answers import refusal
from postroom.dropins.ses.cli import ses_credentials
from postroom.dropins.ses.credentials import NamedKey, derive_credentials, parse_access_key
from postroom.dropins.ses.service import show_credentials
from postroom.errors import KeyNotFound, SecretKeyMissing
from postroom.http import service as keys
from postroom.http.asgi import build_app
from postroom.post.address import Address
from postroom.runtime.aws import AwsCredentials, sign
from postroom.runtime.endpoint import ASGIApp, Message, Receive, Scope, Send

NESTED = b"From: a@b.example\r\nTo: " + b"(" * 5000 + b"\r\n\r\nx"


@pytest.fixture
async def shop(room: Room) -> AsyncIterator[Shop]:
    async with opened(room) as one:
        yield one


def addresses(delivery: Delivery, kind: RecipientKind) -> list[str]:
    return [each.address for each in delivery.recipients if each.kind is kind]


async def count(pool: Pool) -> int:
    async with pool.acquire() as connection:
        return int(await connection.fetchval("SELECT count(*) FROM deliveries"))


def refused(error: pytest.ExceptionInfo[ClientError]) -> tuple[int, str]:
    response: dict[str, Any] = error.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


async def test_a_simple_mail_is_a_delivery(shop: Shop) -> None:
    """A mail sent by the library is committed when the call returns, with the key's name as source."""
    file = {"RawContent": b"%PDF", "FileName": "bill.pdf", "ContentId": "<bill>", "ContentType": "application/pdf"}
    delivery = await shop.sent(
        FromEmailAddress="Shop <shop@example.org>",
        Destination={**TO, "CcAddresses": ["bob@example.org"], "BccAddresses": ["cyd@example.org"]},
        ReplyToAddresses=["help@example.org"],
        Content={
            "Simple": {
                "Subject": {"Data": "Héllo", "Charset": "UTF-8"},
                "Body": {"Text": {"Data": "Hello"}, "Html": {"Data": "<p>Hello</p>"}},
                "Headers": [{"Name": "X-Order", "Value": "7"}],
                "Attachments": [file],
            }
        },
        EmailTags=[{"Name": "kind", "Value": "greeting"}],
        ConfigurationSetName="ignored",
    )
    assert (delivery.state, delivery.source) == (DeliveryState.QUEUED, "shop")
    assert delivery.sender == Address("shop@example.org", "Shop")
    assert (delivery.subject, delivery.text, delivery.html) == ("Héllo", "Hello", "<p>Hello</p>")
    assert addresses(delivery, RecipientKind.TO) == ["ada@example.org"]
    assert addresses(delivery, RecipientKind.CC) == ["bob@example.org"]
    assert addresses(delivery, RecipientKind.BCC) == ["cyd@example.org"]
    assert addresses(delivery, RecipientKind.REPLY_TO) == ["help@example.org"]
    assert (delivery.headers, delivery.tags) == ({"X-Order": "7"}, {"kind": "greeting"})
    (attached,) = delivery.attachments
    assert (attached.filename, attached.content_type, attached.content_id) == ("bill.pdf", "application/pdf", "bill")
    assert base64.b64decode(attached.content) == b"%PDF"


def message(**headers: str) -> EmailMessage:
    made = EmailMessage()
    for name, value in {"From": "Shop <shop@example.org>", "Subject": "Raw", **headers}.items():
        made[name] = value
    made.set_content("Hello, Ada.")
    made.add_alternative("<p>Hello</p>", subtype="html")
    made.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="bill.pdf")
    return made


async def test_a_raw_mail_is_read(shop: Shop) -> None:
    """A whole message is taken apart; its own headers name those who receive it."""
    raw = message(To="Ada <ada@example.org>", Cc="bob@example.org", Bcc="cyd@example.org")
    delivery = await shop.sent(Content={"Raw": {"Data": raw.as_bytes()}})
    assert (delivery.subject, delivery.html) == ("Raw", "<p>Hello</p>\n")
    assert delivery.sender == Address("shop@example.org", "Shop")
    assert addresses(delivery, RecipientKind.TO) == ["ada@example.org"]
    assert addresses(delivery, RecipientKind.CC) == ["bob@example.org"]
    assert addresses(delivery, RecipientKind.BCC) == ["cyd@example.org"]
    assert [file.filename for file in delivery.attachments] == ["bill.pdf"]


async def test_reply_addresses_rule_over_a_raw_mail(shop: Shop) -> None:
    """The call's reply addresses replace those of the message."""
    raw = {"Raw": {"Data": message(To="ada@example.org", **{"Reply-To": "old@example.org"}).as_bytes()}}
    chosen = await shop.sent(Content=raw, ReplyToAddresses=["Help <help@example.org>", "b@example.org"])
    assert addresses(chosen, RecipientKind.REPLY_TO) == ["help@example.org", "b@example.org"]
    assert addresses(await shop.sent(Content=raw), RecipientKind.REPLY_TO) == ["old@example.org"]
    with pytest.raises(ClientError, match="ReplyToAddresses"):
        await shop.send(Content=raw, ReplyToAddresses=["nonsense"])


async def test_version_1_gets_an_error_that_names_version_2(shop: Shop) -> None:
    """Its own error, with a sentence that names the newer client, instead of a status it cannot explain."""
    pair = pair_of(shop.row)
    client = boto3.client(
        "ses",
        region_name="eu-central-1",
        endpoint_url=shop.url,
        aws_access_key_id=pair.access_key_id,
        aws_secret_access_key=pair.secret_access_key,
    )
    with pytest.raises(ClientError, match="sesv2") as error:
        await asyncio.to_thread(
            client.send_email,
            Source="shop@example.org",
            Destination=TO,
            Message={"Subject": {"Data": "Hello"}, "Body": {"Text": {"Data": "Hello"}}},
        )
    client.close()
    assert refused(error) == (400, "InvalidAction")
    assert (await Browser(app_of(shop.room)).get("/")).status == 404  # the page at / is unchanged


@pytest.mark.parametrize("path", ["/v2/email", "/v2/other", "/v2/email/identities/x"])
async def test_unknown_path_of_version_2_is_refused_in_its_words(shop: Shop, path: str) -> None:
    """Beside a dashboard too, which answers other paths."""
    app = build_app(shop.room, sites=[build_dashboard(shop.room, secret=bytes(32))])
    response = await Browser(app, None).ask("GET", path)
    assert (response.status, response.headers["x-amzn-errortype"]) == (404, "UnknownOperationException")


async def test_signed_query_of_version_1_is_refused_in_its_words(shop: Shop) -> None:
    """The page at / is the dashboard's for everyone else."""
    app = build_app(shop.room, sites=[build_dashboard(shop.room, secret=bytes(32))])
    signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=PR1/20300101/eu-central-1/ses/aws4_request"}
    response = await Browser(app, None).ask("GET", "/?Action=GetSendQuota", headers=signed)
    assert (response.status, response.headers["content-type"]) == (400, "text/xml")
    assert (await Browser(app, None).ask("GET", "/")).status == 303


@pytest.mark.parametrize(
    "call,request_",
    [
        ("list_email_identities", {"PageSize": 5}),
        ("get_account", {}),
        ("delete_email_identity", {"EmailIdentity": "x"}),
    ],
)
async def test_another_call_is_refused_in_its_words(shop: Shop, call: str, request_: dict[str, Any]) -> None:
    """The library gets an error it can show, not a page."""
    with pytest.raises(ClientError, match="SendEmail only") as error:
        await asyncio.to_thread(getattr(shop.client, call), **request_)
    assert refused(error) == (404, "UnknownOperationException")


@pytest.mark.parametrize(
    "method,path", [("GET", "/v2/email/outbound-emails"), ("HEAD", "/v2/email/account"), ("OPTIONS", "/v2/email/x")]
)
async def test_a_method_that_is_missing_here_is_refused_in_its_words(room: Room, method: str, path: str) -> None:
    """Also where the path is known and the method is not."""
    response = await Browser(app_of(room)).ask(method, path)
    assert response.status == 404
    assert response.headers["x-amzn-errortype"] == "UnknownOperationException"


async def test_a_file_keeps_what_its_type_says(shop: Shop) -> None:
    """An invitation is one by its method."""
    file = {"RawContent": b"x", "FileName": "i.ics", "ContentType": "text/calendar; method=REQUEST"}
    (kept,) = (await shop.sent(Destination=TO, Content={"Simple": {**SIMPLE, "Attachments": [file]}})).attachments
    assert kept.content_type == "text/calendar; method=REQUEST"


async def test_a_raw_mail_is_written_by_its_from(shop: Shop) -> None:
    """`FromEmailAddress` is who writes only if the message does not say."""
    raw = {"Raw": {"Data": message(To="ada@example.org").as_bytes()}}
    delivery = await shop.sent(Content=raw, FromEmailAddress="other@example.org")
    assert delivery.sender == Address("shop@example.org", "Shop")
    nameless = {"Raw": {"Data": b"To: ada@example.org\r\nSubject: x\r\n\r\nx"}}
    assert (await shop.sent(Content=nameless, FromEmailAddress="o@example.org")).sender == Address("o@example.org")


async def test_the_destination_rules_over_a_raw_mail(shop: Shop) -> None:
    """Only those of the destination receive it; who is not named in the message is a blind copy."""
    raw = message(To="ada@example.org, bob@example.org")
    delivery = await shop.sent(
        FromEmailAddress="shop@example.org",
        Destination={"ToAddresses": ["ada@example.org", "dan@example.org"]},
        Content={"Raw": {"Data": raw.as_bytes()}},
        EmailTags=[{"Name": "kind", "Value": "raw"}],
    )
    assert addresses(delivery, RecipientKind.TO) == ["ada@example.org"]
    assert addresses(delivery, RecipientKind.BCC) == ["dan@example.org"]
    assert delivery.tags == {"kind": "raw"}


@pytest.mark.parametrize(
    "content",
    [{"Raw": {"Data": message(To="undisclosed-recipients:;").as_bytes()}}, {"Simple": SIMPLE}],
    ids=["raw", "simple"],
)
async def test_blind_copies_alone_are_deliveries_of_their_own(shop: Shop, content: dict[str, Any]) -> None:
    """Recipients whom the message does not name do not learn of each other."""
    await shop.send(Destination={"BccAddresses": ["ada@example.org", "bob@example.org"]}, Content=content)
    assert await count(shop.room.pool) == 2


async def test_a_template_of_ours_can_be_named(shop: Shop) -> None:
    """TemplateName and TemplateData become the delivery's template and variables."""
    template = {"TemplateName": "login-code", "TemplateData": '{"code": "123", "minutes": 10}'}
    delivery = await shop.sent(FromEmailAddress="shop@example.org", Destination=TO, Content={"Template": template})
    assert (delivery.template_id, delivery.variables) == ("login-code", {"code": "123", "minutes": 10})


class AnswerLost:
    """The application behind a proxy that loses its first answer: the work is done, the client hears 503."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self.requests = app, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self.requests += 1
        if self.requests > 1:
            await self._app(scope, receive, send)
            return

        async def lose(_message: Message) -> None:
            """The client never hears of it."""

        await self._app(scope, receive, lose)
        await send({"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


async def test_repetitions_of_one_call_are_one_mail(shop: Shop) -> None:
    """The library repeats a call whose answer was lost; the mail was taken once, and its id is known."""
    proxy = AnswerLost(app_of(shop.room))
    async with served(proxy) as url:
        client = client_to(url, pair_of(shop.row), attempts=2)
        message_id = await shop.send(client, Destination=TO, Content={"Simple": SIMPLE})
        client.close()
    assert proxy.requests == 2
    assert await count(shop.room.pool) == 1
    assert (await deliveries.get_delivery(shop.room.pool, int(message_id))).subject == "Hello"


async def test_two_calls_are_two_mails(shop: Shop) -> None:
    """The same request sent twice on purpose is sent twice; in one second, the library signs the second one again."""
    request = {"Destination": TO, "Content": {"Simple": SIMPLE}}
    client = client_to(shop.url, pair_of(shop.row), attempts=3)
    assert await shop.send(client, **request) != await shop.send(client, **request)
    client.close()
    assert await count(shop.room.pool) == 2


async def test_a_key_with_another_body_is_a_conflict(shop: Shop) -> None:
    """An Idempotency-Key that was used for something else is refused."""

    def fix(request: Any, **_more: Any) -> None:
        request.headers["Idempotency-Key"] = "order-7"

    shop.client.meta.events.register("before-sign.sesv2.SendEmail", fix)
    await shop.send(Destination=TO, Content={"Simple": SIMPLE})
    with pytest.raises(ClientError) as error:
        await shop.send(Destination={"ToAddresses": ["bob@example.org"]}, Content={"Simple": SIMPLE})
    assert refused(error) == (409, "ConflictException")


async def test_a_signature_is_accepted_once(shop: Shop) -> None:
    """A recorded request is not another mail, and an Idempotency-Key that is not signed does not change that."""
    body = msgspec.json.encode({"Destination": TO, "Content": {"Simple": SIMPLE}})
    path, now = "/v2/email/outbound-emails", datetime.now(UTC)
    credentials = pair_of(shop.row)
    signed = sign("POST", shop.url + path, {}, body, credentials=credentials, region="eu", service="ses", now=now)
    headers = {"host": shop.url.removeprefix("http://"), **signed}
    browser = Browser(app_of(shop.room))
    answers = [
        await browser.post(path, content=body, headers={**headers, **added}) for added in ({}, {"Idempotency-Key": "a"})
    ]
    assert [answer.status for answer in answers] == [200] * 2
    assert await count(shop.room.pool) == 1


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nobody": ({"Content": {"Simple": SIMPLE}}, "to"),
    "bad address": ({"Destination": {"ToAddresses": ["nonsense"]}, "Content": {"Simple": SIMPLE}}, "to"),
    "nothing": ({"Destination": TO, "Content": {}}, "Content"),
    "two ways": (
        {"Destination": TO, "Content": {"Simple": SIMPLE, "Template": {"TemplateName": "login-code"}}},
        "Content",
    ),
    "bad data": (
        {"Destination": TO, "Content": {"Template": {"TemplateName": "login-code", "TemplateData": "[]"}}},
        "TemplateData",
    ),
    "inline template": (
        {"Destination": TO, "Content": {"Template": {"TemplateContent": {"Subject": "x"}, "TemplateData": "{}"}}},
        "Template",
    ),
    "two headers": (
        {
            "Destination": TO,
            "Content": {"Simple": {**SIMPLE, "Headers": [{"Name": n, "Value": "1"} for n in ("X-A", "x-a")]}},
        },
        "Headers: x-a is given twice",
    ),
    "raw without recipient": ({"Content": {"Raw": {"Data": message().as_bytes()}}}, "Destination"),
    "raw without sender": (
        {"Destination": TO, "Content": {"Raw": {"Data": b"Subject: x\r\n\r\nx"}}},
        "FromEmailAddress",
    ),
    "raw to nonsense": (
        {"Destination": {"ToAddresses": ["nonsense"]}, "Content": {"Raw": {"Data": message().as_bytes()}}},
        "Destination",
    ),
    "raw nested": ({"Destination": TO, "Content": {"Raw": {"Data": NESTED}}}, "nested"),
    "raw cut in too many pieces": (
        {"Destination": TO, "Content": {"Raw": {"Data": b"From: a@b.example\r\nX: boundary=a\r\n" * 61 + b"\r\n"}}},
        "boundaries",
    ),
    "lists": (
        {"Destination": TO, "Content": {"Simple": SIMPLE}, "ListManagementOptions": {"ContactListName": "x"}},
        "ListManagementOptions",
    ),
}


@pytest.mark.parametrize("request_, named", WRONG.values(), ids=WRONG.keys())
async def test_invalid_request_is_refused(shop: Shop, request_: dict[str, Any], named: str) -> None:
    """A bad request stores nothing, and its field is named."""
    with pytest.raises(ClientError, match=named) as error:
        await shop.send(**request_)
    assert refused(error) == (400, "BadRequestException")
    assert await count(shop.room.pool) == 0


@pytest.mark.parametrize(
    "pair",
    [
        AwsCredentials("EXAMPLEKEY", "example-secret"),
        AwsCredentials("PRFFFFFFFFFFFFFFFFFF", "example-secret"),
        pair_of(KEY_999_999),
    ],
    ids=["foreign", "beyond", "nobody"],
)
async def test_an_unknown_key_is_refused(shop: Shop, pair: AwsCredentials) -> None:
    """A key that is not ours is refused as AWS refuses one."""
    client = client_to(shop.url, pair)
    with pytest.raises(ClientError) as error:
        await shop.send(client, Destination=TO, Content={"Simple": SIMPLE})
    client.close()
    assert refused(error) == (403, "UnrecognizedClientException")


async def test_a_wrong_secret_is_refused(shop: Shop) -> None:
    """The pair of one API key does not sign for another."""
    mixed = AwsCredentials(
        pair_of(shop.row).access_key_id,
        pair_of(replace(shop.row, id=shop.row.id + 1)).secret_access_key,
    )
    client = client_to(shop.url, mixed)
    with pytest.raises(ClientError) as error:
        await shop.send(client, Destination=TO, Content={"Simple": SIMPLE})
    client.close()
    assert refused(error) == (403, "InvalidSignatureException")
    assert await count(shop.room.pool) == 0


async def test_a_revoked_key_takes_its_pair_along(shop: Shop) -> None:
    """From the moment of revocation the pair is worth nothing."""
    await shop.send(Destination=TO, Content={"Simple": SIMPLE})
    await keys.revoke_key(shop.room.pool, shop.row.id, actor="tests")
    with pytest.raises(ClientError) as error:
        await shop.send(Destination=TO, Content={"Simple": SIMPLE})
    assert refused(error) == (403, "UnrecognizedClientException")


async def test_a_key_needs_its_scope(room: Room) -> None:
    """A key that may only look cannot send."""
    async with opened(room, "deliveries:read") as shop:
        with pytest.raises(ClientError) as error:
            await shop.send(Destination=TO, Content={"Simple": SIMPLE})
    assert refused(error) == (403, "AccessDeniedException")


async def test_a_used_key_is_noted(shop: Shop) -> None:
    """An operator sees that the key is in use."""
    await shop.send(Destination=TO, Content={"Simple": SIMPLE})
    (row,), _cursor = await keys.list_keys(shop.room.pool)
    assert row.last_used_at is not None


async def test_another_service_is_refused(shop: Shop) -> None:
    """A signature made for another service of AWS does not count here."""
    url = "http://example.org/v2/email/outbound-emails"
    pair = pair_of(shop.row)
    signed = sign("POST", url, {}, b"{}", credentials=pair, region="eu-central-1", service="kms", now=datetime.now(UTC))
    response = await Browser(app_of(shop.room)).post(
        "/v2/email/outbound-emails", content=b"{}", headers={"host": "example.org", **signed}
    )
    assert response.status == 403
    assert response.headers["x-amzn-errortype"] == "InvalidSignatureException"


async def test_without_a_signature_nothing_is_read(room: Room) -> None:
    """A request that is not signed is refused in AWS's form."""
    response = await Browser(app_of(room)).post("/v2/email/outbound-emails", content=b"x" * 1000)
    assert response.status == 403
    assert response.headers["x-amzn-errortype"] == "MissingAuthenticationTokenException"
    assert set(response.json) == {"message"}


@pytest.mark.parametrize("key_id", [0, 1, 2**40 - 1])
def test_an_access_key_names_its_api_key(key_id: int) -> None:
    """The id can be read from it, and it looks like one of AWS's."""
    pair = pair_of(replace(KEY_999_999, id=key_id))
    assert len(pair.access_key_id) == 20
    assert parse(pair.access_key_id) == NamedKey(key_id, is_guessable=False)


@pytest.mark.parametrize("key_id", [0, 1, 2**63 - 1])
def test_an_access_key_of_release_0_1_0_names_its_api_key(key_id: int) -> None:
    """Pairs that were given away before stay valid, and are known to be guessable."""
    assert parse(f"PR{key_id:018X}") == NamedKey(key_id, is_guessable=True)


def test_an_access_key_cannot_be_made_without_the_secret_key() -> None:
    """Half of it is an HMAC over the room and the number, so that knowing numbers is not enough."""
    known = pair_of(KEY_999_999).access_key_id
    next_number = pair_of(replace(KEY_999_999, id=1_000_000)).access_key_id
    assert parse(next_number[:10] + known[10:]) is None
    assert parse_access_key(known, room="other", secret_key=SECRET_KEY) is None
    assert parse_access_key(known, room="postroom", secret_key=b"another") is None


def parse(access_key_id: str) -> NamedKey | None:
    return parse_access_key(access_key_id, room="postroom", secret_key=SECRET_KEY)


def test_every_room_has_its_own_secrets() -> None:
    """Another secret key, another room, or a room that was made again makes another secret."""
    later = replace(KEY_999_999, created_at=datetime(2030, 1, 1, tzinfo=UTC))
    pairs = [
        pair_of(KEY_999_999),
        pair_of(later),
        derive_credentials(KEY_999_999, room="other", secret_key=SECRET_KEY),
        derive_credentials(KEY_999_999, room="postroom", secret_key=b"another"),
    ]
    assert len({pair.secret_access_key for pair in pairs}) == len(pairs)


async def test_a_pair_is_shown_by_id_or_name_and_audited(room: Room) -> None:
    """An operator gets the same pair either way, and the audit log knows it without the secret."""
    _key, row = await keys.create_key(room.pool, "shop", scopes=("deliveries:write",), actor="tests")
    sealed = replace(room, settings=replace(room.settings, secret_key=SECRET_KEY))
    by_id = await show_credentials(sealed, str(row.id), actor="cli:ann")
    by_name = await show_credentials(sealed, "shop", actor="cli:ann")
    assert by_id == by_name
    assert by_id[1] == pair_of(row)
    async with room.pool.acquire() as connection:
        entries = await connection.fetch("SELECT * FROM audit_log WHERE action = 'key.ses_credentials'")
    assert [entry["subject"] for entry in entries] == [f"key:{row.id}"] * 2
    assert by_id[1].secret_access_key not in str([dict(entry) for entry in entries])


@pytest.mark.parametrize("wanted", ["nobody", "999", "9" * 30])
async def test_an_unknown_key_has_no_pair(room: Room, wanted: str) -> None:
    """An unknown key name or id gives no credentials."""
    sealed = replace(room, settings=replace(room.settings, secret_key=SECRET_KEY))
    with pytest.raises(KeyNotFound):
        await show_credentials(sealed, wanted, actor="tests")


async def test_without_a_secret_key_there_are_no_pairs(room: Room) -> None:
    """An installation without a secret key says so."""
    with pytest.raises(SecretKeyMissing):
        await show_credentials(room, "shop", actor="tests")


async def test_the_command_prints_the_pair(room: Room, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`postroom keys ses-credentials` prints what AWS's tools read from the environment."""
    _key, row = await keys.create_key(room.pool, "shop", scopes=("deliveries:write",), actor="tests")
    monkeypatch.setenv("POSTROOM_DATABASE_URL", database_url)
    monkeypatch.setenv("POSTROOM_SECRET_KEY", "ab" * 32)
    app = typer.Typer()
    app.command()(ses_credentials)
    done = await asyncio.to_thread(CliRunner().invoke, app, ["shop"])
    assert done.exit_code == 0, done.output
    lines = dict(line.split("=", 1) for line in done.stdout.split())
    named = parse_access_key(lines["AWS_ACCESS_KEY_ID"], room=room.name, secret_key=bytes.fromhex("ab" * 32))
    assert named == NamedKey(row.id, is_guessable=False)
    assert len(lines["AWS_SECRET_ACCESS_KEY"]) == 43


def test_a_database_that_does_not_answer_is_said_in_its_words() -> None:
    """Clients try again; a bug of ours is not dressed up."""
    answer = refusal(ConnectionRefusedError())
    assert answer is not None
    assert (answer.status, answer.headers["x-amzn-errortype"]) == (503, "ServiceUnavailable")
    assert refusal(KeyError()) is None


async def test_headers_that_speak_to_ses_do_not_leave(shop: Shop) -> None:
    """Tags become tags, those of the call before those of the message; what else SES would read is taken away."""
    raw = message(
        To="ada@example.org", **{"X-Order": "7", "X-SES-CONFIGURATION-SET": "main", "X-SES-SOURCE-ARN": "arn"}
    )
    raw["X-SES-MESSAGE-TAGS"] = "kind=raw, campaign=spring=sale"
    tags = [{"Name": "kind", "Value": "call"}]
    delivery = await shop.sent(Content={"Raw": {"Data": raw.as_bytes()}}, EmailTags=tags)
    assert delivery.headers == {"X-Order": "7"}
    assert delivery.tags == {"kind": "call", "campaign": "spring=sale"}


@pytest.mark.parametrize("written", ["nonsense", "kind=a, KIND=b"])
async def test_tags_that_cannot_be_read_are_refused_by_name(shop: Shop, written: str) -> None:
    """Neither half of a label nor two of one name."""
    raw = message(To="ada@example.org", **{"X-SES-MESSAGE-TAGS": written})
    with pytest.raises(ClientError, match="X-SES-MESSAGE-TAGS"):
        await shop.send(Content={"Raw": {"Data": raw.as_bytes()}})
    assert await count(shop.room.pool) == 0
