#!/usr/bin/env python3
"""A file with the mail, and a picture inside its HTML part."""

import asyncio
import base64
import os

import asyncpg

import postroom

# The smallest PNG there is: one transparent point.
POINT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


async def main() -> None:
    invoice = base64.b64encode(b"Invoice 7\n12 euros\n").decode()
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    try:
        await postroom.send(
            connection,
            to="ada@example.org",
            subject="Your invoice",
            html='<p>Hello Ada.</p><img src="cid:logo" alt="">',
            attachments=[
                postroom.Attachment("invoice-7.txt", "text/plain", invoice),
                postroom.Attachment("logo.png", "image/png", POINT, content_id="logo"),
            ],
        )
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
