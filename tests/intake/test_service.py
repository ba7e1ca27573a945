"""Batches of commands: the good are accepted, the bad are kept, and none waits for the other."""

import asyncio
import secrets

import asyncpg
import pytest
from tests.support.intake import PAYLOAD, entries, keys_of, malformed_rows, raw

from postroom.db.pool import Pool
from postroom.delivery import service as delivery_service
from postroom.delivery.model import Acceptance, Accepted
from postroom.errors import BadInput, IdempotencyConflict
from postroom.intake import service
from postroom.intake.errors import AlreadyResubmitted, MalformedCommandNotFound
from postroom.intake.metrics import COMMANDS, MALFORMED
from postroom.intake.model import Malformed, MalformedFilter, StreamEntry

BROKEN = b"{not json \xff"


async def test_the_good_are_accepted_and_the_bad_recorded_together(pool: Pool) -> None:
    """One batch, one transaction: poison between two good commands changes nothing for them."""
    outcomes = await service.accept_commands(pool, entries(raw(idempotency_key="a"), BROKEN, raw(idempotency_key="b")))
    assert [type(outcome) for outcome in outcomes] == [Accepted, Malformed, Accepted]
    assert await keys_of(pool) == ["a", "b"]
    [row] = await malformed_rows(pool)
    assert (row["raw"], row["reason"], row["source"]) == (BROKEN, "not_a_command", "test")


async def test_a_repeated_command_is_one_delivery(pool: Pool) -> None:
    """Same key and body, in the same batch or a later one, is the first delivery again."""
    first, again = await service.accept_commands(pool, entries(raw(), raw(delivery_id="other", request_id="r")))
    [later] = await service.accept_commands(pool, entries(raw(trace_id="x")))
    assert isinstance(first, Accepted)
    assert isinstance(again, Accepted)
    assert isinstance(later, Accepted)
    assert {first.id} == {again.id, later.id}
    assert (again.acceptance, later.acceptance) == (Acceptance.REPLAYED, Acceptance.REPLAYED)
    assert await malformed_rows(pool) == []


async def test_a_conflict_is_recorded(pool: Pool) -> None:
    """The same key with another body is kept for an operator; the first delivery stands."""
    other = raw({**PAYLOAD, "subject": "Other"})
    outcomes = await service.accept_commands(pool, entries(raw(), other))
    assert isinstance(outcomes[1], Malformed)
    [row] = await malformed_rows(pool)
    assert (row["reason"], row["source"], row["raw"]) == ("idempotency_conflict", "shop", other)
    assert await keys_of(pool) == ["k1"]


async def test_an_entry_handed_out_twice_is_recorded_once(pool: Pool) -> None:
    """A crash before the acknowledgement does not fill the list of malformed commands."""
    batch = entries(BROKEN, raw(), raw({**PAYLOAD, "subject": "Other"}))
    await service.accept_commands(pool, batch)
    await service.accept_commands(pool, batch)
    assert len(await malformed_rows(pool)) == 2


async def test_another_entry_at_the_same_place_is_recorded(pool: Pool) -> None:
    """After a stream lost its data its places repeat; other bytes at an old place are another command."""
    await service.accept_commands(pool, [StreamEntry("test 0", b"one")])
    await service.accept_commands(pool, [StreamEntry("test 0", b"two")])
    assert [row["raw"] for row in await malformed_rows(pool)] == [b"one", b"two"]


async def test_malformed_commands_are_counted(pool: Pool) -> None:
    """Prometheus sees outcomes and reasons."""
    commands, malformed = COMMANDS.labels("malformed"), MALFORMED.labels("bad_field")
    before = commands._value.get(), malformed._value.get()
    await service.accept_commands(pool, entries(raw(payload_mode="x"), raw()))
    assert (commands._value.get() - before[0], malformed._value.get() - before[1]) == (1, 1)
    assert await service.count_malformed_commands(pool) == 1


async def test_command_that_only_the_database_refuses_is_isolated(pool: Pool) -> None:
    """If one command passes every check and still cannot be stored, the others are accepted without it."""
    async with pool.acquire() as connection:
        await connection.execute("ALTER TABLE deliveries ADD CHECK (idempotency_key <> 'poison')")
    batch = entries(*(raw(idempotency_key=key) for key in ("a", "poison", "b")))
    outcomes = await service.accept_commands(pool, batch)
    assert [type(outcome) for outcome in outcomes] == [Accepted, Malformed, Accepted]
    assert await keys_of(pool) == ["a", "b"]
    assert [row["reason"] for row in await malformed_rows(pool)] == ["unstorable"]


async def test_a_heavy_batch_is_cut_into_pieces(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No statement carries more than the bound, unless one command alone does; all arrive, in their order."""
    batch = [*entries(*(raw(idempotency_key=key) for key in "abcd")), StreamEntry("test x", BROKEN)]
    heavy = StreamEntry("test heavy", raw({**PAYLOAD, "text": "x" * 5000}, idempotency_key="e"))
    monkeypatch.setattr(service, "HEAVIEST", 2 * len(batch[0].raw) + 1)
    outcomes = await service.accept_commands(pool, [*batch, heavy])
    assert [type(outcome) for outcome in outcomes] == [*[Accepted] * 4, Malformed, Accepted]
    assert await keys_of(pool) == list("abcde")
    async with pool.acquire() as connection:
        sizes = await connection.fetch("SELECT count(*) FROM deliveries GROUP BY xmin ORDER BY min(id)")
    assert [row["count"] for row in sizes] == [2, 2, 1]


async def test_a_value_beyond_a_limit_of_the_database_is_its_commands_fault(pool: Pool) -> None:
    """A command that fails on every retry is recorded as malformed, so that it does not block the stream."""
    async with pool.acquire() as connection:
        await connection.execute("CREATE INDEX ON delivery_payloads (text_body)")
    long = secrets.token_urlsafe(20_000)  # compresses badly
    outcomes = await service.accept_commands(
        pool, entries(raw(idempotency_key="a"), raw({**PAYLOAD, "text": long}, idempotency_key="b"))
    )
    assert [type(outcome) for outcome in outcomes] == [Accepted, Malformed]
    assert [row["reason"] for row in await malformed_rows(pool)] == ["unstorable"]


async def test_a_database_that_is_not_ready_makes_nothing_malformed(pool: Pool) -> None:
    """A fault that is not the command's is raised, and nothing was recorded."""
    async with pool.acquire() as connection:
        await connection.execute("ALTER FUNCTION wake_workers(text[]) RENAME TO wake_nobody")
    with pytest.raises(asyncpg.UndefinedFunctionError):
        await service.accept_commands(pool, entries(raw(), BROKEN))
    assert await malformed_rows(pool) == []


async def test_two_consumers_with_the_same_commands_make_each_once(pool: Pool) -> None:
    """Handed to two at once, every command is one delivery."""
    batch = entries(*(raw(idempotency_key=f"k{number}") for number in range(50)))
    await asyncio.gather(*(service.accept_commands(pool, batch) for _consumer in range(4)))
    assert await keys_of(pool) == [f"k{number}" for number in range(50)]


async def test_the_listing_pages_newest_first_and_filters(pool: Pool) -> None:
    """Cursor by cursor every malformed command is seen once; filters choose."""
    await service.accept_commands(pool, entries(BROKEN, raw(payload_mode="x"), raw(payload_mode="y"), b"[]"))
    first, cursor = await service.list_malformed_commands(pool, MalformedFilter(), limit=3)
    rest, end = await service.list_malformed_commands(pool, MalformedFilter(), cursor=cursor, limit=3)
    ids = [command.id for command in [*first, *rest]]
    assert ids == sorted(ids, reverse=True)
    assert (len(ids), end) == (4, None)
    by_source, _more = await service.list_malformed_commands(pool, MalformedFilter(source="shop", reason="bad_field"))
    assert len(by_source) == 2


async def _one_malformed(pool: Pool, data: bytes) -> int:
    await service.accept_commands(pool, entries(data))
    return int((await malformed_rows(pool))[-1]["id"])


async def test_corrected_command_becomes_a_delivery(pool: Pool) -> None:
    """Resubmitting accepts the corrected command and records its delivery and the actor."""
    command_id = await _one_malformed(pool, raw({**PAYLOAD, "to": "ada"}))
    accepted = await service.resubmit(pool, command_id, actor="key:ops", changes={"payload_json": PAYLOAD})
    delivery = await delivery_service.get_delivery(pool, accepted.id)
    assert (delivery.source, delivery.idempotency_key) == ("shop", "k1")
    summary = (await service.get_malformed_command(pool, command_id)).summary
    assert summary.delivery_id == accepted.id
    assert summary.resubmitted_at is not None
    async with pool.acquire() as connection:
        audit = await connection.fetchrow("SELECT actor, action, subject FROM audit_log ORDER BY id DESC LIMIT 1")
    assert tuple(audit) == ("key:ops", "malformed_command.resubmit", f"malformed_command:{command_id}")
    assert await service.count_malformed_commands(pool) == 0


async def test_a_field_can_be_taken_away(pool: Pool) -> None:
    """None removes a field that should never have been there."""
    command_id = await _one_malformed(pool, raw(bogus="x"))
    await service.resubmit(pool, command_id, actor="a", changes={"bogus": None})
    assert await keys_of(pool) == ["k1"]


async def test_a_command_that_is_still_wrong_stays(pool: Pool) -> None:
    """An invalid correction names the fields, and the command stays waiting."""
    command_id = await _one_malformed(pool, BROKEN)
    with pytest.raises(BadInput) as caught:
        await service.resubmit(pool, command_id, actor="a", changes={"source": "shop"})
    assert "payload_json" in [error.field for error in caught.value.errors]
    assert await service.count_malformed_commands(pool) == 1
    assert await keys_of(pool) == []


async def test_conflict_is_resolved_by_a_new_key(pool: Pool) -> None:
    """As it is, a conflict stays one; with a key of its own it is a delivery of its own."""
    await service.accept_commands(pool, entries(raw()))
    command_id = await _one_malformed(pool, raw({**PAYLOAD, "subject": "Other"}))
    with pytest.raises(IdempotencyConflict):
        await service.resubmit(pool, command_id, actor="a")
    await service.resubmit(pool, command_id, actor="a", changes={"idempotency_key": "k2"})
    assert await keys_of(pool) == ["k1", "k2"]


async def test_a_command_is_resubmitted_once(pool: Pool) -> None:
    """Two operators at once make one delivery; the second learns which."""
    command_id = await _one_malformed(pool, raw(payload_mode="x"))
    mend = {"payload_mode": "rendered"}
    results = await asyncio.gather(
        *(service.resubmit(pool, command_id, actor="a", changes=mend) for _operator in range(2)), return_exceptions=True
    )
    assert {type(result) for result in results} == {Accepted, AlreadyResubmitted}
    assert await keys_of(pool) == ["k1"]


async def test_an_unknown_command_is_not_found(pool: Pool) -> None:
    """There is nothing to show or resubmit."""
    with pytest.raises(MalformedCommandNotFound):
        await service.get_malformed_command(pool, 1)
    with pytest.raises(MalformedCommandNotFound):
        await service.resubmit(pool, 1, actor="a")
