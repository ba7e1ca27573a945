"""One function per statement of `queries.sql`, with the same name. Only this module converts epoch seconds."""

from datetime import UTC, datetime, timedelta

from postroom.accounts.model import (
    Account,
    AccountId,
    CodeCheck,
    CollectorStall,
    DueToken,
    KeptToken,
    NewAccount,
    TokenId,
    TokenState,
)
from postroom.db.queries import Connection, Read, Result, column, load, model
from postroom.db.retention import Step
from postroom.runtime.record import read_row

QUERIES = load("postroom.accounts")

_LAST_SECOND = int(datetime(9998, 12, 31, tzinfo=UTC).timestamp())


def _with_times(kind: type[Result]) -> Read[Result]:
    """Reads a row as this record; each column `…_at` holds seconds."""
    return lambda row: read_row(
        kind, {name: _time(value) if name.endswith("_at") else value for name, value in row.items()}
    )


def _time(seconds: int | None) -> datetime | None:
    """Clamp seconds to the calendar: applications may write any number, and one must not fail the whole page."""
    return None if seconds is None else datetime.fromtimestamp(min(max(seconds, 0), _LAST_SECOND), UTC)


consume_code = QUERIES["consume_code"].one_as(lambda row: (CodeCheck(row["verdict"]), row["account"]))
"""The caller must commit for every verdict, otherwise wrong guesses are not counted."""
consume_secret = QUERIES["consume_secret"].maybe_as(column("account", AccountId))
count_request = QUERIES["count_request"].one_as(column("is_counted", bool))
"""Count a token that a trigger created. False: the address is over its limit."""
count_waiting = QUERIES["count_waiting"].one_as(column("waiting", int))
create_account = QUERIES["create_account"].one_as(model(NewAccount))
dequeue = QUERIES["dequeue"].many_as(_with_times(DueToken))
"""Runs in the caller's transaction; a rollback also restores the cursor."""
find_account = QUERIES["find_account"].maybe_as(_with_times(Account))
find_login = QUERIES["find_login"].maybe_as(column("id", AccountId))
find_token = QUERIES["find_token"].maybe_as(model(TokenState))
forget_limits = QUERIES["forget_limits"].exec


async def forget_tokens(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None, after: int = 0
) -> Step:
    row = await QUERIES["forget_tokens"].one(
        connection, after=after, batch_limit=batch_limit, retention=retention, now=now
    )
    return Step(row["looked_at"], row["forgotten"], row["last_id"])


is_login_reserved = QUERIES["is_login_reserved"].one_as(column("is_reserved", bool))
issue_activation = QUERIES["issue_activation"].maybe_as(column("id", TokenId))
list_accounts = QUERIES["list_accounts"].search_as(_with_times(Account))
list_tokens = QUERIES["list_tokens"].many_as(_with_times(KeptToken))
measure_guesses = QUERIES["measure_guesses"].one_as(column("guesses", int))
measure_stall = QUERIES["measure_stall"].one_as(
    lambda row: CollectorStall(row["tokens"], row["stalled_s"] or 0.0, row["holder_pid"], row["holder_gid"])
)
renumber_tokens = QUERIES["renumber_tokens"].exec
request_token = QUERIES["request_token"].one_as(column("is_counted", bool))
"""False: the address is over its limit, with or without an account."""
reserve_login = QUERIES["reserve_login"].exec
suspend = QUERIES["suspend"].has
unsuspend = QUERIES["unsuspend"].has
