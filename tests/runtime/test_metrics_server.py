"""Metrics of workers, over HTTP."""

import socket
import urllib.request

import pytest

from postroom.errors import SettingInvalid
from postroom.runtime.metrics_server import metrics_served


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def read(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def test_several_workers_share_an_address() -> None:
    """The second takes the next free port; both answer with the product's metrics, and neither afterwards."""
    port = free_port()
    with metrics_served(("127.0.0.1", port)) as one, metrics_served(("127.0.0.1", port)) as other:
        assert one is not None
        assert other is not None
        assert one != other
        assert "postroom_attempts" in read(one)
        assert "postroom_attempts" in read(other)
    with pytest.raises(OSError, match="refused"):
        read(one)


def test_without_an_address_nothing_is_served() -> None:
    """Off is off."""
    with metrics_served(None) as nowhere:
        assert nowhere is None


def test_an_address_that_is_not_ours_is_refused_by_name() -> None:
    """The variable is named."""
    with pytest.raises(SettingInvalid, match="POSTROOM_METRICS_ADDR"), metrics_served(("192.0.2.1", 9000)):
        pass
