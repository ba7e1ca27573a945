"""Events on JetStream: subject `<prefix>.<topic>`, acknowledged by the server before the progress moves.

`Nats-Msg-Id` is the topic and the message's id; within the stream's window (two minutes unless told otherwise) the
server itself drops a repetition, which is also what it does with a replay that follows too soon. The messages of a
batch travel together over one connection, which keeps them in order, and are acknowledged one by one; after one that
the client refuses, being too large, none is sent.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import nats
import nats.errors
import nats.js.errors
import structlog
from nats.js import api

from postroom.errors import PublishFailed
from postroom.outbox.publisher import Batch, Message

PREFIX = "postroom.events"
STREAM = "postroom_events"
PATIENCE = timedelta(seconds=10)

_log = structlog.get_logger()


class NatsPublisher:
    """One connection for all topics. A stream that holds the subjects already is used as it is."""

    name = "nats"
    is_local = False

    def __init__(
        self, url: str, *, prefix: str = PREFIX, stream: str = STREAM, replicas: int = 1, patience: timedelta = PATIENCE
    ) -> None:
        self._servers = [part.strip() for part in url.split(",")]
        self._prefix, self._stream, self._replicas = prefix, stream, replicas
        self._patience_s = patience.total_seconds()
        self._connection: Any = None
        self._jetstream: Any = None
        self._opening = asyncio.Lock()

    async def publish(self, batch: Batch) -> None:
        subject = f"{self._prefix}.{batch.topic}"
        sent: list[asyncio.Future[Any]] = []
        problem: Exception | None = None
        try:
            jetstream = await self._opened(subject)
            for message in batch.messages:
                sent.append(await self._send(jetstream, subject, batch.topic, message))  # noqa: PERF401 - some may go
        except (nats.errors.Error, OSError, TimeoutError) as error:
            problem = error
        acknowledged, refusal = await self._acknowledged(sent)
        problem = refusal or problem
        if problem is not None:
            self._jetstream = None  # the stream may be gone: look again next time
            raise PublishFailed(f"NATS: {type(problem).__name__}: {problem}", published=acknowledged)

    async def close(self) -> None:
        if self._connection is not None:
            with suppress(nats.errors.Error, OSError):
                await self._connection.close()

    async def _send(self, jetstream: Any, subject: str, topic: str, message: Message) -> "asyncio.Future[Any]":
        """On the wire when this returns; the future is the server's word that it is stored."""
        headers = {"Nats-Msg-Id": f"{topic}:{message.id}"}
        future: asyncio.Future[Any] = await jetstream.publish_async(subject, message.json, headers=headers)
        return future

    async def _acknowledged(self, sent: "Sequence[asyncio.Future[Any]]") -> tuple[int, Exception | None]:
        """How many at the beginning are stored, and what went wrong with the next."""
        if sent:
            await asyncio.wait(sent, timeout=self._patience_s)
        for index, future in enumerate(sent):
            if not future.done():
                for late in sent[index:]:
                    late.cancel()
                return index, TimeoutError(f"no acknowledgement within {self._patience_s:g} s")
            error = future.exception()
            if error is not None:
                return index, error if isinstance(error, Exception) else None
        return len(sent), None

    async def _opened(self, subject: str) -> Any:
        async with self._opening:
            if self._jetstream is not None:
                return self._jetstream
            if self._connection is None or self._connection.is_closed:
                self._connection = await nats.connect(
                    servers=self._servers,
                    name="postroom",
                    connect_timeout=5,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.5,
                    error_cb=_note,
                )
            jetstream = self._connection.jetstream(timeout=10)
            await self._ensure_stream(jetstream, subject)
            self._jetstream = jetstream
            return jetstream

    async def _ensure_stream(self, jetstream: Any, subject: str) -> None:
        try:
            await jetstream.find_stream_name_by_subject(subject)
        except nats.js.errors.NotFoundError:
            config = api.StreamConfig(
                name=self._stream,
                subjects=[f"{self._prefix}.>"],
                storage=api.StorageType.FILE,
                num_replicas=self._replicas,
            )
            await jetstream.add_stream(config)


async def _note(error: Exception) -> None:
    """The client reconnects by itself; its troubles on the way are worth one line each, without a trace."""
    _log.info("nats_troubled", error=type(error).__name__)
