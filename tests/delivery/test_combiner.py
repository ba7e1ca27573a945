"""Group commit of acceptances: one request does not affect another."""

import asyncio

import asyncpg
import pytest
from tests.support.builders import a_checked_mail, a_mail

from postroom.db.room import Room
from postroom.delivery.check import CheckedRequest
from postroom.delivery.model import Acceptance
from postroom.delivery.service import AcceptCombiner
from postroom.errors import IdempotencyConflict
from postroom.runtime.metrics import ACCEPTED


def _request(subject: str = "Hello", key: str | None = None) -> CheckedRequest:
    return a_checked_mail(subject=subject, source="tests", idempotency_key=key)


async def test_requests_that_wait_together_share_a_statement(room: Room) -> None:
    """Concurrent requests share few transactions, and each gets its own id."""
    combiner = AcceptCombiner(room.pool)
    subjects = [f"Number {n}" for n in range(100)]
    accepted = await asyncio.gather(*(combiner.accept(_request(subject), key_id=None) for subject in subjects))
    rows = await room.pool.fetch(
        "SELECT id, subject, deliveries.xmin::text AS made_by "
        "FROM deliveries JOIN delivery_payloads ON delivery_id = id"
    )
    assert {row["id"]: row["subject"] for row in rows} == {
        answer.id: subject for answer, subject in zip(accepted, subjects, strict=True)
    }
    assert len({row["made_by"] for row in rows}) <= 2


async def test_a_request_that_the_database_rejects_fails_alone(room: Room) -> None:
    """PostgreSQL rejects the statement of the batch; the combiner then accepts each request alone."""
    combiner = AcceptCombiner(room.pool)
    requests = [_request("one"), CheckedRequest(a_mail(subject="NUL: \0")), _request("three")]
    answers = await asyncio.gather(*(combiner.accept(each, key_id=None) for each in requests), return_exceptions=True)
    assert isinstance(answers[1], asyncpg.DataError)
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries") == 2


async def test_a_conflict_is_raised_for_one_and_listed_for_a_batch(room: Room) -> None:
    """A single request in conflict is an error; in a batch it is one of the answers."""
    combiner = AcceptCombiner(room.pool)
    await combiner.accept(_request("first", key="k"), key_id=None)
    with pytest.raises(IdempotencyConflict):
        await combiner.accept(_request("second", key="k"), key_id=None)
    answers = await combiner.accept_all([_request("second", key="k"), _request("third")], key_id=None)
    assert [answer.acceptance for answer in answers] == [Acceptance.CONFLICT, Acceptance.ACCEPTED]


async def test_every_acceptance_is_counted(room: Room) -> None:
    """Metrics count accepted, replayed and conflict separately."""

    def counts() -> list[float]:
        return [ACCEPTED.labels("transactional", acceptance.value)._value.get() for acceptance in Acceptance]

    before = counts()
    combiner = AcceptCombiner(room.pool)
    await combiner.accept_all([_request("a", key="k"), _request("b")], key_id=None)
    await combiner.accept_all([_request("a", key="k"), _request("c", key="k")], key_id=None)
    await combiner.close()
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [2, 1, 1]


async def test_a_batch_that_grew_is_a_conflict_under_its_key(room: Room) -> None:
    """Requests that share a key are all known or all new; others are independent."""
    combiner = AcceptCombiner(room.pool)
    two = [_request("a", key="k/0"), _request("b", key="k/1")]
    three = [*two, _request("c", key="k/2")]
    first = await combiner.accept_together(two, share_key=True, key_id=None)
    assert [answer.id for answer in await combiner.accept_together(two, share_key=True, key_id=None)] == [
        each.id for each in first
    ]
    with pytest.raises(IdempotencyConflict):
        await combiner.accept_together(three, share_key=True, key_id=None)
    assert await room.pool.fetchval("SELECT count(*) FROM deliveries") == 2
    answers = await combiner.accept_together(three, key_id=None)
    assert [answer.acceptance for answer in answers] == [*[Acceptance.REPLAYED] * 2, Acceptance.ACCEPTED]
