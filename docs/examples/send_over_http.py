#!/usr/bin/env python3
"""The API from Python, for programs that do not share the database. API_URL and API_KEY say where and who."""

import asyncio
import os

import postroom
from postroom.errors import BadInput


async def main() -> None:
    async with postroom.Client(os.environ["API_URL"], os.environ["API_KEY"]) as client:
        sent = await client.deliveries.send(
            to=["Ada Lovelace <ada@example.org>"],
            template="welcome",
            locale="fr",
            variables={"name": "Ada", "product": "Acme", "url": "https://acme.example"},
            idempotency_key="welcome-ada",
        )
        delivery = await client.deliveries.get(sent.id)
        assert delivery.recipients[0].address == "ada@example.org"

        wrong: list[str] = []
        try:
            await client.deliveries.send(to=["not an address"], subject="Hello")
        except BadInput as bad:
            wrong = [error.field for error in bad.errors]
        assert wrong == ["to[0]", "text"]


if __name__ == "__main__":
    asyncio.run(main())
