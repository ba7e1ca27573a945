"""Helpers for tests of feedback: sent mail, reports about it, and queries."""

from datetime import datetime
from pathlib import Path
from typing import Any

from tests.support.builders import NOON, a_mail, accepted

from postroom.db.pool import Pool
from postroom.feedback.attribution import ReturnPaths
from postroom.feedback.model import BounceClass, Feedback, FeedbackKind, report_identity
from postroom.post.keyed_hash import SecretKey
from postroom.post.message_id import make_message_id, room_keys
from postroom.post.return_path import make_return_path

SECRET = bytes(range(32))
KEY = room_keys([SecretKey(SECRET)], "postroom")[0]
DOMAIN = "bounce.example.net"
PATHS = ReturnPaths(DOMAIN, (KEY,))
REPORTS = Path(__file__).parents[1] / "post" / "reports"

_numbers = iter(range(1, 1_000_000))


async def sent(pool: Pool, *to: str, now: datetime = NOON, **fields: Any) -> int:
    """A mail that was accepted and sent; returns its id."""
    (delivery_id,) = await accepted(pool, a_mail(*to, **fields), now=now)
    async with pool.acquire() as connection:
        await connection.execute(
            "UPDATE deliveries SET state = 'sending', next_attempt_at = NULL, claim_id = 1 WHERE id = $1",
            delivery_id,
        )
        await connection.execute(
            "UPDATE deliveries SET state = 'sent', claim_id = NULL, finished_at = $2 WHERE id = $1",
            delivery_id,
            now,
        )
    return delivery_id


async def message_id(pool: Pool, delivery_id: int) -> str:
    """The Message-ID that compose gives a delivery."""
    async with pool.acquire() as connection:
        created = await connection.fetchval("SELECT created_at FROM deliveries WHERE id = $1", delivery_id)
    return make_message_id(delivery_id, created, domain="example.org", key=KEY)


def report(name: str, *, delivery_id: int | None = None, message: str = "<somebody@elsewhere.example>") -> bytes:
    """A report from the fixtures, about this delivery."""
    path = "somebody@elsewhere.example"
    if delivery_id is not None:
        path = make_return_path(delivery_id, domain=DOMAIN, key=KEY)
    raw = (REPORTS / f"{name}.eml").read_bytes()
    return raw.replace(b"@@RETURN_PATH@@", path.encode()).replace(b"@@MESSAGE_ID@@", message.encode())


def a_bounce(address: str = "ada@example.org", **fields: Any) -> Feedback:
    """A verified bounce; hard by default."""
    return a_report(FeedbackKind.BOUNCE, address, **{"classification": BounceClass.RECIPIENT_HARD, **fields})


def a_soft_bounce(address: str = "ada@example.org", **fields: Any) -> Feedback:
    return a_bounce(address, classification=BounceClass.RECIPIENT_SOFT, **fields)


def a_complaint(address: str | None = "ada@example.org", **fields: Any) -> Feedback:
    return a_report(FeedbackKind.COMPLAINT, address, **fields)


def a_report(kind: FeedbackKind, address: str | None = "ada@example.org", **fields: Any) -> Feedback:
    """A verified report."""
    given: dict[str, Any] = {"origin": "smtp", "report_id": report_identity("test", next(_numbers))}
    return Feedback(kind=kind, address=address, is_verified=fields.pop("is_verified", True), **{**given, **fields})


async def suppressed(pool: Pool, address: str = "ada@example.org") -> list[tuple[str, str, datetime | None]]:
    """Reason, scope and end of all suppressions of an address."""
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT reason::text, scope::text, until FROM suppressions AS s WHERE address = $1 ORDER BY s.scope DESC",
            address,
        )
    return [(row["reason"], row["scope"], row["until"]) for row in rows]


async def rows(pool: Pool, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
    async with pool.acquire() as connection:
        return [tuple(row) for row in await connection.fetch(query, *arguments)]
