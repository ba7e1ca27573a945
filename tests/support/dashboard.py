"""A room with its dashboard behind a real server, and ways to fill it with deliveries of every kind."""

import asyncio
import html
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.async_api import Browser, Page, expect
from tests.support.builders import BUSY, DELIVERED, NOON, Hands, Recording, a_mail, a_worker, accepted
from tests.support.http import Response, a_key, call, served

from postroom.dashboard.endpoints import build_dashboard
from postroom.dashboard.service import Examine
from postroom.dashboard.session import Sessions
from postroom.db.pool import Pool
from postroom.db.replica import Replica
from postroom.db.room import Room
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.model import DeliveryId, DeliveryRequest, Lane
from postroom.delivery.worker import WorkerOptions
from postroom.http.asgi import HttpApplication, build_app
from postroom.http.auth import Authenticator
from postroom.http.model import Role
from postroom.http.operators import add_operator
from postroom.http.service import create_key
from postroom.inbox.model import Captured
from postroom.inbox.store import columns_of, insert_inbox_messages
from postroom.post.reply import Reply
from postroom.rooms.service import Discover, find_rooms, servers_of
from postroom.runtime.endpoint import ASGIApp, Receive, Scope, Send

SECRET = bytes(range(32))
PATIENCE_MS = 60_000
ACCESSIBILITY_RULES = (Path(__file__).parent / "accessibility.js").read_text("utf-8")
LONG = "unbroken" * 40
RAW = f"Subject: {LONG}\r\nX-Long: {LONG}\r\nContent-Type: text/html\r\n\r\n<p style='color: red'>{LONG}</p>".encode()


@dataclass(frozen=True, slots=True)
class Office:
    """Where the dashboard answers, and a key with every scope."""

    room: Room
    url: str
    key: str = field(repr=False)

    @property
    def pool(self) -> Pool:
        return self.room.pool


@dataclass(slots=True)
class Guest:
    """A browser without a screen: keeps the cookie, sends forms as ours do."""

    app: ASGIApp
    cookie: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    async def get(self, target: str, **headers: str) -> Response:
        return await self._ask("GET", target, b"", headers)

    async def post(self, target: str, fields: Mapping[str, str], **headers: str) -> Response:
        kind = {"content-type": "application/x-www-form-urlencoded", **headers}
        return await self._ask("POST", target, urlencode(fields).encode(), kind)

    async def submit(self, page: str, target: str, **fields: str) -> Response:
        """Load a page, take its form's token, and send the form."""
        return await self.post(target, {"token": await self.token(page), **fields})

    async def token(self, page: str) -> str:
        found = re.search(r'name="token" value="([^"]+)"', (await self.get(page)).body.decode())
        assert found is not None
        return found[1]

    async def sign_in(self, key: str, **fields: str) -> Response:
        return await self.post("/sign-in", {"key": key, **fields})

    async def _ask(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Response:
        cookie = {"cookie": self.cookie} if self.cookie else {}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        given = {"host": "room.example.org", **cookie, **self.headers, **named}
        response = await call(self.app, method, target, body=body, headers=given)
        if "set-cookie" in response.headers:
            self._keep(response.headers["set-cookie"].partition(";")[0])
        return response

    def _keep(self, cookie: str) -> None:
        name = cookie.partition("=")[0]
        others = [each for each in (self.cookie or "").split("; ") if each and each.partition("=")[0] != name]
        self.cookie = "; ".join([*others, cookie])


def dashboard_app(
    room: Room,
    *,
    stop: asyncio.Event | None = None,
    examine: Examine | None = None,
    replica: Replica | None = None,
    discover: Discover | None = None,
) -> HttpApplication:
    """The application with the API and the dashboard."""
    auth = Authenticator(room.pool)
    site = build_dashboard(
        room, secret=SECRET, stop=stop, auth=auth, examine=examine, replica=replica, discover=discover
    )
    return build_app(room, sites=[site], auth=auth, replica=replica)


async def open_guest(room: Room, *scopes: str, name: str = "operator", app: ASGIApp | None = None) -> Guest:
    """A guest who is signed in with a new key of these scopes; all scopes if none is named."""
    key, _row = await a_key(room, name, *(scopes or ("*",)))
    guest = Guest(app or dashboard_app(room))
    assert (await guest.sign_in(key)).status == 303
    return guest


def hidden_fields(answer: Response) -> dict[str, str]:
    """The hidden fields of the form that the page asks with."""
    body = answer.body.decode().rpartition("<main")[2]
    return {name: html.unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', body)}


def text_of(response: Response) -> str:
    """A page's words, without its tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", response.body.decode().replace("<wbr>", ""))).split())


def rooms_of(room: Room) -> Discover:
    """Finds the rooms of the room's server, for a dashboard that may list them."""
    return partial(find_rooms, servers_of(room), inspecting=True)


@asynccontextmanager
async def open_office(room: Room, *, examine: Examine | None = None) -> AsyncIterator[Office]:
    key, _row = await create_key(room.pool, "operator", scopes=["*"], actor="tests")
    async with served(dashboard_app(room, examine=examine, discover=rooms_of(room))) as url:
        yield Office(room, url, key)


@asynccontextmanager
async def open_page(chromium: Browser, **options: Any) -> AsyncIterator[Page]:
    """A page of a viewer without a session."""
    context = await chromium.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield await context.new_page()
    finally:
        await context.close()


@asynccontextmanager
async def signed_in(chromium: Browser, office: Office, **options: Any) -> AsyncIterator[Page]:
    """A page of a viewer who has just signed in."""
    async with open_page(chromium, **options) as page:
        await page.goto(office.url)
        await page.get_by_label("API key").fill(office.key)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        await page.wait_for_load_state()  # the heading is drawn before the deferred script runs; keys would be lost
        yield page


async def tried(pool: Pool, *requests: DeliveryRequest, reply: Reply = DELIVERED) -> list[DeliveryId]:
    """Accept and try once, with this reply to each."""
    ids = await accepted(pool, *requests)
    await a_worker(pool, Recording(reply), options=WorkerOptions(until_empty=True)).run()
    return ids


async def given_up(pool: Pool, request: DeliveryRequest | None = None, *, reply: Reply = BUSY) -> DeliveryId:
    """A dead letter: tried until its budget was spent."""
    hands = Hands()
    [delivery_id] = await accepted(pool, request or a_mail(), now=NOON)
    while await pool.fetchval("SELECT next_attempt_at IS NOT NULL FROM deliveries WHERE id = $1", delivery_id):
        await a_worker(pool, Recording(reply), clock=hands, options=WorkerOptions(until_empty=True)).run()
        hands.forward(days=1)
    await pool.execute("UPDATE dead_letters SET created_at = now() WHERE delivery_id = $1", delivery_id)
    # The clock of the worker is years ahead: by the clock of the database, it was accepted and given up just now.
    await pool.execute("UPDATE deliveries SET created_at = now(), finished_at = now() WHERE id = $1", delivery_id)
    return delivery_id


async def ambiguous(pool: Pool) -> DeliveryId:
    """A dead letter of the bulk lane whose worker died in the middle of it."""
    [delivery_id] = await accepted(pool, a_mail(lane=Lane.BULK))
    async with pool.acquire() as connection:
        claim = await connection.fetchval(
            "INSERT INTO claims (lane, delivery_ids, started_through, worker_id, claimed_at, expires_at)"
            " VALUES ('bulk', ARRAY[$1::bigint], 1, 1, now() - interval '2 minutes', now() - interval '1 minute')"
            " RETURNING id",
            delivery_id,
        )
        await connection.execute(
            "UPDATE deliveries SET state = 'sending', claim_id = $2, next_attempt_at = NULL,"
            " attempt_count = 1 WHERE id = $1",
            delivery_id,
            claim,
        )
    await Maintenance(pool).recover()
    return delivery_id


async def captured(
    pool: Pool, raw: bytes, *, subject: str = "Hello", to: str = "ada@example.org", delivery_id: int = 7
) -> int:
    """A message in the inbox; returns its id."""
    message = Captured(delivery_id, "post@example.org", [to], subject, raw)
    async with pool.acquire() as connection:
        [message_id] = await insert_inbox_messages(connection, **columns_of([message]))
    return message_id


async def a_full_day(pool: Pool) -> None:
    """Two days of mail by the hour, most of it sent."""
    await pool.execute(
        "INSERT INTO stat_deltas (hour, campaign_id, sender_account_id, domain, metric, amount)"
        " SELECT date_trunc('hour', now(), 'UTC') - h * interval '1 hour', 0, 0, 'example.org', m,"
        "     CASE WHEN m = 'sent' THEN 20 + 9 * (h % 7) ELSE 1 + h % 4 END"
        " FROM generate_series(0, 47) AS h, unnest(ARRAY['sent', 'deferred', 'refused', 'dead_lettered']) AS m"
    )


async def open_operator(room: Room, role: Role, *, app: ASGIApp | None = None) -> Guest:
    """A guest with the session of a new operator, without the way through the sign-in."""
    operator = await add_operator(room.pool, f"{role}@example.org", role, actor="tests")
    sessions = Sessions(SECRET, room.name)
    return Guest(app or dashboard_app(room), f"postroom_session={sessions.seal(sessions.begin(operator))}")


def from_address(app: ASGIApp, client: str) -> ASGIApp:
    """The application as a client at this address reaches it."""

    async def called(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "client": (client, 50_000)}, receive, send)

    return called
