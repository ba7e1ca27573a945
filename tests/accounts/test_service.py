"""The account service: tokens, limits, and results that reveal no account."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.accounts import KEY, account, mailed_keys, run_once, sign_up, signed, token, wrong

from postroom.accounts import service
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
from postroom.accounts.model import AccountFilter, AccountStatus, Action
from postroom.accounts.signature import sign
from postroom.db.pool import Pool
from postroom.errors import BadInput, PostroomError

NOBODY = "nobody@example.org"
ADA = "ada@example.org"
LATER = timedelta(minutes=16)


async def guess(pool: Pool, email: str, code: str, action: Action = Action.ACTIVATION) -> str:
    """The result of a guess: `consumed`, or the error code."""
    try:
        await service.consume_code(pool, email, code=code, action=action)
    except PostroomError as error:
        return error.code
    return "consumed"


async def test_a_secret_activates(pool: Pool) -> None:
    """The signed secret consumes the token and returns the activated account."""
    ada = await sign_up(pool)
    used = await service.consume_secret(pool, await signed(pool, ada), key=KEY)
    assert (used.action, used.account.id, used.account.status) == (Action.ACTIVATION, ada, AccountStatus.ACTIVE)
    assert used.account.activated_at is not None


async def test_a_secret_works_once(pool: Pool) -> None:
    """A second use is rejected; of many concurrent ones, one succeeds."""
    ada = await sign_up(pool)
    secret = await signed(pool, ada)
    answers = await asyncio.gather(
        *(service.consume_secret(pool, secret, key=KEY) for _ in range(8)), return_exceptions=True
    )
    assert sum(isinstance(answer, TokenUsed) for answer in answers) == 7


async def test_a_secret_expires(pool: Pool) -> None:
    """A secret is rejected after fifteen minutes."""
    ada = await sign_up(pool)
    with pytest.raises(TokenExpired):
        await service.consume_secret(pool, await signed(pool, ada), key=KEY, now=datetime.now(UTC) + LATER)
    assert (await account(pool, ada))["status"] == "provisioned"


async def test_secret_signed_for_another_action_is_rejected(pool: Pool) -> None:
    """A secret signed for another path, or not signed, is not found."""
    ada = await sign_up(pool)
    found = await token(pool, ada)
    forged = sign(KEY, Action.PASSWORD_RECOVERY, found["secret"])
    with pytest.raises(TokenNotFound):
        await service.consume_secret(pool, forged, key=KEY)
    with pytest.raises(TokenNotFound):
        await service.consume_secret(pool, await signed(pool, ada), key=KEY, action=Action.PASSWORD_RECOVERY)
    with pytest.raises(TokenNotFound):
        await service.consume_secret(pool, sign(KEY, Action.ACTIVATION, bytes(32)), key=KEY)
    with pytest.raises(TokenNotFound):
        await service.consume_secret(pool, await signed(pool, ada), key=None)
    assert (await token(pool, ada))["consumed_at"] is None


async def test_a_code_activates(pool: Pool) -> None:
    """Address, code and action activate the account like the link; the case of the address is ignored."""
    ada = await sign_up(pool)
    code = (await token(pool, ada))["code"]
    used = await service.consume_code(pool, "ADA@example.org", code=code, action=Action.ACTIVATION)
    assert used.account.status is AccountStatus.ACTIVE


async def test_code_is_valid_for_its_own_action_only(pool: Pool) -> None:
    """The code of an activation does not consume a recovery."""
    ada = await sign_up(pool)
    code = (await token(pool, ada))["code"]
    assert await guess(pool, ADA, code, Action.PASSWORD_RECOVERY) == "token_not_found"


async def test_only_the_right_code_gets_expired_or_used(pool: Pool) -> None:
    """`TokenExpired` and `TokenUsed` are raised only for the right code."""
    ada = await sign_up(pool)
    code = (await token(pool, ada))["code"]
    with pytest.raises(TokenExpired):
        await service.consume_code(pool, ADA, code=code, action=Action.ACTIVATION, now=datetime.now(UTC) + LATER)
    assert await guess(pool, ADA, code) == "consumed"
    assert await guess(pool, ADA, code) == "token_used"
    assert await guess(pool, ADA, wrong(code)) == "token_not_found"


async def test_five_wrong_codes_void_the_token(pool: Pool) -> None:
    """After the fifth wrong code neither the right code nor the link works, and queued mail is cancelled."""
    ada = await sign_up(pool)
    code = (await token(pool, ada))["code"]
    assert [await guess(pool, ADA, wrong(code)) for _ in range(5)] == ["token_not_found"] * 5
    assert await guess(pool, ADA, code) == "guessed_too_often"
    with pytest.raises(GuessedTooOften):
        await service.consume_secret(pool, await signed(pool, ada), key=KEY)
    assert await run_once(pool) == 0
    assert (await account(pool, ada))["status"] == "provisioned"


async def test_four_wrong_codes_do_not_void_the_token(pool: Pool) -> None:
    """The right code works after four wrong ones."""
    ada = await sign_up(pool)
    code = (await token(pool, ada))["code"]
    for _ in range(4):
        await guess(pool, ADA, wrong(code))
    assert await guess(pool, ADA, code) == "consumed"


async def test_concurrent_guesses_are_limited_to_five(pool: Pool) -> None:
    """Five of thirty concurrent guesses are checked; the others and the right code afterwards are rejected."""
    ada = await sign_up(pool)
    code = (await token(pool, ada))["code"]
    answers = await asyncio.gather(*(guess(pool, ADA, wrong(code)) for _ in range(30)))
    assert answers.count("token_not_found") == 5
    assert answers.count("guessed_too_often") == 25
    assert await guess(pool, ADA, code) == "guessed_too_often"


async def test_new_token_resets_wrong_guesses(pool: Pool) -> None:
    """The code of a reissued token works."""
    ada = await sign_up(pool)
    old = (await token(pool, ada))["code"]
    for _ in range(6):
        await guess(pool, ADA, wrong(old))
    await service.request_token(pool, ADA, action=Action.ACTIVATION)
    assert await guess(pool, ADA, (await token(pool, ada))["code"]) == "consumed"


async def test_guesses_do_not_reveal_an_account(pool: Pool) -> None:
    """Guesses and token requests have the same results for an address with and without an account."""
    ada = await sign_up(pool, status="active")
    for action in Action:
        for _ in range(3):
            known = [await guess(pool, ADA, "0000x", action) for _ in range(7)]
            unknown = [await guess(pool, NOBODY, "0000x", action) for _ in range(7)]
            assert known == unknown == ["token_not_found"] * 5 + ["guessed_too_often"] * 2
            for address in (ADA, NOBODY):
                await service.request_token(pool, address, action=action)
    assert (await account(pool, ada))["status"] == "active"


async def test_request_limit_is_the_same_for_every_address(pool: Pool) -> None:
    """A known and an unknown address both have five requests per 15 minutes."""
    ada = await sign_up(pool, status="active")
    for _ in range(8):
        for address in (ADA, NOBODY):
            await service.request_token(pool, address, action=Action.PASSWORD_RECOVERY)
    assert await pool.fetchval("SELECT count(*) FROM tokens WHERE account = $1", ada) == 5
    for address in (ADA, NOBODY):
        answers = [await guess(pool, address, "0000x", Action.PASSWORD_RECOVERY) for _ in range(6)]
        await service.request_token(pool, address, action=Action.PASSWORD_RECOVERY)
        answers.append(await guess(pool, address, "0000x", Action.PASSWORD_RECOVERY))
        assert answers == ["token_not_found"] * 5 + ["guessed_too_often"] * 2
    later = datetime.now(UTC) + LATER
    await service.request_token(pool, ADA, action=Action.PASSWORD_RECOVERY, now=later)
    assert await pool.fetchval("SELECT count(*) FROM tokens WHERE account = $1", ada) == 6


async def test_unknown_addresses_are_stored_as_hashes(pool: Pool) -> None:
    """The limits store only a hash of an address."""
    await service.request_token(pool, NOBODY, action=Action.PASSWORD_RECOVERY)
    assert await pool.fetchval("SELECT count(*) FROM address_limits WHERE octet_length(address_hash) = 32") == 1
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 0


@pytest.mark.parametrize("status, mails", [("active", 1), ("provisioned", 0), ("suspended", 0)])
async def test_a_recovery_is_mailed_to_active_accounts_only(pool: Pool, status: str, mails: int) -> None:
    """Every request has the same result; only an active account gets the mail."""
    await sign_up(pool, status=status)
    await run_once(pool)
    before = len(await mailed_keys(pool))
    await service.request_token(pool, ADA, action=Action.PASSWORD_RECOVERY)
    await run_once(pool)
    assert len(await mailed_keys(pool)) - before == mails


async def test_sign_up_with_a_taken_address_returns_an_id(pool: Pool) -> None:
    """The sign-up returns an id without an account; a provisioned owner gets another mail."""
    first = await service.sign_up(pool, ADA, "ada")
    again = await service.sign_up(pool, "Ada@Example.org", "countess")
    assert (first.is_new, again.is_new) == (True, False)
    assert again.id > first.id
    assert await pool.fetchval("SELECT count(*) FROM accounts") == 1
    assert await pool.fetchval("SELECT count(*) FROM tokens WHERE account = $1", first.id) == 2


async def test_taken_login_is_reported_for_every_address(pool: Pool) -> None:
    """`LoginTaken` does not depend on the address."""
    await service.sign_up(pool, ADA, "ada")
    for address in (ADA, NOBODY):
        with pytest.raises(LoginTaken):
            await service.sign_up(pool, address, "ADA")


async def test_create_account_reports_taken_names(pool: Pool) -> None:
    """An operator gets `EmailTaken` and `LoginTaken`, and the audit log names the operator."""
    made = await service.create_account(pool, ADA, "ada", actor="cli:test")
    assert (made.status, made.email) == (AccountStatus.PROVISIONED, ADA)
    with pytest.raises(EmailTaken):
        await service.create_account(pool, ADA, "other", actor="cli:test")
    with pytest.raises(LoginTaken):
        await service.create_account(pool, NOBODY, "ada", actor="cli:test")
    assert await pool.fetchval("SELECT action FROM audit_log") == "account.create"


@pytest.mark.parametrize(
    "email, login, fields",
    [
        ("nonsense", "ada", ["email"]),
        ("Ada <ada@example.org>", "ada", ["email"]),
        ("nonsense", "", ["email", "login"]),
        (ADA, "l" * 255, ["login"]),
        (ADA, "a\nb", ["login"]),
        (ADA, " ", ["login"]),
    ],
)
async def test_invalid_names_are_rejected_by_field(pool: Pool, email: str, login: str, fields: list[str]) -> None:
    """The error names every invalid field, and no account is stored."""
    with pytest.raises(BadInput) as caught:
        await service.sign_up(pool, email, login)
    assert [error.field for error in caught.value.errors] == fields


async def test_suspend_and_unsuspend(pool: Pool) -> None:
    """Both are idempotent, and the audit log has each real change."""
    ada = await sign_up(pool, status="active")
    for _ in range(2):
        assert (await service.suspend(pool, ada, actor="key:test")).status is AccountStatus.SUSPENDED
    for _ in range(2):
        assert (await service.unsuspend(pool, ada, actor="key:test")).status is AccountStatus.ACTIVE
    rows = await pool.fetch("SELECT action FROM audit_log ORDER BY id")
    assert [row["action"] for row in rows] == ["account.suspend", "account.unsuspend"]


async def test_an_unsuspended_account_can_be_activated_by_a_new_token(pool: Pool) -> None:
    """A reissued token activates an account that was never active and whose token expired while suspended."""
    ada = await sign_up(pool)
    await run_once(pool)
    await service.suspend(pool, ada, actor="key:test")
    await pool.execute("UPDATE tokens SET expires_at = 1")
    assert (await service.unsuspend(pool, ada, actor="key:test")).status is AccountStatus.PROVISIONED
    await service.reissue_activation(pool, ada, actor="key:test")
    assert await run_once(pool) == 1
    used = await service.consume_secret(pool, await signed(pool, ada), key=KEY)
    assert used.account.status is AccountStatus.ACTIVE


async def test_reissue_for_an_active_account_is_rejected(pool: Pool) -> None:
    """Reissuing raises `NotProvisioned` for an active account."""
    ada = await sign_up(pool, status="active")
    with pytest.raises(NotProvisioned):
        await service.reissue_activation(pool, ada, actor="key:test")


async def test_an_unknown_account_is_not_found(pool: Pool) -> None:
    """Every function with an unknown id raises `AccountNotFound`."""
    with pytest.raises(AccountNotFound):
        await service.get_account(pool, 1)
    for change in (service.suspend, service.unsuspend, service.reissue_activation):
        with pytest.raises(AccountNotFound):
            await change(pool, 1, actor="key:test")


async def test_accounts_are_listed_by_page_and_filter(pool: Pool) -> None:
    """Pages are newest first and filtered by status and address; case is ignored."""
    ids = [await sign_up(pool, name) for name in ("ada", "bob", "cy")]
    await service.suspend(pool, ids[1], actor="key:test")
    first, cursor = await service.list_accounts(pool, AccountFilter(), limit=2)
    rest, end = await service.list_accounts(pool, AccountFilter(), cursor=cursor, limit=2)
    assert [found.id for found in (*first, *rest)] == ids[::-1]
    assert end is None
    suspended, _ = await service.list_accounts(pool, AccountFilter(status=AccountStatus.SUSPENDED))
    assert [found.id for found in suspended] == [ids[1]]
    by_address, _ = await service.list_accounts(pool, AccountFilter(email="CY@example.org"))
    assert [found.id for found in by_address] == [ids[2]]
