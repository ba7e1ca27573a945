"""Group commit of acceptances: one request does not affect another."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import asyncpg
import pytest
from tests.support.builders import a_checked_mail, a_mail, addresses, suppress

from postroom.db.room import Room
from postroom.delivery import store
from postroom.delivery.check import CheckedRequest
from postroom.delivery.model import Acceptance, Accepted, Lane
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


SUPPRESSED = "bob@example.org"
LONE = {
    "content": {"html": "<p>Hello</p>", "locale": "fr", "lane": Lane.BULK},
    "template": {"template": "welcome", "variables": {"name": "Ada"}, "lane": Lane.AUTH},
    "tags": {"tags": {"order": "42"}},
    "suppressed": {"to": addresses(SUPPRESSED)},
}


@pytest.mark.parametrize("fields", LONE.values(), ids=LONE)
async def test_a_request_alone_is_accepted_as_in_a_batch(room: Room, fields: dict[str, Any]) -> None:
    """A usual mail that comes alone takes a shorter way, which stores the same, and both give the same answers."""
    await suppress(room.pool, SUPPRESSED)
    combiner = AcceptCombiner(room.pool)
    request = a_checked_mail(**{"source": "tests", "idempotency_key": "alone", **fields})
    other = CheckedRequest(replace(request, text=None, html="<p>Other</p>", template=None, subject="Other"))
    alone = await combiner.accept(request, key_id=None)
    [batched] = await combiner.accept_all([replace(request, idempotency_key="batched")], key_id=None)
    stored, twin = await asyncio.gather(*(_stored(room, answer.id) for answer in (alone, batched)))
    assert stored == twin
    assert (alone.state, alone.acceptance) == (batched.state, batched.acceptance)
    assert await combiner.accept(request, key_id=None) == Accepted(alone.id, alone.state, Acceptance.REPLAYED)
    with pytest.raises(IdempotencyConflict):
        await combiner.accept(other, key_id=None)


async def _stored(room: Room, delivery_id: int) -> Sequence[dict[str, Any] | None]:
    """The rows of a delivery without its place, its key and its times."""
    personal = "'{id,delivery_id,position,transaction_id,idempotency_key}'::text[]"
    tables = {"deliveries": "id", "delivery_payloads": "delivery_id", "due_deliveries": "id"}
    rows = [
        await room.pool.fetchval(f"SELECT to_jsonb(t) - {personal} FROM {table} AS t WHERE {column} = $1", delivery_id)
        for table, column in tables.items()
    ]
    return [row and {name: each for name, each in json.loads(row).items() if not name.endswith("_at")} for row in rows]


async def test_a_usual_mail_alone_is_no_batch(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Making arrays of it would take PostgreSQL half as long again."""
    monkeypatch.setattr(store, "accept", None)
    answer = await AcceptCombiner(room.pool).accept(_request(), key_id=None)
    assert answer.acceptance is Acceptance.ACCEPTED


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
