"""The guard: webhooks reach public addresses only."""

import socket
from ipaddress import ip_address
from typing import Any

import pytest
from tests.support.webhook_server import PATIENCE, Receiver, a_post, receiving

from postroom.delivery.outcome import Disposition, classify
from postroom.post.reply import Stage
from postroom.transports.guard import AddressForbidden, GuardedResolver, is_public
from postroom.transports.webhook.transport import WebhookTransport

INNER = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.8.9.10", "168.63.129.16",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.1.1", "198.18.0.1",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::1",
    "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
]  # fmt: skip
OUTER = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", INNER)
def test_an_inner_address_is_not_public(address: str) -> None:
    """Private, loopback, link-local, multicast, metadata, reserved: in every notation."""
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", OUTER)
def test_an_outer_address_is_public(address: str) -> None:
    """Public addresses are public, also mapped or translated ones."""
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://127.1:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f000001:{port}/",
        "http://0:{port}/",
        "http://[::1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://[64:ff9b::7f00:1]:{port}/",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/",
    ],
)
async def test_url_to_a_private_address_is_rejected(url: str) -> None:
    """A URL to a private address, in any notation, is rejected without a connection."""
    async with receiving(Receiver()) as receiver:
        port = receiver.url.rpartition(":")[2].partition("/")[0]
        transport = WebhookTransport()
        envelope, content = a_post(url.format(port=port))
        reply = await transport.send(envelope, content)
        await transport.close()
    assert receiver.requests == []
    assert (reply.stage, reply.code) == (Stage.RECIPIENT, 550)
    # Numbers that only look like a host are no URL to begin with.
    assert ("is not a public address; " in reply.text) is (reply.enhanced == "forbidden")
    assert reply.enhanced == "forbidden" or "cannot be used" in reply.text
    assert classify(reply, envelope).verdict is Disposition.REFUSED


async def test_allowed_means_allowed() -> None:
    """With the setting, loopback by name works: development and private networks need it."""
    async with receiving(Receiver()) as receiver:
        transport = WebhookTransport(allow_private=True, timeout=PATIENCE)
        url = receiver.url.replace("127.0.0.1", "localhost")
        reply = await transport.send(*a_post(url))
        await transport.close()
    assert reply.code == 250
    assert reply.remote_host == "localhost [127.0.0.1]"


async def test_loopback_alone_can_be_allowed() -> None:
    """A developer's receiver on the same machine gets webhooks; other inner addresses stay closed."""
    async with receiving(Receiver()) as receiver:
        transport = WebhookTransport(allow_loopback=True, timeout=PATIENCE)
        reply = await transport.send(*a_post(receiver.url))
        await transport.close()
    assert reply.code == 250
    for host in ("10.0.0.1", "192.168.1.1", "169.254.169.254", "fc00::1", "0.0.0.0"):
        with pytest.raises(AddressForbidden):
            GuardedResolver(allow_loopback=True).check_host(host)


@pytest.mark.parametrize("host", ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254"])
def test_no_setting_opens_the_way_to_metadata(host: str) -> None:
    """A cloud hands out the machine's own credentials there."""
    with pytest.raises(AddressForbidden, match="no setting allows it"):
        GuardedResolver(allow_private=True).check_host(host)


async def test_a_name_with_one_inner_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A public address beside a private one is a trick, not a service."""
    answers: list[Any] = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 80)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 80)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: answers)
    with pytest.raises(AddressForbidden):
        await GuardedResolver(allow_private=False).resolve("rebinding.example", 80)


async def test_the_connection_goes_to_the_address_that_was_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is resolved once, and the checked address is used."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def resolve(host: Any, *args: Any, **options: Any) -> Any:
        if host != "once.example":
            return real(host, *args, **options)
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1" if len(asked) == 1 else "10.0.0.1", args[0]))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with receiving(Receiver()) as receiver:
        transport = WebhookTransport(allow_private=True, timeout=PATIENCE)
        url = receiver.url.replace("127.0.0.1", "once.example")
        reply = await transport.send(*a_post(url))
        await transport.close()
    assert (reply.code, asked) == (250, ["once.example"])
