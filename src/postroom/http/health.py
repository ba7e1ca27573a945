"""Endpoints for monitoring: liveness, readiness, metrics. Public, without internal details."""

from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus

import msgspec
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from postroom.accounts import store as accounts
from postroom.accounts.metrics import WRONG_CODES, show_stall
from postroom.accounts.service import measure_guesses, measure_stall
from postroom.db.errors import DatabaseError, DatabaseUnreachable
from postroom.db.faults import is_passing
from postroom.db.migrate import check_served
from postroom.db.primary import is_in_recovery
from postroom.db.replica import Replica
from postroom.db.room import Room
from postroom.delivery import store as delivery
from postroom.delivery.metrics import clear_outages, show_outages
from postroom.http.problems import problem
from postroom.intake.metrics import MALFORMED_WAITING
from postroom.intake.service import count_malformed_commands
from postroom.mail.store import count_templates
from postroom.runtime.endpoint import Answer, Call, Endpoint
from postroom.runtime.metrics import QUEUE_OLDEST_SECONDS, QUEUE_WAITING, REGISTRY, REPLICA_LAG
from postroom.schedule.metrics import show_backlog
from postroom.schedule.service import measure_schedule

COUNTED = 10_000
"""Waiting deliveries are counted up to this many per lane, so that a scrape stays cheap in a crisis."""

PATIENCE_S = 5.0  # probes usually give up after 10 s; a late response is a failed one


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str


class ReplicaHealth(msgspec.Struct, frozen=True):
    """Whether the replica is read, and why not; without it the primary answers everything."""

    is_read: bool
    lag_seconds: float | None
    problem: str | None


class Ready(msgspec.Struct, frozen=True):
    """The checks that passed."""

    status: str
    database: str
    migrations: str
    templates: int
    tokens_stalled_seconds: float  # seconds for which an open transaction has blocked account mail
    replica: ReplicaHealth | msgspec.UnsetType = msgspec.UNSET  # absent without POSTROOM_DATABASE_REPLICA_URL


async def healthz(_call: Call) -> Answer:
    return Answer(Alive("ok"))


async def metrics(call: Call) -> Answer:
    """Prometheus' text; the queue is measured now, and left out if the database does not answer or is in recovery."""
    _measure_replica(call)
    try:
        await _measure_queue(call.room)
        show_stall(await measure_stall(call.room.pool))
        WRONG_CODES.set(await measure_guesses(call.room.pool))
        MALFORMED_WAITING.set(await count_malformed_commands(call.room.pool))
        show_backlog(await measure_schedule(call.room.pool))
    except Exception as error:
        if not is_passing(error):
            raise
        QUEUE_WAITING.clear()
        QUEUE_OLDEST_SECONDS.clear()
        clear_outages()
    return Answer(generate_latest(REGISTRY), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _measure_replica(call: Call) -> None:
    health = _replica_health(call)
    REPLICA_LAG.clear()
    if health is not None and health.lag_seconds is not None:
        REPLICA_LAG.labels(call.room.name).set(health.lag_seconds)


async def _measure_queue(room: Room) -> None:
    now = datetime.now(UTC)
    async with room.pool.acquire(timeout=PATIENCE_S) as connection:
        if await is_in_recovery(connection):  # it can be read, but what it says is old, and nothing can leave
            raise DatabaseUnreachable("The database is in recovery.")
        depths = await delivery.measure_queue(connection, bound=COUNTED)
        await show_outages(connection, room.name, bound=COUNTED)
    for depth in depths:
        QUEUE_WAITING.labels(depth.lane.value).set(depth.waiting)
        waited = (now - depth.oldest_due_at).total_seconds() if depth.oldest_due_at else 0
        QUEUE_OLDEST_SECONDS.labels(depth.lane.value).set(max(waited, 0))


async def readyz(call: Call) -> Answer:
    try:
        async with call.room.pool.acquire(timeout=PATIENCE_S) as connection:
            await check_served(connection, call.room.name)
            templates = await count_templates(connection)
            stall = await accounts.measure_stall(connection, now=None)
    except DatabaseError as error:
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, error.message, code=error.code)
    stalled_s = stall.seconds if stall.is_stalled else 0.0
    return Answer(Ready("ok", "ok", "ok", templates, stalled_s, _replica_health(call) or msgspec.UNSET))


def _replica_health(call: Call) -> ReplicaHealth | None:
    replica: Replica | None = call.tools.get(Replica)
    if replica is None:
        return None
    lag_s, problem = replica.lag_s, replica.problem
    return ReplicaHealth(problem is None, None if lag_s is None else round(lag_s, 3), problem)


_endpoint = partial(Endpoint, method="GET", scope=None, tag="health")

ENDPOINTS = [
    _endpoint(path="/healthz", handler=healthz, summary="The process is alive.", answers={200: Alive}),
    _endpoint(
        path="/readyz", handler=readyz,
        summary="The database answers, it has the migrations of this version, and there are templates.",
        answers={200: Ready},
    ),
    _endpoint(
        path="/metrics", handler=metrics, summary="Metrics in Prometheus' text format.", answers={200: None},
        media_type=CONTENT_TYPE_PLAIN_0_0_4,
    ),
]  # fmt: skip
