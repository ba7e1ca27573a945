"""Fingerprints of requests: keyed, comparable with those of release 0.1.0, and gone with a one-time code."""

import pytest
from tests.support.builders import DELIVERED, NOON, Recording, a_mail, a_worker, accepted

from postroom.db.pool import Pool
from postroom.delivery.check import check_request
from postroom.delivery.model import DeliveryRequest, Lane
from postroom.delivery.service import accept
from postroom.delivery.worker import WorkerOptions
from postroom.errors import IdempotencyConflict

CODE = "042424"
GUESSES = """
    SELECT lpad(n::text, 6, '0')
    FROM deliveries AS d
    CROSS JOIN generate_series(42000, 43000) AS n
    WHERE d.request_fingerprint = request_fingerprint(
        d.lane::text, d.template_id, d.locale, jsonb_build_object('code', lpad(n::text, 6, '0')), NULL, NULL, NULL,
        d.recipient_email, NULL)
"""


def a_code(code: str = CODE, to: str = "ada@example.org") -> DeliveryRequest:
    variables = {"code": code}
    return a_mail(to, lane=Lane.AUTH, idempotency_key="login-1", template="login-code", variables=variables)


async def stored(pool: Pool) -> int | None:
    fingerprint: int | None = await pool.fetchval("SELECT request_fingerprint FROM deliveries")
    return fingerprint


async def accepted_by(pool: Pool, way: str, request: DeliveryRequest) -> int:
    """The id of the delivery, accepted alone or in a batch, which two functions do."""
    if way == "batch":
        other = a_mail("bob@example.org", idempotency_key=f"other-{hash(request.variables['code'])}")
        return (await accepted(pool, request, other))[0]
    async with pool.acquire() as connection, connection.transaction():
        return (await accept(connection, check_request(request))).id


@pytest.mark.parametrize("way", ["alone", "batch"])
async def test_a_code_cannot_be_found_by_trying_all_codes(pool: Pool, way: str) -> None:
    """A reader of the ledger that cannot read the room's key cannot compute a fingerprint."""
    await accepted_by(pool, way, a_code())
    assert await pool.fetch(GUESSES) == []
    await pool.execute(
        "UPDATE deliveries SET request_fingerprint = request_fingerprint(lane::text, template_id, locale, "
        """'{"code": "042424"}', NULL, NULL, NULL, recipient_email, NULL) WHERE lane = 'auth'"""
    )
    assert [row[0] for row in await pool.fetch(GUESSES)] == [CODE]  # as release 0.1.0 stored it


@pytest.mark.parametrize("way", ["alone", "batch"])
async def test_a_fingerprint_of_release_0_1_0_is_compared_by_its_digest(pool: Pool, way: str) -> None:
    """A request that was accepted before the upgrade is replayed after it, and another one is a conflict."""
    first = await accepted_by(pool, "alone", a_code())
    await pool.execute(
        "UPDATE deliveries SET request_fingerprint = request_fingerprint(lane::text, template_id, locale, "
        """'{"code": "042424"}', NULL, NULL, NULL, recipient_email, NULL)"""
    )
    assert await accepted_by(pool, way, a_code()) == first
    with pytest.raises(IdempotencyConflict):
        await accepted_by(pool, "alone", a_code("111111"))


async def test_the_key_is_read_by_roles_that_were_granted_it(pool: Pool) -> None:
    """The key is random, of 126 bits, and no role reads it by default."""
    keys = await pool.fetchrow(
        "SELECT pg_sequence_last_value('fingerprint_key_high'), pg_sequence_last_value('fingerprint_key_low')"
    )
    assert len(set(keys)) == 2
    assert min(keys) > 2**31
    granted = (
        "SELECT count(*) FROM pg_class, aclexplode(relacl) AS a WHERE relname ~ '^fingerprint_key' AND a.grantee = 0"
    )
    assert await pool.fetchval(granted) == 0


async def test_the_fingerprint_of_a_code_ends_with_its_mail(pool: Pool) -> None:
    """Mail of the lane auth that has ended has no fingerprint; its request is replayed, another recipient's is not."""
    first = await accepted_by(pool, "alone", a_code())
    assert await stored(pool) is not None
    await pool.execute("UPDATE deliveries SET next_attempt_at = $1, created_at = $1, dated_at = $1", NOON)
    await pool.execute("UPDATE due_deliveries SET due_at = $1", NOON)
    await a_worker(pool, Recording(DELIVERED), options=WorkerOptions(until_empty=True), clock=lambda: NOON).run()
    assert await pool.fetchval("SELECT state FROM deliveries") == "sent"
    assert await stored(pool) is None
    assert await accepted_by(pool, "alone", a_code()) == first
    with pytest.raises(IdempotencyConflict):
        await accepted_by(pool, "alone", a_code(to="eve@example.org"))
    assert await pool.fetchval("SELECT count(*) FROM deliveries") == 1


async def test_other_lanes_keep_their_fingerprint(pool: Pool) -> None:
    """Their content is compared as long as the idempotency key is valid."""
    mail = a_mail("ada@example.org", idempotency_key="order-1")
    await accepted(pool, mail, now=NOON)
    await a_worker(pool, Recording(DELIVERED), options=WorkerOptions(until_empty=True), clock=lambda: NOON).run()
    assert await stored(pool) is not None
