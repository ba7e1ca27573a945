#!/usr/bin/env python3
"""The same key twice is one mail; the same key with other content is refused."""

import asyncio
import os

import asyncpg

import postroom


async def send_invoice(connection: asyncpg.Connection, text: str) -> int:
    return await postroom.send(
        connection, to="ada@example.org", subject="Your invoice", text=text, idempotency_key="invoice-7"
    )


async def main() -> None:
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    try:
        first = await send_invoice(connection, "12 euros")
        again = await send_invoice(connection, "12 euros")
        assert first == again

        try:
            await send_invoice(connection, "13 euros")
        except postroom.IdempotencyConflict:
            pass  # a bug in the caller: one key stands for one mail
        else:
            raise AssertionError("a key cannot change its content")
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
