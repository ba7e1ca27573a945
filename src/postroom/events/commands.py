"""Commands: what was asked for, kept beside the facts that came of it, and done once."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.errors import IdempotencyConflict
from postroom.events import store
from postroom.events.session import EventSession

CommandHandler = Callable[[EventSession], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Command:
    """A request. `id` is the caller's: an id of the command, or the tag that makes it unique (`transfer=77`)."""

    type: str
    id: str
    data: Any = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    occurred_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What came of a command; `replayed` if it had been executed before."""

    value: Any
    replayed: bool


async def execute_once(pool: Pool, command: Command, handler: CommandHandler) -> CommandResult:
    """One try, one transaction. Raises `IdempotencyConflict` if the id was used to ask for something else."""
    data = _encode(command.data)
    async with pool.acquire() as connection, connection.transaction():
        row = await store.begin_command(
            connection,
            type=command.type,
            command_id=command.id,
            data=data,
            metadata=None if command.metadata is None else _encode(command.metadata),
            occurred_at=command.occurred_at,
        )
        if row is None:
            return await _first_result(connection, command, data)
        text = _encode(await handler(EventSession(connection)))
        await store.finish_command(connection, id=row, result=text)
    # Decoded again, so that the first answer and every later one are the same value.
    return CommandResult(msgspec.json.decode(text), replayed=False)


async def _first_result(connection: Connection, command: Command, data: str) -> CommandResult:
    known = await store.find_command(connection, command_id=command.id, type=command.type, data=data)
    if known is None or not known.is_same:
        raise IdempotencyConflict
    return CommandResult(known.result, replayed=True)


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()
