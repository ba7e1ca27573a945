"""A worker of many rooms reads one mailbox of bounces for all of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from tests.conftest import TestServer
from tests.support.feedback import DOMAIN, REPORTS, SECRET, report
from tests.support.feedback_imap import Letterbox, serving
from tests.support.loops import logged
from tests.support.outbox import until
from tests.support.rooms import fetch_value, servers_with

from postroom.app import run_fleet
from postroom.errors import SettingInvalid
from postroom.post.keyed_hash import SecretKey
from postroom.post.message_id import room_keys
from postroom.post.return_path import make_return_path
from postroom.settings import Settings

ROOMS = ("tenant_a", "tenant_b")
UNREACHABLE = ("c", "postgresql://x@127.0.0.1:1/none")


def bounce_of(room: str) -> bytes:
    """A bounce of a mail of this room."""
    path = make_return_path(7, domain=DOMAIN, key=room_keys([SecretKey(SECRET)], room)[0])
    return (REPORTS / "postfix-unknown-user.eml").read_bytes().replace(b"@@RETURN_PATH@@", path.encode())


@asynccontextmanager
async def reading(found: Settings, url: str) -> AsyncIterator[None]:
    settings = replace(
        found,
        transport="capture",
        bounce_imap_url=url,
        bounce_imap_interval=timedelta(milliseconds=50),
        bounce_domain=DOMAIN,
        secret_key=SECRET,
    )
    stop = asyncio.Event()
    task = asyncio.create_task(run_fleet(settings, "tenant_*", stop=stop, ready=lambda: None))
    try:
        yield
    finally:
        stop.set()
        await task


async def stored(settings: Settings) -> list[tuple[int, int]]:
    """The bounces and the unread messages of each room."""
    urls = dict(settings.servers)
    counts = "SELECT array[(SELECT count(*) FROM {0}.bounces), (SELECT count(*) FROM {0}.unread_feedback)]"
    return [tuple(await fetch_value(urls[name[-1]], counts.format(name))) for name in ROOMS]


async def test_a_report_finds_the_room_of_its_return_path(server: TestServer) -> None:
    """A message without a return path is for the room of POSTROOM_SCHEMA."""
    box = Letterbox()
    box.put(bounce_of("tenant_b"), bounce_of("tenant_a"), report("person-writes"))
    async with servers_with(server, *ROOMS, working=True) as settings, serving(box) as url:
        async with reading(replace(settings, schema="tenant_a"), url):
            await until(lambda: _is_read(box, 3))
        assert await stored(settings) == [(1, 1), (1, 0)]


async def test_no_other_room_gets_a_report_without_a_return_path(server: TestServer) -> None:
    """If the worker does not serve POSTROOM_SCHEMA, the message is marked as seen, logged and stored nowhere."""
    box = Letterbox()
    box.put(report("person-writes"))
    async with servers_with(server, *ROOMS, working=True) as settings, serving(box) as url:
        with capture_logs() as logs:
            async with reading(replace(settings, schema="postroom"), url):
                await until(lambda: _is_read(box, 1))
        assert "reports_without_room" in {entry["event"] for entry in logs}
        assert await stored(settings) == [(0, 0), (0, 0)]


async def test_reports_of_an_unreachable_server_stay_unseen(server: TestServer) -> None:
    """Their room may be on that server; the reports of the other rooms are recorded."""
    box = Letterbox()
    box.put(bounce_of("tenant_elsewhere"), bounce_of("tenant_b"))
    async with servers_with(server, *ROOMS, working=True) as settings, serving(box) as url:
        with capture_logs() as logs:
            async with reading(replace(settings, servers=(*settings.servers, UNREACHABLE)), url):
                await until(lambda: _is_read(box, 1))
                await logged("loop_interrupted", logs)
        assert await stored(settings) == [(0, 0), (1, 0)]
    assert box.seen == {max(box.folders["INBOX"])}


async def test_a_mailbox_of_many_rooms_needs_the_domain_of_return_paths(server: TestServer) -> None:
    """Without it no report names its room."""
    async with servers_with(server, "tenant_a", working=True) as found:
        settings = replace(found, bounce_imap_url="imaps://u:p@localhost/INBOX", secret_key=SECRET)
        with pytest.raises(SettingInvalid, match="POSTROOM_BOUNCE_DOMAIN"):
            await run_fleet(settings, "tenant_*", stop=asyncio.Event(), ready=lambda: None)


async def _is_read(box: Letterbox, count: int) -> bool:
    return len(box.seen) == count
