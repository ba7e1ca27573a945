"""Connecting to NATS, as streams and publishers do."""

import asyncio
import socket

import pytest

pytest.importorskip("nats", reason="nats-py is not installed: connecting to NATS is NOT tested")

from nats.errors import Error

from postroom.runtime.nats import FIRST_CONNECT_S, connect


async def test_a_server_that_is_not_there_is_said_in_time() -> None:
    """The trouble itself is raised, not only that time is up, and soon enough for whoever waits to stop."""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.wait_for(connect(["nats://127.0.0.1:1"]), FIRST_CONNECT_S * 2)


async def test_a_server_that_is_silent_is_given_up() -> None:
    """Whoever accepts a connection and says nothing does not hold us for ever."""
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises((Error, OSError)):
        await asyncio.wait_for(connect([f"nats://127.0.0.1:{silent.getsockname()[1]}"]), FIRST_CONNECT_S * 2)
