"""Commands from NATS JetStream: the subject `mail.delivery_commands`, one durable pull consumer, many workers.

Among many rooms each has a subject and a consumer of its own, `mail.delivery_commands.<room>`, in one stream.
"""

from postroom.intake.nats.source import NatsOptions, NatsSource, options_of
from postroom.intake.nats.watch import NatsWatch

__all__ = ["NatsOptions", "NatsSource", "NatsWatch", "options_of"]
