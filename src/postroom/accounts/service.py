"""Operations on accounts and tokens. Surfaces call this module and nothing below it.

Responses do not reveal whether an address has an account: sign-up, token request and code check return the same and
write the same rows in both cases.
"""

from datetime import datetime

from postroom.accounts import store
from postroom.accounts.errors import (
    AccountNotFound,
    EmailTaken,
    GuessedTooOften,
    LoginTaken,
    NotProvisioned,
    TokenExpired,
    TokenNotFound,
    TokenUsed,
)
from postroom.accounts.model import (
    Account,
    AccountFilter,
    Action,
    CodeCheck,
    CollectorStall,
    Consumed,
    KeptToken,
    NewAccount,
)
from postroom.accounts.signature import open_signed
from postroom.db.pool import Pool
from postroom.db.queries import Connection, Run
from postroom.delivery.check import is_locale
from postroom.errors import BadInput, FieldError
from postroom.events.audit import audited
from postroom.post.address import parse_address
from postroom.runtime.page import Found, search_page

LONGEST_LOGIN = 254  # the longest address (RFC 5321), because many applications use the address as the login

SHOWN_TOKENS = 50  # an address gets a few tokens a day; older ones are deleted

_REFUSALS = {
    CodeCheck.EXPIRED: TokenExpired,
    CodeCheck.USED: TokenUsed,
    CodeCheck.VOID: GuessedTooOften,
    CodeCheck.WRONG: TokenNotFound,
}


async def consume_code(pool: Pool, email: str, *, code: str, action: Action, now: datetime | None = None) -> Consumed:
    """Consume the newest token of an address by its code. Five wrong codes void the token.

    Raises `TokenNotFound` for a wrong code and for an address without a token, `GuessedTooOften`, and only with the
    right code `TokenExpired` or `TokenUsed`.
    """
    address, spelling = spellings(email)
    async with pool.acquire() as connection, connection.transaction():
        verdict, account_id = await store.consume_code(
            connection, email=address, spelling=spelling, action=action, code=code, now=now
        )
        if account_id is not None:
            return Consumed(action, await get_account(connection, account_id))
    # After the commit: raising inside the transaction would roll back the count of wrong guesses.
    raise _REFUSALS[verdict]


async def consume_secret(
    pool: Pool, signed: str, *, key: bytes | None, action: Action | None = None, now: datetime | None = None
) -> Consumed:
    """Consume a token by the signed secret from its mail; with `action`, only a token of that action.

    Raises `TokenNotFound` for a forgery, another action's secret or a missing key, `TokenExpired`, `TokenUsed`,
    `GuessedTooOften`.
    """
    found = open_signed(key, signed) if key is not None else None
    if found is None or action not in (None, found[0]):
        raise TokenNotFound
    purpose, secret = found
    async with pool.acquire() as connection, connection.transaction():
        account_id = await store.consume_secret(connection, secret=secret, action=purpose, now=now)
        if account_id is None:
            raise await _why_not(connection, purpose, secret)
        return Consumed(purpose, await get_account(connection, account_id))


async def create_account(pool: Pool, email: str, login: str, *, actor: str, locale: str | None = None) -> Account:
    """Create an account as an operator and queue its activation mail.

    Raises `EmailTaken` and `LoginTaken`, which `sign_up` hides from people. An operator may use a reserved login.
    """
    address = check_names(email, login, locale)
    async with audited(pool, actor, "account.create") as (connection, note):
        made = await store.create_account(connection, email=address, login=login, locale=locale)
        if not made.is_new:
            taken = await store.find_login(connection, login=login)
            raise EmailTaken if taken is None else LoginTaken
        note.subject = f"account:{made.id}"
        return await get_account(connection, made.id)


async def get_account(connection: Connection | Pool, account_id: int) -> Account:
    return AccountNotFound.unless(await store.find_account(connection, account_id=account_id))


async def renumber_restored_tokens(pool: Pool) -> None:
    """Reorder tokens restored from another cluster, whose transaction ids are invalid here."""
    await store.renumber_tokens(pool)


async def list_accounts(
    pool: Pool, chosen: AccountFilter, *, cursor: str | None = None, limit: int = 50
) -> Found[Account]:
    """A page of accounts, newest first, and the cursor of the next page."""
    email, spelling = (None, None) if chosen.email is None else spellings(chosen.email)
    return await search_page(
        store.list_accounts, pool, cursor, limit, status=chosen.status, email=email, spelling=spelling
    )


async def find_by_login(pool: Pool, login: str) -> Account | None:
    """The account with a login, ignoring case."""
    async with pool.acquire() as connection:
        account_id = await store.find_login(connection, login=login)
        return None if account_id is None else await get_account(connection, account_id)


async def list_tokens(pool: Pool, account_id: int) -> list[KeptToken]:
    """The newest tokens of an account, without secrets and codes."""
    return await store.list_tokens(pool, account_id=account_id, page_limit=SHOWN_TOKENS)


async def measure_guesses(pool: Pool, *, now: datetime | None = None) -> int:
    """The number of wrong codes within a day, over all addresses."""
    return await store.measure_guesses(pool, now=now)


async def measure_stall(pool: Pool, *, now: datetime | None = None) -> CollectorStall:
    """The committed tokens that a running transaction delays, for how long, and its session."""
    return await store.measure_stall(pool, now=now)


async def reissue_activation(pool: Pool, account_id: int, *, actor: str) -> Account:
    """Send a new activation mail to a provisioned account; raises `NotProvisioned` for any other."""
    async with audited(pool, actor, "account.reissue", f"account:{account_id}") as (connection, _note):
        account = await get_account(connection, account_id)
        if await store.issue_activation(connection, account_id=account_id) is None:
            raise NotProvisioned
    return account


async def request_token(pool: Pool, email: str, *, action: Action, now: datetime | None = None) -> None:
    """Send a new token if the address has an account and is within its limit; the result reveals neither."""
    check_email(email)
    address, spelling = spellings(email)
    async with pool.acquire() as connection, connection.transaction():
        await store.request_token(connection, email=address, spelling=spelling, action=action, now=now)


async def sign_up(
    pool: Pool, email: str, login: str, *, locale: str | None = None, now: datetime | None = None
) -> NewAccount:
    """Create an account for a person who signs up. Raises `LoginTaken`, whether or not the address is taken.

    For a taken address the result is the same, with an unused id. A provisioned owner gets another activation mail, an
    active one nothing. The login is reserved and a token request is counted, as they would be for a new account.
    """
    address = check_names(email, login, locale)
    async with pool.acquire() as connection, connection.transaction():
        if await store.is_login_reserved(connection, login=login):
            raise LoginTaken
        made = await store.create_account(connection, email=address, login=login, locale=locale)
        if made.is_new:
            await store.count_request(connection, email=address, action=Action.ACTIVATION, now=now)
            return made
        if await store.find_login(connection, login=login) is not None:
            raise LoginTaken
        await store.reserve_login(connection, login=login)
        await store.request_token(connection, email=address, spelling=address, action=Action.ACTIVATION, now=now)
    return made


async def suspend(pool: Pool, account_id: int, *, actor: str) -> Account:
    """Suspend an account; idempotent."""
    return await _change_status(pool, account_id, "suspend", store.suspend, actor=actor)


async def unsuspend(pool: Pool, account_id: int, *, actor: str) -> Account:
    """Unsuspend an account: active if it was ever activated, otherwise provisioned (its token may have expired)."""
    return await _change_status(pool, account_id, "unsuspend", store.unsuspend, actor=actor)


async def _change_status(pool: Pool, account_id: int, action: str, change: Run[bool], *, actor: str) -> Account:
    async with audited(pool, actor, f"account.{action}", f"account:{account_id}") as (connection, note):
        note.before = {"status": (await get_account(connection, account_id)).status}
        note.is_dropped = not await change(connection, account_id=account_id)
        return await get_account(connection, account_id)


def check_email(email: str) -> str:
    """The address as it is stored; raises `BadInput`."""
    with BadInput.naming("email"):
        address = parse_address(email)
    if address.name is not None:
        raise BadInput.of("email", "must be an address without a name")
    return address.email


def check_names(email: str, login: str, locale: str | None = None) -> str:
    """The address of a new account as it is stored; raises `BadInput` with every invalid field."""
    errors: list[FieldError] = []
    address = ""
    try:
        address = check_email(email)
    except BadInput as error:
        errors += error.errors
    if not 1 <= len(login) <= LONGEST_LOGIN or not login.isprintable() or not login.strip():
        errors.append(FieldError("login", f"must be 1 to {LONGEST_LOGIN} printable characters"))
    if locale is not None and not is_locale(locale):
        errors.append(FieldError("locale", "is not a locale such as fr or fr-FR"))
    if errors:
        raise BadInput(errors)
    return address


def spellings(email: str) -> tuple[str, str]:
    """An address in stored form and as given: applications that insert in SQL store it as given."""
    given = email.strip()
    try:
        return check_email(given), given
    except BadInput:
        return given, given


async def _why_not(connection: Connection, action: Action, secret: bytes) -> Exception:
    state = await store.find_token(connection, secret=secret, action=action)
    if state is None:
        return TokenNotFound()
    if state.is_used:
        return TokenUsed()
    return GuessedTooOften() if state.is_void else TokenExpired()
