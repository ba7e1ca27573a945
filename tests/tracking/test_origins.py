"""The origin of a request: peer, trusted proxies, and geographic place."""

from ipaddress import ip_network
from pathlib import Path

import pytest
from tests.support.http import call
from tests.support.tracking import ADA, FAST, KEY, links_app, open_desk
from tests.support.tracking_places import write_places

from postroom.db.pool import Pool
from postroom.runtime.endpoint import Receive, Scope, Send
from postroom.runtime.peers import TrustedProxies
from postroom.tracking.buffer import EngagementBuffer
from postroom.tracking.public import PublicLinks
from postroom.tracking.tokens import TokenSigner
from postroom.tracking.visitors import GeoDatabase

PROXIES = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


@pytest.mark.parametrize(
    "peer, forwarded, found",
    [
        ("198.51.100.7", None, "198.51.100.7"),
        ("198.51.100.7", "203.0.113.9", "198.51.100.7"),
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "192.0.2.1, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.9:4711", "203.0.113.9"),
        ("fd00::1", "[2001:db8::5]:443", "2001:db8::5"),
        ("::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("fe80::1%eth0", None, "fe80::1"),
        (None, "203.0.113.9", None),
        ("testclient", "203.0.113.9", None),
    ],
)
def test_only_trusted_proxies_may_set_the_client_address(
    peer: str | None, forwarded: str | None, found: str | None
) -> None:
    """The header is read from the right while the proxies are trusted, and ignored from other peers."""
    header = forwarded.encode() if forwarded is not None else None
    assert TrustedProxies(PROXIES).find(peer, header) == found


def test_without_trusted_proxies_the_header_is_ignored() -> None:
    """By default no proxy is trusted."""
    assert TrustedProxies().find("10.0.0.1", b"203.0.113.9") == "10.0.0.1"


async def test_client_address_behind_a_proxy_is_recorded(pool: Pool) -> None:
    """An open through a trusted proxy has the client's address, from one header or several."""
    buffer = EngagementBuffer(pool, options=FAST)
    signer = TokenSigner(KEY, "https://mail.example.com", room="postroom")
    app = links_app(pool, PublicLinks(signer, buffer), trusted_proxies=PROXIES)

    async def behind_proxy(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "client": ("10.0.0.1", 1)}, receive, send)

    await call(
        behind_proxy, "GET", signer.open_url(ADA), body=b"", headers={"X-Forwarded-For": "203.0.113.9, 10.0.0.2"}
    )
    await call(app, "GET", signer.open_url(ADA), body=b"", headers={})
    assert await buffer.run_once() == 2
    rows = await pool.fetch("SELECT host(ip_address) AS ip FROM open_events ORDER BY id")
    assert [row["ip"] for row in rows] == ["203.0.113.9", None]


async def test_places_come_from_the_operators_database(pool: Pool, tmp_path: Path) -> None:
    """Country and city are stored with an open if the database has the address."""
    path = tmp_path / "places.mmdb"
    loopback = {"country": {"iso_code": "DE"}, "city": {"names": {"en": "Kiel", "de": "Kiel"}}}
    path.write_bytes(write_places({"127.0.0.0/8": loopback, "192.0.2.0/24": {"country": {"iso_code": "FR"}}}))
    places = GeoDatabase(path)
    assert places.find("192.0.2.77") == ("FR", None)
    assert places.find("198.51.100.1") == (None, None)
    assert places.find("2001:db8::1") == (None, None)
    async with open_desk(pool, find_place=places.find) as desk:
        await desk.open()
        await desk.written()
        [row] = await desk.rows("SELECT country, city FROM open_events")
        assert tuple(row) == ("DE", "Kiel")
    places.close()
