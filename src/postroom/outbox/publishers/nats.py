"""Events on JetStream: subject `<prefix>.<topic>`, acknowledged by the server before the progress moves.

Streams that allow atomic publishing store a batch completely, in order, or not at all: those created here do, from
NATS 2.12 on. Otherwise, and when an atomic batch is rejected, messages are published one by one, each after the server
has acknowledged the one before: no message is stored before an earlier one that was rejected.

`Nats-Msg-Id` is the topic and the message id. Within the stream's duplicate window (two minutes by default) the server
drops repeated messages, and also those of a replay that follows too soon.
"""

import asyncio
import secrets
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import nats.errors
import nats.js.errors
from nats.js import api

from postroom.outbox.errors import PublishFailed
from postroom.outbox.publisher import Batch, Encode, Message, encode_json
from postroom.runtime.nats import connect

PREFIX = "postroom.events"
STREAM = "postroom_events"
PATIENCE = timedelta(seconds=10)
"""Timeout of one request; well below the publish timeout of a relay, one minute, so that its error names NATS."""


class NatsPublisher:
    """One connection for all topics. An existing stream with these subjects is used as it is."""

    name = "nats"
    is_local = False

    def __init__(
        self, url: str, *, replicas: int = 1, patience: timedelta = PATIENCE, encode: Encode = encode_json
    ) -> None:
        self._servers = [part.strip() for part in url.split(",")]
        self._patience_s, self._encode, self._replicas = patience.total_seconds(), encode, replicas
        self._connection: Any = None
        self._is_atomic: dict[str, bool] = {}  # by subject: whether its stream allows atomic batches
        self._opening = asyncio.Lock()  # two topics open one connection

    async def publish(self, batch: Batch) -> None:
        subject = f"{PREFIX}.{batch.topic}"
        stored = 0
        try:
            is_atomic = await self._open(subject)
            if is_atomic and len(batch.messages) > 1 and await self._store_together(subject, batch):
                return
            for message in batch.messages:
                await self._store(subject, batch.topic, message)
                stored += 1
        except (nats.errors.Error, OSError, TimeoutError) as error:
            self._is_atomic.pop(subject, None)  # the stream may have been deleted: look it up again
            raise PublishFailed(f"NATS: {type(error).__name__}: {error}", published=stored) from error

    async def close(self) -> None:
        if self._connection is not None:
            with suppress(nats.errors.Error, OSError):
                await self._connection.close()

    async def _store_together(self, subject: str, batch: Batch) -> bool:
        """Send all messages at once; the server acknowledges the last. False if it rejects them or one is too large."""
        batch_id, last = secrets.token_hex(16), len(batch.messages)
        try:
            for number, message in enumerate(batch.messages[:-1], 1):
                headers = _headers(batch.topic, message, batch_id, number)
                await self._connection.publish(subject, self._encode(message), headers=headers)
            message = batch.messages[-1]
            headers = {**_headers(batch.topic, message, batch_id, last), api.Header.BATCH_COMMIT: "1"}
            body = self._encode(message)
            answer = await self._connection.request(subject, body, headers=headers, timeout=self._patience_s)
        except nats.errors.MaxPayloadError:
            return False
        return "error" not in msgspec.json.decode(answer.data)

    async def _store(self, subject: str, topic: str, message: Message) -> None:
        jetstream = self._connection.jetstream(timeout=self._patience_s)
        await jetstream.publish(subject, self._encode(message), headers=_headers(topic, message))

    async def _open(self, subject: str) -> bool:
        """Connect and create the stream if needed; returns whether it stores a batch atomically."""
        async with self._opening:
            if self._connection is None or self._connection.is_closed:
                self._connection = await connect(self._servers)
            if subject not in self._is_atomic:
                self._is_atomic[subject] = await self._ensure_stream(subject)
            return self._is_atomic[subject]

    async def _ensure_stream(self, subject: str) -> bool:
        jetstream = self._connection.jetstream(timeout=self._patience_s)
        try:
            name = await jetstream.find_stream_name_by_subject(subject)
            info = await jetstream.stream_info(name)
        except nats.js.errors.NotFoundError:
            config = api.StreamConfig(
                name=STREAM,
                subjects=[f"{PREFIX}.>"],
                storage=api.StorageType.FILE,
                num_replicas=self._replicas,
                allow_atomic=True,
            )
            info = await jetstream.add_stream(config)
        return bool(info.config.allow_atomic)


def _headers(topic: str, message: Message, batch_id: str = "", number: int = 0) -> dict[str, str]:
    known = {api.Header.MSG_ID.value: f"{topic}:{message.id}"}
    return known | (
        {api.Header.BATCH_ID.value: batch_id, api.Header.BATCH_SEQUENCE.value: str(number)} if number else {}
    )
