"""The log of refused sign-ins."""

from typing import Any

from structlog.testing import capture_logs

from postroom.runtime.metrics import REGISTRY
from postroom.runtime.refusals import INTERVAL_S, RefusedSignIns


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def _counted(way: str) -> float:
    return REGISTRY.get_sample_value("postroom_sign_ins_total", {"way": way, "result": "refused"}) or 0.0


def _told(lines: list[Any]) -> list[tuple[str, int, str]]:
    return [(line["client"], line["count"], line["reason"]) for line in lines]


def test_an_address_causes_one_warning_a_minute_with_the_number_of_refusals() -> None:
    """The first refusal is logged at once; those of the following minute in one line, which names the last reason."""
    clock = Clock()
    log, before = RefusedSignIns(monotonic=clock), _counted("api")
    with capture_logs() as lines:
        for reason in ("unauthenticated", "unauthenticated", "key_expired"):
            log.refused("api", "192.0.2.1", reason)
        log.refused("api", "192.0.2.2", "unauthenticated")
        log.refused("key", "192.0.2.1", "unauthenticated")
        assert _told(lines) == [
            ("192.0.2.1", 1, "unauthenticated"),
            ("192.0.2.2", 1, "unauthenticated"),
            ("192.0.2.1", 1, "unauthenticated"),
        ]
        clock.now = INTERVAL_S
        log.refused("api", "192.0.2.2", "unauthenticated")
    assert _told(lines)[3:] == [("192.0.2.1", 2, "key_expired"), ("192.0.2.2", 1, "unauthenticated")]
    assert {(line["event"], line["log_level"]) for line in lines} == {("sign_in_refused", "warning")}
    assert _counted("api") == before + 5


def test_memory_is_bounded(monkeypatch: Any) -> None:
    """Addresses beyond the limit displace the one that was warned about first."""
    monkeypatch.setattr("postroom.runtime.refusals._MOST_REMEMBERED", 2)
    log = RefusedSignIns(monotonic=Clock())
    with capture_logs() as lines:
        for client in ("a", "b", "c", "c", "a"):
            log.refused("api", client, "unauthenticated")
    assert [client for client, _count, _reason in _told(lines)] == ["a", "b", "c", "a"]
