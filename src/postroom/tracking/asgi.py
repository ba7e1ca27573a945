"""What mail that has left asks for: pixels, links, unsubscribes, preferences.

    GET  /track/open/{token}.gif    the pixel, always; recorded if the token is ours
    GET  /track/click/{token}       302 to where the link leads, or a page that it leads nowhere
    GET  /unsubscribe/{token}       a page with a button; scanners open links, so opening changes nothing
    POST /unsubscribe/{token}       unsubscribes at once (RFC 8058, and the button): 200, no redirect, no cookie
    GET  /preferences/{token}       how the person stands, with a button
    POST /preferences/{token}       the button

Plain ASGI, because every open of every mail comes here. Where a click leads stands inside the signed token, so nobody
can send anybody anywhere with it but we. A token goes into no log line.
"""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import parse_qs, quote, urlsplit

import asyncpg
import structlog
from prometheus_client import Counter
from starlette.types import Receive, Scope, Send

from postroom.db.pool import Pool
from postroom.runtime.metrics import HTTP_REQUESTS
from postroom.tracking import service
from postroom.tracking.agents import LONGEST_AGENT, classify
from postroom.tracking.buffer import HitBuffer
from postroom.tracking.model import Hit, Mark, Origin, Reason, Standing, Visitor
from postroom.tracking.origins import Network, Origins
from postroom.tracking.pages import WORDS, Text, Words, button, choose_language, link, page, question
from postroom.tracking.tokens import TokenSigner

PREFIXES = ("/track/", "/unsubscribe/", "/preferences/")
"""The paths that belong here, for whoever shares a port with us."""

# One transparent dot: a screen of 1 × 1, a palette of two, the second of them invisible.
PIXEL = bytes.fromhex("47494638396101000100800000000000ffffff21f90401000001002c00000000010001000002024c01003b")

_log = structlog.get_logger()

_OPEN, _CLICK, _UNSUBSCRIBE, _PREFERENCES = "/track/open/", "/track/click/", "/unsubscribe/", "/preferences/"
_READING = ("GET", "HEAD")
_RETRY_AFTER_S = 30
_LARGEST_FORM = 16 * 1024
_PLAIN = re.compile(r"[!-~]+")
_NOT_PLAIN = re.compile(r"[^!-~]+")

Headers = list[tuple[bytes, bytes]]

_PIXEL_HEADERS: Headers = [
    (b"content-type", b"image/gif"),
    (b"content-length", str(len(PIXEL)).encode()),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"cross-origin"),
    (b"x-content-type-options", b"nosniff"),
]
_LINK_HEADERS: Headers = [
    (b"content-length", b"0"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-robots-tag", b"noindex"),
]
_PAGE_HEADERS: Headers = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"vary", b"accept-language"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-robots-tag", b"noindex"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingOptions:
    """Who may say for whom it asks, and how long a page waits for the database."""

    trusted_proxies: tuple[Network, ...] = ()
    patience_s: float = 5.0


@dataclass(frozen=True, slots=True)
class _Request:
    """A page's request, read."""

    token: str
    method: str
    lang: str
    visitor: Visitor
    receive: Receive


@dataclass(frozen=True, slots=True)
class _Page:
    """A page's answer."""

    text: Text
    status: HTTPStatus = HTTPStatus.OK
    address: str = ""
    more: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()


class TrackingApp:
    """Answers under `PREFIXES`. Hits go to the buffer, which somebody else runs and stops."""

    def __init__(
        self, pool: Pool, signer: TokenSigner, buffer: HitBuffer, *, options: TrackingOptions | None = None
    ) -> None:
        self._pool, self._signer, self._buffer = pool, signer, buffer
        self._options = options or TrackingOptions()
        self._origins = Origins(self._options.trusted_proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        method: str = scope["method"]
        if path.startswith(_OPEN) and method in _READING:
            await self._open(scope, path[len(_OPEN) :].removesuffix(".gif"), send)
        elif path.startswith(_CLICK) and method in _READING:
            await self._click(scope, path[len(_CLICK) :], send)
        else:
            await self._page(scope, receive, send)

    # ── pixels and links: nobody waits for the database ─────────────────────────────────────────────────────────────

    async def _open(self, scope: Scope, token: str, send: Send) -> None:
        mark = self._signer.read_open(token)
        if mark is not None:
            self._record(scope, mark, None)
        await send({"type": "http.response.start", "status": 200, "headers": _PIXEL_HEADERS})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else PIXEL})
        _count("/track/open/{token}.gif", scope["method"], 200).inc()

    async def _click(self, scope: Scope, token: str, send: Send) -> None:
        found = self._signer.read_click(token)
        if found is None:
            await self._refuse(scope, send, "/track/click/{token}")
            return
        mark, url = found
        self._record(scope, mark, url)
        headers = [(b"location", _location(url)), *_LINK_HEADERS]
        await send({"type": "http.response.start", "status": 302, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        _count("/track/click/{token}", scope["method"], 302).inc()

    def _record(self, scope: Scope, mark: Mark, link_url: str | None) -> None:
        agent = forwarded = None
        is_prefetch = False
        for name, value in scope["headers"]:
            if name == b"user-agent":
                agent = value
            elif name == b"x-forwarded-for":
                forwarded = value if forwarded is None else forwarded + b"," + value
            elif name in (b"sec-purpose", b"purpose", b"x-purpose", b"x-moz") and b"pre" in value.lower():
                is_prefetch = True
        client = scope.get("client")
        self._buffer.add(
            Hit(
                mark,
                time.time(),
                classify(agent, method=scope["method"], is_prefetch=is_prefetch),
                link_url,
                self._origins.find(client[0] if client else None, forwarded),
                _read_agent(agent),
            )
        )

    # ── pages ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if path.startswith(_UNSUBSCRIBE):
            route, token, answer = "/unsubscribe/{token}", path[len(_UNSUBSCRIBE) :], self._unsubscribe
        elif path.startswith(_PREFERENCES):
            route, token, answer = "/preferences/{token}", path[len(_PREFERENCES) :], self._preferences
        else:
            await self._refuse(scope, send, "/track/")
            return
        if method not in (*_READING, "POST"):
            await self._refuse(scope, send, route)
            return
        request = self._read(scope, token, receive)
        mark = self._signer.read_unsubscribe(request.token)
        if mark is None:
            await self._refuse(scope, send, route)
            return
        try:
            async with asyncio.timeout(self._options.patience_s):
                found = await answer(request, mark)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            _log.error("unsubscribe_page_failed", route=route, method=method, error=type(error).__name__)
            retry = ((b"retry-after", str(_RETRY_AFTER_S).encode()),)
            found = _Page(WORDS[request.lang].trouble, HTTPStatus.SERVICE_UNAVAILABLE, headers=retry)
        await _respond(send, found, request.lang, method=method, route=route)

    async def _unsubscribe(self, request: _Request, mark: Mark) -> _Page:
        words = WORDS[request.lang]
        if request.method != "POST":
            return _Page(words.ask, address=mark.address, more=button("from", "page", words.unsubscribe))
        form = await _read_form(request.receive)
        # A POST to the link unsubscribes whatever its body holds: mail programs differ in what they post (RFC 8058).
        reason = _reason(form)
        origin = Origin.PAGE if reason is not None or form.get("from") == ["page"] else Origin.ONE_CLICK
        await service.unsubscribe(self._pool, mark, origin=origin, visitor=request.visitor, reason=reason)
        preferences = link(f"../preferences/{request.token}", words.preferences)
        if reason is not None:
            return _Page(words.thanks, address=mark.address, more=preferences)
        return _Page(words.done, address=mark.address, more=_ask_why(words) + preferences)

    async def _preferences(self, request: _Request, mark: Mark) -> _Page:
        if request.method == "POST":
            form = await _read_form(request.receive)
            if form.get("mailings") == ["off"]:
                await service.unsubscribe(self._pool, mark, origin=Origin.PAGE, visitor=request.visitor)
            elif form.get("mailings") == ["on"]:
                await service.resubscribe(self._pool, mark)
        standing = await service.find_standing(self._pool, mark)
        return _standing_page(standing, mark, request.lang)

    def _read(self, scope: Scope, token: str, receive: Receive) -> _Request:
        headers = dict(scope["headers"])
        client = scope.get("client")
        address = self._origins.find(client[0] if client else None, headers.get(b"x-forwarded-for"))
        visitor = Visitor(address, _read_agent(headers.get(b"user-agent")))
        lang = choose_language(headers.get(b"accept-language", b"").decode("latin-1"))
        return _Request(token, scope["method"], lang, visitor, receive)

    async def _refuse(self, scope: Scope, send: Send, route: str) -> None:
        """There is no such link, or nothing can be done with it that way."""
        method = scope["method"]
        lang = choose_language(dict(scope["headers"]).get(b"accept-language", b"").decode("latin-1"))
        refused = _Page(WORDS[lang].unknown, HTTPStatus.NOT_FOUND)
        allowed = b"GET, HEAD" if route.startswith("/track/") else b"GET, HEAD, POST"
        if method not in allowed.decode().split(", "):
            refused = _Page(WORDS[lang].unknown, HTTPStatus.METHOD_NOT_ALLOWED, headers=((b"allow", allowed),))
        await _respond(send, refused, lang, method=method, route=route)


def _reason(form: Mapping[str, list[str]]) -> Reason | None:
    given = form.get("reason", [])
    return next((reason for reason in Reason if given == [reason.value]), None)


def _ask_why(words: Words) -> str:
    """The question after an unsubscription: one button per answer, and no answer is needed."""
    return question(words.why, [("reason", reason.value, words.reasons[reason]) for reason in Reason])


def _standing_page(standing: Standing, mark: Mark, lang: str) -> _Page:
    words = WORDS[lang]
    if standing.is_closed:
        return _Page(words.closed, address=mark.address)
    if standing.is_unsubscribed:
        return _Page(words.unsubscribed, address=mark.address, more=button("mailings", "on", words.resubscribe))
    return _Page(words.subscribed, address=mark.address, more=button("mailings", "off", words.unsubscribe))


async def _respond(send: Send, found: _Page, lang: str, *, method: str, route: str) -> None:
    body = page(lang, found.text, address=found.address, more=found.more)
    headers = [*_PAGE_HEADERS, (b"content-length", str(len(body)).encode()), *found.headers]
    await send({"type": "http.response.start", "status": int(found.status), "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
    _count(route, method if method in (*_READING, "POST") else "other", int(found.status)).inc()


async def _read_form(receive: Receive) -> Mapping[str, list[str]]:
    """The fields of a short form, urlencoded. Of anything else nothing needs to be known."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body") or len(body) > _LARGEST_FORM:
            return parse_qs(body[:_LARGEST_FORM].decode("latin-1"), max_num_fields=None)


@lru_cache(maxsize=64)
def _count(route: str, method: str, status: int) -> Counter:
    return HTTP_REQUESTS.labels(route, method, str(status))


@lru_cache(maxsize=1024)
def _read_agent(agent: bytes | None) -> str | None:
    return agent[:LONGEST_AGENT].decode("latin-1").replace("\0", "") if agent else None


@lru_cache(maxsize=1024)
def _location(url: str) -> bytes:
    """The address as a header may carry it: printable ASCII, a foreign host in its ASCII form."""
    if _PLAIN.fullmatch(url):
        return url.encode()
    parts = urlsplit(url)
    host = parts.netloc
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            host = quote(host, safe=":@%")
    return _NOT_PLAIN.sub(lambda found: quote(found[0]), parts._replace(netloc=host).geturl()).encode()
