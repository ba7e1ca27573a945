"""An outbox instance in a separate process: `python -m tests.support.outbox_process <url> <file> <batch>`.

Its publisher `file` appends a line for each message to a file that all instances share: the messages in the order in
which a subscriber received them.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from postroom.db.room import open_room
from postroom.outbox.publisher import Batch, Publishers
from postroom.outbox.relay import RelayOptions
from postroom.outbox.worker import Outbox, OutboxOptions
from postroom.settings import Settings


class FilePublisher:
    """Writes and syncs each message separately, so that a kill can hit between any two."""

    is_local = False

    def __init__(self, path: Path, name: str = "file") -> None:
        self.name = name
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def publish(self, batch: Batch) -> None:
        for message in batch.messages:
            os.write(self._file, f"{message.id} {message.position} {os.getpid()}\n".encode())
        await asyncio.to_thread(os.fsync, self._file)

    async def close(self) -> None:
        os.close(self._file)


async def main(url: str, path: Path, batch: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    # A long heartbeat limit: here only the end of its session frees a lock.
    options = OutboxOptions(
        tick=timedelta(milliseconds=100), silence=timedelta(hours=1), relay=RelayOptions(batch=batch)
    )
    async with open_room(Settings(database_url=url, pool_size=4)) as room:
        print("ready", flush=True)  # noqa: T201 - the test waits for this line
        await Outbox(room, Publishers.of([FilePublisher(path)]), options).loop(stop).run(stop)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
