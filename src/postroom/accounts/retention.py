"""Forgetting tokens that expired long ago: a walk round the table by id, one bounded step at a time.

A step looks at as many tokens as it may, whichever of them must stay, so what it costs does not grow with the table.
It comes at most once a second, however often the collector rests; after a round that found nothing there is a minute's
pause. Each collector keeps its own place, in memory: a new one begins at the beginning.
"""

from datetime import timedelta

from postroom.accounts import store
from postroom.db.queries import Connection
from postroom.runtime.clock import Clock, database_time

STEP = 1_000
"""How many tokens are looked at in a step; also how many a second can be forgotten while there are that many."""

STEP_INTERVAL_S = 1.0
ROUND_INTERVAL_S = 60.0


class Retention:
    """One collector's walk. The caller says what the time is, in seconds of any clock that only goes forward."""

    def __init__(self, retention: timedelta, *, step: int = STEP, clock: Clock = database_time) -> None:
        self._retention, self._step, self._clock = retention, step, clock
        self._place = 0
        self._found = 0
        self._next_s = 0.0

    async def walk(self, connection: Connection, at_s: float) -> int:
        """Take the next step if its time has come; returns how many tokens were forgotten."""
        if at_s < self._next_s:
            return 0
        seen = await store.forget_tokens(
            connection, after_id=self._place, batch_limit=self._step, retention=self._retention, now=self._clock()
        )
        self._next_s = at_s + STEP_INTERVAL_S
        self._found += seen.forgotten
        if seen.last_id is not None and seen.looked_at == self._step:
            self._place = seen.last_id
        else:
            self._begin_again(at_s)
        return seen.forgotten

    def _begin_again(self, at_s: float) -> None:
        if not self._found:
            self._next_s = at_s + ROUND_INTERVAL_S
        self._place = self._found = 0
