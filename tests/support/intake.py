"""Commands as producers write them, and a way to notice that one was accepted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec

from postroom.db.pool import Pool
from postroom.intake.model import StreamEntry

PAYLOAD: dict[str, Any] = {"to": "ada@example.org", "subject": "Hello", "text": "Hello, Ada."}


def command(payload: Any = None, **fields: Any) -> dict[str, Any]:
    """The fields of a good command, with these changed; None takes a field away."""
    given: dict[str, Any] = {
        "source": "shop",
        "payload_mode": "rendered",
        "idempotency_key": "k1",
        "payload_json": msgspec.json.encode(PAYLOAD if payload is None else payload).decode(),
        **fields,
    }
    return {name: value for name, value in given.items() if value is not None}


def raw(payload: Any = None, **fields: Any) -> bytes:
    return msgspec.json.encode(command(payload, **fields))


def flat(payload: Any = None, **fields: Any) -> dict[Any, Any]:
    """The same as a Redis stream takes it."""
    return dict(command(payload, **fields))


def entries(*raws: bytes) -> list[StreamEntry]:
    return [StreamEntry(f"test {number}", each, "test") for number, each in enumerate(raws)]


async def keys_of(pool: Pool) -> list[str]:
    """The idempotency keys of every delivery there is, in the order they were accepted."""
    async with pool.acquire() as connection:
        rows = await connection.fetch("SELECT idempotency_key FROM deliveries ORDER BY id")
    return [row["idempotency_key"] for row in rows]


async def malformed_rows(pool: Pool) -> list[Any]:
    async with pool.acquire() as connection:
        found: list[Any] = await connection.fetch("SELECT * FROM malformed_commands ORDER BY id")
    return found


@asynccontextmanager
async def accepting(database_url: str) -> AsyncIterator[asyncio.Event]:
    """An event that is set when a delivery was committed."""
    listening = await asyncpg.connect(database_url, server_settings={"search_path": "postroom"})
    accepted = asyncio.Event()
    await listening.execute(
        """
        CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN PERFORM pg_notify('accepted', ''); RETURN NULL; END $$;
        CREATE TRIGGER tell AFTER INSERT ON deliveries FOR EACH STATEMENT EXECUTE FUNCTION tell();
        """
    )
    await listening.add_listener("accepted", lambda *_notification: accepted.set())
    try:
        yield accepted
    finally:
        await listening.close()
