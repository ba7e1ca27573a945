#!/usr/bin/env python3
"""A test that looks at the mail: accept it, let a worker deliver it into the inbox, read it there."""

import asyncio
import email
import os
from email.message import EmailMessage
from email.policy import default

import asyncpg

import postroom

DATABASE_URL = os.environ["DATABASE_URL"]


async def deliver_everything() -> None:
    """Run a worker until nothing is due. It captures: nothing leaves."""
    settings = {"POSTROOM_DATABASE_URL": DATABASE_URL, "POSTROOM_TRANSPORT": "capture"}
    worker = await asyncio.create_subprocess_exec("postroom", "work", "--until-empty", env={**os.environ, **settings})
    assert await worker.wait() == 0


async def mail_to(connection: asyncpg.Connection, address: str) -> list[EmailMessage]:
    """What was captured for an address, oldest first."""
    rows = await connection.fetch(
        "SELECT raw FROM postroom.inbox_messages WHERE $1 = ANY (recipients) ORDER BY id", address
    )
    return [email.message_from_bytes(row["raw"], policy=default) for row in rows]


async def test_a_new_customer_is_welcomed() -> None:
    connection = await asyncpg.connect(DATABASE_URL)
    try:
        # … what your application does; here only its last line:
        welcome = {"name": "Ada", "product": "Acme", "url": "https://acme.example"}
        await postroom.send(connection, to="ada@example.org", template="welcome", variables=welcome)

        await deliver_everything()

        [mail] = await mail_to(connection, "ada@example.org")
        assert mail["Subject"] == "Welcome to Acme, Ada"
        text = mail.get_body(("plain",))
        assert text is not None
        assert "https://acme.example" in text.get_content()
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(test_a_new_customer_is_welcomed())
