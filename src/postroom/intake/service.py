"""The service of commands: accept a batch; list, inspect, resubmit and dismiss malformed commands."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import asyncpg
import msgspec
import structlog

from postroom.db.faults import is_connection_lost
from postroom.db.pool import Pool
from postroom.db.queries import Connection
from postroom.delivery import service as delivery_service
from postroom.delivery.check import CheckedRequest
from postroom.delivery.model import IDEMPOTENCY_TTL, Acceptance, Accepted
from postroom.delivery.service import Check, count_accepted
from postroom.errors import BadInput, ConflictError, FieldError
from postroom.events.audit import audited, record_audit
from postroom.intake import store
from postroom.intake.command import decode_command, read_fields
from postroom.intake.errors import AlreadyResubmitted, MalformedCommandNotFound
from postroom.intake.metrics import COMMANDS, MALFORMED
from postroom.intake.model import (
    CommandRedrive,
    Malformed,
    MalformedCommand,
    MalformedFilter,
    MalformedGroup,
    MalformedSummary,
    Outcome,
    StreamEntry,
)
from postroom.post.text import storable
from postroom.runtime.page import Found, encode_cursor, search_page

COUNT_LIMIT = 10_000  # bounds the count, so that a scrape of metrics stays cheap
MOST_REDRIVEN = 500
"""Commands that one redrive tries: each is a transaction of its own, and a person waits for the answer."""

HEAVIEST = 8 * 1024 * 1024
"""Limit of command bytes per statement, unless one command is larger: PostgreSQL rejects messages of 1 GB."""

_log = structlog.get_logger()
_CONFLICT = (FieldError("idempotency_key", "was already used with other content"),)
_LONGEST_DETAIL = 2000  # of an error that is stored with a command

# Errors that the values of one command can cause. Other errors (missing function, disk full, deadlock) must not turn
# valid commands into malformed ones: they are raised, and the batch is retried.
_POISON = (
    BadInput,
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    ValueError,
    OverflowError,
)


async def accept_commands(
    pool: Pool,
    batch: Sequence[StreamEntry],
    *,
    idempotency_ttl: timedelta = IDEMPOTENCY_TTL,
    check: Check | None = None,
) -> list[Outcome]:
    """Accept a batch, in as few statements as its size allows, and record malformed commands in the same transaction.

    A request that `check` rejects, because its template is unknown or lacks a variable, is malformed too.
    Committed on return; the outcomes are in the order of the batch. Raises only on database errors; the caller then
    acknowledges nothing and can safely repeat the batch.
    """
    outcomes: list[Outcome] = []
    for piece in _cut(batch):
        outcomes += await _accept_piece(pool, piece, idempotency_ttl, check)
    return outcomes


def _cut(batch: Sequence[StreamEntry]) -> Iterator[Sequence[StreamEntry]]:
    """Split the batch into pieces of at most `HEAVIEST` bytes, or one command."""
    start = weight = 0
    for place, entry in enumerate(batch):
        weight += len(entry.raw)
        if weight > HEAVIEST and place > start:
            yield batch[start:place]
            start, weight = place, len(entry.raw)
    if batch:
        yield batch[start:]


async def _accept_piece(
    pool: Pool, batch: Sequence[StreamEntry], idempotency_ttl: timedelta, check: Check | None
) -> list[Outcome]:
    decoded = await _checked([decode_command(entry.raw) for entry in batch], check)
    try:
        outcomes = await _commit(pool, batch, decoded, idempotency_ttl)
    except _POISON as error:
        if is_connection_lost(error):
            raise
        # A command passed validation but cannot be stored: store one by one to find it.
        outcomes = [
            await _accept_alone(pool, entry, one, idempotency_ttl) for entry, one in zip(batch, decoded, strict=True)
        ]
    for entry, one, outcome in zip(batch, decoded, outcomes, strict=True):
        if isinstance(outcome, Malformed):
            _log.warning("command_malformed", entry=entry.place, reason=outcome.reason, size=len(entry.raw))
        _count(one, outcome)
    return outcomes


async def _checked(decoded: list[CheckedRequest | Malformed], check: Check | None) -> list[CheckedRequest | Malformed]:
    """The same commands; those with a template that cannot be rendered are malformed."""
    templated = [one for one in decoded if not isinstance(one, Malformed) and one.template is not None]
    if check is None or not templated:
        return decoded
    found = {id(one): errors for one, errors in zip(templated, await check(templated), strict=True) if errors}
    return [
        one
        if isinstance(one, Malformed) or (errors := found.get(id(one))) is None
        else Malformed("bad_payload", tuple(errors), one.source)
        for one in decoded
    ]


async def count_malformed_commands(pool: Pool) -> int:
    """The number of commands neither resubmitted nor dismissed; `COUNT_LIMIT` means that many or more."""
    return await store.count_malformed_commands(pool, count_limit=COUNT_LIMIT)


async def group_malformed_commands(pool: Pool) -> list[MalformedGroup]:
    """The waiting commands by reason, most frequent first, counted up to `COUNT_LIMIT` in all."""
    return await store.group_malformed_commands(pool, count_limit=COUNT_LIMIT)


async def get_malformed_command(pool: Pool, command_id: int) -> MalformedCommand:
    return MalformedCommandNotFound.unless(await store.find_malformed_command(pool, command_id=command_id))


async def list_malformed_commands(
    pool: Pool, chosen: MalformedFilter, *, cursor: str | None = None, limit: int = 50
) -> Found[MalformedSummary]:
    """A page of malformed commands, newest first, and the cursor of the next page."""
    return await search_page(store.list_malformed_commands, pool, cursor, limit, **asdict(chosen))


async def dismiss(pool: Pool, command_ids: Sequence[int], *, actor: str) -> set[int]:
    """Dismiss these commands, all or none. Return those that were not dismissed before."""
    async with pool.acquire() as connection, connection.transaction():
        dismissed = set(await store.dismiss_malformed_commands(connection, command_ids=command_ids))
        for command_id in dict.fromkeys(command_ids):
            subject = f"malformed_command:{command_id}"
            if command_id in dismissed:
                await record_audit(connection, actor, "malformed_command.dismiss", subject)
                continue
            command = MalformedCommandNotFound.unless(
                await store.find_malformed_command(connection, command_id=command_id)
            )
            if command.summary.resubmitted_at is not None:
                raise AlreadyResubmitted(command.summary.delivery_id)
    return dismissed


async def resubmit(
    pool: Pool,
    command_id: int,
    *,
    actor: str,
    changes: Mapping[str, Any] | None = None,
    idempotency_ttl: timedelta = IDEMPOTENCY_TTL,
) -> Accepted:
    """Accept a malformed command with these fields changed; the value None removes a field.

    Raises `BadInput` or `IdempotencyConflict` if it is still invalid, and leaves the command unchanged.
    """
    subject = f"malformed_command:{command_id}"
    async with audited(pool, actor, "malformed_command.resubmit", subject) as (connection, note):
        command = MalformedCommandNotFound.unless(await store.lock_malformed_command(connection, command_id=command_id))
        if command.summary.resubmitted_at is not None:
            raise AlreadyResubmitted(command.summary.delivery_id)
        request = _mended(command.raw, changes or {})
        accepted = await delivery_service.accept(connection, request, idempotency_ttl=idempotency_ttl)
        await store.mark_resubmitted(connection, command_id=command_id, delivery_id=accepted.id)
        note.after = {"delivery_id": accepted.id, "changed": sorted(changes or {})}
    count_accepted(request, accepted)
    return accepted


async def redrive(  # noqa: PLR0913 - the commands, how they are checked, and who asks
    pool: Pool,
    chosen: MalformedFilter,
    *,
    before_id: int,
    actor: str,
    dry_run: bool = False,
    check: Check | None = None,
    idempotency_ttl: timedelta = IDEMPOTENCY_TTL,
) -> CommandRedrive:
    """Resubmit waiting commands unchanged, the newest `MOST_REDRIVEN` below an id; with `dry_run`, only count them.

    Commands become valid when their cause is removed: a template is created, or a newer version knows the field. Each
    is audited like a single resubmission; an invalid one stays unchanged.
    """
    waiting = replace(chosen, resubmitted=False, dismissed=False)
    found, more = await list_malformed_commands(pool, waiting, cursor=encode_cursor(before_id), limit=MOST_REDRIVEN)
    accepted = 0
    for summary in found:
        is_valid = await _is_valid(pool, summary.id, check)
        if is_valid and not dry_run:
            is_valid = await _try_resubmit(pool, summary.id, actor, idempotency_ttl)
        accepted += is_valid
    return CommandRedrive(accepted=accepted, malformed=len(found) - accepted, is_more=more is not None)


async def _is_valid(pool: Pool, command_id: int, check: Check | None) -> bool:
    command = await get_malformed_command(pool, command_id)
    [decoded] = await _checked([decode_command(command.raw)], check)
    return not isinstance(decoded, Malformed)


async def _try_resubmit(pool: Pool, command_id: int, actor: str, idempotency_ttl: timedelta) -> bool:
    try:
        await resubmit(pool, command_id, actor=actor, idempotency_ttl=idempotency_ttl)
    except (BadInput, ConflictError):  # its key was used meanwhile, or another operator was faster
        return False
    return True


def _mended(raw: bytes, changes: Mapping[str, Any]) -> CheckedRequest:
    fields = {**read_fields(raw), **changes}
    try:
        mended = msgspec.json.encode({name: value for name, value in fields.items() if value is not None})
    except (ValueError, OverflowError, RecursionError):
        raise BadInput.of("fields", "cannot be written as JSON") from None
    decoded = decode_command(mended if changes else raw)
    if isinstance(decoded, Malformed):
        raise BadInput(decoded.errors)
    return decoded


async def _commit(
    pool: Pool, batch: Sequence[StreamEntry], decoded: Sequence[CheckedRequest | Malformed], ttl: timedelta
) -> list[Outcome]:
    good = [one for one in decoded if not isinstance(one, Malformed)]
    async with pool.acquire() as connection, connection.transaction():
        answers = iter(await delivery_service.accept_batch(connection, good, idempotency_ttl=ttl))
        outcomes = [one if isinstance(one, Malformed) else _outcome(one, next(answers)) for one in decoded]
        recorded = await _record(connection, batch, outcomes)
    for reason in recorded:
        MALFORMED.labels(reason).inc()
    return outcomes


async def _accept_alone(pool: Pool, entry: StreamEntry, decoded: CheckedRequest | Malformed, ttl: timedelta) -> Outcome:
    try:
        [outcome] = await _commit(pool, [entry], [decoded], ttl)
    except _POISON as error:
        if is_connection_lost(error):
            raise
        source = None if isinstance(decoded, Malformed) else decoded.source
        refused = Malformed("unstorable", (FieldError("command", f"cannot be stored: {type(error).__name__}"),), source)
        [outcome] = await _commit(pool, [entry], [refused], ttl)
    return outcome


def _outcome(request: CheckedRequest, accepted: Accepted) -> Outcome:
    if accepted.acceptance is Acceptance.CONFLICT:
        return Malformed("idempotency_conflict", _CONFLICT, request.source)
    return accepted


async def _record(connection: Connection, batch: Sequence[StreamEntry], outcomes: Sequence[Outcome]) -> list[str]:
    bad = [(entry, one) for entry, one in zip(batch, outcomes, strict=True) if isinstance(one, Malformed)]
    if not bad:
        return []
    return await store.record_malformed_commands(
        connection,
        entry=[entry.place for entry, _one in bad],
        source=[one.source or entry.intake for entry, one in bad],
        reason=[one.reason for _entry, one in bad],
        detail=[storable(one.detail, _LONGEST_DETAIL) for _entry, one in bad],
        raw=[entry.raw for entry, _one in bad],
    )


def _count(decoded: CheckedRequest | Malformed, outcome: Outcome) -> None:
    if isinstance(outcome, Malformed):
        COMMANDS.labels("malformed").inc()
    elif not isinstance(decoded, Malformed):
        COMMANDS.labels(outcome.acceptance.value).inc()
        count_accepted(decoded, outcome)
