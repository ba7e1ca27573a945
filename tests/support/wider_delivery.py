"""A process with a copy of Postroom whose deliveries have a field more: `python -m tests.support.wider_delivery URL`.

It migrates a room of its own, stores the field `reference` in every way, and prints the stored values as JSON.
"""

import asyncio
import sys

import msgspec
from tests.support.http import open_browser

from postroom.db.migrate import migrate
from postroom.db.room import open_room
from postroom.settings import Settings

ROOM = "wider"
MAIL = {"to": ["ann@example.org"], "subject": "Hello", "text": "Hello Ann"}
SEND = "SELECT send(ARRAY[$1], p_subject => 'Hello', p_text => 'Hello', p_reference => $2)"
SUPPRESS = "INSERT INTO suppressions (address, scope, reason) VALUES ('bob@example.org', 'all', 'manual')"


async def store(url: str) -> dict[str, str | None]:
    """The reference of a mail from HTTP, of its copy, and of mails from SQL, plain and to a suppressed address."""
    await migrate(url, ROOM)
    async with open_room(Settings(database_url=url, schema=ROOM)) as room:
        browser = await open_browser(room)
        posted = (await browser.post("/v1/deliveries", json={**MAIL, "reference": "http"})).json["id"]
        await browser.post(f"/v1/deliveries/{posted}/cancel")
        copied = (await browser.post(f"/v1/deliveries/{posted}/resend")).json["id"]
        await room.pool.execute(SUPPRESS)
        ids = {"posted": posted, "copy": copied}
        for name, address in (("sql", "ann@example.org"), ("suppressed", "bob@example.org")):
            ids[name] = await room.pool.fetchval(SEND, address, name)
        return {name: (await browser.get(f"/v1/deliveries/{one}")).json["reference"] for name, one in ids.items()}


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(store(sys.argv[1]))))
