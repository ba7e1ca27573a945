"""django-post-office, the nearest peer: a queue of mail in the application's own database.

Django runs in processes of its own, with persistent connections. Queues with `send` and `send_many`, the bulk call of
its manual, and renders on delivery, which is cheaper to queue and the same work Postroom's workers do. Sends with
`send_queued_mail --processes 2`, batches of 5,000 and ten threads per process, its log of deliveries on as it ships;
with the batches of 100 and five threads it ships with it reaches little more than half of that.
The no-op transport is Django's dummy backend.
"""

import asyncio
import subprocess
from collections.abc import Mapping
from functools import partial

from bench import load
from bench.cost import Spent
from bench.harness import Measure, Readings
from bench.server import Arena
from bench.sink import Sink, start_sink
from bench.workers import PATIENCE_S, REPOSITORY, Command, Drained, drain, environment_for, python_command

APP = "bench.subjects.django_post_office_app"


class DjangoPostOffice:
    name = "django-post-office"

    def __init__(self) -> None:
        self._numbers = load.Numbers()

    async def open(self, arena: Arena) -> None:
        self._meter = arena.meter
        self._url = await arena.create_database("bench_django_post_office")
        await self._ask("migrate")

    async def close(self) -> None:
        """Nothing outlives a measurement."""

    def measures(self) -> Mapping[str, Measure]:
        return {
            "enqueue-1": partial(self._enqueue, row="enqueue-1", kind="in-transaction", clients=1),
            "enqueue-10": partial(self._enqueue, row="enqueue-10", kind="in-transaction", clients=10),
            "alone-1": partial(self._enqueue, row="alone-1", kind="alone", clients=1),
            "alone-10": partial(self._enqueue, row="alone-10", kind="alone", clients=10),
            "enqueue-batch": partial(self._enqueue, row="enqueue-batch", kind="batch", clients=load.BULK_CLIENTS),
            "enqueue-bodies": partial(self._enqueue, row="enqueue-bodies", kind="bodies", clients=load.BULK_CLIENTS),
            "drain": self._drain,
            "end-to-end": partial(self._end_to_end, tls=False),
            "end-to-end-tls": partial(self._end_to_end, tls=True),
        }

    async def _enqueue(self, count: int, *, row: str, kind: str, clients: int) -> Readings:
        first = self._numbers.take(count).start
        before = await self._meter.read()
        answer = await self._ask("enqueue", kind, str(first), str(count), str(clients))
        seconds, cpu_seconds = map(float, answer.split())
        return Spent(count, seconds, await self._meter.read() - before, cpu_seconds).readings(row)

    async def _fill(self, count: int) -> None:
        await self._enqueue(count, row="fill", kind="batch", clients=load.BULK_CLIENTS)

    async def _drain(self, count: int) -> Readings:
        return (await self._send_queued(count, None)).readings("drain")

    async def _end_to_end(self, count: int, *, tls: bool) -> Readings:
        with start_sink(tls=tls) as sink:
            drained = await self._send_queued(count, sink)
            accepted = sink.counts().messages
        assert accepted == count, f"the sink has {accepted} of {count}"
        return drained.readings("end-to-end-tls" if tls else "end-to-end")

    async def _send_queued(self, count: int, sink: Sink | None) -> Drained:
        await self._ask("clear")
        drained = await drain(self._meter, [self._command("work", "2", sink=sink)], self._fill, count)
        left = int(await self._ask("unsent"))
        assert left == 0, f"{left} were not sent"
        return drained

    def _command(self, *arguments: str, sink: Sink | None = None) -> Command:
        """A command of the project; Django verifies the certificate with OpenSSL's default authorities."""
        environment = {"SSL_CERT_FILE": str(sink.authority)} if sink and sink.authority else {}
        port = sink.port if sink else 0
        return python_command(APP, self._url, str(port), *arguments, environment=environment)

    async def _ask(self, *arguments: str) -> str:
        command = self._command(*arguments)
        answered = await asyncio.to_thread(
            subprocess.run,
            command.arguments,
            env=environment_for(command),
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        if answered.returncode:
            raise RuntimeError(answered.stderr[-2000:])
        return answered.stdout.strip()
