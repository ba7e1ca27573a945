"""Finds the rooms whose subjects in JetStream have messages."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import nats.errors

from postroom.intake.nats.source import ANSWER_S, ROOM_STREAM, ROOM_SUBJECTS, SUBJECT, NatsOptions, find_stream
from postroom.runtime.nats import connect

INTERVAL_S = 1.0  # a sleeping room wakes within this time after a command


class NatsWatch:
    """Asks the stream of all rooms which of its subjects have messages; acknowledged ones are deleted there.

    It creates the stream, so that programs can publish before the first room wakes. In a stream of another kind, which
    keeps acknowledged messages, the rooms stay awake.
    """

    interruptions = (nats.errors.Error,)

    def __init__(self, url: str, *, replicas: int = 1) -> None:
        self._servers = [part.strip() for part in url.split(",")]
        self._options = NatsOptions(
            subject=ROOM_SUBJECTS, stream=ROOM_STREAM, stream_subjects=ROOM_SUBJECTS, replicas=replicas
        )
        self._connection: Any = None
        self._stream: str | None = None

    async def rooms_with_commands(self, rooms: Collection[str]) -> set[str]:
        await asyncio.sleep(INTERVAL_S)
        if self._connection is None or self._connection.is_closed:
            self._connection, self._stream = await connect(self._servers), None
        jetstream = self._connection.jetstream(timeout=ANSWER_S)
        try:
            self._stream = self._stream or await find_stream(jetstream, self._options)
            found = await jetstream.stream_info(self._stream, subjects_filter=ROOM_SUBJECTS)
        except Exception:
            self._stream = None  # it may have been deleted: look it up, or create it, at the next call
            raise
        return {subject.removeprefix(f"{SUBJECT}.") for subject in found.state.subjects or ()} & set(rooms)

    async def close(self) -> None:
        if self._connection is not None:
            with suppress(nats.errors.Error, OSError):
                await self._connection.close()
