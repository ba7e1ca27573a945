#!/usr/bin/env python3
"""An order and its mail in one transaction: both are there after the commit, or neither is."""

import asyncio
import os

import asyncpg

import postroom


async def place_order(connection: asyncpg.Connection, number: int, customer: str) -> int:
    """Store the order and accept its mail; the mail leaves only if all of this is committed."""
    async with connection.transaction():
        await connection.execute("INSERT INTO orders (number, customer) VALUES ($1, $2)", number, customer)
        return await postroom.send(
            connection,
            to=customer,
            subject=f"Order {number}",
            text="Thank you. We will write again when it ships.",
            idempotency_key=f"order-{number}",
            tags={"order": str(number)},
        )


async def main() -> None:
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    try:
        await connection.execute("CREATE TABLE IF NOT EXISTS orders (number integer PRIMARY KEY, customer text)")
        await place_order(connection, 42, "Ada Lovelace <ada@example.org>")
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
