"""Publish each event as one structured log line, without its data."""

import structlog

from postroom.outbox.publisher import Batch, Publisher

_log = structlog.get_logger("postroom.outbox")


class LogPublisher(Publisher):
    """Never fails. The lines do not contain the events' data, which may be personal."""

    name = "log"
    is_local = False

    async def publish(self, batch: Batch) -> None:
        for message in batch.messages:
            _log.info(
                "event_published",
                topic=batch.topic,
                message_id=message.id,
                type=message.type,
                position=message.position,
                tags=list(message.tags),
            )
