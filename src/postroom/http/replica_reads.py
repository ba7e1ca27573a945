"""Which requests are answered from the replica, and how a client reads its own writes.

Endpoints with `from_replica` list, count or export records; all others read and write the primary. Their answers name
the lag in seconds, `Postroom-Replica-Lag`. A client that must see what it has just written sends `Cache-Control:
no-cache` and gets the primary. For pages, the answer to a form sets a cookie that has the same effect and lives as long
as the replica may be behind, so that a person always sees the result of an action.
"""

from dataclasses import replace
from functools import partial

from postroom.db.pool import Pool
from postroom.db.replica import Replica
from postroom.db.room import Room
from postroom.runtime.endpoint import Answer, Call, Endpoint

COOKIE = "postroom_wrote"
LAG_HEADER = "postroom-replica-lag"
_READING = ("GET", "HEAD")


class ReplicaReads:
    """Calls handlers with the room of the replica where the endpoint and the client allow it."""

    def __init__(self, room: Room, replica: Replica) -> None:
        self._room, self._replica = room, replica
        self._cookie_age_s = int(room.settings.replica_lag.total_seconds()) + 1  # whole seconds, rounded up

    async def answer(self, endpoint: Endpoint, call: Call) -> Answer:
        if endpoint.from_replica and not _needs_primary(call):
            return await self._replica.read(partial(self._answer_from, endpoint, call))
        answer = await endpoint.handler(call)
        return self._remembered(answer) if endpoint.is_page and call.method not in _READING else answer

    async def _answer_from(self, endpoint: Endpoint, call: Call, pool: Pool) -> Answer:
        is_primary, lag_s = pool is self._room.pool, self._replica.lag_s
        call.room = replace(self._room, pool=pool)
        answer = await endpoint.handler(call)
        if is_primary or lag_s is None:
            return answer
        return replace(answer, headers={**answer.headers, LAG_HEADER: f"{lag_s:.1f}"})

    def _remembered(self, answer: Answer) -> Answer:
        cookie = f"{COOKIE}=1; HttpOnly; Max-Age={self._cookie_age_s}; Path=/; SameSite=Strict"
        return replace(answer, headers={"set-cookie": cookie, **answer.headers})


def _needs_primary(call: Call) -> bool:
    wants_fresh = "no-cache" in call.headers.get("cache-control", "")
    return wants_fresh or f"{COOKIE}=" in call.headers.get("cookie", "")
