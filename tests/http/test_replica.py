"""Listings, statistics and exports from a streaming replica: a real one, paused, killed and silent."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.campaigns import a_campaign
from tests.support.dashboard import SECRET, Guest, dashboard_app, open_guest, text_of
from tests.support.http import Browser, Response, open_browser
from tests.support.patience import PATIENCE_S
from tests.support.streaming import StreamingReplica, replicated_room

from postroom.cli import room_checks
from postroom.db import replica as module
from postroom.db.replica import Replica, ReplicaFollower, follower_of
from postroom.db.room import Room, open_room
from postroom.http.asgi import HttpApplication
from postroom.runtime.finding import Severity
from postroom.settings import Settings

LAG = "postroom-replica-lag"
LIMIT = timedelta(seconds=5)
MAIL = {"to": "ada@example.org", "subject": "s", "text": "t"}


@dataclass
class Scene:
    """A room with a replica, an application that reads it, and the clock of its lag."""

    room: Room
    server: StreamingReplica
    follower: ReplicaFollower
    replica: Replica
    app: HttpApplication
    browser: Browser
    now: list[float] = field(default_factory=list)

    async def caught_up(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            self.now[0] += 1.0
            while True:
                await self.follower.check()
                if self.replica.lag_s == 0.0:
                    return

    async def accept(self) -> int:
        accepted = await self.browser.post("/v1/deliveries", json=MAIL)
        return int(accepted.json["id"])

    async def listed(self, **headers: str) -> tuple[set[int], Response]:
        response = await self.browser.get("/v1/deliveries?limit=100", headers=headers)
        assert response.status == 200
        return {item["id"] for item in response.json["items"]}, response


@pytest.fixture(scope="module")
async def servers(server_directory: Path) -> AsyncIterator[tuple[str, StreamingReplica]]:
    async with replicated_room(server_directory) as started:
        yield started


@pytest.fixture
async def scene(servers: tuple[str, StreamingReplica]) -> AsyncIterator[Scene]:
    url, server = servers
    settings = Settings(database_url=url, replica_url=server.url, replica_lag=LIMIT, secret_key=SECRET)
    now = [100.0]
    async with open_room(settings) as room:
        follower = follower_of(room.pool, settings, monotonic=lambda: now[0])
        replica = Replica(follower, room.pool)
        app = dashboard_app(room, replica=replica)
        scene = Scene(room, server, follower, replica, app, await open_browser(room, app=app), now)
        await scene.caught_up()
        yield scene
        follower.close()


@asynccontextmanager
async def paused(scene: Scene) -> AsyncIterator[None]:
    await scene.server.pause()
    try:
        yield
    finally:
        await scene.server.resume()


def _path_of(path: str, campaign: int, webhook: int) -> str:
    path = path.replace("{campaign_id:int}", str(campaign)).replace("{endpoint_id:int}", str(webhook))
    return f"{path}?campaign_id={campaign}" if path.startswith("/v1/clicks") else path


async def test_every_listing_is_answered_by_the_replica(scene: Scene) -> None:
    """No statement of a listing, of statistics or of an export writes: each endpoint is answered by a standby."""
    campaign = (await a_campaign(scene.room.pool)).id
    await scene.browser.post("/v1/outbox/topics", json={"name": "money", "types": ["Paid"], "publishers": ["webhook"]})
    body = {"url": "https://example.org/hook", "topics": ["money"]}
    webhook = (await scene.browser.post("/v1/webhooks", json=body)).json["id"]
    await scene.accept()
    await scene.caught_up()
    guest = await open_guest(scene.room, app=scene.app)
    await scene.caught_up()
    guest.cookie = (guest.cookie or "").replace("postroom_wrote=1", "")
    asked = [each for each in scene.app.endpoints if each.from_replica]
    assert len(asked) > 25
    for endpoint in asked:
        path = _path_of(endpoint.path, campaign, webhook)
        response = await (guest.get(path) if endpoint.is_page else scene.browser.get(path))
        assert (endpoint.path, response.status, LAG in response.headers) == (endpoint.path, 200, True)
        assert endpoint.method == "GET"


async def test_a_listing_comes_from_the_replica_and_a_record_from_the_primary(scene: Scene) -> None:
    """While replay is paused, the listing lacks the new mail; the record, and a request for fresh data, show it."""
    async with paused(scene):
        new = await scene.accept()
        shown, response = await scene.listed()
        assert (new in shown, response.headers[LAG]) == (False, "0.0")
        fresh, response = await scene.listed(**{"cache-control": "no-cache"})
        assert (new in fresh, LAG in response.headers) == (True, False)
        assert (await scene.browser.get(f"/v1/deliveries/{new}")).status == 200
    await scene.caught_up()
    assert new in (await scene.listed())[0]


async def test_a_person_sees_the_result_of_an_action_at_once(scene: Scene) -> None:
    """The answer to a form sets a cookie that lives as long as the replica may be behind; other people read it."""
    actor = await open_guest(scene.room, app=scene.app)
    other = Guest(scene.app, actor.cookie)
    path = "/suppressions"
    async with paused(scene):
        done = await actor.submit(f"{path}/new", f"{path}/new", email="grace@example.org", scope="all")
        assert done.status == 303
        assert "Max-Age=6" in done.headers["set-cookie"]
        assert "grace@example.org" in text_of(await actor.get(path))
        assert "grace@example.org" not in text_of(await other.get(path))
    await scene.caught_up()
    assert "grace@example.org" in text_of(await other.get(path))


async def test_a_replica_that_is_too_far_behind_is_not_read(scene: Scene) -> None:
    """Replay stops and the replica still answers: after the limit the primary does, until replay has caught up."""
    async with paused(scene):
        new = await scene.accept()
        scene.now[0] += 4.0
        await scene.follower.check()
        assert scene.replica.problem is None
        scene.now[0] += 2.0
        await scene.follower.check()
        assert scene.replica.problem == "it is 6.0 s behind, more than 5 s"
        shown, response = await scene.listed()
        assert (new in shown, LAG in response.headers) == (True, False)
        health = (await scene.browser.get("/readyz")).json["replica"]
        assert health == {"is_read": False, "lag_seconds": 6.0, "problem": "it is 6.0 s behind, more than 5 s"}
        assert 'postroom_replica_lag_seconds{database="postroom"} 6.0' in (await _metrics(scene))
    await scene.caught_up()
    assert LAG in (await scene.listed())[1].headers


async def _metrics(scene: Scene) -> str:
    return (await scene.browser.get("/metrics")).body.decode()


async def test_a_killed_replica_is_replaced_by_the_primary_within_the_request(scene: Scene) -> None:
    """No request fails when the replica dies; it is read again after its restart."""
    new = await scene.accept()
    scene.server.kill()
    shown, response = await scene.listed()
    await scene.follower.check()
    health = (await scene.browser.get("/readyz")).json["replica"]
    scene.server.start()
    await scene.server.answers()
    assert (health["is_read"], "Connect call failed" in health["problem"]) == (False, True)
    assert (new in shown, LAG in response.headers) == (True, False)
    await scene.caught_up()
    assert LAG in (await scene.listed())[1].headers


async def test_a_silent_replica_does_not_delay_a_request_until_the_statement_timeout(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica's host vanishes: the check ends the statements that wait for it, and the primary answers them."""
    monkeypatch.setattr(module, "CHECK_TIMEOUT_S", 0.5)
    scene.server.signal(signal.SIGSTOP)
    try:
        (_shown, response), _ = await asyncio.gather(scene.listed(), scene.follower.check())
    finally:
        scene.server.signal(signal.SIGCONT)
    assert LAG not in response.headers
    await scene.caught_up()


@pytest.mark.parametrize(
    "change, problem",
    [
        (lambda scene, _other: scene.room.url, "it is not a replica"),
        (lambda _scene, other: f"{other}?target_session_attrs=any", "not a replica of this database"),
    ],
)
async def test_a_server_that_is_no_replica_of_the_room_is_never_read(
    scene: Scene, database_url: str, change: Callable[[Scene, str], str], problem: str
) -> None:
    """A URL of the primary, or of another cluster, is reported by `postroom doctor` and /readyz, and not used."""
    settings = replace(scene.room.settings, replica_url=change(scene, database_url))
    replica = follower_of(scene.room.pool, settings)
    await replica.check()
    assert problem in str(replica.problem)
    replica.close()
    async with scene.room.pool.acquire() as connection:
        finding = await room_checks.examine_replica(connection, settings)
    assert (finding.verdict, problem in finding.found) == (Severity.WARN, True)


async def test_doctor_reports_the_lag(scene: Scene) -> None:
    async with scene.room.pool.acquire() as connection:
        finding = await room_checks.examine_replica(connection, scene.room.settings)
    assert (finding.verdict, finding.found.endswith(" s behind")) == (Severity.OK, True)
