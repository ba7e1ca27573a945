"""The ASGI application: from a request to one handler and back.

Plain ASGI without layers of middleware, because accepting mail is counted in thousands a second. Every answer carries
`X-Request-Id`; every refusal is a problem document; an exception is logged without its message, which may hold
people's data, and answered without its cause.
"""

import re
import secrets
import time
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from postroom.accounts import api as accounts_api
from postroom.archive import api as archive_api
from postroom.campaigns import api as campaigns_api
from postroom.db.room import Room
from postroom.delivery import api as delivery_api
from postroom.delivery import dead_letter_api
from postroom.delivery.combiner import AcceptCombiner
from postroom.dropins.resend import api as resend_api
from postroom.dropins.ses import api as ses_api
from postroom.errors import BadInput
from postroom.events import EventStore, audit_api
from postroom.events import api as events_api
from postroom.feedback import api as feedback_api
from postroom.feedback import provider_api
from postroom.feedback.providers.model import ProviderOptions
from postroom.http import api as key_api
from postroom.http import health
from postroom.http.auth import Authenticator
from postroom.http.decode import check_idempotency_key, decode_body, decode_query
from postroom.http.openapi import openapi_endpoint
from postroom.http.problems import answer_to, our_fault
from postroom.http.routing import UNMATCHED, Route, Routes
from postroom.inbox import api as inbox_api
from postroom.intake import api as intake_api
from postroom.mail import api as mail_api
from postroom.mail.catalog import Catalog
from postroom.mail.template_check import TemplateCheck
from postroom.outbox import api as outbox_api
from postroom.outbox.webhooks import api as webhooks_api
from postroom.runtime.endpoint import MEGABYTE, Answer, Call, Endpoint, Refused
from postroom.runtime.tracing import span
from postroom.schedule import api as schedule_api
from postroom.schedule import event_api, occasion_api
from postroom.senders import api as senders_api
from postroom.settings import Settings
from postroom.stats import api as stats_api
from postroom.tracking import api as tracking_api
from postroom.tracking.origins import Origins

FOREIGN = ("resend", "ses")
"""Tags of endpoints that speak somebody else's protocol, described by its owner and not by us."""

HSTS = ((b"strict-transport-security", b"max-age=31536000"),)
_LONGEST_NUMBER = 19  # digits enough to be too large

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_JSON = re.compile(r"application/(?:[\w.+-]+\+)?json(?:\s*;\s*charset=\"?utf-8\"?)?\s*", re.IGNORECASE)
_encode = msgspec.json.Encoder().encode
_log = structlog.get_logger()


class HttpApplication:
    """Routes requests to endpoints. What no endpoint knows goes to `fallback`, if there is one, or is not found."""

    def __init__(
        self, room: Room, endpoints: Sequence[Endpoint], *, auth: Authenticator, fallback: ASGIApp | None = None
    ) -> None:
        self.endpoints = tuple(endpoints)
        self._room, self._auth, self._fallback = room, auth, fallback
        self._routes = Routes(endpoints)
        self._origins = Origins(room.settings.trusted_proxies)
        self._max_body = room.settings.max_body_mb * MEGABYTE
        self._always = HSTS if is_https(room.settings) else ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await _lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        request_id = _request_id(headers)
        found = self._routes.find(scope["path"])
        if found is not None and scope["path"] == "/" and scope["method"] not in found[0].methods:
            found = None  # the front page is for people; programs only ever post there
        if found is None and self._fallback is not None and "authorization" not in headers:
            await self._fallback(scope, receive, send)  # a page; a program that has a key gets no HTML
            return
        route, values = found or (UNMATCHED, {})
        try:
            answer = await self._answer(route, values, scope, headers, receive)
            body = _bytes_of(answer)
        except Exception as error:  # noqa: BLE001 - nothing may leave but a problem document
            refusal = _in_its_words(route, scope["path"], error) or answer_to(error)
            answer = refusal or _confess(error, route, request_id)
            body = _bytes_of(answer)
        always = ((b"x-request-id", request_id.encode()), *self._always)
        await _respond(send, answer, body, always=always, head=scope["method"] == "HEAD")
        route.measure(scope["method"], answer.status, time.perf_counter() - started)

    async def _answer(
        self, route: Route, values: Mapping[str, Any], scope: Scope, headers: Mapping[str, str], receive: Receive
    ) -> Answer:
        if route is UNMATCHED:
            raise Refused(HTTPStatus.NOT_FOUND, "There is nothing at this path.")
        endpoint = route.endpoint_for(scope["method"])
        actor, name = "anonymous", ""
        scopes: tuple[str, ...] = ()
        if endpoint.scope is not None:
            client = self._origins.of(scope)
            key = await self._auth.authenticate(headers.get("authorization"), endpoint.scope, client=client)
            actor, name, scopes = key.actor, key.name, key.scopes
        _check_media_types(endpoint, headers)
        if endpoint.idempotent:
            check_idempotency_key(headers)
        query = _query(endpoint, scope["query_string"])
        limit = endpoint.body_limit(self._max_body)
        raw = await _read(headers, receive, limit) if limit and not endpoint.stream else b""
        body = None if endpoint.body is None else decode_body(raw, endpoint.body)
        chunks = _chunks(receive) if endpoint.stream else None
        call = Call(
            self._room, actor, name, values, query, body, headers, scope["method"], _target(scope), raw, chunks, scopes
        )
        with span(f"{endpoint.method} {endpoint.path}", traceparent=headers.get("traceparent")):
            return await endpoint.handler(call)


async def _read(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    """The body; one that is larger than the limit is refused as soon as that is known."""
    announced = headers.get("content-length", "0")
    size = int(announced[:_LONGEST_NUMBER]) if announced.isdecimal() else 0
    parts: list[bytes] = []
    received, more = 0, True
    while more and size <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(HTTPStatus.BAD_REQUEST, "The request ended before its body did.", field="body")
        parts.append(message.get("body", b""))
        received += len(parts[-1])
        size, more = max(size, received), message.get("more_body", False)
    if size > limit:
        detail = f"The body of this request may have at most {limit // MEGABYTE} MB."
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, field="body")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _bytes_of(answer: Answer) -> bytes:
    return answer.value if isinstance(answer.value, bytes) else _encode(answer.value)


def _in_its_words(route: Route, path: str, error: Exception) -> Answer | None:
    """A refusal in the words of the protocol that the path belongs to; None for a path of ours."""
    if route is UNMATCHED:
        return resend_api.refuse_call(path)
    refuse = next((endpoint.refuse for endpoint in route.methods.values()), None)
    return refuse(error) if refuse is not None else None


def _query(endpoint: Endpoint, raw: bytes) -> Any:
    try:
        return decode_query(raw, endpoint.query)
    except BadInput:
        if not endpoint.for_people or endpoint.query is None:
            raise
        return endpoint.query()


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    """The body piece by piece, as fast as the handler takes it."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(HTTPStatus.BAD_REQUEST, "The request ended before its body did.", field="body")
        if piece := message.get("body", b""):
            yield piece
        more = message.get("more_body", False)


def _target(scope: Scope) -> str:
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")


def build_app(
    room: Room,
    *,
    catalog: Catalog | None = None,
    more: Sequence[Endpoint] = (),
    fallback: ASGIApp | None = None,
) -> HttpApplication:
    """Everything this process offers over HTTP; `more` adds endpoints, `fallback` gets every other path."""
    auth = Authenticator(room.pool)
    check = None if catalog is None else TemplateCheck(catalog)
    accepting = AcceptCombiner(room.pool, idempotency_ttl=room.settings.idempotency_ttl, check=check)
    endpoints = [
        *delivery_api.endpoints(accepting),
        *dead_letter_api.ENDPOINTS,
        *intake_api.ENDPOINTS,
        *accounts_api.ENDPOINTS,
        *schedule_api.ENDPOINTS,
        *occasion_api.ENDPOINTS,
        *event_api.ENDPOINTS,
        *events_api.endpoints(EventStore(room.pool)),
        *audit_api.ENDPOINTS,
        *outbox_api.ENDPOINTS,
        *webhooks_api.ENDPOINTS,
        *senders_api.endpoints(),
        *campaigns_api.ENDPOINTS,
        *tracking_api.ENDPOINTS,
        *feedback_api.ENDPOINTS,
        *provider_api.endpoints(_provider_options(room.settings)),
        *stats_api.ENDPOINTS,
        *archive_api.ENDPOINTS,
        *mail_api.endpoints(catalog),
        *inbox_api.ENDPOINTS,
        *resend_api.endpoints(accepting, auth.authenticate),
        *ses_api.endpoints(accepting),
        *key_api.endpoints(auth),
        *health.endpoints(catalog),
        *more,
    ]
    described = [endpoint for endpoint in endpoints if endpoint.tag not in FOREIGN]
    endpoints.append(openapi_endpoint(described, public_url=room.settings.public_url))
    return HttpApplication(room, endpoints, auth=auth, fallback=fallback)


def is_https(settings: Settings) -> bool:
    """True if people reach this installation by https only."""
    return (settings.public_url or "").startswith("https:")


def _provider_options(settings: Settings) -> ProviderOptions:
    return ProviderOptions(
        ses_topics=settings.ses_topics,
        sendgrid_key=settings.sendgrid_public_key,
        mailgun_key=settings.mailgun_signing_key,
        postmark_secret=settings.postmark_secret,
    )


def _check_media_types(endpoint: Endpoint, headers: Mapping[str, str]) -> None:
    given = headers.get("content-type", "")
    if endpoint.accepts and given.partition(";")[0].strip().lower() not in endpoint.accepts:
        detail = f"The body must be {' or '.join(endpoint.accepts)}."
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail, field="Content-Type")
    if endpoint.body is not None:
        if given != "application/json" and not _JSON.fullmatch(given):
            detail = "The body must be application/json in UTF-8."
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail, field="Content-Type")
        if headers.get("content-encoding", "identity") != "identity":
            detail = "The body must not be compressed."
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail, field="Content-Encoding")
    accept = headers.get("accept", "*/*")
    if accept not in ("*/*", endpoint.media_type) and not _accepts(accept, endpoint.media_type):
        detail = f"The answer is {endpoint.media_type}."
        raise Refused(HTTPStatus.NOT_ACCEPTABLE, detail, field="Accept")


def _accepts(accept: str, media_type: str) -> bool:
    """True if one of the ranges in an Accept header holds the media type, and is not switched off by q=0."""
    wanted = media_type.partition(";")[0]
    ranges = {"*/*", wanted, wanted.partition("/")[0] + "/*"}
    for entry in accept.split(","):
        name, *parameters = (part.strip().lower() for part in entry.split(";"))
        refused = any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
        if name in ranges and not refused:
            return True
    return not accept.strip()


def _request_id(headers: Mapping[str, str]) -> str:
    given = headers.get("x-request-id")
    return given if given is not None and _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


def _confess(error: Exception, route: Route, request_id: str) -> Answer:
    """Log where it happened, without the message: PostgreSQL's quotes whole rows."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    where = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
    _log.error(
        "request_failed", route=route.path, request_id=request_id, error=type(error).__name__, where=" < ".join(where)
    )
    return our_fault()


async def _respond(
    send: Send, answer: Answer, body: bytes, *, always: Sequence[tuple[bytes, bytes]], head: bool
) -> None:
    headers = [
        (b"content-type", answer.media_type.encode()),
        (b"content-length", str(len(body)).encode()),
        *always,
    ]
    headers += [(name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})


async def _lifespan(receive: Receive, send: Send) -> None:
    """Nothing is started or stopped here: the composition root opened the room and will close it."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
