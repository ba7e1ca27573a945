"""The links of a message, checked by their form. Nothing is requested here."""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from selectolax.lexbor import LexborHTMLParser

from postroom.mail.content_lint import host_of
from postroom.post.html_guard import find_html_excess

MOST_LINKS = 200  # bounds the report of hostile HTML

_IN_TEXT = re.compile(r"""https?://[^\s<>"']+""", re.IGNORECASE)
_TRAILING = ".,;:!?)]}"
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{%|%\}|\$\{|\[\[|(?:^|[/=])(?:undefined|null|none)(?:[/&]|$)", re.IGNORECASE)
_SOURCES = (("a[href]", "href", "link"), ("area[href]", "href", "link"), ("img[src]", "src", "image"))
_KNOWN = frozenset({"http", "https", "mailto", "tel", "sms", "cid", "data"})


@dataclass(frozen=True, slots=True)
class MessageLink:
    """One address in a message, and the mistakes in its form."""

    url: str
    kind: str  # link, image or text
    count: int
    problems: tuple[str, ...]

    @property
    def is_web(self) -> bool:
        return self.url.lower().startswith(("http://", "https://"))


def list_links(html: str | None, text: str | None) -> list[MessageLink]:
    """Each address once, in the order of the message: links and images of the HTML, then links of the text."""
    counted: dict[str, tuple[str, int]] = {}
    for kind, url in (*_in_html(html or ""), *_in_text(text or "")):
        first, count = counted.get(url, (kind, 0))
        counted[url] = (first, count + 1)
    found = list(counted.items())[:MOST_LINKS]
    return [MessageLink(url, kind, count, tuple(problems_of(url, kind))) for url, (kind, count) in found]


def problems_of(url: str, kind: str = "link") -> Iterator[str]:
    """The mistakes in the form of an address."""
    if not url or url == "#":
        yield "has no destination"
        return
    if _PLACEHOLDER.search(url):
        yield "contains a placeholder that was not replaced"
    try:
        parts = urlsplit(url)
        _port = parts.port
    except ValueError:
        yield "is not a valid URL"
        return
    if not parts.scheme:
        yield "is relative; a mail has no page that it could be relative to"
    elif parts.scheme.lower() not in _KNOWN:
        yield f"has the scheme {parts.scheme[:20]}, which mail clients do not open"
    elif parts.scheme.lower() in ("http", "https"):
        yield from _web_problems(url, parts, kind)


def _web_problems(url: str, parts: SplitResult, kind: str) -> Iterator[str]:
    host = host_of(url)
    if not host:
        yield "has no host"
        return
    if parts.scheme.lower() == "http":
        yield "is not encrypted: use https"
    if parts.username or parts.password:
        yield "contains a user name or password"
    if is_local(host):
        yield "leads to this machine or a private network; recipients cannot open it"
    elif _is_address(host) and kind != "image":
        yield "names an IP address instead of a host"
    if " " in url:
        yield "contains a space"


def is_local(host: str) -> bool:
    """True for loopback and private networks, and for names that only a local resolver knows."""
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal", ".test", ".invalid")):
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _in_html(html: str) -> Iterator[tuple[str, str]]:
    if find_html_excess(html) is not None:
        return
    page = LexborHTMLParser(html)
    for selector, attribute, kind in _SOURCES:
        for node in page.css(selector):
            url = (node.attributes.get(attribute) or "").strip()
            if not url.lower().startswith(("cid:", "data:")):
                yield kind, url


def _in_text(text: str) -> Iterator[tuple[str, str]]:
    for found in _IN_TEXT.finditer(text):
        yield "text", found[0].rstrip(_TRAILING)
