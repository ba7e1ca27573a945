"""A row that cannot be read fails alone: the other rows of its batch are processed."""

from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from tests.support.accounts import run_once, sign_up
from tests.support.builders import NOON, Hands, Recording, a_mail, a_worker, accepted, state_of
from tests.support.campaigns import a_campaign_worker, a_running_campaign, states_of
from tests.support.schedule import many_due, scheduler
from tests.support.templates import a_template_worker, published

from postroom.campaigns import rendering as letters
from postroom.campaigns import template as letter
from postroom.campaigns.model import CampaignContent
from postroom.campaigns.worker import Feeder
from postroom.db.pool import Pool
from postroom.delivery.model import DeliveryId, DeliveryState, Lane
from postroom.mail.service import render_ahead
from postroom.mail.versions import TemplateVersions

DEEP = '{"a":' * 1500 + "1" + "}" * 1500
POISON = {"deep": DEEP, "number": '{"n": 1e5000}', "list": "[1]", "text": '"name"'}
HOUR = timedelta(hours=1)
NOTE = {"note/en/subject": "Hello", "note/en/text": "Hello {{ name }}"}


async def poison(pool: Pool, delivery_id: DeliveryId, column: str, value: str) -> None:
    """Write a value that acceptance rejects, as an operator in psql could."""
    async with pool.acquire() as connection:
        await connection.execute(
            f"UPDATE delivery_payloads SET {column} = $2::text::jsonb WHERE delivery_id = $1", delivery_id, value
        )


@pytest.mark.parametrize("ahead", [True, False], ids=["ahead", "leaving"])
async def test_each_poison_template_row_fails_alone(pool: Pool, tmp_path: Path, *, ahead: bool) -> None:
    """Variables that cannot be decoded end their own delivery as render_failed; the next one is rendered."""
    await published(pool, tmp_path, NOTE)
    note = a_mail(template="note", variables={"name": "Ada"}, send_at=NOON + HOUR if ahead else None)
    *poisoned, good = await accepted(pool, *[note] * (len(POISON) + 1), now=NOON)
    for delivery, value in zip(poisoned, POISON.values(), strict=True):
        await poison(pool, delivery, "variables", value)
    if ahead:
        batch = await render_ahead(pool, TemplateVersions(pool))
        assert (batch.rendered, batch.failed) == (1, len(POISON))
    else:
        await a_template_worker(pool, Recording(), clock=Hands()).run_once(Lane.TRANSACTIONAL)
    assert await state_of(pool, good) is (DeliveryState.RENDERED if ahead else DeliveryState.SENT)
    for delivery in poisoned:
        row = await pool.fetchrow("SELECT state::text, reason, detail FROM deliveries WHERE id = $1", delivery)
        assert row is not None
        assert (row["state"], row["reason"]) == ("failed", "render_failed")
        assert "variables cannot be read" in row["detail"]


async def test_template_that_renders_nul_fails_alone(pool: Pool, tmp_path: Path) -> None:
    """Mail cannot contain a NUL, and PostgreSQL cannot store one."""
    nul_parts = {f"nul/en/{part}": r'{{ "a\u0000b" }}' for part in ("subject", "text")}
    await published(pool, tmp_path, {**NOTE, **nul_parts})
    note = a_mail(template="note", variables={"name": "Ada"})
    nul, good = await accepted(pool, a_mail(template="nul"), note, now=NOON)
    await a_template_worker(pool, Recording(), clock=Hands()).run_once(Lane.TRANSACTIONAL)
    assert (await state_of(pool, nul), await state_of(pool, good)) == (DeliveryState.FAILED, DeliveryState.SENT)


ATTACHMENT = f'[{{"filename": "a", "content_type": "text/plain", "content": "YQ==", "x": {DEEP}}}]'


@pytest.mark.parametrize(
    "column, value",
    [
        ("attachments", ATTACHMENT),
        ("attachments", '[{"filename": 1}]'),
        ("headers", '{"X-A": [1]}'),
        ("headers", DEEP),
    ],
)
async def test_unreadable_claimed_row_fails_alone(pool: Pool, column: str, value: str) -> None:
    """A claimed row with an unreadable column fails; the other mail of the claim is sent."""
    bad, good = await accepted(pool, a_mail(), a_mail())
    await poison(pool, bad, column, value)
    transport = Recording()
    assert await a_worker(pool, transport).run_once(Lane.TRANSACTIONAL) == 2
    assert transport.delivery_ids == [good]
    assert (await state_of(pool, bad), await state_of(pool, good)) == (DeliveryState.FAILED, DeliveryState.SENT)


async def test_letter_that_raises_fails_only_its_own_campaign(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while one campaign's letter is parsed ends that campaign's mail; the other campaign's mail is sent."""
    parse = letter.ready

    def ready(given: CampaignContent, *, tracked: bool = False) -> letter.PreparedTemplate:
        if given.subject == "broken":
            raise RecursionError  # no letter is known that does this today; a parser of tomorrow may
        return parse(given, tracked=tracked)

    monkeypatch.setattr(letters, "ready", ready)
    broken = await a_running_campaign(pool, 2, subject="broken")
    good = await a_running_campaign(pool, 2)
    while await Feeder(pool).run_once():
        pass
    transport = Recording()
    assert await a_campaign_worker(pool, transport).run_once(Lane.BULK) == 4
    assert (await states_of(pool, broken), await states_of(pool, good)) == ({"failed": 2}, {"sent": 2})


async def test_unreadable_greeting_fails_alone(pool: Pool) -> None:
    """A due event whose payload cannot be decoded fails with a reason; the others of its batch are handed over."""
    await many_due(pool, 3)
    await pool.execute(
        "UPDATE scheduled_events SET delivery_payload = $1::text::jsonb WHERE id = (SELECT min(id::text)::uuid FROM"
        " scheduled_events)",
        DEEP,
    )
    assert await scheduler(pool).run_once() == 3
    rows = await pool.fetch("SELECT failure_reason FROM scheduled_events WHERE status = 'FAILED'")
    assert [row["failure_reason"] for row in rows] == ["bad_input: delivery_payload cannot be decoded"]
    assert await pool.fetchval("SELECT count(*) FROM deliveries") == 2


async def test_unreadable_occasion_is_skipped_alone(pool: Pool) -> None:
    """The sweep skips an unreadable occasion and plans the others."""
    await pool.execute(
        """
        WITH person AS (
            INSERT INTO users (first_name, last_name, date_of_birth, timezone)
            SELECT 'A', 'B', '2000-01-01', 'UTC' FROM generate_series(1, 2) RETURNING id
        )
        INSERT INTO user_occasions (user_id, event_type, message, rule)
        SELECT id, 'REMINDER', 'm', $1::text::jsonb FROM person LIMIT 1
        """,
        DEEP,
    )
    assert await scheduler(pool).sweep() == 2
    assert await pool.fetchval("SELECT count(*) FROM scheduled_events WHERE event_type = 'BIRTHDAY'") == 2


async def test_account_with_an_unusable_address_stops_no_other_account(pool: Pool) -> None:
    """The token of the first is skipped; of the third, the address is normalised before suppression is judged."""
    await pool.execute(
        "INSERT INTO suppressions (address, scope, reason) VALUES ('c@xn--bcher-kva.example', 'all', 'complaint')"
    )
    await sign_up(pool, "a", email="a@host")
    await sign_up(pool, "b")
    await sign_up(pool, "c", email="c@bücher.example")
    assert await run_once(pool) == 3
    rows = await pool.fetch("SELECT email, outcome::text FROM delivery_recipients ORDER BY delivery_id")
    assert [tuple(row) for row in rows] == [("b@example.org", "pending"), ("c@xn--bcher-kva.example", "suppressed")]


@pytest.mark.parametrize("moment", ["infinity", "-infinity", "10000-01-01Z"])
async def test_no_delivery_has_a_time_that_python_cannot_read(pool: Pool, moment: str) -> None:
    """The table rejects such a row, because the driver would fail for the whole result."""
    [delivery] = await accepted(pool)
    for column in ("next_attempt_at", "expires_at", "created_at"):
        with pytest.raises(asyncpg.CheckViolationError):
            await pool.execute(f"UPDATE deliveries SET {column} = '{moment}' WHERE id = {delivery}")
