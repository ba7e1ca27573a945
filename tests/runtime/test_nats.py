"""Connecting to NATS, as streams and publishers do."""

import asyncio
import socket

import pytest

pytest.importorskip("nats", reason="nats-py is not installed: connecting to NATS is NOT tested")

from nats.errors import Error
from tests.support.silence import LONG_S, let_pass

from postroom.runtime import nats
from postroom.runtime.nats import connect


async def test_unreachable_server_is_reported_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection error itself is raised, before the caller's own timeout."""

    async def refused(_error: Exception) -> None:
        let_pass(LONG_S)

    monkeypatch.setattr(nats, "FIRST_CONNECT_S", LONG_S / 2)
    monkeypatch.setattr(nats, "ONE_SERVER_S", LONG_S / 2)
    monkeypatch.setattr(nats, "_note", refused)
    async with asyncio.timeout(3 * LONG_S):
        with pytest.raises(ConnectionRefusedError):
            await connect(["nats://127.0.0.1:1"])


async def test_unresponsive_server_times_out() -> None:
    """A server that accepts the connection and sends nothing does not block the caller."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with asyncio.timeout(60):
            with pytest.raises((Error, OSError)):
                await connect([f"nats://127.0.0.1:{silent.getsockname()[1]}"])
