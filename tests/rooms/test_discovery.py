"""Discovery: the rooms of several servers, by one pattern."""

from collections.abc import Sequence

import pytest
from tests.conftest import TestServer
from tests.support.command_line import answer, postroom
from tests.support.ports import free_port
from tests.support.rooms import execute, servers_with, table_of

from postroom.errors import SettingInvalid
from postroom.rooms.errors import ServerUnknown
from postroom.rooms.model import Discovery, RoomState, matches
from postroom.rooms.service import find_rooms, open_servers, server_named
from postroom.settings import Settings, read_settings

CLOSED = "postgresql://postgres@127.0.0.1:{}/none"


async def found(settings: Settings, pattern: str = "*", *, inspecting: bool = True) -> Discovery:
    async with open_servers(settings) as servers:
        return await find_rooms(servers, pattern, inspecting=inspecting)


def places(discovery: Discovery) -> Sequence[tuple[str, str, RoomState]]:
    return [(room.name, room.server, room.state) for room in discovery.rooms]


async def test_rooms_of_all_servers_are_found_by_pattern(server: TestServer) -> None:
    """One pattern selects rooms on every server; other schemas of the database are not rooms."""
    async with servers_with(server, "tenant_a", "tenant_b", "staging") as settings:
        discovery = await found(settings, "tenant_*")
        everything = await found(settings, "tenant_b,staging", inspecting=False)
        await execute(settings.servers[0][1], "CREATE TABLE public.migrations ()")
        assert len((await found(settings)).rooms) == 3
    assert places(discovery) == [("tenant_a", "a", RoomState.READY), ("tenant_b", "b", RoomState.READY)]
    assert all(room.version and room.bytes for room in discovery.rooms)
    assert [room.name for room in everything.ready] == ["staging", "tenant_b"]


async def test_a_room_on_two_servers_is_reported_and_not_served(server: TestServer) -> None:
    """An interrupted move by other means leaves two; which one is right only a person can know."""
    async with servers_with(server, "tenant_a", "tenant_a", "tenant_b") as settings:
        discovery = await found(settings, inspecting=False)
    assert places(discovery)[:2] == [("tenant_a", "a", RoomState.DUPLICATE), ("tenant_a", "b", RoomState.DUPLICATE)]
    assert [room.name for room in discovery.ready] == ["tenant_b"]


async def test_a_server_that_is_down_hides_no_other(server: TestServer) -> None:
    """Its name and the reason are in the result, without its password."""
    async with servers_with(server, "tenant_a") as settings:
        down = ("down", f"postgresql://x:secret@127.0.0.1:{free_port()}/none")
        discovery = await found(Settings(servers=(*settings.servers, down)))
    assert places(discovery) == [("tenant_a", "a", RoomState.READY)]
    assert [failure.server for failure in discovery.failures] == ["down"]
    assert "secret" not in repr(discovery)


async def test_the_state_names_what_a_room_lacks(server: TestServer) -> None:
    """Pending, incompatible and restoring rooms are not served."""
    async with servers_with(server, "tenant_a", "tenant_b", "tenant_c") as settings:
        urls = dict(settings.servers)
        await execute(urls["a"], "DELETE FROM tenant_a.migrations WHERE name = 'delivery/send.sql'")
        await execute(urls["b"], "INSERT INTO tenant_b.migrations VALUES ('9999_delivery.sql', '', now(), 99)")
        await execute(urls["c"], "CREATE TABLE tenant_c.restoring ()")
        discovery = await found(settings)
    assert [room.state for room in discovery.rooms] == [
        RoomState.PENDING,
        RoomState.INCOMPATIBLE,
        RoomState.RESTORING,
    ]
    assert not discovery.ready


async def test_without_a_table_the_database_is_the_only_server(database_url: str) -> None:
    """Its name is `default`; its settings open the room."""
    async with open_servers(Settings(database_url=database_url)) as servers:
        discovery = await find_rooms(servers)
        assert servers[0].settings_of("x").database_url == database_url
        with pytest.raises(ServerUnknown, match="'eu'; POSTROOM_SERVERS has default"):
            server_named(servers, "eu")
    assert places(discovery) == [("postroom", "default", RoomState.READY)]


async def test_the_command_lists_rooms_and_reports_servers(server: TestServer) -> None:
    """`postroom rooms list` prints what responded and exits 1 if a server did not."""
    async with servers_with(server, "tenant_a", "tenant_b") as settings:
        table = table_of(settings)
        listed = answer(postroom("rooms", "list", "tenant_*", "--json", settings={"POSTROOM_SERVERS": table}))
        down = postroom("rooms", "list", settings={"POSTROOM_SERVERS": f"{table} down={CLOSED.format(free_port())}"})
    assert [(room["name"], room["server"], room["state"]) for room in listed["rooms"]] == [
        ("tenant_a", "a", "ready"),
        ("tenant_b", "b", "ready"),
    ]
    assert down.returncode == 1
    assert "tenant_b" in down.stdout
    assert "server down:" in down.stderr


@pytest.mark.parametrize(
    "value", ["postgresql://x/y", "eu=mysql://x/y", "eu=postgresql://x/y eu=postgresql://z/y", "EU=postgresql://x/y"]
)
def test_a_wrong_table_of_servers_is_refused(value: str) -> None:
    """Every pair needs a name of its own and a URL of PostgreSQL."""
    with pytest.raises(SettingInvalid, match="POSTROOM_SERVERS"):
        read_settings({"POSTROOM_SERVERS": value})


def test_the_urls_of_servers_are_hidden() -> None:
    """They contain passwords."""
    assert "secret" not in repr(read_settings({"POSTROOM_SERVERS": "eu=postgresql://x:secret@h/y"}))


@pytest.mark.parametrize(
    "name, pattern, is_matched",
    [("tenant_a", "tenant_*", True), ("tenant_a", "*_b, tenant_a", True), ("other", "tenant_?", False)],
)
def test_patterns(name: str, pattern: str, is_matched: bool) -> None:  # noqa: FBT001 - a parameter of the table
    """Shell patterns, several separated by commas."""
    assert matches(name, pattern) is is_matched
