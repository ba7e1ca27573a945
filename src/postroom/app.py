"""The composition root: settings become a room, a room becomes processes.

Start order is ping → migrate or check → parse all templates → listen. Whatever fails before the last step ends the
process with one sentence, and no port was open.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from postroom.accounts.service import renumber_restored_tokens
from postroom.accounts.worker import make_mailing_collector
from postroom.archive.model import ArchiveOptions
from postroom.archive.worker import ArchiveKeeper
from postroom.campaigns.rendering import CampaignRendering, RenderingOptions
from postroom.campaigns.worker import Feeder, FeederOptions
from postroom.db.connection import Url
from postroom.db.failures import record_loop_failure
from postroom.db.listen import Listener
from postroom.db.pool import open_pool
from postroom.db.room import Room
from postroom.delivery.attempt import Routes, Writers
from postroom.delivery.maintenance import Maintenance, MaintenanceOptions
from postroom.delivery.model import Channel, Lane
from postroom.delivery.service import choose_facts
from postroom.delivery.wake import Waker
from postroom.delivery.worker import Worker, WorkerOptions
from postroom.errors import SettingInvalid
from postroom.events.service import adopt_restored_events
from postroom.feedback.attribution import ReturnPaths
from postroom.feedback.imap import ImapOptions, ImapPoller
from postroom.feedback.worker import FeedbackKeeper, KeeperOptions
from postroom.inbox.transport import CaptureTransport
from postroom.intake.notice import MalformedNotice
from postroom.intake.source import open_sources
from postroom.intake.worker import open_consumers
from postroom.mail.catalog import BUILTIN_TEMPLATES, Catalog
from postroom.mail.compose import Composer, MailWriter, message_domain_of
from postroom.mail.template_check import TemplateCheck
from postroom.mail.worker import Renderer
from postroom.outbox.run import run_outbox
from postroom.outbox.webhooks.service import disable_gone
from postroom.outbox.webhooks.writer import WebhookWriter
from postroom.post.address import Address, domain_of, parse_address
from postroom.post.dkim import Signer
from postroom.post.message_id import make_message_id, room_keys
from postroom.runtime.loop import Loop, Runs, run_loops
from postroom.runtime.secrets import SecretBox
from postroom.runtime.tracing import enable_tracing
from postroom.schedule.service import policy_of
from postroom.schedule.worker import Scheduler, SchedulerOptions
from postroom.senders.accounts_in_use import AccountsInUse
from postroom.senders.factory import UnusableTransport
from postroom.senders.tools import tools_of
from postroom.settings import Settings
from postroom.stats.worker import Rollup, RollupOptions
from postroom.tracking.maintenance import TrackingMaintenance
from postroom.tracking.tokens import TokenSigner
from postroom.transports.base import Transport
from postroom.transports.noop import NoopTransport
from postroom.transports.smtp import SmtpRelay, SmtpTransport
from postroom.transports.stub import StubTransport
from postroom.transports.webhook.signing import webhook_secrets
from postroom.transports.webhook.transport import WebhookTransport

_log = structlog.get_logger()

# ── what goes out, and how ────────────────────────────────────────────────────────────────────────────────────────


def load_catalog(settings: Settings) -> Catalog:
    """The built-in templates and the installation's own, all parsed now."""
    return Catalog.load(BUILTIN_TEMPLATES, *([settings.template_dir] if settings.template_dir else []))


def link_signer(settings: Settings) -> TokenSigner | None:
    """What signs the links of mail; without a secret key there are none."""
    if settings.secret_key is None:
        return None
    return TokenSigner(settings.secret_key, settings.base_url, room=settings.schema, old_keys=settings.old_secret_keys)


def make_composer(settings: Settings) -> Composer:
    """The composer with the sender, the names and the keys of the installation."""
    return Composer(
        default_sender=_address("POSTROOM_FROM", settings.default_from),
        message_domain=settings.message_domain,
        keys=room_keys(settings.secret_keys, settings.schema),
        bounce_domain=settings.bounce_domain,
        links=link_signer(settings),
        signers=load_signers(settings.dkim_keys),
    )


def make_writers(room: Room, *, accounts: AccountsInUse | None) -> Writers:
    """The writer of each channel."""
    settings = room.settings
    domain = domain_of(_address("POSTROOM_FROM", settings.default_from).email)
    rendering = CampaignRendering(room.pool, link_signer(settings), RenderingOptions(default_domain=domain))
    box = SecretBox.from_key(settings.secret_key, *settings.old_secret_keys)
    return {
        Channel.EMAIL: MailWriter(make_composer(settings), rendering=rendering, accounts=accounts),
        Channel.WEBHOOK: WebhookWriter(room.pool, box, webhook_secrets(settings)),
    }


def load_signers(keys: str | None) -> dict[str, list[Signer]]:
    """Signers by domain from `domain:selector:path`, comma-separated."""
    signers: dict[str, list[Signer]] = {}
    for entry in (part.strip() for part in (keys or "").split(",") if part.strip()):
        domain, _, rest = entry.partition(":")
        selector, _, path = rest.partition(":")
        try:
            signer = Signer.from_pem(domain, selector, Path(path).read_bytes())
        except (OSError, ValueError) as error:
            raise SettingInvalid("POSTROOM_DKIM_KEYS", f"{domain}:{selector}: {_file_trouble(path, error)}") from error
        signers.setdefault(domain.lower(), []).append(signer)
    return signers


def _file_trouble(path: str, error: OSError | ValueError) -> str:
    return f"{path} cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)


def make_transport(room: Room, connections: int) -> Transport:
    """The way out for mail that the settings name."""
    settings = room.settings
    match settings.transport:
        case "capture":
            return CaptureTransport(room.pool, keep=settings.inbox_limit)
        case "stub":
            return StubTransport()
        case "noop":
            return NoopTransport()
        case "senders":
            return UnusableTransport("no sender account serves this lane; add one with `postroom senders add`")
        case _:
            try:
                relay = SmtpRelay.parse(settings.smtp_relay or "")
            except ValueError as error:
                raise SettingInvalid("POSTROOM_SMTP_RELAY", str(error)) from error
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
    """The transport of each channel and lane; per lane, so that a one-time code never waits for bulk mail."""
    settings = room.settings
    mail = {lane: make_transport(room, settings.smtp_connections) for lane in Lane}
    webhooks = WebhookTransport(
        timeout=settings.webhook_timeout,
        allow_private=settings.webhook_allow_private,
        inbox=CaptureTransport(room.pool, keep=settings.inbox_limit) if settings.transport == "capture" else None,
        on_gone=partial(disable_gone, room.pool),
    )
    posts = settings.uses_senders or settings.transport == "capture"  # with stub and noop, webhooks do not leave either
    try:
        yield {Channel.EMAIL: mail, Channel.WEBHOOK: dict.fromkeys(Lane, webhooks) if posts else mail}
    finally:
        for transport in (*mail.values(), webhooks):
            await transport.close()


async def settle_room(direct_url: Url, settings: Settings) -> None:
    """What follows a migration: adopt what was restored from another cluster, record the facts that are asked for."""
    async with await open_pool(direct_url, settings.schema, size=1) as pool:
        await adopt_restored_events(pool)
        await renumber_restored_tokens(pool)
        if settings.facts is not None:
            await choose_facts(pool, settings.facts)


# ── what runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def run_worker(room: Room, catalog: Catalog, *, stop: asyncio.Event, until_empty: bool = False) -> None:
    """Render, deliver, collect, schedule and keep house in this process until `stop` is set.

    With `until_empty`, collect what account mail there is, render and deliver, and end when nothing is due.
    """
    settings = room.settings
    if settings.tracing:
        enable_tracing()
    waker = Waker()
    async with AsyncExitStack() as stack:
        routes = await stack.enter_async_context(open_routes(room))
        accounts = await stack.enter_async_context(open_accounts(room))
        worker = Worker(
            room.pool,
            writers=make_writers(room, accounts=accounts),
            routes=routes,
            senders=accounts,
            options=_worker_options(settings, until_empty=until_empty),
            waker=waker,
        )
        renderer = Renderer(room.pool, catalog, waker=waker, poll_interval=settings.poll_interval)
        await stack.enter_async_context(_listener(room, f"{room.name}_deliveries", waker.notified))
        if until_empty:
            if (collector := make_mailing_collector(room)) is not None:
                await collector.drain()
            while (await renderer.run_once()).total:
                pass
            await run_loops([renderer.loop()], main=worker, stop=stop)
        else:
            others = [renderer.loop(), *await _other_loops(room, catalog, stack, stop)]
            await run_loops(others, main=worker, stop=stop, failed=partial(record_loop_failure, room.pool))


class OutboxLoop:
    """The outbox as a loop among others."""

    def __init__(self, room: Room) -> None:
        self._room, self._stop = room, asyncio.Event()

    async def run(self) -> None:
        await run_outbox(self._room, stop=self._stop)

    def stop(self) -> None:
        self._stop.set()


async def _other_loops(room: Room, catalog: Catalog, stack: AsyncExitStack, stop: asyncio.Event) -> list[Loop]:
    """Everything that makes work for the worker, or cleans up after it."""
    settings = room.settings
    others: list[Runs] = [
        Maintenance(room.pool, _maintenance_options(settings)),
        OutboxLoop(room),
        Scheduler(room.pool, _scheduler_options(settings)),
        FeedbackKeeper(room.pool, _keeper_options(settings)),
        ArchiveKeeper(room, ArchiveOptions.in_background(settings)),
    ]
    feeder = Feeder(room.pool, FeederOptions(most_target=settings.campaign_queue))
    await stack.enter_async_context(_listener(room, f"{room.name}_campaigns", feeder.notified))
    consumers = open_consumers(
        room.pool, open_sources(settings), idempotency_ttl=settings.idempotency_ttl, check=TemplateCheck(catalog)
    )
    loops = [
        *await stack.enter_async_context(consumers),
        feeder.loop(),
        TrackingMaintenance(room.pool).loop(),
        Rollup(room.pool, RollupOptions(interval=settings.stats_interval)).loop(),
    ]
    if settings.admin_email is not None:
        admin = _address("POSTROOM_ADMIN_EMAIL", settings.admin_email)
        others.append(MalformedNotice(room.pool, admin, interval=settings.cleanup_interval))
    if settings.bounce_imap_url is not None:
        others.append(_imap_poller(room, settings.bounce_imap_url))
    if (collector := make_mailing_collector(room)) is not None:
        await stack.enter_async_context(_listener(room, "token_insert", collector.wake))
        others.append(collector)
    elif settings.account_mail:
        _log.warning("tokens_uncollected", variable="POSTROOM_SECRET_KEY", reason="it signs the links in account mail")
    return [*loops, *(_adapted(each, stop) for each in others)]


def _adapted(worker: Runs, stop: asyncio.Event) -> Loop:
    """A worker with a loop of its own as a loop among others."""

    async def run() -> None:
        asked = asyncio.create_task(stop.wait())
        asked.add_done_callback(lambda _asked: worker.stop())
        try:
            await worker.run()
        finally:
            asked.cancel()

    return Loop(type(worker).__name__, run)


def _listener(room: Room, channel: str, on_wake: Callable[[str], None]) -> Listener:
    return Listener(room.direct, room.name, channel=channel, on_wake=on_wake)


def _worker_options(settings: Settings, *, until_empty: bool) -> WorkerOptions:
    return WorkerOptions(
        batch=settings.worker_batch,
        chunk=settings.worker_chunk,
        byte_limit=settings.worker_mb * 2**20,
        lease=settings.lease,
        poll_interval=settings.poll_interval,
        grace=settings.shutdown_grace,
        held_lanes=settings.held_lanes,
        until_empty=until_empty,
    )


def _scheduler_options(settings: Settings) -> SchedulerOptions:
    return SchedulerOptions(
        policy=policy_of(settings), poll_interval=settings.poll_interval, retention=settings.schedule_retention
    )


def _keeper_options(settings: Settings) -> KeeperOptions:
    admin = _address("POSTROOM_ADMIN_EMAIL", settings.admin_email).email if settings.admin_email else None
    return KeeperOptions(
        admin=admin, notice_interval=settings.complaint_notice_interval, retention=settings.bounce_retention
    )


def _imap_poller(room: Room, url: str) -> ImapPoller:
    settings = room.settings
    try:
        options = replace(ImapOptions.parse(url), interval=settings.bounce_imap_interval)
    except ValueError as error:
        raise SettingInvalid("POSTROOM_BOUNCE_IMAP_URL", str(error)) from error
    return ImapPoller(
        room.pool, options, paths=ReturnPaths(settings.bounce_domain, room_keys(settings.secret_keys, settings.schema))
    )


def _maintenance_options(settings: Settings) -> MaintenanceOptions:
    return MaintenanceOptions(
        held_lanes=settings.held_lanes,
        lease=settings.lease,
        delivery_retention=settings.delivery_retention,
        dead_letter_retention=settings.dead_letter_retention,
        payload_retention=settings.payload_retention,
        malformed_command_retention=settings.malformed_command_retention,
        cleanup_interval=settings.cleanup_interval,
        admin=_address("POSTROOM_ADMIN_EMAIL", settings.admin_email) if settings.admin_email else None,
        message_id=partial(
            make_message_id,
            domain=message_domain_of(settings.message_domain),
            key=next(iter(room_keys(settings.secret_keys, settings.schema)), None),
        ),
    )


def _address(variable: str, value: str) -> Address:
    try:
        return parse_address(value)
    except ValueError as error:
        raise SettingInvalid(variable, str(error)) from error
