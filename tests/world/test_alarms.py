"""The alarm table: six outages, watched by a real Prometheus with the shipped rules.

Each outage fires its own alert and no other, and the alert resolves when the outage is over. The API and the worker are
processes of their own; the durations of the rules are divided by `FACTOR`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.support.command_line import Running, outcome, running
from tests.support.freezing_proxy import FreezingProxy
from tests.support.ports import free_port
from tests.support.smtp_server import Script, smtp_server
from tests.support.streaming import replicated_room
from tests.world.prometheus import Watch, monitoring, scaled

from postroom.db.pool import Pool
from postroom.db.room import Room

ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml"
FACTOR = 10

pytestmark = pytest.mark.world


class Installation:
    """An API and a worker, as processes, with these settings."""

    def __init__(self, database_url: str, **settings: str) -> None:
        self.api, self.metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.settings = {
            "POSTROOM_DATABASE_URL": database_url,
            "POSTROOM_HTTP_ADDR": self.api,
            "POSTROOM_METRICS_ADDR": self.metrics,
            "POSTROOM_LOG_FORMAT": "json",
            "POSTROOM_PUBLIC_URL": "https://mail.example.org",
            "POSTROOM_FROM": "shop@example.org",
            "POSTROOM_SECRET_KEY": "ab" * 32,
            **settings,
        }

    @contextmanager
    def serving(self) -> Iterator[Running]:
        with running("serve", settings=self.settings) as serve:
            serve.line(lambda line: "answers at" in line)
            yield serve

    @contextmanager
    def working(self) -> Iterator[Running]:
        with running("work", settings=self.settings) as work:
            work.event("metrics_served")
            yield work

    async def run(self, *words: str) -> str:
        """A command with these settings; its output."""
        code, output, errors = await outcome(*words, settings=self.settings)
        assert code == 0, output + errors
        return output

    async def send(self, *, lane: str = "auth") -> None:
        await self.run("send", "--to", "ann@example.org", "--subject", "Code", "--text", "1234", "--lane", lane)


@asynccontextmanager
async def watched(installation: Installation) -> AsyncIterator[Watch]:
    """The installation's processes, under a Prometheus that has scraped both and fires nothing."""
    with ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, installation.serving())
        await asyncio.to_thread(stack.enter_context, installation.working())
        targets = {"postroom": [installation.api, installation.metrics]}
        async with monitoring(scaled(ALERTS, FACTOR), targets) as watch:
            yield watch


async def resolved(watch: Watch, alert: str) -> None:
    """The alert resolves, and was the only one."""
    await watch.until(alert, "resolved")
    assert watch.fired == {alert}


async def test_a_dead_relay_fires_and_resolves(room: Room) -> None:
    """The port of the relay is closed: one alert names the relay and the stage, until the relay answers a probe."""
    port = free_port()
    relay = {"POSTROOM_TRANSPORT": "smtp", "POSTROOM_SMTP_RELAY": f"smtp://127.0.0.1:{port}?tls=none"}
    installation = Installation(room.direct_url, **relay)
    async with watched(installation) as watch:
        await installation.send()
        await installation.send(lane="transactional")
        fired = await watch.until("PostroomRelayUnreachable", "firing")
        assert (fired.labels["way_out"], fired.labels["stage"]) == (f"127.0.0.1:{port}", "connect")
        async with smtp_server(Script(), port=port) as server:
            await resolved(watch, "PostroomRelayUnreachable")
            async with asyncio.timeout(60):
                while len(server.messages) < 2:  # noqa: ASYNC110 - the server has no signal
                    await asyncio.sleep(0.05)


async def test_a_refused_login_fires_and_resolves(room: Room) -> None:
    """The relay accepts connections and refuses the password: the alert is about the login."""
    async with smtp_server(Script(users={"shop": "right"})) as server:
        relay = f"smtp://shop:wrong@127.0.0.1:{server.port}?tls=none"
        installation = Installation(room.direct_url, POSTROOM_TRANSPORT="smtp", POSTROOM_SMTP_RELAY=relay)
        async with watched(installation) as watch:
            await installation.send()
            fired = await watch.until("PostroomLoginRefused", "firing")
            assert fired.labels["way_out"] == f"127.0.0.1:{server.port}"
            server.script.users = {"shop": "wrong"}
            await resolved(watch, "PostroomLoginRefused")


async def test_an_account_out_of_quota_fires_and_resolves(room: Room) -> None:
    """The only account has sent its mails of the day: the alert names the lane that waits; a higher limit ends it."""
    async with smtp_server(Script()) as server:
        installation = Installation(
            room.direct_url, POSTROOM_TRANSPORT="senders", POSTROOM_SENDERS_ALLOW_PRIVATE="true"
        )
        host = ("--host", f"127.0.0.1:{server.port}", "--no-tls", "--send-delay-ms", "0")
        await installation.run("senders", "add", "shop@example.org", "--type", "smtp", *host, "--daily-limit", "1")
        async with watched(installation) as watch:
            await installation.send()
            await installation.send()
            fired = await watch.until("PostroomQuotaUsedUp", "firing")
            assert fired.labels["lane"] == "auth"
            await installation.run("senders", "update", "1", "--daily-limit", "5")
            await resolved(watch, "PostroomQuotaUsedUp")


async def test_a_worker_that_is_gone_fires_and_resolves(room: Room) -> None:
    """No worker runs while a code waits: the alert says so, until a worker is back."""
    installation = Installation(room.direct_url)
    with ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, installation.serving())
        async with monitoring(scaled(ALERTS, FACTOR), {"postroom": [installation.api]}) as watch:
            await installation.send()
            await watch.until("PostroomNoWorker", "firing")
            await asyncio.to_thread(stack.enter_context, installation.working())
            await resolved(watch, "PostroomNoWorker")


async def test_a_database_in_recovery_fires_and_resolves(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The address of the database leads to a replica, which reads and does not write: no other figure is trusted."""
    async with (
        replicated_room(tmp_path_factory.mktemp("recovery")) as (url, replica),
        FreezingProxy(url) as proxy,
        watched(Installation(proxy.url)) as watch,
    ):
        proxy.hold()
        proxy.move("127.0.0.1", replica.port)
        await watch.until("PostroomDatabaseUnreachable", "firing")
        proxy.hold()
        proxy.move("127.0.0.1", urlsplit(url).port or 0)
        await resolved(watch, "PostroomDatabaseUnreachable")


async def test_stuck_followers_fire_and_resolve(room: Room, pool: Pool) -> None:
    """An open transaction holds back the events after it: one alert names the session, until it ends."""
    installation = Installation(room.direct_url)
    await installation.run("outbox", "topics", "create", "money", "--type", "Deposited")
    await installation.run("outbox", "topics", "add-publisher", "money", "log")
    async with watched(installation) as watch:
        async with pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            pid = await connection.fetchval("SELECT pg_backend_pid() FROM pg_current_xact_id()")
            await installation.run("events", "append", "Deposited", "--data", "{}")
            fired = await watch.until("PostroomOutboxStalled", "firing")
            assert fired.labels["pid"] == str(pid)
            await transaction.rollback()
        await resolved(watch, "PostroomOutboxStalled")
