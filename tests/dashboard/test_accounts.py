"""Accounts and tokens: search, state and history, actions, and no secret or code on any page."""

import pytest
from tests.support.accounts import sign_up, token
from tests.support.dashboard import Guest, open_guest, text_of

from postroom.db.room import Room


@pytest.fixture
async def guest(room: Room) -> Guest:
    return await open_guest(room)


async def actions_of(room: Room) -> list[str]:
    rows = await room.pool.fetch("SELECT action FROM audit_log WHERE action LIKE 'account.%' ORDER BY id")
    return [row["action"] for row in rows]


async def test_accounts_are_found_and_show_no_secret(room: Room, guest: Guest) -> None:
    """By address, login or status; the tokens have their state, never their secret or code."""
    assert "No account exists yet." in text_of(await guest.get("/accounts"))
    ada, bob = await sign_up(room.pool, "ada"), await sign_up(room.pool, "bob")
    await room.pool.execute("UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE account = $1", bob)
    address = await room.pool.fetchval("SELECT email FROM accounts WHERE id = $1", ada)
    for query in (f"email={address.upper()}", "login=ADA", "status=provisioned"):
        text = text_of(await guest.get(f"/accounts?{query}"))
        assert (query, address in text, "bob" in text) == (query, True, False)
    assert "Nothing matches" in text_of(await guest.get("/accounts?login=none"))
    assert (await guest.get("/accounts?status=odd")).status == 400
    for account_id, state in ((ada, "live"), (bob, "consumed")):
        page = await guest.get(f"/accounts/{account_id}")
        kept = await token(room.pool, account_id)
        assert f"activation {state}" in text_of(page)
        assert kept["code"] not in text_of(page)
        assert kept["secret"].hex() not in page.body.decode()
    await room.pool.execute("UPDATE tokens SET wrong_guesses = 5 WHERE account = $1", ada)
    assert "activation void" in text_of(await guest.get(f"/accounts/{ada}"))
    await room.pool.execute("UPDATE tokens SET wrong_guesses = 0, expires_at = 1 WHERE account = $1", ada)
    assert "activation expired" in text_of(await guest.get(f"/accounts/{ada}"))
    assert (await guest.get("/accounts/999")).status == 404


async def test_an_account_is_created_suspended_and_mailed_again(room: Room, guest: Guest) -> None:
    """Each action is audited; a taken address and an invalid one are explained."""
    new = "/accounts/new"
    done = await guest.submit(new, new, email="eve@example.org", login="eve", locale="fr")
    path = done.headers["location"].partition("?")[0]
    assert "The account is created" in text_of(await guest.get(done.headers["location"]))
    assert (await guest.submit(new, new, email="eve@example.org", login="other")).status == 409
    for wrong in ({"email": "nonsense"}, {"email": "x@example.org", "locale": "??"}):
        assert (wrong, (await guest.submit(new, new, **{"login": "other", **wrong})).status) == (wrong, 400)
    await guest.submit(path, f"{path}/reissue")
    assert await room.pool.fetchval("SELECT count(*) FROM tokens") == 2
    await guest.submit(path, f"{path}/suspend")
    assert "suspended" in text_of(await guest.get(path))
    assert (await guest.submit(path, f"{path}/reissue")).status == 409
    await guest.submit(path, f"{path}/unsuspend")
    assert "provisioned" in text_of(await guest.get(path))
    assert await actions_of(room) == ["account.create", "account.reissue", "account.suspend", "account.unsuspend"]


async def test_accounts_need_their_scopes(room: Room) -> None:
    path = f"/accounts/{await sign_up(room.pool)}"
    reader = await open_guest(room, "deliveries:read", "accounts:read", name="reader")
    page = text_of(await reader.get(path))
    assert "Suspend" not in page
    assert "New account" not in text_of(await reader.get("/accounts"))
    token_field = {"token": await reader.token("/")}
    operator = await open_guest(room, name="all")
    for each in ("/accounts/new", f"{path}/suspend", f"{path}/unsuspend", f"{path}/reissue"):
        assert (each, (await reader.post(each, token_field)).status) == (each, 403)
        assert (each, (await operator.post(each, {"token": "forged"})).status) == (each, 403)
    other = await open_guest(room, "deliveries:read", name="other")
    for each in ("/accounts", path, "/accounts/new"):
        assert (each, (await other.get(each)).status) == (each, 403)
