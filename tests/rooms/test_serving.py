"""One process serves many rooms; a key, session, form or link of one room is refused in another."""

import asyncio
import re
import smtplib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial

import aiohttp
import msgspec
import pytest
from tests.conftest import TestServer
from tests.support.command_line import running
from tests.support.dashboard import SECRET, Guest
from tests.support.http import Browser, a_key
from tests.support.rooms import execute, fetch_value, servers_with, table_of

from postroom.app import link_signer
from postroom.cli.serve_rooms import open_one, reported_rooms, submission_room
from postroom.dashboard.endpoints import ENDPOINTS
from postroom.db.room import open_room
from postroom.feedback.listener import ListenerOptions, bounce_server
from postroom.feedback.report_rooms import ReportRooms
from postroom.http.open_rooms import OpenRooms
from postroom.http.rooms_app import RoomsApplication
from postroom.intake.smtp.server import submission_server
from postroom.post.keyed_hash import RoomKey, SecretKey
from postroom.post.message_id import room_keys
from postroom.post.return_path import make_return_path
from postroom.rooms.address import RoomAddress
from postroom.rooms.service import Server, find_rooms, open_servers
from postroom.rooms.sharing import connections_shared
from postroom.runtime.smtp_server import SmtpOptions, SmtpServer
from postroom.settings import Settings
from postroom.tracking.model import LinkSubject

MAIL = {"to": "ada@example.org", "subject": "Hello", "text": "Hi"}
ROOMS = ("tenant_a", "tenant_b")
HOST = "mail.example.org"
PAGES = [
    endpoint.path
    for endpoint in ENDPOINTS
    if endpoint.method == "GET" and "{" not in endpoint.path and not endpoint.path.endswith("/live")
]
"""Every page without a parameter; a live one is a stream that does not end."""


class Process:
    """The application of the process, the rooms it has open, and an API key with all scopes for each room."""

    def __init__(self, rooms: OpenRooms, app: RoomsApplication, servers: tuple[Server, ...]) -> None:
        self.rooms, self.app, self.servers = rooms, app, servers
        self.keys: dict[str, str] = {}
        self.reported: ReportRooms = list

    def settings_of(self, name: str) -> Settings:
        return next(server for server in self.servers if server.name == name[-1]).settings_of(name)

    def browser(self, name: str) -> Browser:
        return Browser(self.app, self.keys[name])


@asynccontextmanager
async def serving(given: Settings, *, idle: timedelta = timedelta(hours=1)) -> AsyncIterator[Process]:
    settings = replace(given, secret_key=SECRET, schema="tenant_a", public_url=given.public_url or f"https://{HOST}")
    async with open_servers(settings) as servers, connections_shared(servers) as shared:
        discover = partial(find_rooms, servers, inspecting=True)
        open_app = partial(open_one, shared=shared, stop=asyncio.Event(), home=settings.schema, discover=discover)
        rooms = OpenRooms(servers, "tenant_*", open_app, idle=idle)
        process = Process(rooms, RoomsApplication(rooms, RoomAddress(settings.base_url), home="tenant_a"), servers)
        process.reported = reported_rooms(settings, rooms, shared)
        for name in ROOMS:
            async with open_room(process.settings_of(name)) as room:
                process.keys[name] = (await a_key(room, "tests", "*"))[0]
        try:
            yield process
        finally:
            await rooms.close()


@pytest.fixture(scope="module")
async def two_rooms(server: TestServer) -> AsyncIterator[Settings]:
    async with servers_with(server, *ROOMS, working=True) as settings:
        yield settings


async def test_each_room_has_its_own_api(two_rooms: Settings) -> None:
    """A room is opened by its first request; a key of one room is refused in another; an unknown room is 404."""
    async with serving(two_rooms) as process:
        browser = process.browser("tenant_a")
        assert process.rooms.names == []
        assert (await browser.post("/rooms/tenant_a/v1/deliveries", json=MAIL)).status in (201, 202)
        assert process.rooms.names == ["tenant_a"]
        assert (await browser.post("/rooms/tenant_b/v1/deliveries", json=MAIL)).status == 401
        unknown = await browser.get("/rooms/tenant_x/v1/deliveries")
        assert (unknown.status, unknown.headers["content-type"]) == (404, "application/problem+json")
        assert (await browser.get("/v1/deliveries")).status == 404
        described = msgspec.json.decode((await browser.get("/rooms/tenant_a/openapi.json")).body)
        assert described["servers"] == [{"url": f"https://{HOST}/rooms/tenant_a"}]
    for place, name in zip("ab", ROOMS, strict=True):
        counted = await fetch_value(dict(two_rooms.servers)[place], f"SELECT count(*) FROM {name}.deliveries")
        assert counted == (name == "tenant_a")


async def test_the_process_answers_for_itself(two_rooms: Settings) -> None:
    """Health does not need a room; readiness counts the rooms and names the servers that do not respond."""
    down = Settings(servers=(*two_rooms.servers, ("c", "postgresql://x@127.0.0.1:1/none")))
    async with serving(down) as process:
        browser = process.browser("tenant_a")
        assert (await browser.get("/healthz")).body == b'{"status":"ok"}'
        await process.rooms.refresh()
        ready = msgspec.json.decode((await browser.get("/readyz")).body)
        assert ready == {"status": "ok", "rooms": 2, "open_rooms": 0, "silent_servers": ["c"]}
        assert b"postroom_" in (await browser.get("/metrics")).body
        assert (await browser.get("/rooms")).headers["location"] == f"https://{HOST}/rooms/tenant_a/storage/rooms"


async def test_sessions_forms_and_links_of_pages_stay_in_their_room(two_rooms: Settings) -> None:
    """Redirects, cookies and every address of a page have the prefix; another room refuses session and form token."""
    async with serving(two_rooms) as process:
        guests = {name: Guest(process.app, headers={"host": HOST}) for name in ROOMS}
        for name, guest in guests.items():
            signed_in = await guest.post(f"/rooms/{name}/sign-in", {"key": process.keys[name], "next": "/deliveries"})
            assert (signed_in.status, signed_in.headers["location"]) == (303, f"/rooms/{name}/deliveries")
            assert f"Path=/rooms/{name}/;" in signed_in.headers["set-cookie"]
            assert signed_in.headers["set-cookie"].startswith("__Secure-")
        ours = guests["tenant_a"]
        for path in PAGES:
            shown = await ours.get(f"/rooms/tenant_a{path}")
            page = shown.body.decode()
            addresses = re.findall(r'\s(?:href|src|action|formaction|data-[a-z-]+)="(/[^"]*)"', page)
            is_page = shown.status == 200 and shown.headers["content-type"].startswith("text/html")
            assert addresses or not is_page, path
            assert [each for each in addresses if not each.startswith("/rooms/tenant_a/")] == [], path
        page = (await ours.get("/rooms/tenant_a/")).body.decode()
        [style] = set(re.findall(r'href="(/[^"]*style\.css[^"]*)"', page))
        assert (await ours.get(style)).status == 200
        refused = await ours.get("/rooms/tenant_b/deliveries")
        assert (refused.status, refused.headers["location"]) == (303, "/rooms/tenant_b/sign-in?next=%2Fdeliveries")
        token = await ours.token("/rooms/tenant_a/keys/new")
        forged = await guests["tenant_b"].post("/rooms/tenant_b/keys/new", {"token": token, "name": "forged"})
        assert forged.status == 403
        assert (await guests["tenant_b"].get("/rooms/tenant_b/storage/rooms")).status == 404


async def test_links_in_mail_lead_to_their_room(two_rooms: Settings) -> None:
    """The link has the prefix of its room, and another room does not know it."""
    async with serving(two_rooms) as process:
        signer = link_signer(process.settings_of("tenant_a"))
        assert signer is not None
        link = signer.click_url(LinkSubject(None, 1, "ada@example.org"), "https://shop.example/x")
        path = link.removeprefix(f"https://{HOST}")
        assert path.startswith("/rooms/tenant_a/")
        browser = process.browser("tenant_a")
        followed = await browser.get(path)
        assert (followed.status, followed.headers["location"]) == (302, "https://shop.example/x")
        assert (await browser.get(path.replace("tenant_a", "tenant_b"))).status == 404


async def submitted(server: SmtpServer, user: str, key: str) -> int:
    """Submit a mail; the code of the server's reply to the login or to the mail."""

    def conversation() -> int:
        with smtplib.SMTP("127.0.0.1", server.port, timeout=60) as client:
            try:
                client.login(user, key)
            except smtplib.SMTPAuthenticationError as error:
                return error.smtp_code
            mail = "From: shop@example.org\r\nTo: ada@example.org\r\nSubject: Hello\r\n\r\nHi\r\n"
            assert client.sendmail("shop@example.org", ["ada@example.org"], mail) == {}
            return 250

    return await asyncio.to_thread(conversation)


async def test_the_user_name_of_an_smtp_client_is_its_room(server: TestServer) -> None:
    """The key must be one of that room; an unknown room is refused as a wrong key is, with the same reply."""
    async with servers_with(server, *ROOMS, working=True) as settings:
        async with serving(settings) as process:
            room_of, keys = submission_room(process.rooms, any_login=False), process.keys
            async with submission_server(room_of, SmtpOptions(port=0)) as submission:
                assert await submitted(submission, "tenant_b", keys["tenant_b"]) == 250
                assert await submitted(submission, "tenant_b", keys["tenant_a"]) == 535
                assert await submitted(submission, "tenant_x", keys["tenant_a"]) == 535
        counted = [
            await fetch_value(dict(settings.servers)[place], f"SELECT count(*) FROM {name}.deliveries")
            for place, name in zip("ab", ROOMS, strict=True)
        ]
    assert counted == [0, 1]


def bounced(server: SmtpServer, address: str, quoted: str = "") -> int:
    """Send a report to an address of the bounce domain; the code of the reply to the recipient."""
    report = f"From: mailer@mx.example\r\nTo: {address}\r\nSubject: Undelivered\r\n\r\nReturn-Path: <{quoted}>\r\n"
    with smtplib.SMTP("127.0.0.1", server.port, timeout=60) as client:
        client.helo()
        client.mail("")
        code, _ = client.rcpt(address)
        if code == 250:
            assert client.data(report)[0] == 250
        return code


async def unread(settings: Settings) -> list[int]:
    """The number of unread reports of each room; other tests of the module leave some, too."""
    return [
        await fetch_value(dict(settings.servers)[place], f"SELECT count(*) FROM {name}.unread_feedback")
        for place, name in zip("ab", ROOMS, strict=True)
    ]


async def test_a_bounce_finds_the_room_of_its_mail(two_rooms: Settings) -> None:
    """By the key of the return path, or by one that a report to a mailbox quotes; else it is for POSTROOM_SCHEMA."""
    domain, foreign = (
        "bounces.example.org",
        make_return_path(7, domain="bounces.example.org", key=RoomKey(b"another" * 5)),
    )
    paths = {
        name: make_return_path(7, domain=domain, key=room_keys([SecretKey(SECRET)], name)[0])
        for name in (*ROOMS, "tenant_x")
    }
    before = await unread(two_rooms)
    async with serving(two_rooms) as process:
        await process.rooms.refresh()
        options = ListenerOptions(domain=domain, port=0)
        async with bounce_server(process.reported, options) as server:
            for address, quoted, code in (
                (paths["tenant_b"], "", 250),
                (f"fbl@{domain}", paths["tenant_b"], 250),
                (f"postmaster@{domain}", "", 250),
                (paths["tenant_x"], "", 550),
                (foreign, "", 550),
            ):
                assert await asyncio.to_thread(bounced, server, address, quoted) == code, address
    assert [new - old for new, old in zip(await unread(two_rooms), before, strict=True)] == [1, 2]


async def test_a_bounce_waits_for_a_server_that_does_not_respond(two_rooms: Settings) -> None:
    """Its room may be there; the bounces of the other rooms are taken."""
    domain = "bounces.example.org"
    known, unknown = (
        make_return_path(8, domain=domain, key=room_keys([SecretKey(SECRET)], name)[0]) for name in ("tenant_a", "x")
    )
    down = Settings(servers=(*two_rooms.servers, ("c", "postgresql://x@127.0.0.1:1/none")))
    async with serving(down) as process:
        await process.rooms.refresh()
        async with bounce_server(process.reported, ListenerOptions(domain=domain, port=0)) as server:
            assert await asyncio.to_thread(bounced, server, known) == 250
            assert await asyncio.to_thread(bounced, server, unknown) == 451


async def test_idle_and_moving_rooms_are_closed(two_rooms: Settings) -> None:
    """A room without requests is closed and opened again; a moving one is a temporary failure."""
    async with serving(two_rooms, idle=timedelta(0)) as process:
        for name in ROOMS:
            assert (await process.browser(name).get(f"/rooms/{name}/v1/deliveries")).status == 200
        assert process.rooms.names == ["tenant_a", "tenant_b"]
        await process.rooms.refresh()
        assert process.rooms.names == []
        assert (await process.browser("tenant_a").get("/rooms/tenant_a/v1/deliveries")).status == 200
        url = dict(two_rooms.servers)["b"]
        await execute(url, "CREATE TABLE tenant_b.moving (); COMMENT ON TABLE tenant_b.moving IS 'moving from b to a'")
        try:
            await process.rooms.refresh()
            refused = await process.browser("tenant_b").get("/rooms/tenant_b/v1/deliveries")
            assert (refused.status, b"room_not_ready" in refused.body) == (503, True)
        finally:
            await execute(url, "DROP TABLE tenant_b.moving")


async def test_rooms_by_host(two_rooms: Settings) -> None:
    """With {room} in the host of the public URL, each room has a host of its own and no prefix."""
    async with serving(replace(two_rooms, public_url="https://{room}.example.org")) as process:
        guest = Guest(process.app, headers={"host": "tenant-b.example.org"})
        signed_in = await guest.post("/sign-in", {"key": process.keys["tenant_b"]})
        assert (signed_in.status, signed_in.headers["location"]) == (303, "/")
        assert signed_in.headers["set-cookie"].startswith("__Host-")
        assert (await guest.get("/deliveries")).status == 200
        assert (await guest.get("/deliveries", host="tenant-x.example.org")).status == 404
        assert (await guest.get("/deliveries", host="example.org")).status == 404


@pytest.mark.parametrize(
    "base, host, path, found",
    [
        ("http://h:1", "x", "/rooms/tenant_a/v1/x", ("tenant_a", "/v1/x")),
        ("http://h:1", "x", "/rooms/tenant_a", ("tenant_a", "/")),
        ("http://h:1", "x", "/rooms/Tenant/", None),
        ("http://h:1", "x", "/rooms/../v1", None),
        ("https://h/mail", "x", "/mail/rooms/a/b", ("a", "/b")),
        ("https://h/t/{room}", "x", "/t/a/b", ("a", "/b")),
        ("https://{room}.h", "tenant-a.h", "/rooms/b/", ("tenant_a", "/rooms/b/")),
        ("https://{room}.h", "tenant-a.h.evil", "/", None),
        ("https://{room}.h", "tenant_a.h", "/", None),
    ],
)
def test_the_address_names_the_room(base: str, host: str, path: str, found: tuple[str, str] | None) -> None:
    """By path, or by host with dashes for underscores."""
    address = RoomAddress(base)
    assert address.find(host, path) == found
    if found is not None:
        assert found[0].replace("_", "-") in address.url_of(found[0]).replace("_", "-")


async def test_the_command_serves_until_it_is_stopped(two_rooms: Settings) -> None:
    """`postroom serve --rooms` announces how many rooms it serves, answers, and ends with 0."""
    given = {
        "POSTROOM_SERVERS": table_of(two_rooms),
        "POSTROOM_HTTP_ADDR": "127.0.0.1:0",
        "POSTROOM_SECRET_KEY": SECRET.hex(),
        "POSTROOM_SMTP_ADDR": "127.0.0.1:0",
        "POSTROOM_BOUNCE_ADDR": "127.0.0.1:0",
        "POSTROOM_BOUNCE_DOMAIN": "bounces.example.org",
    }
    with running("serve", "--rooms", "tenant_*", settings=given) as process:
        said = await asyncio.to_thread(process.line, lambda line: "Postroom answers at" in line)
        assert "for 2 rooms" in said
        url = said.split()[3]
        async with aiohttp.ClientSession() as client, client.get(f"{url}/rooms/tenant_b/sign-in") as page:
            assert (page.status, '"/rooms/tenant_b/sign-in"' in await page.text()) == (200, True)
        assert await asyncio.to_thread(process.stop) == 0
