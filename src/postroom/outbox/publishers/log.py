"""Publish each event as one structured log line, without its data unless asked for."""

import structlog

from postroom.outbox.publisher import Batch

_log = structlog.get_logger("postroom.outbox")


class LogPublisher:
    """Never fails. With `with_data` the lines contain the events' data, which may be personal."""

    name = "log"
    is_local = False

    def __init__(self, *, with_data: bool = False) -> None:
        self._with_data = with_data

    async def publish(self, batch: Batch) -> None:
        for message in batch.messages:
            more = {"data": message.data} if self._with_data else {}
            _log.info(
                "event_published",
                topic=batch.topic,
                message_id=message.id,
                type=message.type,
                position=message.position,
                tags=list(message.tags),
                **more,
            )

    async def close(self) -> None:
        """Do nothing: no connection is held."""
