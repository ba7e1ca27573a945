"""`postroom doctor` reports the state of many rooms: servers, migrations, moves, limits and processes."""

import asyncio
from dataclasses import replace

from tests.conftest import TestServer
from tests.support.command_line import outcome
from tests.support.rooms import execute, servers_with, table_of

from postroom.cli import fleet_checks
from postroom.db.pool import connect
from postroom.rooms import store
from postroom.runtime.finding import Finding, Severity
from postroom.settings import Settings

SILENT = "postgresql://nobody@127.0.0.1:1/x"
IN_ROOM = "SET search_path = postroom; "
WORKER = "INSERT INTO tenant_a.workers (pid, host, asleep) VALUES (7, 'host', enum_range(NULL::tenant_a.delivery_lane))"


async def findings(settings: Settings, pattern: str = "*") -> dict[str, Finding]:
    return {finding.check: finding for finding in await fleet_checks.examine(settings, pattern)}


async def test_the_state_of_healthy_rooms(server: TestServer) -> None:
    """Each server has its rooms counted, and each process the rooms that it serves."""
    async with servers_with(server, "tenant_a", "tenant_b") as settings:
        for name, (_, url) in zip(("tenant_a", "tenant_b"), settings.servers, strict=True):
            await execute(url, WORKER.replace("tenant_a", name))
            await execute(
                url, f"INSERT INTO {name}.processes (pid, release, host, command) VALUES (8, 1, 'host', 'serve')"
            )
        found = await findings(settings)
    assert {finding.verdict for finding in found.values()} == {Severity.OK}
    assert found["server a"].found == "1 rooms ready"
    assert found["room processes"].found == "serve host/8 serves 2 rooms; work host/7 serves 2 rooms"


async def test_a_server_that_does_not_respond_fails(server: TestServer) -> None:
    """The others are examined."""
    async with servers_with(server, "tenant_a") as settings:
        found = await findings(replace(settings, servers=(*settings.servers, ("b", SILENT))))
    assert (found["server a"].verdict, found["server b"].verdict) == (Severity.OK, Severity.FAIL)
    assert "127.0.0.1:1" in found["server b"].found
    assert "POSTROOM_SERVERS" in found["server b"].advice


async def test_a_room_without_a_worker_is_reported(server: TestServer) -> None:
    """A worker that was not seen for some minutes does not count."""
    async with servers_with(server, "tenant_a") as settings:
        [(_, url)] = settings.servers
        await execute(url, f"{WORKER}; UPDATE tenant_a.workers SET seen_at = now() - interval '5 minutes'")
        found = (await findings(settings))["room processes"]
    assert (found.verdict, found.found) == (Severity.WARN, "no worker for tenant_a")
    assert "postroom work --rooms" in found.advice


async def test_a_room_that_is_behind_fails(server: TestServer) -> None:
    """The finding has the command that migrates all rooms."""
    async with servers_with(server, "tenant_a") as settings:
        [(_, url)] = settings.servers
        await execute(url, "DELETE FROM tenant_a.migrations WHERE name ~ 'next_work'")
        found = (await findings(settings))["room migrations"]
    assert (found.verdict, found.found) == (Severity.FAIL, "not migrated: tenant_a")
    assert found.advice == "run `postroom rooms migrate '*'`"


async def test_a_move_that_was_killed_fails(server: TestServer) -> None:
    """The finding has both commands; a move that is running is no failure."""
    async with servers_with(server, "postroom", "tenant_b") as settings:
        url = settings.servers[0][1]
        await execute(url, f"{IN_ROOM}SELECT begin_move('moving from a to b'); SELECT close_room()")
        found = (await findings(settings))["room moves"]
        assert (found.verdict, found.found.rpartition(": ")[2]) == (Severity.FAIL, "postroom (moving from a to b)")
        for command in ("`postroom rooms move postroom --to b`", "`postroom rooms move postroom --undo`"):
            assert command in found.advice
        mover = await connect(url, "postroom")
        try:
            assert await store.try_move_lock(mover)
            assert (await findings(settings))["room moves"].found == "running: postroom"
        finally:
            await mover.close()


async def test_a_move_that_was_killed_after_its_commit_can_only_be_finished(server: TestServer) -> None:
    """The copy is the room then: there is no way back."""
    async with servers_with(server, "postroom", "tenant_b") as settings:
        url = settings.servers[0][1]
        await execute(url, f"{IN_ROOM}SELECT begin_move('moved from a to b')")
        found = (await findings(settings))["room moves"]
    assert found.verdict is Severity.FAIL
    assert found.advice == "finish it with `postroom rooms move postroom --to b`"


async def test_a_room_on_two_servers_fails(server: TestServer) -> None:
    """No process serves it until one is dropped."""
    async with servers_with(server, "tenant_a", "tenant_a") as settings:
        found = (await findings(settings))["room states"]
    assert (found.verdict, found.found) == (Severity.FAIL, "on several servers: tenant_a")
    assert "postroom rooms drop" in found.advice


async def test_a_half_restored_room_is_reported(server: TestServer) -> None:
    async with servers_with(server, "tenant_a") as settings:
        [(_, url)] = settings.servers
        await execute(url, "CREATE TABLE tenant_a.restoring ()")
        found = (await findings(settings))["room states"]
    assert (found.verdict, found.found) == (Severity.WARN, "half restored: tenant_a")


async def test_a_room_over_its_limit_is_reported(server: TestServer) -> None:
    """The finding names the room and the limit."""
    async with servers_with(server, "tenant_a", working=True) as settings:
        [(_, url)] = settings.servers
        await execute(url, "INSERT INTO tenant_a.room_limits (expires_at) VALUES ('2026-01-01')")
        found = (await findings(settings))["limits of rooms"]
    assert (found.verdict, found.found) == (Severity.WARN, "tenant_a: closed since 2026-01-01 00:00 UTC")
    assert "postroom rooms limit" in found.advice


async def test_the_command_and_the_pattern(server: TestServer) -> None:
    """With POSTROOM_SERVERS all rooms are examined; --rooms chooses some. A failure of one is the exit 1."""
    async with servers_with(server, "tenant_a", "other") as settings:
        await execute(settings.servers[1][1], "DELETE FROM other.migrations WHERE name ~ 'next_work'")
        table = {"POSTROOM_SERVERS": table_of(settings)}
        every, some = await asyncio.gather(
            outcome("doctor", settings=table), outcome("doctor", "--rooms", "tenant_*", settings=table)
        )
    assert every[0] == 1
    assert "not migrated: other" in every[1]
    assert "not migrated" not in some[1]
    assert "not used: POSTROOM_SERVERS is set" in some[1]
