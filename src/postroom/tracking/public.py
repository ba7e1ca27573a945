"""The public links in mail that was sent: pixels, clicks, unsubscribes, preferences.

    GET  /track/open/{token}.gif    always the pixel; recorded if the token is valid
    GET  /track/click/{token}       302 to the target of the link, or an error page
    GET  /unsubscribe/{token}       a page with a button; scanners open links, so a GET changes nothing
    POST /unsubscribe/{token}       unsubscribes at once (RFC 8058, and the button): 200, no redirect, no cookie
    GET  /preferences/{token}       the bulk mail status of the address, with a button
    POST /preferences/{token}       the button

Pixels and clicks never wait for the database: `EngagementBuffer` writes them later. The target of a click is inside the
signed token, which prevents open redirects. No log line contains a token.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from http import HTTPStatus
from urllib.parse import parse_qs, quote, urlsplit

import asyncpg
import structlog

from postroom.runtime.endpoint import Answer, Call, Endpoint, Handler, ProtocolError, Site
from postroom.runtime.public_page import PAGE_HEADERS, public_page
from postroom.tracking import service
from postroom.tracking.agents import LONGEST_AGENT, classify
from postroom.tracking.buffer import EngagementBuffer
from postroom.tracking.model import BulkMailStatus, LinkSubject, Origin, TrackedRequest, UnsubscribeReason, Visitor
from postroom.tracking.page_texts import WORDS, PageTexts, Text, button, choose_language, link, question
from postroom.tracking.tokens import TokenSigner

# A transparent GIF of 1 × 1 pixel with a palette of two colours, the second transparent.
PIXEL = bytes.fromhex("47494638396101000100800000000000ffffff21f90401000001002c00000000010001000002024c01003b")

_log = structlog.get_logger()

_RETRY_AFTER_S = 30  # seconds; a failover takes about that long
_LARGEST_FORM = 16 * 1024  # RFC 8058 bodies have 26 bytes; mail clients add little
_PLAIN = re.compile(r"[!-~]+")
_NOT_PLAIN = re.compile(r"[^!-~]+")
_PREFETCH_HEADERS = ("sec-purpose", "purpose", "x-purpose", "x-moz")

_PIXEL = Answer(PIXEL, media_type="image/gif")
_PIXEL_HEADERS = {
    "cache-control": "no-store",
    "cross-origin-resource-policy": "cross-origin",
    "x-content-type-options": "nosniff",
}
_LINK_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-robots-tag": "noindex",
}
_PAGE_HEADERS = {**_LINK_HEADERS, **PAGE_HEADERS, "vary": "accept-language"}


@dataclass(frozen=True, slots=True)
class PublicLinks:
    """Dependencies of these endpoints: the token reader, the buffer of hits, and the page timeout."""

    signer: TokenSigner
    buffer: EngagementBuffer
    patience_s: float = 5.0  # a person leaves a page that shows nothing for longer

    def record(self, call: Call, mark: LinkSubject, link_url: str | None) -> None:
        headers = call.headers
        agent = headers.get("user-agent")
        is_prefetch = any("pre" in headers[name].lower() for name in _PREFETCH_HEADERS if name in headers)
        kind = classify(agent, method=call.method, is_prefetch=is_prefetch)
        self.buffer.add(TrackedRequest(mark, time.time(), kind, link_url, call.client or None, _read_agent(agent)))


def link_site(links: PublicLinks) -> Site:
    return Site(ENDPOINTS, tools=(links,))


# ── pixels and links: nothing here waits for the database ──────────────────────────────────────────────────────────


async def show_pixel(call: Call) -> Answer:
    links = call.tool(PublicLinks)
    mark = links.signer.read_open(call.path["token"].removesuffix(".gif"))
    if mark is not None:
        links.record(call, mark, None)
    return _PIXEL


async def follow_link(call: Call) -> Answer:
    links = call.tool(PublicLinks)
    found = links.signer.read_click(call.path["token"])
    if found is None:
        raise _unknown()
    mark, url = found
    links.record(call, mark, url)
    return Answer(b"", int(HTTPStatus.FOUND), "text/plain", {"location": _location(url)})


# ── pages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def show_unsubscribe(call: Call, mark: LinkSubject) -> Answer:
    words = _words(call)
    return _page(call, words.ask, address=mark.address, more=button("from", "page", words.unsubscribe))


async def unsubscribe(call: Call, mark: LinkSubject) -> Answer:
    words = _words(call)
    form = await _read_form(call)
    # A POST to the link unsubscribes whatever its body contains: mail clients post different bodies (RFC 8058).
    reason = _reason(form)
    origin = Origin.PAGE if reason is not None or form.get("from") == ["page"] else Origin.ONE_CLICK
    await service.unsubscribe(call.room.pool, mark, origin=origin, visitor=_visitor(call), reason=reason)
    preferences = link(f"../preferences/{call.path['token']}", words.preferences)
    if reason is not None:
        return _page(call, words.thanks, address=mark.address, more=preferences)
    return _page(call, words.done, address=mark.address, more=_ask_why(words) + preferences)


async def show_preferences(call: Call, mark: LinkSubject) -> Answer:
    return _standing_page(call, await service.find_standing(call.room.pool, mark), mark)


async def change_preferences(call: Call, mark: LinkSubject) -> Answer:
    form = await _read_form(call)
    if form.get("mailings") == ["off"]:
        await service.unsubscribe(call.room.pool, mark, origin=Origin.PAGE, visitor=_visitor(call))
    elif form.get("mailings") == ["on"]:
        await service.resubscribe(call.room.pool, mark)
    return await show_preferences(call, mark)


async def _with_mark(show: Callable[[Call, LinkSubject], Awaitable[Answer]], call: Call) -> Answer:
    """The page of a valid token, within the page timeout."""
    links = call.tool(PublicLinks)
    mark = links.signer.read_unsubscribe(call.path["token"])
    if mark is None:
        raise _unknown()
    async with asyncio.timeout(links.patience_s):
        return await show(call, mark)


def refuse(call: Call, error: Exception, problem: Answer) -> Answer:
    """An error as a page: an unknown link, a method that is not allowed, or an unavailable database."""
    words = _words(call)
    if isinstance(error, ProtocolError):
        return _page(call, words.unknown, status=error.status, headers=error.headers)
    if isinstance(error, OSError | asyncpg.PostgresError | asyncpg.InterfaceError | asyncpg.InternalClientError):
        _log.error("unsubscribe_page_failed", method=call.method, error=type(error).__name__)
        retry = {"retry-after": str(_RETRY_AFTER_S)}
        return _page(call, words.trouble, status=HTTPStatus.SERVICE_UNAVAILABLE, headers=retry)
    return _page(call, words.trouble, status=HTTPStatus(problem.status))


def _unknown() -> ProtocolError:
    return ProtocolError(HTTPStatus.NOT_FOUND, "The link is not valid.")


def _reason(form: Mapping[str, list[str]]) -> UnsubscribeReason | None:
    given = form.get("reason", [])
    return next((reason for reason in UnsubscribeReason if given == [reason.value]), None)


def _ask_why(words: PageTexts) -> str:
    """The question after an unsubscribe: one optional button per answer."""
    return question(words.why, [("reason", reason.value, words.reasons[reason]) for reason in UnsubscribeReason])


def _standing_page(call: Call, standing: BulkMailStatus, mark: LinkSubject) -> Answer:
    words = _words(call)
    if standing.is_closed:
        return _page(call, words.closed, address=mark.address)
    if standing.is_unsubscribed:
        return _page(call, words.unsubscribed, address=mark.address, more=button("mailings", "on", words.resubscribe))
    return _page(call, words.subscribed, address=mark.address, more=button("mailings", "off", words.unsubscribe))


def _page(
    call: Call,
    text: Text,
    *,
    status: HTTPStatus = HTTPStatus.OK,
    address: str = "",
    more: str = "",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    body = public_page(_language(call), *text, address=address, more=more)
    return Answer(body, int(status), "text/html; charset=utf-8", {**_PAGE_HEADERS, **(headers or {})})


def _language(call: Call) -> str:
    return choose_language(call.headers.get("accept-language", ""))


def _words(call: Call) -> PageTexts:
    return WORDS[_language(call)]


def _visitor(call: Call) -> Visitor:
    return Visitor(call.client or None, _read_agent(call.headers.get("user-agent")))


async def _read_form(call: Call) -> Mapping[str, list[str]]:
    """The fields of a short urlencoded form. Other bodies and everything past the limit are ignored."""
    body = b""
    assert call.chunks is not None, "the endpoint streams"
    async for chunk in call.chunks:
        body += chunk
        if len(body) > _LARGEST_FORM:
            break
    return parse_qs(body[:_LARGEST_FORM].decode("latin-1"), max_num_fields=None)


@lru_cache(maxsize=1024)
def _read_agent(agent: str | None) -> str | None:
    return agent[:LONGEST_AGENT].replace("\0", "") if agent else None


@lru_cache(maxsize=1024)
def _location(url: str) -> str:
    """The URL as a header value: printable ASCII, with an internationalised host in its ASCII form."""
    if _PLAIN.fullmatch(url):
        return url
    parts = urlsplit(url)
    host = parts.netloc
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            host = quote(host, safe=":@%")
    return _NOT_PLAIN.sub(lambda found: quote(found[0]), parts._replace(netloc=host).geturl())


def _row(method: str, path: str, handler: Handler, headers: Mapping[str, str], summary: str) -> Endpoint:
    return Endpoint(
        method=method,
        path=path,
        handler=handler,
        summary=summary,
        scope=None,
        tag="links",
        refuse=refuse,
        stream=method == "POST",
        is_page=True,
        headers=headers,
    )


_page_of = partial(partial, _with_mark)

ENDPOINTS = (
    _row("GET", "/track/open/{token:path}", show_pixel, _PIXEL_HEADERS, "Record an open."),
    _row("GET", "/track/click/{token:path}", follow_link, _LINK_HEADERS, "Record a click and redirect."),
    _row("GET", "/unsubscribe/{token:path}", _page_of(show_unsubscribe), {}, "Ask for confirmation."),
    _row("POST", "/unsubscribe/{token:path}", _page_of(unsubscribe), {}, "Unsubscribe."),
    _row("GET", "/preferences/{token:path}", _page_of(show_preferences), {}, "Show the preferences."),
    _row("POST", "/preferences/{token:path}", _page_of(change_preferences), {}, "Change the preferences."),
)
