"""Circuit breaker for webhook hosts that time out, so that webhooks to other hosts are not delayed.

A post without a response keeps its slot in flight for the whole timeout, and slots are few. After `TIMEOUTS` in a
row the breaker of a host opens and its webhooks wait. Then one is sent as a probe; if it times out too, the next
pause is longer. Any response closes the breaker. A waiting webhook loses no attempt. Each process has its own
breakers.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from postroom.post.reply import Reply, Stage
from postroom.runtime.loop import Backoff

TIMEOUTS = 5
"""The breaker of a host opens after this many posts in a row without an answer."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 30.0, 300.0  # webhooks continue at most five minutes after the host is back

_log = structlog.get_logger()


@dataclass(slots=True)
class _Breaker:
    timeouts: int = 0
    pause: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, jitter=0, failures=1))
    until: float = 0.0

    @property
    def is_open(self) -> bool:
        return self.timeouts >= TIMEOUTS


class HostBackoff:
    """The breakers of one process, by host."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._breakers: dict[str, _Breaker] = {}
        self._monotonic = monotonic

    def wait(self, url: str) -> timedelta | None:
        """The time a webhook to this URL has to wait; None if it may start, as a probe if the pause is over."""
        breaker = self._breakers.get(_host(url)) if self._breakers else None
        if breaker is None or not breaker.is_open:
            return None
        now = self._monotonic()
        if now < breaker.until:
            return timedelta(seconds=math.ceil(breaker.until - now))  # whole seconds: one release for many
        breaker.until = now + breaker.pause.fail()  # for all but this probe
        return None

    def ended(self, url: str, reply: Reply) -> None:
        """Record an attempt. A refused connection held no slot for long and changes nothing."""
        if reply.code is not None:
            self._answered(_host(url))
        elif reply.stage is Stage.CONTENT:
            self._timed_out(_host(url))

    def _answered(self, host: str) -> None:
        breaker = self._breakers.pop(host, None)
        if breaker is not None and breaker.is_open:
            _log.info("webhook_host_recovered", host=host)

    def _timed_out(self, host: str) -> None:
        breaker = self._breakers.setdefault(host, _Breaker())
        breaker.timeouts += 1
        if breaker.is_open:
            breaker.until = max(breaker.until, self._monotonic() + breaker.pause.pause_s)
        if breaker.timeouts == TIMEOUTS:
            _log.warning("webhook_host_backed_off", host=host, seconds=breaker.pause.pause_s)


def _host(url: str) -> str:
    return url.partition("//")[2].partition("/")[0].lower()
