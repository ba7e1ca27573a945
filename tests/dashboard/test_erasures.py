"""Erasures in the dashboard: counted first, confirmed by the typed address, audited, for admins only."""

from tests.support.builders import a_mail
from tests.support.dashboard import open_guest, open_operator, text_of, tried

from postroom.db.room import Room
from postroom.http.model import Role


async def test_a_person_is_erased_after_the_typed_address(room: Room) -> None:
    """The count changes nothing; a wrong address is refused; the right one erases, and the log does not name it."""
    guest = await open_guest(room)
    await tried(room.pool, a_mail("ann@example.org"), a_mail("bob@example.org"))
    person = {"email": "Ann@example.org", "keep_accounts": "on"}
    counted = text_of(await guest.submit("/erasures/new", "/erasures/preview", **person))
    assert "attempts 1 deliveries 1" in counted
    wrong = await guest.submit("/erasures/new", "/erasures/new", **person, typed="bob@example.org")
    assert (wrong.status, await _recipients(room)) == (400, {"ann@example.org", "bob@example.org"})
    done = await guest.submit("/erasures/new", "/erasures/new", **person, typed="ann@EXAMPLE.org ")
    assert done.status == 303
    assert "ann" not in done.headers["location"]
    [erased] = await _recipients(room) - {"bob@example.org"}
    assert erased.startswith("erased:")
    listed = text_of(await guest.get("/erasures"))
    assert "key:1:" in listed
    assert "ann@example.org" not in listed
    audited = await room.pool.fetch("SELECT action FROM audit_log WHERE action LIKE 'erasure.%' ORDER BY id")
    assert [row["action"] for row in audited] == ["erasure.begin", "erasure.finish"]


async def test_an_invalid_address_is_asked_for_again(room: Room) -> None:
    """The form keeps the value and names the problem."""
    guest = await open_guest(room)
    answer = await guest.submit("/erasures/new", "/erasures/preview", email="nobody")
    assert answer.status == 400
    assert 'value="nobody"' in answer.body.decode()


async def test_no_role_but_admin_erases(room: Room) -> None:
    """An operator runs the archive, but a person is erased by an admin."""
    for role in Role:
        guest = await open_operator(room, role)
        assert (role, (await guest.get("/erasures")).status) == (role, 200 if role is Role.ADMIN else 403)


async def _recipients(room: Room) -> set[str]:
    return {row["email"] for row in await room.pool.fetch("SELECT email FROM delivery_recipients")}
