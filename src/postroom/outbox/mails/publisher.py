"""The publisher `intake`: sends mails for events. Mails and progress are committed together."""

from datetime import timedelta

from postroom.delivery.check import check_batch
from postroom.delivery.service import accept_batch
from postroom.errors import BadInput
from postroom.outbox.errors import PublishFailed
from postroom.outbox.mails import store
from postroom.outbox.mails.model import mail_for
from postroom.outbox.publisher import Batch, Publisher

PUBLISHER = "intake"
REMEMBERED = timedelta(days=365)
"""Lifetime of a mail's idempotency key: rewinding a topic within a year sends no mail again."""


class MailPublisher(Publisher):
    """Ignores events without a rule. An event that matches a rule but cannot become a mail is a failure."""

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
