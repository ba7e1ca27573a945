"""The front doors of a process: HTTP with the dashboard behind it, and SMTP submission.

Addresses are taken before anything else is started, so that a second process changes nothing and says why.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial

from postroom.app import link_signer
from postroom.cli import live_checks
from postroom.cli.doctor import examine
from postroom.dashboard.endpoints import build_dashboard
from postroom.db.processes import process_registered
from postroom.db.replica import Replica, replica_followed
from postroom.db.room import Room
from postroom.delivery.service import AcceptCombiner
from postroom.errors import SettingInvalid
from postroom.feedback.listener import ListenerOptions, bounce_server
from postroom.feedback.report_rooms import ReportRoom, ReportRooms
from postroom.http.asgi import HttpApplication, build_app, make_combiner
from postroom.http.auth import KEY_PREFIX, Authenticator
from postroom.intake.smtp.handler import Authenticate, RoomOf, one_room
from postroom.intake.smtp.server import allows_any_login, submission_options, submission_server
from postroom.post.message_id import room_keys
from postroom.rooms.service import Discover, find_rooms, servers_of
from postroom.runtime import uvicorn_server
from postroom.runtime.endpoint import Site
from postroom.runtime.http_address import remembered
from postroom.runtime.http_connection import HttpLimits
from postroom.runtime.peers import LOOPBACK, is_within
from postroom.runtime.tracing import enable_tracing
from postroom.settings import Settings
from postroom.tracking.buffer import EngagementBuffer
from postroom.tracking.public import PublicLinks, link_site
from postroom.tracking.tokens import TokenSigner
from postroom.tracking.visitors import GeoDatabase, nowhere


@dataclass(frozen=True, slots=True)
class BoundSockets:
    """Addresses that are ours: bound, not listening yet."""

    http: socket.socket
    smtp: socket.socket | None
    bounces: socket.socket | None = None
    smtps: socket.socket | None = None

    @property
    def url(self) -> str:
        return uvicorn_server.url_of(self.http)

    @property
    def smtp_address(self) -> str | None:
        if self.smtp is None:
            return None
        host, port = self.smtp.getsockname()[:2]
        return f"{host}:{port}"


@contextmanager
def take_doors(settings: Settings) -> Iterator[BoundSockets]:
    """Take all addresses; one that is in use is refused by the name of its variable."""
    with ExitStack() as taken:

        def take(address: tuple[str, int] | None, variable: str) -> socket.socket | None:
            return None if address is None else taken.enter_context(uvicorn_server.bind(address, variable=variable))

        http = taken.enter_context(uvicorn_server.bind(settings.http_addr))
        smtp = take(settings.smtp_addr, "POSTROOM_SMTP_ADDR")
        bounces = take(settings.bounce_addr, "POSTROOM_BOUNCE_ADDR")
        yield BoundSockets(http, smtp, bounces, take(settings.smtps_addr, "POSTROOM_SMTPS_ADDR"))


async def keep_doors(room: Room, doors: BoundSockets, *, stop: asyncio.Event, on_ready: Callable[[], None]) -> None:
    """Answer until `stop` is set; then take nothing new and finish what has begun."""
    settings = room.settings
    if settings.tracing:
        enable_tracing()
    auth = Authenticator(room.pool)  # one: wrong keys of a client count wherever it presents them
    async with AsyncExitStack() as stack:
        stack.enter_context(remembered(settings, doors.http.getsockname()[:2]))
        accepting = make_combiner(room)
        stack.push_async_callback(accepting.close)
        discover = partial(find_rooms, servers_of(room), inspecting=True)
        replica = await stack.enter_async_context(replica_followed(room.pool, settings))
        opening = open_application(room, stop=stop, auth=auth, accepting=accepting, replica=replica, discover=discover)
        app = await stack.enter_async_context(opening)
        room_of = one_room(accepting, submitter(auth, any_login=allows_any_login(settings)))
        reported = ReportRoom(room.pool, room_keys(settings.secret_keys, settings.schema))
        await stack.enter_async_context(mail_doors(settings, doors, room_of, lambda: [reported]))
        await uvicorn_server.serve(
            app, doors.http, stop, grace=settings.work_grace, on_ready=on_ready, limits=http_limits(settings)
        )


@asynccontextmanager
async def mail_doors(
    settings: Settings, doors: BoundSockets, room_of: RoomOf, reported: ReportRooms
) -> AsyncIterator[None]:
    """SMTP submission and the address of bounces, for one room or for all."""
    # All of the settings before any door is opened: a process that cannot start must not have answered anybody.
    submissions = [
        (doors.smtp, submission_options(settings)),
        (doors.smtps, submission_options(settings, implicit=True)),
    ]
    receiving = None if doors.bounces is None else bounce_options(settings)
    async with AsyncExitStack() as stack:
        for listener, options in submissions:
            if listener is not None and options is not None:
                await stack.enter_async_context(submission_server(room_of, options, listener=listener))
        if receiving is not None:
            await stack.enter_async_context(bounce_server(reported, receiving, listener=doors.bounces))
        yield


@asynccontextmanager
async def open_application(
    room: Room,
    *,
    stop: asyncio.Event,
    auth: Authenticator,
    accepting: AcceptCombiner,
    replica: Replica | None,
    discover: Discover | None,
) -> AsyncIterator[HttpApplication]:
    """The HTTP application of a room: API, and with a secret key dashboard and links."""
    settings, sites = room.settings, list[Site]()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(process_registered(room.pool, room.name, "serve"))
        if settings.secret_key:
            dashboard = build_dashboard(
                room,
                secret=settings.secret_key,
                stop=stop,
                auth=auth,
                examine=partial(examine, settings, rooms="*" if discover and settings.servers else None),
                examine_live=partial(live_checks.examine, settings, is_live=True),
                replica=replica,
                discover=discover,
            )
            sites.append(dashboard)
        signer = link_signer(settings)
        if signer is not None:
            sites.append(await stack.enter_async_context(public_links(room, signer)))
        yield build_app(room, sites=sites, auth=auth, replica=replica, accepting=accepting)


def http_limits(settings: Settings) -> HttpLimits:
    """How many connections the settings allow; proxies that are trusted are not counted as one client."""
    return HttpLimits(
        connections=settings.http_connections,
        connections_per_peer=settings.connections_per_peer,
        unlimited=(*LOOPBACK, *settings.trusted_proxies),
    )


@asynccontextmanager
async def public_links(room: Room, signer: TokenSigner) -> AsyncIterator[Site]:
    """The links of sent mail, and the task that writes their hits."""
    geoip = room.settings.geoip_database
    places = GeoDatabase(geoip) if geoip else None
    buffer = EngagementBuffer(room.pool, find_place=places.find if places else nowhere)
    async with asyncio.TaskGroup() as writing:
        writing.create_task(buffer.run(), name="hits")
        try:
            yield link_site(PublicLinks(signer, buffer))
        finally:
            buffer.stop()
    if places is not None:
        places.close()


def bounce_options(settings: Settings) -> ListenerOptions:
    """Which return paths are ours; `SettingInvalid` if that cannot be known."""
    if settings.bounce_domain is None:
        raise SettingInvalid("POSTROOM_BOUNCE_DOMAIN", "is needed to receive bounces at POSTROOM_BOUNCE_ADDR")
    if settings.secret_key is None:
        raise SettingInvalid("POSTROOM_SECRET_KEY", "is needed to recognise our own return paths")
    unlimited = (*LOOPBACK, *settings.trusted_proxies)
    return ListenerOptions(domain=settings.bounce_domain, unlimited=unlimited)


def submitter(auth: Authenticator, *, any_login: bool = False) -> Authenticate:
    """Check keys that SMTP clients present as passwords: they need the scope that accepting over HTTP needs.

    With `any_login`, a client on this machine may present any other password; its mail has the source `smtp`.
    """

    async def authenticate(key: str, client: str) -> tuple[str, int | None]:
        if any_login and not key.startswith(KEY_PREFIX) and is_within(client, LOOPBACK):
            return "smtp", None
        found = await auth.authenticate(f"Bearer {key}", "deliveries:write", client=client)
        return found.name, found.id

    return authenticate
