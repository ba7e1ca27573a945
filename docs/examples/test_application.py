#!/usr/bin/env python3
"""A test that looks at the mail: accept it, let a worker deliver it into the inbox, read it there. Plain pytest."""

import asyncio
import email
import os
from email.message import EmailMessage
from email.policy import default

import asyncpg

import postroom

DATABASE_URL = os.environ["DATABASE_URL"]


async def deliver_everything() -> None:
    """Run a worker until nothing is due. It captures: no mail leaves."""
    settings = {"POSTROOM_DATABASE_URL": DATABASE_URL, "POSTROOM_TRANSPORT": "capture"}
    worker = await asyncio.create_subprocess_exec("postroom", "work", "--until-empty", env={**os.environ, **settings})
    assert await worker.wait() == 0


async def last_message(connection: asyncpg.Connection) -> int:
    """The newest message of the inbox, so that a test reads only its own mail, however often it runs."""
    return await connection.fetchval("SELECT coalesce(max(id), 0) FROM postroom.inbox_messages")


async def mail_to(connection: asyncpg.Connection, address: str, *, after: int) -> list[EmailMessage]:
    """The messages captured for an address since then, oldest first."""
    rows = await connection.fetch(
        "SELECT raw FROM postroom.inbox_messages WHERE $1 = ANY (recipients) AND id > $2 ORDER BY id", address, after
    )
    return [email.message_from_bytes(row["raw"], policy=default) for row in rows]


async def sign_up(address: str) -> list[EmailMessage]:
    connection = await asyncpg.connect(DATABASE_URL)
    try:
        before = await last_message(connection)
        # … what your application does; here only its last line:
        welcome = {"name": "Ada", "product": "Acme", "url": "https://acme.example"}
        await postroom.send(connection, to=address, template="welcome", variables=welcome)

        await deliver_everything()
        return await mail_to(connection, address, after=before)
    finally:
        await connection.close()


def test_a_new_customer_is_welcomed() -> None:
    [mail] = asyncio.run(sign_up("ada@example.org"))
    assert mail["Subject"] == "Welcome to Acme, Ada"
    text = mail.get_body(("plain",))
    assert text is not None
    assert "https://acme.example" in text.get_content()


if __name__ == "__main__":
    test_a_new_customer_is_welcomed()
