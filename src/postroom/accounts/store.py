"""One function per statement of `queries.sql`, with the same name. Only this module converts epoch seconds."""

from datetime import UTC, datetime, timedelta

import asyncpg

from postroom.accounts.model import (
    Account,
    AccountId,
    AccountStatus,
    Action,
    CodeCheck,
    CollectorStall,
    DueToken,
    KeptToken,
    NewAccount,
    TokenId,
    TokenState,
)
from postroom.db.queries import Connection, load
from postroom.db.retention import Step
from postroom.runtime.record import read_row

QUERIES = load("postroom.accounts")

_LAST_SECOND = int(datetime(9998, 12, 31, tzinfo=UTC).timestamp())


async def consume_code(
    connection: Connection, *, email: str, spelling: str, action: Action, code: str, now: datetime | None
) -> tuple[CodeCheck, AccountId | None]:
    """The caller must commit for every verdict, otherwise wrong guesses are not counted."""
    row = await QUERIES["consume_code"].one(
        connection, email=email, spelling=spelling, action=action.value, code=code, now=now
    )
    return CodeCheck(row["verdict"]), row["account"]


async def consume_secret(
    connection: Connection, *, secret: bytes, action: Action, now: datetime | None
) -> AccountId | None:
    row = await QUERIES["consume_secret"].maybe(connection, secret=secret, action=action.value, now=now)
    return AccountId(row["account"]) if row is not None else None


async def count_request(connection: Connection, *, email: str, action: Action, now: datetime | None) -> bool:
    """Count a token that a trigger created. False: the address is over its limit."""
    row = await QUERIES["count_request"].one(connection, email=email, action=action.value, now=now)
    return bool(row["is_counted"])


async def count_waiting(connection: Connection, *, bound: int) -> int:
    return int((await QUERIES["count_waiting"].one(connection, bound=bound))["waiting"])


async def create_account(connection: Connection, *, email: str, login: str, locale: str | None) -> NewAccount:
    row = await QUERIES["create_account"].one(connection, email=email, login=login, locale=locale)
    return NewAccount(AccountId(row["id"]), row["is_new"])


async def dequeue(connection: Connection, *, batch_limit: int, now: datetime | None) -> list[DueToken]:
    """Runs in the caller's transaction; a rollback also restores the cursor."""
    return [
        DueToken(
            id=TokenId(row["id"]),
            action=Action(row["action"]),
            account=AccountId(row["account"]),
            email=row["email"],
            login=row["login"],
            secret=row["secret"],
            code=row["code"],
            expires_at=_time(row["expires_at"]),
            created_at=_time(row["created_at"]),
            locale=row["locale"],
        )
        for row in await QUERIES["dequeue"].many(connection, batch_limit=batch_limit, now=now)
    ]


async def find_account(connection: Connection, *, account_id: int) -> Account | None:
    row = await QUERIES["find_account"].maybe(connection, account_id=account_id)
    return _account(row) if row is not None else None


async def find_login(connection: Connection, *, login: str) -> AccountId | None:
    row = await QUERIES["find_login"].maybe(connection, login=login)
    return AccountId(row["id"]) if row is not None else None


async def find_token(connection: Connection, *, secret: bytes, action: Action) -> TokenState | None:
    row = await QUERIES["find_token"].maybe(connection, secret=secret, action=action.value)
    return TokenState(row["is_used"], row["is_void"]) if row is not None else None


async def forget_limits(connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None) -> int:
    return await QUERIES["forget_limits"].exec(connection, retention=retention, batch_limit=batch_limit, now=now)


async def forget_tokens(
    connection: Connection, *, retention: timedelta, batch_limit: int, now: datetime | None, after: int = 0
) -> Step:
    row = await QUERIES["forget_tokens"].one(
        connection, after=after, batch_limit=batch_limit, retention=retention, now=now
    )
    return Step(row["looked_at"], row["forgotten"], row["last_id"])


async def is_login_reserved(connection: Connection, *, login: str) -> bool:
    return bool((await QUERIES["is_login_reserved"].one(connection, login=login))["is_reserved"])


async def issue_activation(connection: Connection, *, account_id: int) -> TokenId | None:
    row = await QUERIES["issue_activation"].maybe(connection, account_id=account_id)
    return TokenId(row["id"]) if row is not None else None


async def list_accounts(
    connection: Connection,
    *,
    status: AccountStatus | None,
    email: str | None,
    spelling: str | None,
    before_id: int | None,
    page_limit: int,
) -> list[Account]:
    rows = await QUERIES["list_accounts"].many(
        connection, status=status, email=email, spelling=spelling, before_id=before_id, page_limit=page_limit
    )
    return [_account(row) for row in rows]


async def list_tokens(connection: Connection, *, account_id: int, page_limit: int) -> list[KeptToken]:
    rows = await QUERIES["list_tokens"].many(connection, account_id=account_id, page_limit=page_limit)
    return [
        read_row(
            KeptToken, {name: _maybe_time(value) if name.endswith("_at") else value for name, value in row.items()}
        )
        for row in rows
    ]


async def measure_guesses(connection: Connection, *, now: datetime | None) -> int:
    return int((await QUERIES["measure_guesses"].one(connection, now=now))["guesses"])


async def measure_stall(connection: Connection, *, now: datetime | None) -> CollectorStall:
    row = await QUERIES["measure_stall"].one(connection, now=now)
    return CollectorStall(row["tokens"], row["stalled_s"] or 0.0, row["holder_pid"], row["holder_gid"])


async def renumber_tokens(connection: Connection) -> None:
    await QUERIES["renumber_tokens"].exec(connection)


async def request_token(
    connection: Connection, *, email: str, spelling: str, action: Action, now: datetime | None
) -> bool:
    """False: the address is over its limit, with or without an account."""
    row = await QUERIES["request_token"].one(connection, email=email, spelling=spelling, action=action.value, now=now)
    return bool(row["is_counted"])


async def reserve_login(connection: Connection, *, login: str) -> None:
    await QUERIES["reserve_login"].exec(connection, login=login)


async def suspend(connection: Connection, *, account_id: int) -> bool:
    return await QUERIES["suspend"].maybe(connection, account_id=account_id) is not None


async def unsuspend(connection: Connection, *, account_id: int) -> bool:
    return await QUERIES["unsuspend"].maybe(connection, account_id=account_id) is not None


def _account(row: asyncpg.Record) -> Account:
    return read_row(
        Account, {name: _maybe_time(value) if name.endswith("_at") else value for name, value in row.items()}
    )


def _time(seconds: int) -> datetime:
    """Clamp seconds to the calendar: applications may write any number, and one must not fail the whole page."""
    return datetime.fromtimestamp(min(max(seconds, 0), _LAST_SECOND), UTC)


def _maybe_time(seconds: int | None) -> datetime | None:
    return None if seconds is None else _time(seconds)
