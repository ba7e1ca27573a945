"""Use-cases: who gets in, who does not, and what strangers cannot learn."""

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
    """What a guess is answered with: `consumed`, or the code of the refusal."""
    try:
        await service.consume_code(pool, email, code=code, action=action)
    except PostroomError as error:
        return error.code
    return "consumed"


async def test_a_secret_activates(pool: Pool) -> None:
    """The signed secret consumes the token, and the answer is the account as it is now."""
    ada = await sign_up(pool)
    used = await service.consume_secret(pool, await signed(pool, ada), key=KEY)
    assert (used.action, used.account.id, used.account.status) == (Action.ACTIVATION, ada, AccountStatus.ACTIVE)
    assert used.account.activated_at is not None


async def test_a_secret_works_once(pool: Pool) -> None:
    """The second time it has been used; of many at once, one gets in."""
    ada = await sign_up(pool)
    secret = await signed(pool, ada)
    answers = await asyncio.gather(
        *(service.consume_secret(pool, secret, key=KEY) for _ in range(8)), return_exceptions=True
    )
    assert sum(isinstance(answer, TokenUsed) for answer in answers) == 7


async def test_a_secret_expires(pool: Pool) -> None:
    """After fifteen minutes it is gone."""
    ada = await sign_up(pool)
    with pytest.raises(TokenExpired):
        await service.consume_secret(pool, await signed(pool, ada), key=KEY, now=datetime.now(UTC) + LATER)
    assert (await account(pool, ada))["status"] == "provisioned"


async def test_a_secret_signed_for_another_action_is_refused(pool: Pool) -> None:
    """The right secret under the wrong path is unknown, and so is one that was never signed."""
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
    """Address in any case, code and action do what the link does."""
    ada = await sign_up(pool)
    code = (await token(pool, ada))["code"]
    used = await service.consume_code(pool, "ADA@example.org", code=code, action=Action.ACTIVATION)
    assert used.account.status is AccountStatus.ACTIVE


async def test_a_code_is_good_for_its_own_action(pool: Pool) -> None:
    """An activation's code recovers nothing."""
    ada = await sign_up(pool)
    code = (await token(pool, ada))["code"]
    assert await guess(pool, ADA, code, Action.PASSWORD_RECOVERY) == "token_not_found"


async def test_who_knows_the_code_learns_why_it_fails(pool: Pool) -> None:
    """Expired and used are told to those with the right code, and to nobody else."""
    ada = await sign_up(pool)
    code = (await token(pool, ada))["code"]
    with pytest.raises(TokenExpired):
        await service.consume_code(pool, ADA, code=code, action=Action.ACTIVATION, now=datetime.now(UTC) + LATER)
    assert await guess(pool, ADA, code) == "consumed"
    assert await guess(pool, ADA, code) == "token_used"
    assert await guess(pool, ADA, wrong(code)) == "token_not_found"


async def test_five_wrong_codes_void_the_token(pool: Pool) -> None:
    """After the fifth, neither the right code nor the link works; the mail is not sent any more either."""
    ada = await sign_up(pool)
    code = (await token(pool, ada))["code"]
    assert [await guess(pool, ADA, wrong(code)) for _ in range(5)] == ["token_not_found"] * 5
    assert await guess(pool, ADA, code) == "guessed_too_often"
    with pytest.raises(GuessedTooOften):
        await service.consume_secret(pool, await signed(pool, ada), key=KEY)
    assert await run_once(pool) == 0
    assert (await account(pool, ada))["status"] == "provisioned"


async def test_four_wrong_codes_do_not(pool: Pool) -> None:
    """The fifth guess may still be right."""
    ada = await sign_up(pool)
    code = (await token(pool, ada))["code"]
    for _ in range(4):
        await guess(pool, ADA, wrong(code))
    assert await guess(pool, ADA, code) == "consumed"


async def test_guesses_at_once_are_still_five(pool: Pool) -> None:
    """Thirty guesses in parallel count five; the rest are refused, and so is the right code afterwards."""
    ada = await sign_up(pool)
    code = (await token(pool, ada))["code"]
    answers = await asyncio.gather(*(guess(pool, ADA, wrong(code)) for _ in range(30)))
    assert answers.count("token_not_found") == 5
    assert answers.count("guessed_too_often") == 25
    assert await guess(pool, ADA, code) == "guessed_too_often"


async def test_a_new_token_is_guessed_anew(pool: Pool) -> None:
    """After a re-issue the new code works."""
    ada = await sign_up(pool)
    old = (await token(pool, ada))["code"]
    for _ in range(6):
        await guess(pool, ADA, wrong(old))
    await service.request_token(pool, ADA, action=Action.ACTIVATION)
    assert await guess(pool, ADA, (await token(pool, ada))["code"]) == "consumed"


async def test_guessing_does_not_tell_who_has_an_account(pool: Pool) -> None:
    """An address with an account and one without answer alike, guess by guess, with requests for tokens in between."""
    ada = await sign_up(pool, status="active")
    for action in Action:
        for _ in range(3):
            known = [await guess(pool, ADA, "0000x", action) for _ in range(7)]
            unknown = [await guess(pool, NOBODY, "0000x", action) for _ in range(7)]
            assert known == unknown == ["token_not_found"] * 5 + ["guessed_too_often"] * 2
            for address in (ADA, NOBODY):
                await service.request_token(pool, address, action=action)
    assert (await account(pool, ada))["status"] == "active"


async def test_requests_are_limited_alike(pool: Pool) -> None:
    """Five tokens in a quarter of an hour, known or not; later there are more."""
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


async def test_addresses_nobody_has_are_not_stored(pool: Pool) -> None:
    """Of a guessed address only a hash is kept."""
    await service.request_token(pool, NOBODY, action=Action.PASSWORD_RECOVERY)
    assert await pool.fetchval("SELECT count(*) FROM address_limits WHERE octet_length(address_hash) = 32") == 1
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 0


@pytest.mark.parametrize("status, mails", [("active", 1), ("provisioned", 0), ("suspended", 0)])
async def test_a_recovery_is_mailed_to_active_accounts_only(pool: Pool, status: str, mails: int) -> None:
    """Everybody who asks is answered alike; only an active account gets the mail."""
    await sign_up(pool, status=status)
    await run_once(pool)
    before = len(await mailed_keys(pool))
    await service.request_token(pool, ADA, action=Action.PASSWORD_RECOVERY)
    await run_once(pool)
    assert len(await mailed_keys(pool)) - before == mails


async def test_a_taken_address_signs_up_like_a_free_one(pool: Pool) -> None:
    """Nothing is raised, an id is answered, no account is made; who never activated gets another mail."""
    first = await service.sign_up(pool, ADA, "ada")
    again = await service.sign_up(pool, "Ada@Example.org", "countess")
    assert (first.is_new, again.is_new) == (True, False)
    assert again.id > first.id
    assert await pool.fetchval("SELECT count(*) FROM accounts") == 1
    assert await pool.fetchval("SELECT count(*) FROM tokens WHERE account = $1", first.id) == 2


async def test_a_taken_login_is_said_whatever_the_address(pool: Pool) -> None:
    """A login is public; it says nothing about the address beside it."""
    await service.sign_up(pool, ADA, "ada")
    for address in (ADA, NOBODY):
        with pytest.raises(LoginTaken):
            await service.sign_up(pool, address, "ADA")


async def test_an_operator_is_told_what_is_taken(pool: Pool) -> None:
    """By hand there is no secret, and who did it is written down."""
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
async def test_bad_names_are_refused_by_field(pool: Pool, email: str, login: str, fields: list[str]) -> None:
    """Every wrong field is named, and nothing is stored."""
    with pytest.raises(BadInput) as caught:
        await service.sign_up(pool, email, login)
    assert [error.field for error in caught.value.errors] == fields


async def test_suspend_and_unsuspend(pool: Pool) -> None:
    """Twice is as good as once, and each real change is in the audit log."""
    ada = await sign_up(pool, status="active")
    for _ in range(2):
        assert (await service.suspend(pool, ada, actor="key:test")).status is AccountStatus.SUSPENDED
    for _ in range(2):
        assert (await service.unsuspend(pool, ada, actor="key:test")).status is AccountStatus.ACTIVE
    rows = await pool.fetch("SELECT action FROM audit_log ORDER BY id")
    assert [row["action"] for row in rows] == ["account.suspend", "account.unsuspend"]


async def test_an_unsuspended_account_can_be_activated_by_a_new_token(pool: Pool) -> None:
    """Back to provisioned with an expired token: a re-issued one activates it."""
    ada = await sign_up(pool)
    await run_once(pool)
    await service.suspend(pool, ada, actor="key:test")
    await pool.execute("UPDATE tokens SET expires_at = 1")
    assert (await service.unsuspend(pool, ada, actor="key:test")).status is AccountStatus.PROVISIONED
    await service.reissue_activation(pool, ada, actor="key:test")
    assert await run_once(pool) == 1
    used = await service.consume_secret(pool, await signed(pool, ada), key=KEY)
    assert used.account.status is AccountStatus.ACTIVE


async def test_who_is_active_needs_no_activation(pool: Pool) -> None:
    """Re-issuing for an account that does not wait is refused."""
    ada = await sign_up(pool, status="active")
    with pytest.raises(NotProvisioned):
        await service.reissue_activation(pool, ada, actor="key:test")


async def test_an_unknown_account_is_not_found(pool: Pool) -> None:
    """Every use-case by id says so."""
    with pytest.raises(AccountNotFound):
        await service.get_account(pool, 1)
    for change in (service.suspend, service.unsuspend, service.reissue_activation):
        with pytest.raises(AccountNotFound):
            await change(pool, 1, actor="key:test")


async def test_accounts_are_listed_by_page_and_filter(pool: Pool) -> None:
    """Newest first, page by page; by status and by address in any case."""
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
