"""The composition root: settings become a room, a room becomes processes.

Start order is ping → migrate or check → parse all templates → listen. Whatever fails before the last step ends the
process with one sentence, and no port was open.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from postroom.db.listen import Listener
from postroom.db.room import Room
from postroom.delivery.address import parse_address
from postroom.delivery.maintenance import Maintenance, MaintenanceOptions
from postroom.delivery.model import Address, Channel, Lane, Outgoing
from postroom.delivery.wake import Waker
from postroom.delivery.worker import Compose, Route, Worker, WorkerOptions
from postroom.errors import SettingInvalid
from postroom.mail.catalog import Catalog
from postroom.mail.compose import Composer
from postroom.mail.dkim import Signer
from postroom.mail.worker import Renderer
from postroom.runtime.tracing import enable_tracing
from postroom.settings import Settings
from postroom.transports import Content, Envelope, Transport
from postroom.transports.capture import CaptureTransport
from postroom.transports.noop import NoopTransport
from postroom.transports.smtp import SmtpRelay, SmtpTransport
from postroom.transports.stub import StubTransport


def load_catalog(settings: Settings) -> Catalog:
    """The built-in templates and the installation's own, all parsed now."""
    builtin = Path(str(files("postroom.mail").joinpath("builtin_templates")))
    return Catalog.load(builtin, *([settings.template_dir] if settings.template_dir else []))


def make_compose(settings: Settings) -> Compose:
    """From a claimed delivery to envelope and content, with this installation's sender, names and keys."""
    composer = Composer(
        default_sender=_address("POSTROOM_FROM", settings.default_from),
        message_domain=settings.message_domain,
        signers=load_signers(settings.dkim_keys),
    )

    def compose(outgoing: Outgoing) -> tuple[Envelope, Content]:
        return composer.compose(outgoing, now=datetime.now(UTC))

    return compose


def load_signers(keys: str | None) -> dict[str, list[Signer]]:
    """Signers by domain from `domain:selector:path`, comma-separated."""
    signers: dict[str, list[Signer]] = {}
    for entry in (part.strip() for part in (keys or "").split(",") if part.strip()):
        domain, _, rest = entry.partition(":")
        selector, _, path = rest.partition(":")
        try:
            signer = Signer.from_pem(domain, selector, Path(path).read_bytes())
        except (OSError, ValueError) as error:
            raise SettingInvalid("POSTROOM_DKIM_KEYS", f"{domain}:{selector}: {error}") from error
        signers.setdefault(domain.lower(), []).append(signer)
    return signers


def make_transport(room: Room, connections: int) -> Transport:
    """The way out that the settings name."""
    settings = room.settings
    match settings.transport:
        case "capture":
            return CaptureTransport(room.pool)
        case "stub":
            return StubTransport()
        case "noop":
            return NoopTransport()
        case _:
            try:
                relay = SmtpRelay.parse(settings.smtp_relay or "")
            except ValueError as error:
                raise SettingInvalid("POSTROOM_SMTP_RELAY", str(error)) from error
            return SmtpTransport(relay, local_name=settings.message_domain, max_connections=connections)


@asynccontextmanager
async def open_routes(room: Room) -> AsyncIterator[Route]:
    """A transport per lane, so that a one-time code never waits for a connection that bulk mail holds."""
    transports = {lane: make_transport(room, room.settings.smtp_connections) for lane in Lane}

    def route(_channel: Channel, lane: Lane) -> Transport:
        return transports[lane]

    try:
        yield route
    finally:
        for transport in transports.values():
            await transport.close()


async def run_worker(
    room: Room, catalog: Catalog, *, stop: asyncio.Event, until_empty: bool = False, maintain: bool = True
) -> None:
    """Render, deliver and keep house in this process until `stop` is set, or until nothing is due."""
    settings = room.settings
    compose = make_compose(settings)
    if settings.tracing:
        enable_tracing()
    waker = Waker()
    async with open_routes(room) as route:
        worker = Worker(
            room.pool,
            compose=compose,
            route=route,
            options=_worker_options(settings, until_empty=until_empty),
            waker=waker,
        )
        renderer = Renderer(room.pool, catalog, waker=waker, poll_interval=settings.poll_interval)
        maintenance = Maintenance(room.pool, _maintenance_options(settings))
        listener = Listener(room.direct_url, room.name, channel=f"{room.name}_deliveries", on_wake=waker.notified)
        async with listener:
            await _together(worker, renderer, maintenance if maintain else None, stop=stop, until_empty=until_empty)


async def _together(
    worker: Worker, renderer: Renderer, maintenance: Maintenance | None, *, stop: asyncio.Event, until_empty: bool
) -> None:
    """Run all loops; when asked to stop, or when an emptied queue ends the worker, end the others too."""

    def stop_all() -> None:
        renderer.stop()
        worker.stop()
        if maintenance is not None:
            maintenance.stop()

    async def stop_when_asked() -> None:
        await stop.wait()
        stop_all()

    if until_empty:
        while (await renderer.run_once()).total:
            pass
    asking = asyncio.create_task(stop_when_asked())
    try:
        async with asyncio.TaskGroup() as loops:
            loops.create_task(renderer.run(), name="renderer")
            if maintenance is not None:
                loops.create_task(maintenance.run(), name="maintenance")
            await loops.create_task(worker.run(), name="worker")
            stop_all()
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


Main = Callable[[asyncio.Event], Awaitable[None]]


def _worker_options(settings: Settings, *, until_empty: bool) -> WorkerOptions:
    return WorkerOptions(
        batch=settings.worker_batch,
        chunk=settings.worker_chunk,
        lease=settings.lease,
        poll_interval=settings.poll_interval,
        grace=settings.shutdown_grace,
        held_lanes=settings.held_lanes,
        until_empty=until_empty,
    )


def _maintenance_options(settings: Settings) -> MaintenanceOptions:
    return MaintenanceOptions(
        held_lanes=settings.held_lanes,
        delivery_retention=settings.delivery_retention,
        payload_retention=settings.payload_retention,
        malformed_command_retention=settings.malformed_command_retention,
        cleanup_interval=settings.cleanup_interval,
        admin=_address("POSTROOM_ADMIN_EMAIL", settings.admin_email) if settings.admin_email else None,
    )


def _address(variable: str, value: str) -> Address:
    try:
        return parse_address(value)
    except ValueError as error:
        raise SettingInvalid(variable, str(error)) from error
