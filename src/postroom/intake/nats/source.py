"""A JetStream subject as a source of commands.

All workers pull from one durable consumer; the server redelivers unacknowledged messages after `ack_wait`. A command is
the message's data: a JSON object of the command's fields. An existing stream with the subject is used unchanged;
otherwise a stream is created that keeps messages on disk until they are acknowledged.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import nats.errors
import nats.js.errors
from nats.js import api

from postroom.intake.model import StreamEntry
from postroom.runtime.nats import connect

SUBJECT = "mail.delivery_commands"
STREAM = "mail_delivery_commands"
DURABLE = "postroom"
ROOM_SUBJECTS, ROOM_STREAM = f"{SUBJECT}.*", f"{STREAM}_of_rooms"
ANSWER_S = 2.0  # a JetStream that needs longer is treated as unreachable; the messages are delivered again


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsOptions:
    """Options of the consumer of a subject."""

    subject: str = SUBJECT
    stream: str = STREAM  # name of the stream if it has to be created
    stream_subjects: str | None = None  # its subjects then; None: only the one above
    durable: str = DURABLE
    replicas: int = 1  # replicas of a created stream; 3 in a cluster
    batch: int = 200  # one transaction accepts them, and a crash repeats at most these
    block: timedelta = timedelta(seconds=1)  # timeout of a fetch without new messages
    ack_wait: timedelta = timedelta(seconds=60)  # an unacknowledged message then goes to another worker


def options_of(room: str) -> NatsOptions:
    """The subject and the consumer of one of many rooms; their subjects share a stream."""
    return NatsOptions(
        subject=f"{SUBJECT}.{room}",
        stream=ROOM_STREAM,
        stream_subjects=ROOM_SUBJECTS,
        durable=f"{DURABLE}_{room}",
    )


class NatsSource:
    """Pulls from one durable consumer."""

    interruptions = (nats.errors.Error,)

    def __init__(self, url: str, options: NatsOptions | None = None) -> None:
        self._servers = [part.strip() for part in url.split(",")]
        self._options = options or NatsOptions()
        self._connection: Any = None
        self._subscription: Any = None
        self._messages: dict[str, Any] = {}  # unacknowledged messages by place

    async def fetch(self) -> Sequence[StreamEntry]:
        if self._subscription is None:
            await self._open()
        try:
            messages = await self._subscription.fetch(self._options.batch, timeout=self._options.block.total_seconds())
        except (nats.errors.TimeoutError, TimeoutError):
            return []
        except Exception:
            self._subscription = None  # stream or consumer may have been deleted: look it up at the next fetch
            raise
        self._messages = {_place(message): message for message in messages}
        return [StreamEntry(place, message.data, "nats") for place, message in self._messages.items()]

    async def acknowledge(self, entries: Sequence[StreamEntry]) -> None:
        for entry in entries:
            await self._messages.pop(entry.place).ack()
        await self._connection.flush(int(ANSWER_S))

    async def give_back(self, entries: Sequence[StreamEntry]) -> None:
        for entry in entries:
            message = self._messages.pop(entry.place, None)
            if message is not None:
                await message.nak()

    async def close(self) -> None:
        if self._connection is not None:
            with suppress(nats.errors.Error, OSError):
                await self._connection.close()

    async def _open(self) -> None:
        options = self._options
        if self._connection is None or self._connection.is_closed:
            self._connection = await connect(self._servers)
        # While a cluster elects a leader, requests are lost: a short timeout and a retry beat a long timeout.
        stream = self._connection.jetstream(timeout=ANSWER_S)
        name = await find_stream(stream, options)
        config = api.ConsumerConfig(
            durable_name=options.durable,
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=options.ack_wait.total_seconds(),
            max_ack_pending=options.batch * 50,
            filter_subject=options.subject,
        )
        self._subscription = await stream.pull_subscribe(
            options.subject, durable=options.durable, stream=name, config=config
        )


async def find_stream(jetstream: Any, options: NatsOptions) -> str:
    """The name of the stream with this subject; created if missing."""
    try:
        return str(await jetstream.find_stream_name_by_subject(options.subject))
    except nats.js.errors.NotFoundError:
        config = api.StreamConfig(
            name=options.stream,
            subjects=[options.stream_subjects or options.subject],
            retention=api.RetentionPolicy.WORK_QUEUE,
            storage=api.StorageType.FILE,
            num_replicas=options.replicas,
        )
        await jetstream.add_stream(config)
        return options.stream


def _place(message: Any) -> str:
    metadata = message.metadata
    return f"nats {metadata.stream} {metadata.sequence.stream}"
