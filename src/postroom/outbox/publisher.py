"""The interface of publishers: publish a batch of messages, or raise an error.

    class Printer:
        name = "printer"
        is_local = False

        async def publish(self, batch: Batch) -> None:
            for message in batch.messages:
                print(message.id, message.type, message.data)

        async def close(self) -> None: ...

    publishers.register(Printer())

`publish` returns when the receiver has stored the whole batch, in order. To refuse, raise `PublishFailed`; any other
exception counts the same, including a cancellation inside the publisher. A batch may be repeated after a crash, so
receivers should recognise a message by its `id`, which never changes. With `is_local` the effect is in the room's own
database: `batch.connection` is then in the transaction that also saves the progress, and nothing is repeated.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import msgspec

from postroom.db.queries import Connection
from postroom.events.model import SequencedEvent

EPOCH_SHIFT = 48
"""The epoch is in the upper sixteen bits of an event's transaction id."""

SOURCE = "outbox"
"""The source of deliveries that publishers create."""


@dataclass(frozen=True, slots=True)
class Message:
    """One event to be published."""

    id: str  # constant, and the same for every subscriber
    event: SequencedEvent

    @property
    def type(self) -> str:
        return self.event.type

    @property
    def position(self) -> int:
        return self.event.position

    @property
    def occurred_at(self) -> datetime:
        return self.event.occurred_at

    @property
    def tags(self) -> tuple[str, ...]:
        return self.event.tags

    @property
    def data(self) -> Any:
        return self.event.data

    @property
    def is_echo(self) -> bool:
        """True for an event about a delivery that the outbox itself created; a delivery for it would start a loop."""
        is_about_delivery = any(tag.startswith("postroom.delivery=") for tag in self.tags)
        return is_about_delivery and isinstance(self.data, Mapping) and self.data.get("source") == SOURCE

    @property
    def json(self) -> bytes:
        """The message in Postroom's JSON format."""
        event = self.event
        return msgspec.json.encode(
            {
                "id": self.id,
                "type": event.type,
                "position": event.position,
                "timestamp": event.occurred_at,
                "tags": event.tags,
                "data": event.data,
                "correlation_id": event.correlation_id,
                "causation_id": event.causation_id,
            }
        )


Encode = Callable[[Message], bytes]
"""Encodes a message for a broker."""


def encode_json(message: Message) -> bytes:
    return message.json


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one topic, in order."""

    topic: str
    messages: tuple[Message, ...]
    connection: Connection | None = None  # local publishers only: in the transaction that saves the progress

    @property
    def transaction(self) -> Connection:
        """The connection of a local publisher."""
        assert self.connection is not None, "only a local publisher has a transaction"
        return self.connection


class Publisher(Protocol):
    """A destination of messages. A class that inherits from it and holds no connection needs no `close`."""

    name: str
    is_local: bool

    async def publish(self, batch: Batch) -> None:
        """Publish the whole batch in order, or raise `PublishFailed`."""

    async def close(self) -> None:
        """Close connections; the publisher is not used afterwards."""
        return


@dataclass(slots=True)
class Publishers:
    """The publishers of this process, by name."""

    _by_name: dict[str, Publisher] = field(default_factory=dict)

    @classmethod
    def of(cls, publishers: Iterable[Publisher]) -> "Publishers":
        made = cls()
        for publisher in publishers:
            made.register(publisher)
        return made

    def register(self, publisher: Publisher) -> None:
        if publisher.name in self._by_name:
            raise ValueError(f"a publisher named {publisher.name} is already registered")
        self._by_name[publisher.name] = publisher

    def __getitem__(self, name: str) -> Publisher:
        return self._by_name[name]

    def __iter__(self) -> Iterator[Publisher]:
        return iter(self._by_name.values())

    @property
    def names(self) -> list[str]:
        return sorted(self._by_name)

    async def close(self) -> None:
        for publisher in self._by_name.values():
            await publisher.close()


def message_id(source: str, event: SequencedEvent) -> str:
    """`<source>:<epoch>:<position>`; positions may repeat after a point-in-time recovery, epochs do not."""
    return f"{source}:{event.transaction_id >> EPOCH_SHIFT}:{event.position}"


def make_batch(topic: str, events: Iterable[SequencedEvent], *, source: str) -> Batch:
    return Batch(topic, tuple(Message(message_id(source, event), event) for event in events))


def find_path(data: Any, path: str) -> Any:
    """The value at a path such as `customer.email` in JSON, or None."""
    for part in path.split("."):
        if not isinstance(data, Mapping) or part not in data:
            return None
        data = data[part]
    return data
