"""The ASGI application of a process: from a request to one handler and back, for API, links and dashboard.

Plain ASGI without layers of middleware, because accepting mail is counted in thousands a second. Every answer carries
`X-Request-Id`. A refusal is a problem document, or has the form that its endpoint gives it. An exception is logged
without its message, which may hold personal data, and answered without its cause.
"""

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus

import msgspec
import structlog

from postroom.accounts import api as accounts_api
from postroom.archive import api as archive_api
from postroom.campaigns import api as campaigns_api
from postroom.campaigns.contents import contents_of
from postroom.db.replica import Replica
from postroom.db.room import Room
from postroom.delivery import api as delivery_api
from postroom.delivery import dead_letter_api
from postroom.delivery.mass import api as mass_api
from postroom.delivery.service import AcceptCombiner
from postroom.dropins.resend import api as resend_api
from postroom.dropins.ses import api as ses_api
from postroom.dropins.ses.sign_in import SesSignIn
from postroom.errors import AccessError, LimitError
from postroom.events import EventStore
from postroom.events import api as events_api
from postroom.feedback import api as feedback_api
from postroom.feedback import provider_api
from postroom.feedback.providers.model import ProviderOptions
from postroom.http import api as key_api
from postroom.http import health
from postroom.http.auth import Authenticator
from postroom.http.model import ApiKey
from postroom.http.openapi import openapi_endpoint
from postroom.http.problems import answer_to, our_fault
from postroom.http.replica_reads import ReplicaReads
from postroom.http.request import UNMATCHED, Route, Routes, read_call, request_id_of
from postroom.inbox import api as inbox_api
from postroom.intake import api as intake_api
from postroom.mail import api as mail_api
from postroom.mail.template_check import TemplateCheck
from postroom.outbox import api as outbox_api
from postroom.outbox.webhooks import api as webhooks_api
from postroom.runtime.endpoint import MEGABYTE, Answer, Call, Endpoint, Receive, Scope, Send, Site
from postroom.runtime.peers import TrustedProxies
from postroom.runtime.refusals import sign_in_refused
from postroom.runtime.tracing import span
from postroom.schedule import api as schedule_api
from postroom.schedule import event_api
from postroom.senders import api as senders_api
from postroom.settings import Settings
from postroom.stats import api as stats_api
from postroom.tracking import api as tracking_api

FOREIGN = ("resend", "ses")
"""Tags of endpoints that speak another vendor's protocol; the OpenAPI document leaves them out."""

HSTS = {"strict-transport-security": "max-age=31536000"}

RawHeaders = tuple[tuple[bytes, bytes], ...]

_log = structlog.get_logger()
_encode = msgspec.json.Encoder().encode


class HttpApplication:
    """Routes requests to the endpoints of the API and of the sites beside it."""

    def __init__(
        self, room: Room, endpoints: Sequence[Endpoint], *, auth: Authenticator, sites: Sequence[Site] = ()
    ) -> None:
        self.endpoints = (*endpoints, *(endpoint for site in sites for endpoint in site.endpoints))
        self._room, self._auth = room, auth
        self._tools = {type(tool): tool for tool in (auth, *(tool for site in sites for tool in site.tools))}
        replica = next((tool for tool in self._tools.values() if isinstance(tool, Replica)), None)
        self._replica = None if replica is None else ReplicaReads(room, replica)
        self._refuse_unknown = [site.refuse_unknown for site in sites if site.refuse_unknown is not None]
        self._recognise = [site.recognise for site in sites if site.recognise is not None]
        self._claims = [site.claims for site in sites if site.claims is not None]
        self._routes = Routes(self.endpoints)
        self._proxies = TrustedProxies(room.settings.trusted_proxies)
        self._url_path = room.settings.url_path
        self._max_body = room.settings.max_body_mb * MEGABYTE
        always = HSTS if is_https(room.settings) else {}
        self._always = encode_headers(always)
        self._headers = {
            (endpoint.path, method): encode_headers({**always, **endpoint.headers})
            for endpoint in self.endpoints
            for method in ((endpoint.method, "HEAD") if endpoint.method == "GET" else (endpoint.method,))
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        client = self._proxies.client_of(scope)
        if "x-forwarded-for" in headers:
            self._proxies.check_sender(scope)
        call = Call(self._room, self._tools, scope, headers, client, request_id_of(headers))
        method: str = scope["method"]
        route, call.path = self._routes.find(scope["path"], method)
        if route.is_page and any(claims(call) for claims in self._claims):
            route = UNMATCHED
        try:
            answer = await self._answer(route, method, call, receive)
            body = body_of(answer)
        except Exception as error:  # noqa: BLE001 - every error becomes an answer without its cause
            answer = self._refuse(route, call, error)
            body = body_of(answer)
        if self._url_path and answer.headers.get("location", "").startswith("/"):
            answer = replace(
                answer, headers={**answer.headers, "location": self._url_path + answer.headers["location"]}
            )
        always = self._headers.get((route.path, method), self._always)
        await send_head(send, answer, body, (*always, (b"x-request-id", call.request_id.encode())))
        route.measure(method, answer.status, time.perf_counter() - started)
        await send_body(send, receive, b"" if method == "HEAD" else body)

    async def _answer(self, route: Route, method: str, call: Call, receive: Receive) -> Answer:
        for recognise in () if route.methods else self._recognise:
            await recognise(call)
        endpoint = route.endpoint_for(method)
        if endpoint.scope is not None:
            key = await self._authenticate(call, endpoint.scope)
            call.actor, call.source, call.scopes, call.key_id = key.actor, key.name, key.scopes, key.id
        elif endpoint.admit is not None:
            call.admitted = await endpoint.admit(call)
        await read_call(call, endpoint, receive, most_body=self._max_body)
        with span(f"{endpoint.method} {endpoint.path}", traceparent=call.headers.get("traceparent")):
            return await (self._replica.answer(endpoint, call) if self._replica else endpoint.handler(call))

    async def _authenticate(self, call: Call, scope: str) -> ApiKey:
        presented = call.headers.get("authorization")
        try:
            return await self._auth.authenticate(presented, scope, client=call.client)
        except (AccessError, LimitError) as error:
            if presented is not None:
                sign_in_refused("api", call.client, error.code)
            raise

    def _refuse(self, route: Route, call: Call, error: Exception) -> Answer:
        """The answer to an error, in the form of its endpoint, or of the first site that knows an unknown path."""
        known = answer_to(error)
        problem = known or our_fault()
        refusing = route.refuse_of(call.method) if route.methods else self._refuse_unknown
        answer = next((answer for refuse in refusing if (answer := refuse(call, error, problem))), problem)
        if known is None and answer.status == problem.status:  # an endpoint may know errors that the table does not
            _log_bug(error, route, call)
        return answer


# ── the response ─────────────────────────────────────────────────────────────────────────────────────────────────────


def body_of(answer: Answer) -> bytes | AsyncIterator[bytes]:
    """The bytes of an answer, or its stream; 204 has none, and a client would read them as the next response."""
    if answer.status == HTTPStatus.NO_CONTENT:
        return b""
    value = answer.value
    return value if isinstance(value, bytes | AsyncIterator) else _encode(value)


def encode_headers(headers: Mapping[str, str]) -> RawHeaders:
    return tuple((name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items())


async def send_head(send: Send, answer: Answer, body: bytes | AsyncIterator[bytes], always: RawHeaders) -> None:
    """The status line and the headers; those of the answer win over `always`."""
    headers = list(always)
    if answer.status != HTTPStatus.NO_CONTENT:
        headers.append((b"content-type", answer.media_type.encode()))
        if isinstance(body, bytes):
            headers.append((b"content-length", b"%d" % len(body)))
    if answer.headers:
        own = encode_headers(answer.headers)
        names = {name for name, _value in own}
        headers = [*(header for header in headers if header[0] not in names), *own]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})


async def send_body(send: Send, receive: Receive, body: bytes | AsyncIterator[bytes]) -> None:
    if isinstance(body, bytes):
        await send({"type": "http.response.body", "body": body})
    else:
        await _send_stream(send, receive, body)


async def _send_stream(send: Send, receive: Receive, chunks: AsyncIterator[bytes]) -> None:
    """Send until the stream ends or the client has left: uvicorn ignores what is sent after that, without an error."""
    leaving = asyncio.create_task(_wait_for_disconnect(receive), name="http-disconnect")
    sending = asyncio.create_task(_send_chunks(send, chunks), name="http-stream")
    try:
        await asyncio.wait((leaving, sending), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ends_itself = sending.done()
        for task in (leaving, sending):
            task.cancel()
        await asyncio.gather(leaving, sending, return_exceptions=True)
    if ends_itself:
        sending.result()  # an error of the stream


async def _send_chunks(send: Send, chunks: AsyncIterator[bytes]) -> None:
    async for chunk in chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# ── the table of endpoints ───────────────────────────────────────────────────────────────────────────────────────────


def build_app(
    room: Room,
    *,
    more: Sequence[Endpoint] = (),
    sites: Sequence[Site] = (),
    auth: Authenticator | None = None,
    replica: Replica | None = None,
    accepting: AcceptCombiner | None = None,
) -> HttpApplication:
    """The HTTP application of a process: the API, the endpoints `more`, and sites such as links and dashboard.

    With a `replica`, endpoints with `from_replica` read it.
    """
    auth = auth or Authenticator(room.pool)
    endpoints = api_endpoints(room.settings, more=more)
    tools = (
        accepting or make_combiner(room),
        EventStore(room.pool),
        contents_of(room.pool),
        SesSignIn(room.pool, auth.wrong),
        *([replica] if replica else []),
    )
    api = Site((), tools=tools)
    foreign = [Site((), refuse_unknown=each.refuse_unknown, claims=each.claims) for each in (resend_api, ses_api)]
    return HttpApplication(room, endpoints, auth=auth, sites=(api, *foreign, *sites))


def api_endpoints(settings: Settings, *, more: Sequence[Endpoint] = ()) -> list[Endpoint]:
    """The table of the API: the endpoints of all capabilities and `more`, and their document."""
    endpoints = [
        *delivery_api.ENDPOINTS,
        *dead_letter_api.ENDPOINTS,
        *mass_api.ENDPOINTS,
        *intake_api.ENDPOINTS,
        *accounts_api.ENDPOINTS,
        *schedule_api.ENDPOINTS,
        *event_api.ENDPOINTS,
        *events_api.ENDPOINTS,
        *outbox_api.ENDPOINTS,
        *webhooks_api.ENDPOINTS,
        *senders_api.ENDPOINTS,
        *campaigns_api.ENDPOINTS,
        *tracking_api.ENDPOINTS,
        *feedback_api.ENDPOINTS,
        *provider_api.endpoints(_provider_options(settings)),
        *stats_api.ENDPOINTS,
        *archive_api.ENDPOINTS,
        *mail_api.ENDPOINTS,
        *inbox_api.ENDPOINTS,
        *resend_api.ENDPOINTS,
        *ses_api.ENDPOINTS,
        *key_api.ENDPOINTS,
        *health.ENDPOINTS,
        *more,
    ]
    described = [endpoint for endpoint in endpoints if endpoint.tag not in FOREIGN]
    endpoints.append(openapi_endpoint(described, public_url=settings.public_url))
    return endpoints


def make_combiner(room: Room) -> AcceptCombiner:
    """The combiner of a process, which accepts over HTTP and SMTP."""
    return AcceptCombiner(room.pool, idempotency_ttl=room.settings.idempotency_ttl, check=TemplateCheck(room.pool))


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


def _log_bug(error: Exception, route: Route, call: Call) -> None:
    """Log where it happened, without the message: PostgreSQL's quotes whole rows."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    where = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
    _log.error(
        "request_failed",
        route=route.path,
        request_id=call.request_id,
        error=type(error).__name__,
        where=" < ".join(where),
    )


async def lifespan(receive: Receive, send: Send) -> None:
    """Acknowledge a server's start and stop; the composition root opens and closes the room."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
