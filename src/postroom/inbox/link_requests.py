"""Requests to the links of a message, on demand of a person. Nothing else in the inbox uses the network.

Each URL gets one HEAD request without cookies; a redirect is reported and not followed. Public addresses are allowed,
and loopback where webhooks may have it (POSTROOM_WEBHOOK_ALLOW_LOOPBACK): the answers tell which ports are open.
Private networks, link-local addresses and metadata services are not allowed, whatever their name resolves to.
A request may count as a click at the server that receives it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
from yarl import URL

from postroom.inbox.links import MessageLink
from postroom.transports.guard import AddressForbidden, GuardedResolver

MOST_REQUESTS = 50  # a person waits for the answers
TIMEOUT_S = 5.0  # a link that takes longer is one that readers leave
_AT_ONCE = 5  # links of a mail mostly lead to one server


@dataclass(frozen=True, slots=True)
class LinkAnswer:
    """The answer of a URL: a status, or the reason why the request got no answer."""

    url: str
    status: int | None
    detail: str

    @property
    def is_good(self) -> bool:
        return self.status is not None and self.status < HTTPStatus.BAD_REQUEST


async def request_links(links: Sequence[MessageLink], *, allow_loopback: bool) -> list[LinkAnswer]:
    """Request each web address once, in the order of the message, up to `MOST_REQUESTS`."""
    resolver, limit = GuardedResolver(allow_loopback=allow_loopback), asyncio.Semaphore(_AT_ONCE)
    connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False)
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, auto_decompress=False
    ) as session:

        async def ask(url: str) -> LinkAnswer:
            async with limit:
                return await _ask(session, resolver, url)

        return await asyncio.gather(*(ask(link.url) for link in links[:MOST_REQUESTS] if link.is_web))


async def _ask(session: aiohttp.ClientSession, resolver: GuardedResolver, url: str) -> LinkAnswer:
    try:
        target = URL(url)
        resolver.check_host(target.raw_host or "")
        async with asyncio.timeout(TIMEOUT_S), session.head(target, allow_redirects=False) as response:
            return LinkAnswer(url, response.status, response.headers.get("location", response.reason or "")[:500])
    except AddressForbidden:
        return LinkAnswer(url, None, "not requested: the address is not public")
    except TimeoutError:
        return LinkAnswer(url, None, f"no answer within {TIMEOUT_S:g} seconds")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return LinkAnswer(url, None, f"the request failed: {type(error).__name__}")
