"""Commands: requests stored with the events they caused, and executed once."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.errors import BadInput, IdempotencyConflict
from postroom.events import store
from postroom.events.columns import json_text
from postroom.events.kept import KeptCommand
from postroom.events.model import DEEPEST, TAG_BYTES, TYPE_LENGTH, UNSTORABLE, Place, check_time
from postroom.events.session import EventSession
from postroom.post.text import is_storable
from postroom.runtime.page import Found, read_page

CommandHandler = Callable[[EventSession], Awaitable[Any]]

_DEEPEST = DEEPEST + 10
"""A request contains the data of its events a few levels down."""


@dataclass(frozen=True, slots=True)
class Command:
    """A request. `id` is chosen by the caller: a command id, or the tag that makes it unique (`transfer=77`)."""

    type: str
    id: str
    data: Any = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    occurred_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command; `replayed` if it had been executed before.

    `place` is the place of its last event, or None if it appended none; a reader that has reached it has seen them all.
    """

    value: Any
    replayed: bool
    transaction_id: int
    place: Place | None


async def execute_once(pool: Pool, command: Command, handler: CommandHandler, *, is_patient: bool) -> CommandResult:
    """One attempt in one transaction. Raises `IdempotencyConflict` if the id was used for a different request."""
    _check(command)
    data = json_text("data", command.data, deepest=_DEEPEST)
    async with pool.acquire() as connection, connection.transaction():
        row = await store.begin_command(
            connection,
            type=command.type,
            command_id=command.id,
            data=data,
            metadata=None if command.metadata is None else json_text("metadata", command.metadata, deepest=_DEEPEST),
            occurred_at=command.occurred_at,
            is_patient=is_patient,
        )
        if row is None:
            return await _first_result(connection, command, data)
        text = json_text("result", await handler(EventSession(connection)), deepest=_DEEPEST)
        end = await store.finish_command(connection, id=row, result=text)
    # Decode the stored text, so that the first and every later response are equal.
    return _result(msgspec.json.decode(text), *end, replayed=False)


def _check(command: Command) -> None:
    if not 1 <= len(command.type) <= TYPE_LENGTH:
        raise BadInput.of("type", f"must have 1 to {TYPE_LENGTH} characters")
    for name, text in (("type", command.type), ("id", command.id)):
        if not is_storable(text):
            raise BadInput.of(name, UNSTORABLE)
    if not 1 <= len(command.id.encode()) <= TAG_BYTES:
        raise BadInput.of("id", f"must have 1 to {TAG_BYTES} bytes")
    check_time(command.occurred_at)


async def _first_result(connection: Connection, command: Command, data: str) -> CommandResult:
    known = await store.find_command(connection, command_id=command.id, type=command.type, data=data)
    if known is None or not known.is_same:
        raise IdempotencyConflict
    return _result(known.result, known.transaction_id, known.position, replayed=True)


def _result(value: Any, transaction_id: int, position: int | None, *, replayed: bool) -> CommandResult:
    place = None if position is None else Place(transaction_id, position)
    return CommandResult(value, replayed, transaction_id, place)


async def list_commands(
    pool: Pool, *, transaction_id: int | None = None, cursor: str | None = None, limit: int = 50
) -> Found[KeptCommand]:
    """A page of commands, newest first, of one transaction or of all, and the cursor of the next page."""
    return await read_page(store.list_commands, pool, cursor, limit, transaction_id=transaction_id)
