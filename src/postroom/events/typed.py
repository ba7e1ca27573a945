"""Events as classes: a msgspec Struct whose tags are taken from its fields.

Declare a class once, append its instances, and fold them by class:

@event("WalletOpened", tags={"wallet": "wallet_id"})
class WalletOpened(msgspec.Struct, frozen=True):
    wallet_id: int
    owner: str

await store.append(WalletOpened(wallet_id=1, owner="Ada"))      # tagged wallet=1
await store.project(0, {WalletOpened: lambda state, opened: state + 1}, Query.of("WalletOpened"))
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from postroom.errors import BadInput
from postroom.events.model import Event, SequencedEvent, tags_of

Class = TypeVar("Class", bound=type)
_KNOWN = "__postroom_event__"


@dataclass(frozen=True, slots=True)
class EventClass:
    """The event type and tags of a class."""

    type: str
    tags: Mapping[str, str]


def event(type_: str, *, tags: Mapping[str, str] | None = None) -> Callable[[Class], Class]:
    """Declare a Struct as events of a type; `tags` maps each tag's key to the field that holds its value."""

    def declare(cls: Class) -> Class:
        unknown = set((tags or {}).values()) - set(getattr(cls, "__struct_fields__", ()))
        if unknown:
            raise TypeError(f"{cls.__name__} has no field {', '.join(sorted(unknown))} for a tag")
        setattr(cls, _KNOWN, EventClass(type_, dict(tags or {})))
        return cls

    return declare


def event_class(cls: type) -> EventClass:
    known: EventClass | None = getattr(cls, _KNOWN, None)
    if known is None:
        raise BadInput.of("events", f"{cls.__name__} is neither an Event nor declared with @event")
    return known


def as_event(value: object) -> Event:
    if isinstance(value, Event):
        return value
    known = event_class(type(value))
    return Event(known.type, value, tags_of({key: getattr(value, field) for key, field in known.tags.items()}))


def as_events(values: object) -> tuple[Event, ...]:
    """Convert one event or several, declared or plain."""
    if isinstance(values, Sequence):
        return tuple(as_event(value) for value in values)
    return (as_event(values),)


def typed_handlers(handlers: Mapping[Any, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Handlers by type name. A handler of a class gets an instance of it, a handler of a name the event itself."""
    return dict(_named(key, handler) for key, handler in handlers.items())


def from_event(cls: type[Any], stored: SequencedEvent) -> Any:
    """The stored event as an instance of its class."""
    return msgspec.convert(stored.data, cls, str_keys=True)  # JSON keys are strings


def _named(key: str | type, handler: Callable[..., Any]) -> tuple[str, Callable[..., Any]]:
    if isinstance(key, str):
        return key, handler

    def convert(state: Any, stored: SequencedEvent) -> Any:
        return handler(state, from_event(key, stored))

    return event_class(key).type, convert
