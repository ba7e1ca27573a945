"""The composition root: settings become a room, a room becomes processes.

Start order: ping → migrate or check → parse all templates → listen. A failure before the last step ends the process
with a one-line error before any port is open.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import structlog

from postroom.accounts.worker import make_mailing_collector, uncollected_for
from postroom.background import HEAD_START, mailbox_loops, open_loops, postpone, read_address
from postroom.campaigns.rendering import CampaignRendering, RenderingOptions
from postroom.db.failures import record_loop_failure
from postroom.db.processes import process_registered
from postroom.db.room import Room
from postroom.delivery.attempt import Routes, Writers
from postroom.delivery.lane import LaneWakeups, Precedence, WokenWorker
from postroom.delivery.model import Channel, Lane
from postroom.delivery.ways_out.watch import WayOutWatch
from postroom.delivery.worker import Worker, WorkerOptions
from postroom.errors import SettingInvalid
from postroom.feedback.report_rooms import report_rooms
from postroom.inbox.transport import CaptureTransport
from postroom.intake.source import open_watches
from postroom.mail.compose import Composer, MailWriter
from postroom.mail.dkim_keys import load_signers
from postroom.mail.publishing import publish_files
from postroom.mail.rendering import TemplateRendering
from postroom.mail.versions import TemplateVersions
from postroom.mail.worker import RenderWorker
from postroom.outbox.run import make_publishers
from postroom.outbox.webhooks.service import disable_gone
from postroom.outbox.webhooks.writer import WebhookWriter
from postroom.post.address import domain_of
from postroom.post.message_id import room_keys
from postroom.rooms.fleet import Fleet
from postroom.rooms.model import FleetOptions, Watcher
from postroom.rooms.service import open_servers
from postroom.rooms.wake import RoomWake
from postroom.runtime.loop import Loop, run_loops
from postroom.runtime.secrets import SecretBox
from postroom.runtime.terminal import actor
from postroom.runtime.tracing import enable_tracing
from postroom.senders.accounts_in_use import AccountsInUse
from postroom.senders.factory import UnusableTransport
from postroom.senders.tools import tools_of
from postroom.settings import Settings
from postroom.tracking.tokens import TokenSigner
from postroom.transports.base import Transport
from postroom.transports.smtp import SmtpRelay, SmtpTransport
from postroom.transports.unsent import NoopTransport, StubTransport
from postroom.transports.webhook.signing import webhook_secrets
from postroom.transports.webhook.transport import WebhookTransport

_log = structlog.get_logger()

# ── content and transports ────────────────────────────────────────────────────────────────────────────────────────


def link_signer(settings: Settings) -> TokenSigner | None:
    """The signer of links in mail; None without POSTROOM_SECRET_KEY."""
    if settings.secret_key is None:
        return None
    return TokenSigner(settings.secret_key, settings.base_url, room=settings.schema, old_keys=settings.old_secret_keys)


def make_composer(settings: Settings) -> Composer:
    """The composer with the sender, the names and the keys of the installation."""
    return Composer(
        default_sender=read_address("POSTROOM_FROM", settings.default_from),
        message_domain=settings.message_domain,
        keys=room_keys(settings.secret_keys, settings.schema),
        bounce_domain=settings.bounce_domain,
        links=link_signer(settings),
        signers=load_signers(settings.dkim_keys),
    )


def make_writers(room: Room, templates: TemplateRendering, *, accounts: AccountsInUse | None) -> Writers:
    """The writer of each channel."""
    settings = room.settings
    domain = domain_of(read_address("POSTROOM_FROM", settings.default_from).email)
    campaigns = CampaignRendering(room.pool, link_signer(settings), RenderingOptions(default_domain=domain))
    box = SecretBox(settings.sealing_keys)
    return {
        Channel.EMAIL: MailWriter(
            make_composer(settings),
            templates=templates,
            campaigns=campaigns,
            accounts=accounts,
        ),
        Channel.WEBHOOK: WebhookWriter(room.pool, box, webhook_secrets(settings)),
    }


def make_transport(room: Room, connections: int) -> Transport:
    """The mail transport named by the settings."""
    settings = room.settings
    match settings.transport:
        case "capture":
            release = settings.inbox_release_relay and _smtp(
                settings, settings.inbox_release_relay, "POSTROOM_INBOX_RELEASE_RELAY", connections
            )
            return CaptureTransport(room.pool, keep=settings.inbox_limit, release=release or None)
        case "stub":
            return StubTransport()
        case "noop":
            return NoopTransport()
        case "senders":
            return UnusableTransport("no sender account serves this lane; add one with `postroom senders add`")
        case _:
            return _smtp(settings, settings.smtp_relay or "", "POSTROOM_SMTP_RELAY", connections)


def _smtp(settings: Settings, url: str, variable: str, connections: int) -> Transport:
    try:
        relay = SmtpRelay.parse(url)
    except ValueError as error:
        raise SettingInvalid(variable, str(error)) from error
    return SmtpTransport(relay, local_name=settings.message_domain, max_connections=connections)


@asynccontextmanager
async def open_accounts(room: Room) -> AsyncIterator[AccountsInUse | None]:
    """The sender accounts of this process; None unless the transport of the settings uses them."""
    if not room.settings.uses_senders:
        yield None
        return
    tools = tools_of(room)
    accounts = AccountsInUse(room.pool, tools.sealer, tools.factory)
    try:
        yield accounts
    finally:
        await accounts.close()


@asynccontextmanager
async def open_routes(room: Room) -> AsyncIterator[Routes]:
    """The transport of each channel and lane; separate per lane, so that bulk mail does not delay one-time codes."""
    settings = room.settings
    mail = {lane: make_transport(room, settings.smtp_connections) for lane in Lane}
    webhooks = WebhookTransport(
        timeout=settings.webhook_timeout,
        allow_private=settings.webhook_allow_private,
        allow_loopback=bool(settings.webhook_allow_loopback),
        inbox=CaptureTransport(room.pool, keep=settings.inbox_limit) if settings.transport == "capture" else None,
        on_gone=partial(disable_gone, room.pool),
    )
    posts = settings.uses_senders or settings.transport == "capture"  # stub and noop send no webhooks either
    try:
        yield {Channel.EMAIL: mail, Channel.WEBHOOK: dict.fromkeys(Lane, webhooks) if posts else mail}
    finally:
        for transport in (*mail.values(), webhooks):
            await transport.close()


# ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def run_worker(
    room: Room,
    *,
    stop: asyncio.Event,
    until_empty: bool = False,
    wake: RoomWake | None = None,
    precedence: Precedence | None = None,
) -> None:
    """Run the background loops (render, deliver, collect, schedule, retention) until `stop` is set.

    With `until_empty`, collect pending account mail, render and deliver, and return when nothing is due. `wake`
    and `precedence` are for a process with several rooms.
    """
    settings = room.settings
    if settings.tracing:
        enable_tracing()
    waker, versions = LaneWakeups(), TemplateVersions(room.pool)
    templates = TemplateRendering(room.pool, versions)
    failed = partial(record_loop_failure, room.pool)
    async with AsyncExitStack() as stack:
        # The process has heard every notification of a room that wakes.
        hearing = room.listener.hearing(f"{room.name}_deliveries", waker.notified, missed=wake is None)
        await stack.enter_async_context(hearing)
        registered = None if wake is None else wake.process
        await stack.enter_async_context(process_registered(room.pool, room.name, "work", registered=registered))
        routes = await stack.enter_async_context(open_routes(room))
        accounts = await stack.enter_async_context(open_accounts(room))
        worker = Worker(
            room.pool,
            writers=make_writers(room, templates, accounts=accounts),
            on_started=templates.store if settings.store_rendered else None,
            routes=routes,
            senders=accounts,
            options=_worker_options(settings, until_empty=until_empty),
            waker=waker,
            failed=failed,
            woken=None if wake is None else _woken(wake),
            precedence=precedence,
            ways_out=_ways_out(room, routes),
        )
        renderer = RenderWorker(room.pool, versions)
        if until_empty:
            if (collector := make_mailing_collector(room, stop=stop)) is not None:
                await collector.drain()
            while (await renderer.run_once()).total:
                pass
            await run_loops([], main=worker, stop=stop)
        else:
            rendering, others = renderer.loop(), await open_loops(room, stack, stop, wake=wake)
            if wake is not None:
                postpone(rendering, wake)
            await run_loops([rendering, *others], main=worker, stop=stop, failed=failed)


async def run_fleet(settings: Settings, pattern: str, *, stop: asyncio.Event, ready: Callable[[], None]) -> None:
    """Serve every room whose name matches the pattern, on all servers of the settings, until `stop` is set."""
    watcher = Watcher(
        pid=os.getpid(),
        host=socket.gethostname(),
        collects_tokens=settings.account_mail and not uncollected_for(settings),
        publishers=tuple(make_publishers(settings).names),
    )
    async with open_servers(settings) as servers, AsyncExitStack() as stack:
        watches = open_watches(settings)
        for watch in watches:
            stack.push_async_callback(watch.close)
        fleet = Fleet(
            servers,
            pattern,
            run_room=partial(_run_member, precedence=Precedence()),
            watcher=watcher,
            templates=settings.template_dir,
            watches=watches,
            options=FleetOptions(awake=settings.rooms_awake),
        )
        beside = _fleet_mailbox(settings, fleet, stop)
        ready()
        await fleet.run(stop, beside)


def _fleet_mailbox(settings: Settings, fleet: Fleet, stop: asyncio.Event) -> list[Loop]:
    """One mailbox of bounces for all rooms, each of which is found by its return paths."""
    needed = {"POSTROOM_BOUNCE_DOMAIN": settings.bounce_domain, "POSTROOM_SECRET_KEY": settings.secret_key}
    for variable, value in needed.items():
        if settings.bounce_imap_url is not None and value is None:
            raise SettingInvalid(variable, "is needed to find the rooms of the bounces in POSTROOM_BOUNCE_IMAP_URL")
    return mailbox_loops(settings, report_rooms(fleet.pools, settings.secret_keys, home=settings.schema), stop)


async def _run_member(room: Room, *, stop: asyncio.Event, wake: RoomWake, precedence: Precedence) -> None:
    if not wake.upkeep_in:
        await publish_files(room, actor=actor())
    await run_worker(room, stop=stop, wake=wake, precedence=precedence)


def _woken(wake: RoomWake) -> WokenWorker:
    """The lanes that were notified are looked at first; all of them if something else has woken the room."""
    return WokenWorker(wake.worker_id, frozenset(map(Lane, wake.lanes)) or frozenset(Lane), HEAD_START)


def _ways_out(room: Room, routes: Routes) -> WayOutWatch:
    """The watch of the relay, if there is one, and of the sender accounts."""
    relay = routes[Channel.EMAIL][Lane.AUTH]
    if room.settings.transport != "smtp" or not isinstance(relay, SmtpTransport):
        return WayOutWatch(room.pool)
    return WayOutWatch(room.pool, (relay.relay.address, relay.probe))


def _worker_options(settings: Settings, *, until_empty: bool) -> WorkerOptions:
    return WorkerOptions(
        batch=settings.worker_batch,
        chunk=settings.worker_chunk,
        byte_limit=settings.worker_mb * 2**20,
        lease=settings.lease,
        poll_interval=settings.poll_interval,
        grace=settings.work_grace,
        held_lanes=settings.held_lanes,
        until_empty=until_empty,
    )
