"""Writes results to counters, health, pauses and suspensions, in the transaction that writes the results."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog

from postroom.db.queries import Connection, arrays
from postroom.senders import store
from postroom.senders.health import AttemptKind, HealthCounts, HealthResult, is_slowdown, judge, tally
from postroom.senders.model import HealthPolicy, SenderFigures, find_trouble

_log = structlog.get_logger()


async def record_outcomes(
    connection: Connection, outcomes: Sequence[HealthResult], *, policy: HealthPolicy, now: datetime | None
) -> None:
    """Count results by account and by destination."""
    tallies = tally(outcomes)
    if tallies:
        columns = _columns(tallies)
        figures = await store.record_results(connection, health_window=policy.window, now=now, **columns)
        await _pause_unhealthy(connection, figures, policy)
        for account_id, added in tallies.items():
            if added.login_problem is not None:
                _log.warning("sender_suspended", sender=account_id, reason=added.login_problem)
            if added.rest_s is not None:
                _log.warning("sender_rests", sender=account_id, seconds=added.rest_s)
    await _record_destinations(connection, outcomes, now)


async def _pause_unhealthy(connection: Connection, figures: dict[int, SenderFigures], policy: HealthPolicy) -> None:
    trouble = {account_id: reason for account_id, each in figures.items() if (reason := find_trouble(each, policy))}
    if trouble:
        await store.pause_unhealthy(connection, account_id=list(trouble), reason=list(trouble.values()))
        for account_id, reason in trouble.items():
            _log.warning("sender_paused", sender=account_id, reason=reason)


async def _record_destinations(connection: Connection, outcomes: Sequence[HealthResult], now: datetime | None) -> None:
    """Count throttling by destination. Only accounts count: a relay replies for itself, whatever the destination."""
    slowed = Counter(o.domain for o in outcomes if o.slot.account_id and o.domain and is_slowdown(o.reply))
    if slowed:
        await store.raise_backoff(connection, domain=list(slowed), count=list(slowed.values()), now=now)
    taken = {o.slot.domain for o in outcomes if o.slot.domain and judge(o.reply) is AttemptKind.SENT} - slowed.keys()
    if taken:
        await store.decay_backoff(connection, domains=sorted(taken), now=now)


def _columns(tallies: dict[int, HealthCounts]) -> dict[str, list[Any]]:
    """The counts as columns, ordered by id, the lock order of all statements."""
    ids, counts = zip(*sorted(tallies.items()), strict=True)
    rest = [None if each.rest_s is None else timedelta(seconds=each.rest_s) for each in counts]
    same = arrays(
        counts, "tried", "bounces", "errors", "errors_in_a_row", "only_errors", "rest_problem", "login_problem"
    )
    return {"account_id": list(ids), "rest": rest, **same}
