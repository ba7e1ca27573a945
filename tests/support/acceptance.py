"""The ways by which one mail is accepted on an application's connection."""

from collections.abc import Awaitable, Callable

import asyncpg
from tests.support.builders import a_checked_mail

import postroom
from postroom.delivery import service
from postroom.delivery.model import Lane

Accept = Callable[[asyncpg.Connection, Lane], Awaitable[object]]


async def _by_python(connection: asyncpg.Connection, lane: Lane) -> None:
    await postroom.send(connection, to="ada@example.org", subject="Hello", text="Hello, Ada.", lane=lane)


async def _by_sql(connection: asyncpg.Connection, lane: Lane) -> None:
    await connection.execute(
        "SELECT postroom.send('{ada@example.org}', p_subject => 'Hello', p_text => 'Hello, Ada.', p_lane => $1)", lane
    )


async def _in_a_set(connection: asyncpg.Connection, lane: Lane) -> None:
    await service.accept(connection, a_checked_mail(lane=lane))


WAYS: dict[str, Accept] = {"postroom.send": _by_python, "SQL send": _by_sql, "accept_deliveries": _in_a_set}
