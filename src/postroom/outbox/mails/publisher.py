"""The publisher `intake`: back into the room, as mails. Mails and progress are committed together."""

from datetime import timedelta

from postroom.delivery.check import check_batch
from postroom.delivery.service import accept_batch
from postroom.errors import BadInput
from postroom.outbox.errors import PublishFailed
from postroom.outbox.mails import store
from postroom.outbox.mails.model import mail_for
from postroom.outbox.publisher import Batch

PUBLISHER = "intake"
REMEMBERED = timedelta(days=365)
"""How long a mail's key is remembered: who rewinds a topic does not mean to mail everybody again."""


class MailPublisher:
    """Events that no rule names pass by. An event that should be a mail and cannot be is a failure, and told."""

    name = PUBLISHER
    is_local = True

    async def publish(self, batch: Batch) -> None:
        connection = batch.transaction
        rules = await store.list_rules(connection, topic=batch.topic)
        try:
            mails = [
                mail_for(rule, message)
                for message in batch.messages
                for rule in rules
                if rule.event_type == message.type and not message.is_echo
            ]
            await accept_batch(connection, check_batch(mails), idempotency_ttl=REMEMBERED)
        except (BadInput, ValueError) as error:
            raise PublishFailed(str(error)) from error

    async def close(self) -> None:
        """Nothing is held."""
