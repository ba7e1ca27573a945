"""One function per statement of `queries.sql`, under the same name. Only this module converts rows to models."""

from collections.abc import Sequence

import asyncpg

from postroom.db.queries import Connection, column, load, model
from postroom.runtime.record import read_row
from postroom.senders.model import (
    DestinationLimits,
    SealedAccount,
    SenderAccount,
    SenderFigures,
    SenderId,
)

QUERIES = load("postroom.senders")


def _sealed(row: asyncpg.Record) -> SealedAccount:
    return SealedAccount(read_row(SenderAccount, row), row["secret"], row["key_id"])


change_sender = QUERIES["change_sender"].has
decay_backoff = QUERIES["decay_backoff"].exec
delete_domain = QUERIES["delete_domain"].has
delete_sender = QUERIES["delete_sender"].maybe_as(column("email", str))
find_sender = QUERIES["find_sender"].maybe_as(_sealed)
has_turns = QUERIES["has_turns"].one_as(column("has_turns", bool))
insert_sender = QUERIES["insert_sender"].one_as(column("id", SenderId))
list_domains = QUERIES["list_domains"].many_as(model(DestinationLimits))
list_sealed = QUERIES["list_sealed"].many_as(column("id", SenderId))


async def list_senders(
    connection: Connection,
    *,
    ids: Sequence[int] | None = None,
    after_id: int | None = None,
    page_limit: int | None = None,
) -> list[SealedAccount]:
    rows = await QUERIES["list_senders"].many(connection, ids=ids, after_id=after_id, page_limit=page_limit)
    return [_sealed(row) for row in rows]


lock_sender = QUERIES["lock_sender"].has
pause_sender = QUERIES["pause_sender"].has
pause_unhealthy = QUERIES["pause_unhealthy"].exec
put_domain = QUERIES["put_domain"].one_as(model(DestinationLimits))
raise_backoff = QUERIES["raise_backoff"].exec

record_results = QUERIES["record_results"].dict_as("account_id", model(SenderFigures))
"""Count results given as arrays; returns the figures of each account."""
release_senders = QUERIES["release_senders"].exec
replace_secret = QUERIES["replace_secret"].exec
reserve_id = QUERIES["reserve_id"].one_as(column("id", SenderId))
resume_sender = QUERIES["resume_sender"].has
