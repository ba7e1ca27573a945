"""The publisher seam: take a batch of messages, or say why not.

    class Printer:
        name = "printer"
        is_local = False

        async def publish(self, batch: Batch) -> None:
            for message in batch.messages:
                print(message.id, message.type, message.data)

        async def close(self) -> None: ...

    publishers.register(Printer())

`publish` returns when the other side has all of the batch, in order. To refuse, raise `PublishFailed`; whatever else it
raises counts the same, a cancellation of its own too. A batch may come again after a crash, so the other side should
know a message by its `id`, which never changes. With `is_local` the effect is in the room's own database:
`batch.connection` is then in the transaction that also saves the progress, and nothing comes twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import msgspec

from postroom.db.queries import Connection
from postroom.events.model import SequencedEvent

EPOCH_SHIFT = 48
SOURCE = "outbox"
"""Of deliveries that publishers make."""


@dataclass(frozen=True, slots=True)
class Message:
    """One event on its way to a subscriber."""

    id: str  # the same for ever, and for every subscriber
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
        """True for a fact about a delivery that the outbox itself made: to make one like it of it would never end."""
        is_about_delivery = any(tag.startswith("postroom.delivery=") for tag in self.tags)
        return is_about_delivery and isinstance(self.data, Mapping) and self.data.get("source") == SOURCE

    @property
    def json(self) -> bytes:
        """The whole message, as brokers carry it."""
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
"""How a broker's message is written."""


def encode_json(message: Message) -> bytes:
    return message.json


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one topic, in order."""

    topic: str
    messages: tuple[Message, ...]
    connection: Connection | None = None  # of a local publisher: in the transaction that saves the progress

    @property
    def transaction(self) -> Connection:
        """The connection of a local publisher."""
        assert self.connection is not None, "only a local publisher has the transaction"
        return self.connection


class Publisher(Protocol):
    """One way to subscribers."""

    name: str
    is_local: bool

    async def publish(self, batch: Batch) -> None:
        """Hand all of it over, in order, or raise `PublishFailed`."""

    async def close(self) -> None:
        """Give back connections; the publisher is not used afterwards."""


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
            raise ValueError(f"there is a publisher {publisher.name} already")
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
    """`<source>:<epoch>:<position>`; positions may repeat after a recovery to an earlier time, epochs do not."""
    return f"{source}:{event.transaction_id >> EPOCH_SHIFT}:{event.position}"


def make_batch(topic: str, events: Iterable[SequencedEvent], *, source: str) -> Batch:
    return Batch(topic, tuple(Message(message_id(source, event), event) for event in events))


def find_path(data: Any, path: str) -> Any:
    """The value at `customer.email` in JSON; None if there is none."""
    for part in path.split("."):
        if not isinstance(data, Mapping) or part not in data:
            return None
        data = data[part]
    return data
