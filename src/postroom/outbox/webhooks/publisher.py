"""The publisher `webhook`: a delivery for each event and each endpoint of its topic, committed with the progress."""

from postroom.delivery.check import check_batch
from postroom.delivery.model import Channel
from postroom.delivery.service import accept_batch
from postroom.errors import BadInput
from postroom.outbox.errors import PublishFailed
from postroom.outbox.publisher import Batch, Message, Publisher
from postroom.outbox.webhooks import store
from postroom.outbox.webhooks.model import request_for

PUBLISHER = "webhook"
STEP = 500
"""Most deliveries that one statement accepts; a batch for many endpoints takes several statements."""


class WebhookPublisher(Publisher):
    """Turns events into deliveries, in order; the delivery queue retries them and records the results."""

    name = PUBLISHER
    is_local = True

    def __init__(self, *, base_url: str = "") -> None:
        self._base_url = base_url

    async def publish(self, batch: Batch) -> None:
        connection = batch.transaction
        endpoints = await store.list_topic_endpoints(connection, topic=batch.topic)
        requests = [
            request_for(endpoint, batch.topic, message, base_url=self._base_url)
            for message in batch.messages
            if not _is_echo(message)
            for endpoint in endpoints
        ]
        try:
            for first in range(0, len(requests), STEP):
                await accept_batch(connection, check_batch(requests[first : first + STEP]))
        except BadInput as error:
            raise PublishFailed(str(error)) from error


def _is_echo(message: Message) -> bool:
    """True for an event about an outbox webhook, which would cause webhooks without end; mail events are published."""
    return message.is_echo and message.data.get("channel") == Channel.WEBHOOK
