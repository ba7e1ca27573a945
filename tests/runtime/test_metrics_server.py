"""Metrics of workers, over HTTP."""

import urllib.request

import pytest
from tests.support.ports import free_port

from postroom.errors import SettingInvalid
from postroom.runtime.metrics_server import metrics_served


def read(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def test_several_workers_share_an_address() -> None:
    """The second takes the next free port; both serve the metrics until they end."""
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
    """Without an address no port is opened."""
    with metrics_served(None) as nowhere:
        assert nowhere is None


def test_foreign_address_is_an_invalid_setting() -> None:
    """The error names the variable."""
    with pytest.raises(SettingInvalid, match="POSTROOM_METRICS_ADDR"), metrics_served(("192.0.2.1", 9000)):
        pass
