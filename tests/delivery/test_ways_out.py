"""The ways out: a relay that fails is noticed, probed and named, and mail leaves when it is back."""

import json
from collections.abc import MutableMapping
from datetime import datetime
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.builders import NOON, Hands, a_mail, a_worker, accepted, attempts_of
from tests.support.ports import free_port
from tests.support.smtp_server import Script, smtp_server

from postroom.db.pool import Pool
from postroom.delivery import service
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.model import DeliveryId, Lane
from postroom.delivery.notices import Notifier
from postroom.delivery.ways_out import store
from postroom.delivery.ways_out.model import WayOut
from postroom.delivery.ways_out.notice import NOTICE
from postroom.delivery.ways_out.watch import SILENT, SLICE, WayOutWatch
from postroom.settings import Settings
from postroom.transports.smtp import SmtpRelay, SmtpTransport


class Outage:
    """A relay on a port, a worker that sends there, and the watch of this worker."""

    def __init__(self, pool: Pool, url: str) -> None:
        self.pool, self.hands = pool, Hands()
        self.transport = SmtpTransport(SmtpRelay.parse(url), local_name="tests.example.org")
        self.name = self.transport.relay.address
        self.watch = WayOutWatch(pool, (self.name, self.transport.probe), clock=self.hands)
        self._worker = a_worker(pool, self.transport, clock=self.hands, ways_out=self.watch)

    async def send(self, *lanes: Lane) -> list[DeliveryId]:
        """Accept a mail for each lane and attempt it."""
        ids = await accepted(self.pool, *(a_mail(lane=lane) for lane in lanes), now=self.hands())
        for lane in Lane:
            await self._worker.run_once(lane)
        await self.watch.report()
        return ids

    async def look(self, **later: float) -> list[MutableMapping[str, Any]]:
        """Run the watch after a while; the events that it logged."""
        self.hands.forward(**later)
        with capture_logs() as logs:
            await self.watch.run_once()
        return list(logs)

    async def way_out(self) -> WayOut:
        [found] = await store.list_ways_out(self.pool, patience=SILENT, now=self.hands())
        return found


async def next_attempts(pool: Pool) -> dict[int, datetime]:
    rows = await pool.fetch("SELECT id, next_attempt_at FROM deliveries WHERE next_attempt_at IS NOT NULL")
    return {row["id"]: row["next_attempt_at"] for row in rows}


async def test_a_relay_that_fails_is_logged_once_and_again_when_it_is_back(pool: Pool) -> None:
    """An outage has one event when a probe fails too, and one when the relay answers again."""
    outage = Outage(pool, f"smtp://127.0.0.1:{free_port()}?tls=none")
    await outage.send(Lane.BULK, Lane.BULK)
    assert await outage.look() == []  # a relay that restarts is not an outage
    [gone] = await outage.look(seconds=11)
    assert (gone["event"], gone["relay"], gone["stage"]) == ("relay_unreachable", outage.name, "connect")
    assert await outage.look(seconds=11) == []
    async with smtp_server(Script(), port=outage.transport.relay.port):
        [back] = await outage.look(seconds=11)
        assert (back["event"], back["released"]) == ("relay_back", 2)
        assert await outage.look(seconds=11) == []
    assert (await outage.way_out()).failing_since is None


async def test_mail_that_the_relay_never_saw_is_due_when_it_is_back(pool: Pool) -> None:
    """Mail deferred at connect leaves at once after the outage; mail that the server deferred keeps its time."""
    script = Script(says={"RCPT later@example.org": "450 4.2.0 try later"})
    outage = Outage(pool, f"smtp://127.0.0.1:{free_port()}?tls=none")
    async with smtp_server(script, port=outage.transport.relay.port):
        [later] = await accepted(pool, a_mail("later@example.org"), now=outage.hands())
        await outage.send()
    unreached = await outage.send(Lane.AUTH, Lane.TRANSACTIONAL, Lane.BULK)
    await outage.look(seconds=11)
    kept = (await next_attempts(pool))[later]
    async with smtp_server(Script(), port=outage.transport.relay.port):
        await outage.look(seconds=11)
        times = await next_attempts(pool)
        assert times[later] == kept > outage.hands()
        assert all(times[each] <= outage.hands() for each in unreached)
        await outage.send()
    assert [[attempt.outcome for attempt in await attempts_of(pool, each)] for each in unreached] == [
        ["deferred", "sent"]
    ] * 3
    assert (await outage.way_out()).last_sent_at == outage.hands()


async def test_refused_logins_are_counted_until_one_succeeds(pool: Pool) -> None:
    """A relay that refuses the login fails at this stage, although its port answers."""
    async with smtp_server(Script(users={"shop": "right"})) as server:
        outage = Outage(pool, f"smtp://shop:wrong@127.0.0.1:{server.port}?tls=none")
        await outage.send(Lane.AUTH, Lane.TRANSACTIONAL)
        [gone] = await outage.look(seconds=11)
        assert (gone["stage"], gone["reply"]) == ("login", "535 5.7.8")
        found = await outage.way_out()
        assert (found.stage, found.logins_refused, found.failures) == ("login", 2, 2)
        assert "535" in str(found.detail)
        logins = sum(command.startswith("AUTH") for command in server.commands)
        await outage.look(seconds=30)  # servers lock out those that try a wrong password often
        assert sum(command.startswith("AUTH") for command in server.commands) == logins
        server.script.users = {"shop": "wrong"}
        await outage.look(seconds=61)
    assert (await outage.way_out()).logins_refused == 0


async def test_an_answer_to_another_mail_ends_a_failure(pool: Pool) -> None:
    """A server that refuses some connections is no outage while others get through."""
    outage = Outage(pool, f"smtp://127.0.0.1:{free_port()}?tls=none")
    await outage.send(Lane.BULK)
    assert (await outage.way_out()).failing_since == NOON
    async with smtp_server(Script(), port=outage.transport.relay.port):
        await outage.send(Lane.AUTH)
    found = await outage.way_out()
    assert (found.failing_since, found.failures, found.last_sent_at) == (None, 0, NOON)


async def test_a_probe_is_made_by_one_worker(pool: Pool) -> None:
    """However many workers watch, a relay that fails is probed once in an interval."""
    async with smtp_server(Script(says={"connect": "421 4.3.2 shutting down"})) as server:
        outage = Outage(pool, f"smtp://127.0.0.1:{server.port}?tls=none")
        await outage.send(Lane.AUTH)
        visits = len(server.visits)
        outage.hands.forward(seconds=11)
        for _ in range(3):
            other = WayOutWatch(pool, (outage.name, outage.transport.probe), clock=outage.hands)
            await other.run_once()
        assert len(server.visits) == visits + 1


async def test_mail_is_released_in_slices_urgent_lanes_first(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slice is a statement of its own, and bulk mail has the last ones."""
    monkeypatch.setattr("postroom.delivery.ways_out.watch.SLICE", 2)
    outage = Outage(pool, f"smtp://127.0.0.1:{free_port()}?tls=none")
    await outage.send(*[Lane.BULK] * 3, *[Lane.TRANSACTIONAL] * 3)
    await outage.look(seconds=11)
    release, slices = store.release_unreached, list[tuple[str, int]]()

    async def noted(*args: object, **given: object) -> object:
        done = await release(*args, **given)
        slices.append((str(given["lane"]), done.released))
        return done

    monkeypatch.setattr(store, "release_unreached", noted)
    async with smtp_server(Script(), port=outage.transport.relay.port):
        await outage.look(seconds=11)
    assert [each for each in slices if each[1]] == [
        ("transactional", 2),
        ("transactional", 1),
        ("bulk", 2),
        ("bulk", 1),
    ]
    assert SLICE == 500


async def test_deferred_mail_is_listed_until_it_ends(pool: Pool) -> None:
    """Deferred mail is listed from its first failed attempt to its end, by a worker or by any other client."""
    outage = Outage(pool, f"smtp://127.0.0.1:{free_port()}?tls=none")
    sent, cancelled, erased = await outage.send(Lane.AUTH, Lane.TRANSACTIONAL, Lane.BULK)

    async def listed() -> list[int]:
        return [row["id"] for row in await pool.fetch("SELECT id FROM deferred_deliveries ORDER BY id")]

    assert await listed() == [sent, cancelled, erased]
    outage.hands.forward(seconds=30)
    async with smtp_server(Script(), port=outage.transport.relay.port):
        await outage.send()
    assert await listed() == [cancelled, erased]
    await pool.execute("SELECT cancel_deliveries(ARRAY[$1::bigint], 'tests', now())", cancelled)
    await pool.execute("DELETE FROM deliveries WHERE id = $1", erased)
    assert await listed() == []


async def test_the_administrator_is_notified_of_an_outage_by_webhook(pool: Pool) -> None:
    """The notice leaves by a way that does not need the relay, once for each outage."""
    outage = Outage(pool, f"smtp://127.0.0.1:{free_port()}?tls=none")
    url = "https://alerts.example.org/hook"
    notifier = Notifier(pool, None, [NOTICE], Settings(admin_webhook=url), clock=outage.hands)
    await outage.send(Lane.AUTH)
    assert await notifier.run_once() == 0
    await outage.look(seconds=11)
    assert await notifier.run_once() == 1
    outage.hands.forward(hours=1)
    assert await notifier.run_once() == 0
    [notice], _ = await service.list_deliveries(pool, DeliveryFilter(source="postroom"))
    assert (notice.channel, notice.recipients) == ("webhook", (url,))
    text = await pool.fetch("SELECT text_body FROM delivery_payloads WHERE delivery_id = $1", notice.id)
    body = json.loads(text[0]["text_body"])
    assert (body["kind"], body["room"]) == ("relay", "postroom")
    assert body["text"].startswith(f"Postroom: {outage.name} does not answer\n\n{outage.name}: every attempt ends at")
