"""Template and locale of a person: set by every interface, used at the handover."""

import email
from email import policy as rules
from pathlib import Path
from typing import Any

import pytest
from tests.support.schedule import NINE, POSTING, born, person, scheduler, utc, works_until
from tests.support.templates import published

from postroom.db.pool import Pool
from postroom.db.room import open_room
from postroom.errors import BadInput
from postroom.schedule import service
from postroom.schedule.people_csv import read_people
from postroom.schedule.worker import Scheduler
from postroom.settings import read_settings

DUE = "UPDATE scheduled_events SET target_timestamp_utc = now() - interval '1 second'"
HANDED = (
    "SELECT template_id, locale, variables::text, subject FROM deliveries JOIN delivery_payloads ON delivery_id = id"
)


async def handed(pool: Pool) -> tuple[Any, ...]:
    assert await scheduler(pool).run_once() == 1
    return tuple(await pool.fetchrow(HANDED))


async def test_a_french_greeting_reaches_a_french_person(database_url: str) -> None:
    """A person with locale fr gets the French text of the template `birthday`."""
    async with open_room(read_settings({"POSTROOM_DATABASE_URL": database_url})) as room:
        who = person(first_name="Sophie", email="sophie@example.org")
        await service.create_user(room.pool, who, policy=service.policy_of(room.settings), actor="tests")
        await room.pool.execute("UPDATE users SET locale = 'fr-CA'")
        assert await Scheduler(room.pool).sweep() == 1
        await room.pool.execute(DUE)
        await works_until(room, "EXISTS (SELECT FROM scheduled_events WHERE status = 'COMPLETED')")
        raw = await room.pool.fetchval("SELECT raw FROM inbox_messages")
    assert email.message_from_bytes(raw, policy=rules.default)["Subject"] == "Joyeux anniversaire, Sophie"


async def test_occasion_is_rendered_with_its_template(database_url: str, tmp_path: Path) -> None:
    """Names, message and rule values are template variables."""
    files = {
        "renewal/en/subject": "{{ message }} {{ first_name }} {{ last_name }}",
        "renewal/en/text": "Since {{ date }}, {{ days_before }} days ahead.",
    }
    settings = read_settings({"POSTROOM_DATABASE_URL": database_url, "POSTROOM_TEMPLATE_DIR": str(tmp_path)})
    async with open_room(settings) as room:
        await published(room.pool, tmp_path, files)
        policy = service.policy_of(settings)
        user = await service.create_user(room.pool, person(email="ada@example.org"), policy=policy, actor="tests")
        rule = {"date": "2020-05-01", "days_before": 7}
        await service.add_occasion(
            room.pool,
            user.id,
            "ANNIVERSARY",
            rule=rule,
            message="Renew:",
            template="renewal",
            policy=policy,
            actor="tests",
        )
        await room.pool.execute(f"{DUE} WHERE event_type <> 'BIRTHDAY'")
        await works_until(room, "EXISTS (SELECT FROM scheduled_events WHERE status IN ('COMPLETED', 'FAILED'))")
        raw = await room.pool.fetchval("SELECT raw FROM inbox_messages")
    mail = email.message_from_bytes(raw, policy=rules.default)
    assert mail["Subject"] == "Renew: Ada Lovelace"
    assert mail.get_content().strip() == "Since 2020-05-01, 7 days ahead."


async def test_template_set_after_planning_is_used(pool: Pool) -> None:
    """A change of the template moves no event, increments the version and applies to today's greeting."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00", email="ada@example.org")
    changes = {"locale": "de", "template": "jubilee"}
    changed, moved = await service.update_user(
        pool, user.id, changes, policy=POSTING, now=utc("2026-11-02T00:00"), actor="tests"
    )
    assert (changed.version, changed.person.locale, changed.person.template) == (2, "de", "jubilee")
    assert moved.moved == 0
    template, locale, variables, subject = await handed(pool)
    assert (template, locale, subject) == ("jubilee", "de", None)
    assert "it's your birthday" in variables


async def test_sql_change_of_template_or_locale_is_a_version(pool: Pool) -> None:
    """`users_guard` increments the version, and the table rejects invalid values."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await pool.execute("UPDATE users SET template = 'jubilee'")
    assert (await service.get_user(pool, user.id)).version == 2
    for column in ("locale", "template"):
        with pytest.raises(Exception, match=f"users_{column}_form"):
            await pool.execute(f"UPDATE users SET {column} = 'Not a name'")


async def test_occasion_without_a_template_sends_its_message(pool: Pool) -> None:
    """The message is subject and text; the person's template applies to birthdays only."""
    user = await born(
        pool,
        "1990-06-01",
        now="2026-11-01T00:00",
        email="ada@example.org",
        locale="fr",
        template="jubilee",
        timezone="UTC",
    )
    rule = {"at": "2026-11-15T09:00"}
    early = utc("2026-11-14T00:00")
    await service.add_occasion(
        pool, user.id, "REMINDER", rule=rule, message="Tea", policy=POSTING, now=early, actor="tests"
    )
    assert (await handed(pool))[::3] == (None, "Tea")


WRONG = [("locale", "not a locale"), ("template", "../etc"), ("template", "Birthday")]


@pytest.mark.parametrize("field, value", WRONG)
async def test_invalid_template_or_locale_is_named(pool: Pool, field: str, value: str) -> None:
    with pytest.raises(BadInput) as refused:
        await service.create_user(pool, person(**{field: value}), policy=POSTING, now=NINE, actor="tests")
    assert [error.field for error in refused.value.errors] == [field]


async def test_an_occasion_s_template_is_checked(pool: Pool) -> None:
    user = await born(pool, "1990-06-01", now="2026-11-01T00:00")
    rule = {"every": "day", "start": "2026-11-15"}
    with pytest.raises(BadInput) as refused:
        await service.add_occasion(
            pool, user.id, "RECURRING", rule=rule, template="no name", policy=POSTING, now=NINE, actor="tests"
        )
    assert [error.field for error in refused.value.errors] == ["template"]


def test_csv_has_optional_template_and_locale() -> None:
    """Empty cells use the defaults."""
    header = "first_name,last_name,date_of_birth,timezone,locale,template"
    lines = [header, "Ada,Lovelace,1815-12-10,UTC,fr,jubilee", "Mary,Somerville,1780-12-26,UTC,,"]
    people = [line.person for line in read_people(lines)]
    assert [(who.locale, who.template) for who in people if who] == [("fr", "jubilee"), (None, None)]
