"""Rooms are created, migrated and dropped by command."""

import asyncio
import json

import asyncpg
import pytest
from tests.conftest import TestServer
from tests.support.command_line import outcome
from tests.support.outbox import until
from tests.support.ports import free_port
from tests.support.rooms import execute, fetch_value, servers_with, table_of

from postroom.errors import BadInput
from postroom.rooms.errors import DeliveriesWaiting, RoomExists, RoomNotFound, ServerUnreachable
from postroom.rooms.lifecycle import RoomMigration, create_room, drop_room, migrate_rooms
from postroom.rooms.model import RoomState
from postroom.rooms.service import find_rooms, open_servers
from postroom.settings import Settings

ACTOR = "cli:tests"
MISSING = "DELETE FROM {}.migrations WHERE name = 'delivery/send.sql'"


async def test_a_room_is_created_on_the_chosen_server(server: TestServer) -> None:
    """It is migrated and ready; a second room of the name is refused on every server."""
    async with servers_with(server, "tenant_a", "tenant_b") as settings, open_servers(settings) as servers:
        await create_room(servers, "tenant_c", on="b", actor=ACTOR)
        [made] = (await find_rooms(servers, "tenant_c", inspecting=True)).rooms
        assert (made.server, made.state) == ("b", RoomState.READY)
        url = dict(settings.servers)["b"]
        assert await fetch_value(url, "SELECT action FROM tenant_c.audit_log ORDER BY id DESC LIMIT 1") == "room.create"
        with pytest.raises(RoomExists, match="'tenant_a' exists on server 'a'"):
            await create_room(servers, "tenant_a", on="b", actor=ACTOR)
        with pytest.raises(BadInput, match="public"):
            await create_room(servers, "public", on="b", actor=ACTOR)


async def test_no_room_is_created_while_a_server_is_silent(server: TestServer) -> None:
    """The silent server may have a room of that name."""
    async with servers_with(server, "tenant_a") as settings:
        down = ("down", f"postgresql://x@127.0.0.1:{free_port()}/none")
        async with open_servers(Settings(servers=(*settings.servers, down))) as servers:
            with pytest.raises(ServerUnreachable, match="'down' may have a room 'tenant_b'"):
                await create_room(servers, "tenant_b", on="a", actor=ACTOR)


async def test_one_failed_migration_stops_no_other(server: TestServer) -> None:
    """Every other matching room on every server is migrated; the failure has the name of its room."""
    async with servers_with(server, "tenant_a", "tenant_b", "tenant_c", working=True) as settings:
        urls = dict(settings.servers)
        for place, room in (("a", "tenant_a"), ("b", "tenant_b"), ("c", "tenant_c")):
            await execute(urls[place], MISSING.format(room))
        await execute(urls["b"], "INSERT INTO tenant_b.migrations VALUES ('9999_delivery.sql', '', now(), 99)")
        done: list[RoomMigration] = []
        async with open_servers(settings) as servers:
            await migrate_rooms(servers, "tenant_*", actor=ACTOR, report=done.append)
            found = await find_rooms(servers, inspecting=True)
    results = {result.room.name: result.error for result in done}
    assert results["tenant_a"] is results["tenant_c"] is None
    assert "Release 99" in str(results["tenant_b"])
    assert [room.name for room in found.ready] == ["tenant_a", "tenant_c"]


async def test_a_room_with_waiting_deliveries_is_dropped_only_by_force(server: TestServer) -> None:
    """The audit log of POSTROOM_SCHEMA records the drop, because the room's own is gone."""
    async with (
        servers_with(server, "tenant_a", "postroom", working=True) as settings,
        open_servers(settings) as servers,
    ):
        urls = dict(settings.servers)
        await execute(
            urls["a"], "SET search_path = tenant_a; SELECT send('{ada@example.org}', p_subject => 'x', p_text => 'x')"
        )
        with pytest.raises(DeliveriesWaiting, match="1 waiting"):
            await drop_room(servers, "tenant_a", actor=ACTOR)
        await drop_room(servers, "tenant_a", actor=ACTOR, force=True)
        assert [room.name for room in (await find_rooms(servers)).rooms] == ["postroom"]
        audited = "SELECT subject FROM postroom.audit_log WHERE action = 'room.drop'"
        assert await fetch_value(urls["b"], audited) == "room:tenant_a"
        with pytest.raises(RoomNotFound):
            await drop_room(servers, "tenant_a", actor=ACTOR)


async def test_a_room_is_dropped_while_it_is_used(server: TestServer) -> None:
    """A transaction that uses tables in another order than the drop ends first; the drop then succeeds."""
    async with servers_with(server, "tenant_a", working=True) as settings, open_servers(settings) as servers:
        [(_, url)] = settings.servers
        connection = await asyncpg.connect(url)
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'tenant_a'")
        async with connection.transaction():
            await connection.execute("LOCK TABLE tenant_a.tokens IN ROW EXCLUSIVE MODE")
            dropping = asyncio.create_task(drop_room(servers, "tenant_a", actor=ACTOR))
            await until(lambda: _waits(url))
            for row in tables:
                await connection.execute(f"LOCK TABLE tenant_a.{row['tablename']} IN ROW EXCLUSIVE MODE")
        await dropping
        await connection.close()
        assert not (await find_rooms(servers)).rooms


async def _waits(url: str) -> bool:
    return bool(await fetch_value(url, "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"))


async def test_a_duplicate_is_dropped_by_its_server(server: TestServer) -> None:
    """Without --server nothing is dropped."""
    async with servers_with(server, "tenant_a", "tenant_a") as settings, open_servers(settings) as servers:
        with pytest.raises(RoomExists, match="several servers: a, b"):
            await drop_room(servers, "tenant_a", actor=ACTOR)
        await drop_room(servers, "tenant_a", actor=ACTOR, server="b")
        assert [room.server for room in (await find_rooms(servers)).ready] == ["a"]


async def test_the_commands_report_by_their_exit_code(server: TestServer) -> None:
    """A failed migration ends with 1; a drop asks for the name again."""
    async with servers_with(server, "tenant_a", "tenant_b", working=True) as settings:
        urls, given = dict(settings.servers), {"POSTROOM_SERVERS": table_of(settings)}
        await execute(urls["b"], "INSERT INTO tenant_b.migrations VALUES ('9999_delivery.sql', '', now(), 99)")
        code, said, failed = await outcome("rooms", "migrate", "tenant_*", settings=given)
        assert (code, "tenant_a on a" in said, "tenant_b on b" in failed) == (1, True, True)
        code, said, _ = await outcome("rooms", "drop", "tenant_a", settings=given, stdin="tenant_a\n")
        assert (code, "Dropped room 'tenant_a' on server 'a'" in said) == (0, True)


async def test_the_first_mail_of_a_room_has_a_partition_of_its_month(database_url: str) -> None:
    """Mail may be sent before the first `postroom work`, and a month with rows in the default partition gets none."""
    settings = {"POSTROOM_DATABASE_URL": database_url, "POSTROOM_SCHEMA": "fresh"}
    assert (await outcome("migrate", settings=settings))[0] == 0
    sent = await outcome("send", "--to", "ann@example.org", "--subject", "a", "--text", "b", settings=settings)
    assert sent[0] == 0
    assert (await outcome("work", "--until-empty", settings=settings))[0] == 0
    _code, output, _errors = await outcome("doctor", "--json", settings=settings)
    checks = {check["check"]: check for check in json.loads(output)["checks"]}
    assert checks["partitions"]["verdict"] == "ok"
    assert await fetch_value(database_url, "SELECT count(*) FROM fresh.attempts") == 1
