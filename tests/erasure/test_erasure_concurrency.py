"""Erasures concurrent with other requests for the same person: no errors and no deadlocks."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.accounts import sign_up
from tests.support.archive import ACTOR, options_for
from tests.support.builders import Recording, a_mail, a_worker, accepted
from tests.support.sessions import until_blocked

from postroom.accounts.errors import NotProvisioned
from postroom.accounts.model import Action
from postroom.accounts.service import reissue_activation, request_token
from postroom.db.partitions import MONTHS_AHEAD, make_partitions
from postroom.db.pool import Pool, Session
from postroom.db.room import Room
from postroom.delivery.model import Lane
from postroom.erasure import service, store
from postroom.erasure.model import Erasure, ErasureRun, ErasureState

ADA, BOB = "ada@example.org", "bob@example.org"


async def erase(room: Room, folder: Path) -> Erasure:
    return await service.erase(room, options_for(folder), address=ADA, actor=ACTOR)


async def test_a_token_is_requested_while_its_account_is_deleted(pool: Pool) -> None:
    """The request waits for the deletion and then finds no account; its token used to violate a foreign key (500)."""
    account_id = await sign_up(pool, "ada")
    async with pool.acquire() as connection:
        async with connection.transaction():
            await connection.execute("DELETE FROM accounts WHERE id = $1", account_id)
            request = asyncio.create_task(request_token(pool, ADA, action=Action.PASSWORD_RECOVERY))
            await until_blocked(pool)
        await request
    assert await pool.fetchval("SELECT count(*) FROM tokens") == 0


async def test_an_activation_is_reissued_while_its_account_is_deleted(pool: Pool) -> None:
    """The response is that the account is not waiting for activation."""
    account_id = await sign_up(pool, "ada")
    async with pool.acquire() as connection:
        async with connection.transaction():
            await connection.execute("DELETE FROM accounts WHERE id = $1", account_id)
            reissue = asyncio.create_task(reissue_activation(pool, account_id, actor=ACTOR))
            await until_blocked(pool)
        with pytest.raises(NotProvisioned):
            await reissue


async def test_a_code_is_guessed_during_an_erasure(room: Room, tmp_path: Path) -> None:
    """Both lock the account before the row of address_limits; the other way round was a deadlock."""
    await sign_up(room.pool, "ada")
    await request_token(room.pool, ADA, action=Action.ACTIVATION)
    async with room.pool.acquire() as connection:
        async with connection.transaction():
            await connection.execute("SELECT FROM accounts WHERE email = $1 FOR NO KEY UPDATE", ADA)
            erasing = asyncio.create_task(erase(room, tmp_path))
            await until_blocked(room.pool)
            guess = "SELECT verdict FROM consume_code_at($1, 'activation', 'wrong')"
            assert await connection.fetchval(guess, ADA) == "wrong"
        assert (await erasing).state is ErasureState.DONE
    assert await room.pool.fetchval("SELECT count(*) FROM accounts") == 0


@pytest.mark.parametrize("step", ["_search_deliveries", "_search"])
async def test_two_erasures_of_one_person_at_once(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """One erasure ends while the other still searches, before or after its deliveries; both succeed.

    The latter used to fail (500) at the audit log, and at mail that arrived in between.
    """
    search = getattr(service, step)
    others = [erase]

    async def interrupted(*given: Any, **named: Any) -> None:
        await search(*given, **named)
        if others:
            assert (await others.pop()(room, tmp_path)).state is ErasureState.DONE
            await accepted(room.pool, a_mail(ADA))

    monkeypatch.setattr(service, step, interrupted)
    assert (await erase(room, tmp_path)).state is ErasureState.DONE


async def test_partitions_are_made_while_an_erasure_has_listed_its_tables(pool: Pool) -> None:
    """The list locks no partition: with one, an erasure and the making of a partition waited for each other."""
    async with pool.acquire() as connection, connection.transaction():
        assert "attempts_default" in await store.list_searched_tables(connection, table_name="attempts")
        later = datetime.now(UTC) + timedelta(days=366)
        assert await make_partitions(pool, ["attempts"], now=later) == MONTHS_AHEAD + 1


async def test_mail_accepted_during_an_erasure_never_goes_to_a_pseudonym(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address of a recipient is replaced only together with the outcome; it used to be replaced alone."""
    erase_places = service._erase_places
    mails = [a_mail(BOB, ADA)]

    async def accept_first(connection: Session, work: ErasureRun, *, is_account: bool) -> None:
        if not is_account and mails:
            await accepted(room.pool, mails.pop())
        await erase_places(connection, work, is_account=is_account)

    monkeypatch.setattr(service, "_erase_places", accept_first)
    assert (await erase(room, tmp_path)).state is ErasureState.DONE
    transport = Recording()
    await a_worker(room.pool, transport).run_once(Lane.TRANSACTIONAL)
    assert [envelope.recipients for envelope in transport.envelopes] == [(BOB,)]
