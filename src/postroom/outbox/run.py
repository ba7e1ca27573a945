"""Create the configured publishers and run the outbox."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from postroom.db.failures import record_loop_failure
from postroom.db.room import Room
from postroom.outbox.cloudevents import cloud_event
from postroom.outbox.mails.publisher import MailPublisher
from postroom.outbox.publisher import Encode, Publisher, Publishers, encode_json
from postroom.outbox.publishers.log import LogPublisher
from postroom.outbox.relay import RelayOptions
from postroom.outbox.webhooks.publisher import WebhookPublisher
from postroom.outbox.worker import Outbox, OutboxOptions
from postroom.runtime.extra import extra_needed
from postroom.runtime.loop import Loop, Signal, run_loops, unheard
from postroom.settings import Settings


def make_publishers(settings: Settings) -> Publishers:
    """The publishers that need no server, and those whose server is configured."""
    base_url = settings.public_url or ""  # not the listening address, which differs between processes
    is_cloud = settings.outbox_format == "cloudevents"
    encode: Encode = partial(cloud_event, base_url=base_url) if is_cloud else encode_json
    publishers = Publishers.of([LogPublisher(), MailPublisher(), WebhookPublisher(base_url=base_url)])
    if settings.redis_url is not None:
        with extra_needed("POSTROOM_REDIS_URL", "redis"):
            from postroom.outbox.publishers.redis import RedisPublisher

        publishers.register(RedisPublisher(settings.redis_url, length=settings.outbox_stream_length, encode=encode))
    if settings.nats_url is not None:
        with extra_needed("POSTROOM_NATS_URL", "nats"):
            from postroom.outbox.publishers.nats import NatsPublisher

        publishers.register(NatsPublisher(settings.nats_url, replicas=settings.nats_replicas, encode=encode))
    return publishers


def outbox_options(settings: Settings) -> OutboxOptions:
    return OutboxOptions(
        relay=RelayOptions(
            source=settings.outbox_source or settings.schema,
            batch=settings.outbox_batch,
            max_errors=settings.outbox_max_errors,
        )
    )


@asynccontextmanager
async def open_outbox(
    room: Room, *, stop: asyncio.Event, more: Sequence[Publisher] = (), signal: Signal = unheard
) -> AsyncIterator[Loop]:
    """The publishing loop of this process, to be run inside the block; `more` are your own publishers."""
    publishers = make_publishers(room.settings)
    try:
        for publisher in more:
            publishers.register(publisher)
        yield Outbox(room, publishers, outbox_options(room.settings), signal=signal).loop(stop)
    finally:
        await publishers.close()


async def run_outbox(
    room: Room, *, stop: asyncio.Event, more: Sequence[Publisher] = (), signal: Signal = unheard
) -> None:
    """Publish in this process until `stop` is set."""
    async with open_outbox(room, stop=stop, more=more, signal=signal) as loop:
        await run_loops([loop], stop=stop, failed=partial(record_loop_failure, room.pool))
