"""The actions on suppressions and reports. Every manual change is audited, without the address."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.errors import BadInput
from postroom.events.audit import audited, record_audit
from postroom.feedback import store
from postroom.feedback.errors import SuppressionNotFound
from postroom.feedback.model import (
    FeedbackKind,
    NewSuppression,
    ReceivedReport,
    Scope,
    Suppression,
    SuppressionChange,
    SuppressionReason,
    scope_of,
)
from postroom.feedback.record import suppression_columns
from postroom.post.address import ERASED, parse_bare
from postroom.runtime.page import OLDEST_FIRST, Found, read_page, search_page

EXPORT_PAGE = 10_000  # rows per statement; more needs memory, fewer more round trips
MOST_CHANGES = 200  # of one address in one response


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressionFilter:
    """Filter of suppressions; None matches any."""

    email: str | None = None
    reason: SuppressionReason | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFilter:
    """Filter of reports; None matches any."""

    email: str | None = None
    delivery_id: int | None = None
    kind: FeedbackKind | None = None
    is_verified: bool | None = None


async def list_suppressions(
    pool: Pool, chosen: SuppressionFilter, *, cursor: str | None = None, limit: int = 50
) -> Found[Suppression]:
    """A page of suppressions, newest first, and the cursor of the next page."""
    return await search_page(store.list_suppressions, pool, cursor, limit, **_filters(chosen))


async def list_reports(
    pool: Pool, chosen: ReportFilter, *, cursor: str | None = None, limit: int = 50
) -> Found[ReceivedReport]:
    """A page of reported bounces, complaints and unsubscribes, newest first."""
    return await search_page(store.list_bounces, pool, cursor, limit, **_filters(chosen))


async def find_suppressions(pool: Pool, email: str) -> list[Suppression]:
    """The suppressions of an address; empty if it is not suppressed. An erased address is found by its pseudonym."""
    return await store.find_suppressions(pool, address=_parsed(email))


async def list_history(pool: Pool, email: str) -> list[SuppressionChange]:
    """The history of an address, newest first; also if it is no longer suppressed."""
    return await store.list_changes(pool, address=_parsed(email), page_limit=MOST_CHANGES)


async def suppress(pool: Pool, wanted: NewSuppression, *, actor: str, now: datetime | None = None) -> Suppression:
    """Suppress an address manually. A suppression for a more severe reason is kept."""
    checked = replace(wanted, email=_parsed(wanted.email))
    scope = checked.scope or scope_of(checked.reason)
    async with audited(pool, actor, "suppression.add") as (connection, entry):
        await store.say_who(connection, actor=actor, note=checked.detail or "", quiet=False)
        before = (await _by_scope(connection, checked.email)).get(scope)
        await store.merge_suppressions(connection, now=now, **suppression_columns([checked]))
        made = (await _by_scope(connection, checked.email))[scope]
        entry.subject, entry.before, entry.after = _subject(made), _facts(before) if before else None, _facts(made)
    return made


async def lift(
    pool: Pool, email: str, *, actor: str, reason: SuppressionReason | None = None, note: str = ""
) -> list[Suppression]:
    """Lift the suppressions of an address and its soft bounces; the history stays. Raises `SuppressionNotFound`."""
    address = _parsed(email)
    async with pool.acquire() as connection, connection.transaction():
        await store.say_who(connection, actor=actor, note=note, quiet=False)
        lifted = await store.lift(connection, address=address, reason=reason.value if reason else None)
        if not lifted:
            raise SuppressionNotFound
        await store.forget_soft_bounces(connection, address=address)
        for each in lifted:
            after = {"note": note}
            await record_audit(connection, actor, "suppression.lift", _subject(each), before=_facts(each), after=after)
    return lifted


async def import_batch(pool: Pool, batch: Sequence[NewSuppression], *, actor: str) -> int:
    """Suppress many addresses in one transaction; returns the number of addresses written."""
    async with pool.acquire() as connection, connection.transaction():
        await store.say_who(connection, actor=actor, note="import", quiet=True)
        return await store.merge_suppressions(connection, now=None, **suppression_columns(batch))


async def record_import(pool: Pool, *, actor: str, imported: int, refused: int) -> None:
    """Write one entry in the audit log for a whole file."""
    after = {"imported": imported, "refused": refused}
    await record_audit(pool, actor, "suppression.import", "suppressions", after=after)


async def export_page(pool: Pool, *, cursor: str | None, limit: int) -> Found[Suppression]:
    """A page of all suppressions, oldest first, for exports."""
    return await read_page(store.list_export, pool, cursor, limit, order=OLDEST_FIRST)


async def export(pool: Pool, *, page: int = EXPORT_PAGE) -> AsyncIterator[list[Suppression]]:
    """All suppressions page by page, so that ten million rows need little memory."""
    cursor: str | None = None
    while True:
        found, cursor = await export_page(pool, cursor=cursor, limit=page)
        yield found
        if cursor is None:
            return


async def _by_scope(connection: Connection, address: str) -> dict[Scope, Suppression]:
    """The suppressions of an address by scope; rows under its pseudonym only if a pseudonym was given."""
    found = await store.find_suppressions(connection, address=address)
    is_erased = address.startswith(ERASED)
    return {each.scope: each for each in found if each.email.startswith(ERASED) == is_erased}


def _filters(chosen: SuppressionFilter | ReportFilter) -> dict[str, Any]:
    """The parameters of a listing's statement."""
    filters = asdict(chosen)
    email: str | None = filters.pop("email")
    return {**filters, "address": None if email is None else _parsed(email)}


def _parsed(email: str) -> str:
    with BadInput.naming("email"):
        return parse_bare(email)


def _subject(suppression: Suppression) -> str:
    """The id instead of the address: the audit log outlives an erasure."""
    return f"suppression:{suppression.id}"


def _facts(suppression: Suppression) -> dict[str, Any]:
    return {
        "reason": suppression.reason.value,
        "scope": suppression.scope.value,
        "origin": suppression.origin,
        "until": suppression.until.isoformat() if suppression.until else None,
        "bounce_count": suppression.bounce_count,
    }
