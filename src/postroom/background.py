"""The background tasks of a worker process: all loops besides delivering and rendering, retention and notices."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial

import structlog

from postroom.accounts import worker as accounts
from postroom.archive.model import ArchiveOptions
from postroom.archive.worker import ArchiveWorker
from postroom.campaigns import worker as campaigns
from postroom.db.retention import Sweeper
from postroom.db.room import Room
from postroom.delivery import maintenance as delivery
from postroom.delivery.mass import service as mass
from postroom.delivery.notices import Notice, Notifier
from postroom.delivery.ways_out.notice import NOTICE as OUTAGE_NOTICE
from postroom.errors import SettingInvalid
from postroom.feedback import notice as feedback
from postroom.feedback.imap import ImapOptions, ImapPoller
from postroom.feedback.report_rooms import ReportRoom, ReportRooms
from postroom.intake import notice as intake
from postroom.intake.source import open_sources
from postroom.intake.worker import open_consumers
from postroom.mail import worker as mail
from postroom.mail.compose import maintenance_options
from postroom.mail.template_check import TemplateCheck
from postroom.mail.watcher import TemplateWatcher
from postroom.outbox import worker as outbox
from postroom.outbox.run import open_outbox
from postroom.post.address import Address, parse_address
from postroom.post.message_id import room_keys
from postroom.rooms.wake import RoomWake
from postroom.runtime.loop import Loop
from postroom.runtime.terminal import actor
from postroom.schedule import worker as schedule
from postroom.schedule.service import policy_of
from postroom.settings import Settings
from postroom.stats import worker as stats
from postroom.tracking import maintenance as tracking

_log = structlog.get_logger()

RETENTION = (
    *delivery.RETENTION,
    *mass.RETENTION,
    *intake.RETENTION,
    *feedback.RETENTION,
    *accounts.RETENTION,
    *schedule.RETENTION,
    *tracking.RETENTION,
    *campaigns.RETENTION,
    *stats.RETENTION,
    *mail.RETENTION,
    *outbox.RETENTION,
)
"""Tables whose old rows are deleted, besides the months that the archive takes."""

NOTICES = (
    delivery.NOTICE,
    OUTAGE_NOTICE,
    intake.NOTICE,
    Notice("complaints", "complaint_notice_interval", feedback.report_complaints),
)


UPKEEP = frozenset(
    {"archive", "attempt partitions", "notices", "queue repair", "retention", "schedule audit", "tracking partitions"}
)
"""Loops that keep a room in order. No work of theirs wakes a room: a sleeping room runs them once an hour."""

WAKES = {
    "collector": "next_token_at",
    "expiry": "next_delivery_at",
    "feeder": "next_feed_at",
    "mass actions": "next_delivery_at",
    "outbox": "next_publication_at",
    "recovery": "next_delivery_at",
    "renderer": "next_delivery_at",
    "rollup": "next_rollup_at",
    "schedule sweep": "next_event_at",
    "scheduler": "next_event_at",
}
"""Every other loop that a sleeping room lacks, and the function that says when it has work."""


URGENT = frozenset({"collector", "feeder"})
URGENT_START = timedelta(milliseconds=200)
HEAD_START = timedelta(seconds=1)
"""A room that wakes is cold: every first statement takes 10 to 50 ms, and they share a connection. Urgent loops let the
claim of its first mail go ahead, the others the whole mail."""


async def open_loops(
    room: Room, stack: AsyncExitStack, stop: asyncio.Event, *, wake: RoomWake | None = None
) -> list[Loop]:
    """All background loops; the stack closes their resources after they have ended.

    With `wake` the process serves other rooms too, and reads the mailbox of bounces for all of them.
    """
    loops, consumers = await _open_loops(room, stack, stop), await _open_consumers(room, stack)
    if wake is None:
        reported = ReportRoom(room.pool, room_keys(room.settings.secret_keys, room.name))
        return [*loops, *consumers, *mailbox_loops(room.settings, lambda: [reported], stop)]
    for loop in loops:
        postpone(loop, wake)
    return [*loops, *consumers]


def postpone(loop: Loop, wake: RoomWake) -> None:
    """Let the mail that has woken the room go ahead; a loop without work does not begin at all."""
    head_start = URGENT_START if loop.name in URGENT else HEAD_START
    function = WAKES.get(loop.name)
    loop.postpone(
        max(wake.upkeep_in, head_start) if loop.name in UPKEEP else head_start,
        None if function is None else wake.gates.of(function),
    )


async def _open_loops(room: Room, stack: AsyncExitStack, stop: asyncio.Event) -> list[Loop]:
    settings, pool = room.settings, room.pool
    feeder = campaigns.Feeder(pool, campaigns.FeederOptions(most_target=settings.campaign_queue))
    await stack.enter_async_context(room.listener.hearing(f"{room.name}_campaigns", feeder.notified))
    options = schedule.SchedulerOptions(policy=policy_of(settings), poll_interval=settings.poll_interval)
    return [
        *delivery.Maintenance(pool, maintenance_options(settings)).loops(),
        *schedule.Scheduler(pool, options).loops(),
        Loop("mass actions", partial(mass.run_unfinished, pool), rest=mass.REST, more=bool),
        feeder.loop(),
        stats.Rollup(pool, stats.RollupOptions(interval=settings.stats_interval)).loop(),
        tracking.TrackingPartitions(pool).loop(),
        Sweeper(pool, RETENTION, settings).loop(),
        ArchiveWorker(room, ArchiveOptions.in_background(settings)).loop(),
        await stack.enter_async_context(open_outbox(room, stop=stop)),
        *await _optional_loops(room, stack, stop),
    ]


async def _optional_loops(room: Room, stack: AsyncExitStack, stop: asyncio.Event) -> list[Loop]:
    """Loops that need a setting: an administrator, templates, the key that signs links."""
    settings, loops = room.settings, list[Loop]()
    if settings.admin_email is not None or settings.admin_webhook is not None:
        email = settings.admin_email
        admin = None if email is None else read_address("POSTROOM_ADMIN_EMAIL", email)
        loops.append(Notifier(room.pool, admin, NOTICES, settings).loop())
    if settings.template_dir is not None:
        interval = settings.template_reload
        loops.append(TemplateWatcher(room, settings.template_dir, interval=interval, actor=actor()).loop())
    if (collector := accounts.make_mailing_collector(room, stop=stop)) is not None:
        await stack.enter_async_context(accounts.listen(room, collector))
        loops.append(collector.loop())
    elif settings.account_mail:
        unset = ", ".join(accounts.uncollected_for(settings))
        _log.warning("tokens_uncollected", variables=unset, reason="account mail needs them")
    return loops


async def _open_consumers(room: Room, stack: AsyncExitStack) -> list[Loop]:
    settings = room.settings
    consumers = open_consumers(
        room.pool, open_sources(settings), idempotency_ttl=settings.idempotency_ttl, check=TemplateCheck(room.pool)
    )
    return await stack.enter_async_context(consumers)


def mailbox_loops(settings: Settings, rooms: ReportRooms, stop: asyncio.Event) -> list[Loop]:
    """The loop that reads the mailbox of bounces, if there is one."""
    if settings.bounce_imap_url is None:
        return []
    try:
        options = replace(ImapOptions.parse(settings.bounce_imap_url), interval=settings.bounce_imap_interval)
    except ValueError as error:
        raise SettingInvalid("POSTROOM_BOUNCE_IMAP_URL", str(error)) from error
    return [ImapPoller(rooms, options, domain=settings.bounce_domain, stop=stop).loop()]


def read_address(variable: str, value: str) -> Address:
    """The address of a setting; raises `SettingInvalid` with the name of the variable."""
    try:
        return parse_address(value)
    except ValueError as error:
        raise SettingInvalid(variable, str(error)) from error
