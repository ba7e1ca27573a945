"""Commands from NATS JetStream: the subject `mail.delivery_commands`, one durable pull consumer, many workers."""

from postroom.intake.nats.source import NatsOptions, NatsSource

__all__ = ["NatsOptions", "NatsSource"]
