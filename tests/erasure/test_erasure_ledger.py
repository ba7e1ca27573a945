"""Erasing from the ledger, whose attempts are kept longer than their deliveries."""

from pathlib import Path

import pytest
from tests.support.archive import ACTOR, JANUARY, add_attempts, files_of, make_months, options_for, run
from tests.support.builders import (
    BUSY,
    DELIVERED,
    NO_ANSWER,
    Hands,
    Recording,
    a_mail,
    a_worker,
    accepted,
    state_of,
)

from postroom.archive.parquet import read_tables
from postroom.db.room import Room
from postroom.delivery.model import DeliveryState, Lane
from postroom.erasure.service import erase
from postroom.post.reply import Content, Envelope, Reply

ANN, BOB = "ann@example.org", "bob@example.org"


async def test_the_ledger_forgets_a_person_whose_deliveries_are_retired(room: Room, tmp_path: Path) -> None:
    """Attempts name their recipients for 90 days; the delivery that an index would find is gone after seven."""
    data = {"tags": {"kind": "welcome"}, "custom_data": {"name": "Ann"}}
    mails = [
        a_mail("Ann@example.org", idempotency_key=f"signup-{ANN}", **data),
        a_mail(BOB, ANN, **data),
        a_mail(BOB, tags={"for": f"welcome-{ANN}"}, custom_data={"by": ANN}),
    ]
    await accepted(room.pool, *mails)
    await a_worker(room.pool, Recording()).run_once(Lane.TRANSACTIONAL)
    await room.pool.execute("DELETE FROM deliveries")
    done = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert (done.is_done, done.counts["attempts"]) == (True, 3)
    said = "\n".join(row[0] for row in await room.pool.fetch("SELECT a::text FROM attempts AS a ORDER BY delivery_id"))
    assert ANN not in said.lower()
    rows = await room.pool.fetch(
        "SELECT recipient, other_recipients, idempotency_key, tags ->> 'kind', custom_data ->> 'name'"
        " FROM attempts ORDER BY delivery_id"
    )
    pseudonym = await room.pool.fetchval("SELECT erased_address($1)", ANN)
    assert rows[:2] == [(pseudonym, None, None, None, None), (BOB, [pseudonym], None, "welcome", "Ann")]


@pytest.mark.parametrize("replies", [(DELIVERED,), (BUSY,)], ids=["taken", "deferred"])
async def test_mail_that_left_during_an_erasure_is_in_the_ledger(
    room: Room, tmp_path: Path, replies: tuple[Reply, ...]
) -> None:
    """Its delivery is cancelled; its attempt is recorded under the pseudonym, and nothing else about the person is."""

    class Slow(Recording):
        async def send(self, envelope: Envelope, content: Content) -> Reply:
            await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
            return await super().send(envelope, content)

    mails = [a_mail(ANN, tags={"for": ANN}, custom_data={"by": ANN}, idempotency_key=ANN), a_mail(BOB)]
    ann, _bob = await accepted(room.pool, *mails)
    await a_worker(room.pool, Slow(*replies)).run_once(Lane.TRANSACTIONAL)
    rows = await room.pool.fetch(
        "SELECT a::text AS all, outcome::text, code, recipient FROM attempts AS a WHERE delivery_id = $1", ann
    )
    pseudonym = await room.pool.fetchval("SELECT erased_address($1)", ANN)
    outcome = "sent" if replies == (DELIVERED,) else "deferred"
    assert [tuple(row)[1:] for row in rows] == [(outcome, replies[0].code, pseudonym)]
    assert ANN not in rows[0]["all"]
    assert await room.pool.fetchval("SELECT count(*) FROM soft_bounces WHERE address = $1", ANN) == 0
    delivery = await room.pool.fetchrow("SELECT state::text, reason, attempt_count FROM deliveries WHERE id = $1", ann)
    assert tuple(delivery) == ("cancelled", "erased", 1)
    assert await room.pool.fetchval("SELECT count(*) FROM claims") == 0


async def test_the_archive_forgets_the_recipient_of_an_attempt(room: Room, tmp_path: Path) -> None:
    """A file has no delivery to look up: the columns of the attempt name the person."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 3)
    await room.pool.execute(
        """
        UPDATE attempts
        SET recipient = CASE delivery_id WHEN 1 THEN $1 ELSE 'bob@example.org' END,
            other_recipients = CASE delivery_id WHEN 2 THEN ARRAY[$1] END,
            reply_text = 'Ann is on holiday', idempotency_key = 'signup-' || $1,
            tags = '{"kind": "welcome"}', custom_data = '{"name": "Ann"}'
        """,
        ANN,
    )
    await run(room, options_for(tmp_path))
    assert await room.pool.fetchval("SELECT count(*) FROM attempts") == 0
    done = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert done.is_done
    [file] = files_of(tmp_path)
    rows = [row for part in read_tables(file) for row in part.to_pylist()]
    pseudonym = await room.pool.fetchval("SELECT erased_address($1)", ANN)
    assert [(row["recipient"], row["other_recipients"], row["reply_text"], row["custom_data"]) for row in rows[:2]] == [
        (pseudonym, None, None, None),
        (BOB, f"{{{pseudonym}}}", None, '{"name": "Ann"}'),
    ]
    assert [row["idempotency_key"] for row in rows[:2]] == [None, None]
    assert rows[2]["reply_text"] == "Ann is on holiday"


class _ErasingTransport(Recording):
    """Erases a recipient during the first attempt, and loses its connection."""

    def __init__(self, room: Room, folder: Path) -> None:
        super().__init__(NO_ANSWER, DELIVERED)
        self._room, self._folder = room, folder

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        if not self.envelopes:
            await erase(self._room, options_for(self._folder), address=ANN, actor=ACTOR)
        return self.reply_to(envelope, content)


@pytest.mark.parametrize("recipients", [(ANN, BOB), (BOB, ANN)])
async def test_a_recipient_erased_during_an_attempt_gets_no_retry(
    room: Room, tmp_path: Path, recipients: tuple[str, str]
) -> None:
    """The result of the attempt leaves the erased recipient as it is; a retry used to go to the pseudonym too."""
    clock, transport = Hands(), _ErasingTransport(room, tmp_path)
    [delivery] = await accepted(room.pool, a_mail(*recipients), now=clock())
    worker = a_worker(room.pool, transport, clock=clock)
    await worker.run_once(Lane.TRANSACTIONAL)
    clock.forward(days=1)
    await worker.run_once(Lane.TRANSACTIONAL)
    assert [envelope.recipients for envelope in transport.envelopes] == [recipients, (BOB,)]
    assert await state_of(room.pool, delivery) is DeliveryState.SENT
