"""Responses do not reveal whether an address has an account; whole responses are compared."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.accounts import KEY, sign_up, signed, token, wrong
from tests.support.http import Browser, Response, open_browser
from tests.support.patience import PATIENCE_S

from postroom.accounts import service, store
from postroom.accounts.errors import GuessedTooOften
from postroom.accounts.model import Action
from postroom.accounts.worker import LIMITS_KEPT
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.errors import PostroomError

KNOWN, UNKNOWN = "knowna@example.org", "nobody@example.org"
BY_REQUEST = frozenset({"date", "x-request-id"})  # headers that differ between responses

Steps = Callable[["Stranger"], Coroutine[Any, Any, None]]


class Stranger:
    """A client that tries an address and records every response, without address, login and id."""

    def __init__(self, browser: Browser, room: Room, address: str) -> None:
        self._browser, self._room, self.address = browser, room, address
        self.answers: list[tuple[int, str, dict[str, str]]] = []

    async def post(self, path: str, **body: str) -> int:
        answer = await self._browser.post(path, json=body)
        self.answers.append((answer.status, self._anonymous(answer), _kept(answer)))
        return answer.status

    async def sign_up(self, login: str, address: str | None = None) -> int:
        """Sign up with a login that differs between the two addresses in its letters only."""
        return await self.post("/v1/accounts", email=address or self.address, login=f"{login}-{self.address[:6]}")

    async def ask(self, path: str = "/v1/activations") -> int:
        return await self.post(path, email=self.address)

    async def guess(self, action: str = "activation") -> int:
        """Try a wrong code."""
        newest = await self._room.pool.fetchval("SELECT code FROM tokens ORDER BY id DESC LIMIT 1")
        return await self.post("/v1/tokens/consume", email=self.address, code=wrong(newest or "00000"), action=action)

    async def wait(self, silence: timedelta) -> None:
        """Advance the clock and run retention."""
        await self._room.pool.execute(
            "UPDATE address_limits SET touched_at = touched_at - $1::interval, requests_from = requests_from - $1, "
            "day_from = day_from - $1",
            silence,
        )
        seconds = int(silence.total_seconds())
        await self._room.pool.execute("UPDATE tokens SET expires_at = expires_at - $1::bigint", seconds)
        async with self._room.pool.acquire() as connection:
            await store.forget_limits(connection, retention=LIMITS_KEPT, batch_limit=1000, now=None)

    def _anonymous(self, answer: Response) -> str:
        text = answer.body.decode().replace(self.address, "ADDRESS").replace(self.address[:6], "NAME")
        made = answer.json.get("id") if answer.status == 201 else None
        return text if made is None else text.replace(f'"id":{made}', '"id":N')


def _kept(answer: Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in BY_REQUEST}


async def login_twice(stranger: Stranger) -> None:
    """Sign up with the address and a login, then with another address and the same login."""
    assert await stranger.sign_up("pretty") == 201
    assert await stranger.sign_up("pretty", f"other-{stranger.address}") == 409
    assert await stranger.sign_up("PRETTY", f"third-{stranger.address}") == 409
    assert await stranger.sign_up("pretty") == 409


async def guess_and_wait(stranger: Stranger) -> None:
    """Six guesses after a token request, one more after a day, and six more."""
    await stranger.ask()
    assert [await stranger.guess() for _ in range(6)] == [404] * 5 + [429]
    await stranger.wait(timedelta(hours=25))
    assert await stranger.guess() == 404
    for _ in range(6):
        await stranger.guess()


async def ask_after_signing_up(stranger: Stranger) -> None:
    """Six requests after a sign-up, which counts as a request, with guesses before and after each."""
    await stranger.sign_up("pretty")
    for _ in range(6):
        for _ in range(2):
            await stranger.guess()
        await stranger.ask()
    for _ in range(6):
        await stranger.guess()


async def sign_up_after_asking(stranger: Stranger) -> None:
    """A sign-up after requests and guesses are used up, which resets neither."""
    for _ in range(5):
        await stranger.ask()
    for _ in range(5):
        await stranger.guess()
    await stranger.sign_up("pretty")
    assert await stranger.guess() == 429


async def recover(stranger: Stranger) -> None:
    """Recovery requests over the limit and after the window."""
    for _ in range(7):
        assert await stranger.ask("/v1/password-recoveries") == 202
        await stranger.guess("password_recovery")
    await stranger.wait(timedelta(minutes=16))
    await stranger.ask("/v1/password-recoveries")
    assert await stranger.guess("password_recovery") == 404


async def guess_day_and_night(stranger: Stranger) -> None:
    """A new token every 15 minutes, which does not reset the daily limit."""
    statuses = []
    for _ in range(8):
        await stranger.wait(timedelta(minutes=16))
        await stranger.ask()
        statuses += [await stranger.guess() for _ in range(5)]
    assert statuses == [404] * 25 + [429] * 15


@pytest.mark.parametrize("status", ["provisioned", "active", "suspended"])
@pytest.mark.parametrize(
    "steps",
    [login_twice, guess_and_wait, ask_after_signing_up, sign_up_after_asking, recover, guess_day_and_night],
)
async def test_known_and_unknown_address_get_equal_responses(room: Room, steps: Steps, status: str) -> None:
    """Status, headers and body of every step are equal."""
    await sign_up(room.pool, KNOWN.partition("@")[0], status=status)
    browser = await open_browser(room, "accounts:write")
    answers = []
    for address in (KNOWN, UNKNOWN):
        stranger = Stranger(browser, room, address)
        await steps(stranger)
        answers.append(stranger.answers)
    assert answers[0] == answers[1]


async def guess(pool: Pool, code: str, now: datetime) -> str:
    try:
        await service.consume_code(pool, KNOWN, code=code, action=Action.ACTIVATION, now=now)
    except PostroomError as error:
        return error.code
    return "consumed"


async def test_limit_of_25_wrong_codes_per_day(pool: Pool) -> None:
    """After 25 wrong codes the right code is rejected for the rest of the day; the link keeps working."""
    ada = await sign_up(pool, KNOWN.partition("@")[0])
    now = datetime.now(UTC)
    for _ in range(5):
        now += timedelta(minutes=16)
        await service.request_token(pool, KNOWN, action=Action.ACTIVATION, now=now)
        code = (await token(pool, ada))["code"]
        assert [await guess(pool, wrong(code), now) for _ in range(5)] == ["token_not_found"] * 5
    now += timedelta(minutes=16)
    await service.request_token(pool, KNOWN, action=Action.ACTIVATION, now=now)
    with pytest.raises(GuessedTooOften):
        await service.consume_code(
            pool, KNOWN, code=(await token(pool, ada))["code"], action=Action.ACTIVATION, now=now
        )
    used = await service.consume_secret(pool, await signed(pool, ada), key=KEY, now=now)
    assert used.account.id == ada


async def test_daily_limit_resets_after_a_day(pool: Pool) -> None:
    """A day after the first wrong code the count starts at zero."""
    ada = await sign_up(pool, KNOWN.partition("@")[0])
    now = datetime.now(UTC)
    await service.request_token(pool, KNOWN, action=Action.ACTIVATION, now=now)
    await guess(pool, wrong((await token(pool, ada))["code"]), now)
    await pool.execute("UPDATE address_limits SET day_guesses = 25")
    assert await guess(pool, (await token(pool, ada))["code"], now) == "guessed_too_often"
    later = now + timedelta(hours=25)
    await service.request_token(pool, KNOWN, action=Action.ACTIVATION, now=later)
    assert await guess(pool, (await token(pool, ada))["code"], later) == "consumed"


async def test_token_inserted_by_sql_resets_wrong_guesses(pool: Pool) -> None:
    """The code of a token that an application inserts works without another call."""
    ada = await sign_up(pool, KNOWN.partition("@")[0])
    now = datetime.now(UTC)
    code = (await token(pool, ada))["code"]
    for _ in range(6):
        await guess(pool, wrong(code), now)
    await pool.execute("INSERT INTO tokens (account, action) VALUES ($1, 'activation')", ada)
    assert await guess(pool, (await token(pool, ada))["code"], now) == "consumed"


async def test_operator_can_use_a_reserved_login(pool: Pool) -> None:
    """A reserved login belongs to no account, so an operator may assign it."""
    await sign_up(pool, KNOWN.partition("@")[0])
    await service.sign_up(pool, KNOWN, "pretty")
    assert (await service.create_account(pool, UNKNOWN, "pretty", actor="cli:test")).login == "pretty"


@pytest.mark.parametrize("address, tokens", [(KNOWN, 2), (UNKNOWN, 1)])
async def test_token_request_does_equal_work_for_every_address(pool: Pool, address: str, tokens: int) -> None:
    """Every request inserts a token (its sequence advances) and notifies, so that its duration reveals nothing."""
    await sign_up(pool, "knowna")
    before = await pool.fetchval("SELECT last_value FROM tokens_id_seq")
    heard = asyncio.Event()

    def hear(*_: object) -> None:
        heard.set()

    async with pool.acquire() as listening:
        await listening.add_listener("token_insert", hear)
        await pool.execute("SELECT request_token_at($1, 'activation')", address)
        await asyncio.wait_for(heard.wait(), PATIENCE_S)
        await listening.remove_listener("token_insert", hear)
    assert await pool.fetchval("SELECT last_value FROM tokens_id_seq") == before + 1
    assert await pool.fetchval("SELECT count(*) FROM tokens") == tokens
