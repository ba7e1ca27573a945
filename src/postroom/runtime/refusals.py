"""Sign-ins by way, counted in `postroom_sign_ins`; refused ones are also logged, with the address of the client.

A guessing client causes one warning per way, address and minute, with the number of refusals since the last one.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from postroom.runtime.metrics import SIGN_INS

INTERVAL_S = 60.0  # between two warnings about one address

_MOST_REMEMBERED = 10_000  # addresses; bounds memory under attack

_log = structlog.get_logger()


@dataclass(slots=True)
class _Warned:
    """Refusals since the last warning."""

    at: float
    count: int = 0
    reason: str = ""


class RefusedSignIns:
    """Counts refused sign-ins and warns about them."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._warned: dict[tuple[str, str], _Warned] = {}  # the oldest warning first

    def refused(self, way: str, client: str, reason: str) -> None:
        """Count a refusal; the first of an address is logged at once."""
        SIGN_INS.labels(way, "refused").inc()
        now = self._monotonic()
        self._warn_again(now)
        known = self._warned.get((way, client))
        if known is not None:
            known.count, known.reason = known.count + 1, reason
            return
        if len(self._warned) >= _MOST_REMEMBERED:
            del self._warned[next(iter(self._warned))]
        self._warned[way, client] = _Warned(now)
        _log.warning("sign_in_refused", way=way, client=client, count=1, reason=reason)

    def _warn_again(self, now: float) -> None:
        """Log refusals that came after a warning whose interval has ended."""
        while self._warned:
            (way, client), known = next(iter(self._warned.items()))
            if known.at > now - INTERVAL_S:
                return
            del self._warned[way, client]
            if known.count:
                _log.warning("sign_in_refused", way=way, client=client, count=known.count, reason=known.reason)
                self._warned[way, client] = _Warned(now)


_REFUSED = RefusedSignIns()
sign_in_refused = _REFUSED.refused
"""Count and log a refused sign-in of this process: way, address of the client, reason."""


def signed_in(way: str) -> None:
    """Count a sign-in."""
    SIGN_INS.labels(way, "accepted").inc()
