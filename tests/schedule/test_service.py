"""People: validation, planning, changes that move events, and version conflicts."""

import asyncio
from datetime import date, time, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from tests.support.schedule import POSTING, born, person, scheduler, statuses, utc

from postroom.db.pool import Pool
from postroom.errors import BadInput, VersionConflict
from postroom.schedule import scheduled_events as agenda
from postroom.schedule import service
from postroom.schedule.engine import hand_over_due
from postroom.schedule.errors import OccasionNotFound, UserNotFound
from postroom.schedule.model import PlanChange, ScheduledEventStatus, SchedulePolicy


async def events_of(pool: Pool, user_id: Any) -> list[Any]:
    return (await agenda.list_user_events(pool, user_id))[0]


async def test_new_person_has_a_planned_event(pool: Pool) -> None:
    """Creating a user creates the next event in the same transaction."""
    user = await born(pool, "1990-11-20", now="2026-11-15T12:00", timezone="America/New_York")
    [event] = await events_of(pool, user.id)
    assert (event.kind, event.status, event.retry_count, event.version) == (
        "BIRTHDAY",
        ScheduledEventStatus.PENDING,
        0,
        1,
    )
    assert event.target_utc == utc("2026-11-20T14:00")
    assert event.target_local.isoformat() == "2026-11-20T09:00:00"
    assert event.idempotency_key == f"birthday:{user.id}:2026"
    assert event.payload == {"message": "Hey, Ada Lovelace it's your birthday"}


WRONG: list[tuple[str, Any]] = [
    ("first_name", ""),
    ("first_name", "   "),
    ("first_name", "\u00a0\u2003"),
    ("last_name", "x" * 101),
    ("last_name", "two\nlines"),
    ("date_of_birth", date(2026, 11, 15)),
    ("date_of_birth", date(2030, 1, 1)),
    ("timezone", "EST"),
    ("timezone", "Foo+3"),
    ("timezone", "Mars/Base"),
    ("email", "nobody"),
    ("email", "Ada <ada@example.org>"),
    ("webhook_url", "ftp://example.org"),
    ("webhook_url", "https://ada:word@example.org/"),
    ("webhook_url", "https://example.org/" + "x" * 2048),
]


async def test_a_wrong_field_is_named_and_nothing_stored(pool: Pool) -> None:
    """The error names the invalid field, and no person is stored."""
    for field, value in WRONG:
        with pytest.raises(BadInput) as caught:
            await service.create_user(
                pool, person(**{field: value}), policy=POSTING, now=utc("2026-11-15T12:00"), actor="tests"
            )
        assert [error.field for error in caught.value.errors] == [field], (field, value)
    assert await pool.fetchval("SELECT count(*) FROM users") == 0


WRONG_IN_SQL: list[tuple[str, Any]] = [
    ("first_name", "  "),
    ("last_name", "x" * 101),
    ("timezone", "EST"),
    ("timezone", "Foo+3"),
    ("timezone", "Etc/Foo+3"),
    ("timezone", "Mars/Base"),
    ("date_of_birth", date(2100, 1, 1)),
]


async def test_table_rejects_invalid_people(pool: Pool) -> None:
    """The table rejects the same values as the service."""
    good = {"first_name": "Ada", "last_name": "L", "date_of_birth": date(1990, 1, 1), "timezone": "UTC"}
    insert = "INSERT INTO users (first_name, last_name, date_of_birth, timezone) VALUES ($1, $2, $3, $4)"
    for column, value in WRONG_IN_SQL:
        with pytest.raises(asyncpg.PostgresError) as caught:
            await pool.execute(insert, *(good | {column: value}).values())
        assert caught.value.sqlstate == ("PR030" if column == "timezone" else "23514"), (column, value)


async def test_table_rejects_unreadable_birth_dates(pool: Pool) -> None:
    """The table rejects dates that Python cannot read, so that they cannot stop a sweep."""
    insert = "INSERT INTO users (first_name, last_name, date_of_birth, timezone) VALUES ('J', 'C', '{}', 'Europe/Rome')"
    for day in ("0044-03-15 BC", "0001-12-31 BC"):
        with pytest.raises(asyncpg.CheckViolationError, match="users_date_of_birth_readable"):
            await pool.execute(insert.format(day))
    for day in ("-infinity", "0001-01-02"):
        await pool.execute(insert.format(day))
    await service.create_user(pool, person(date_of_birth=date.min), policy=POSTING, actor="tests")
    assert await scheduler(pool).sweep() == 2
    assert await pool.fetchval("SELECT count(*) FROM scheduled_events WHERE status = 'PENDING'") == 3


async def test_create_users_reports_errors_by_index(pool: Pool) -> None:
    """An invalid person does not stop the others."""
    people = [person(), person(timezone="EST"), person(first_name=" ")]
    users, wrong = await service.create_users(pool, people, policy=POSTING, actor="tests")
    assert len(users) == 1
    assert {place: [error.field for error in errors] for place, errors in wrong.items()} == {
        1: ["timezone"],
        2: ["first_name"],
    }


async def test_a_change_moves_what_is_planned(pool: Pool) -> None:
    """Changes of zone, birth date and name recompute target, key and payload and increment the version."""
    user = await born(pool, "1990-11-20", now="2026-11-15T12:00")
    now = utc("2026-11-16T12:00")
    for changes, target, message in (
        ({"timezone": "Asia/Tokyo"}, "2026-11-20T00:00", "Hey, Ada Lovelace it's your birthday"),
        ({"date_of_birth": date(1990, 3, 1)}, "2027-03-01T00:00", "Hey, Ada Lovelace it's your birthday"),
        ({"first_name": "Augusta"}, "2027-03-01T00:00", "Hey, Augusta Lovelace it's your birthday"),
    ):
        user, moved = await service.update_user(pool, user.id, changes, policy=POSTING, now=now, actor="tests")
        [event] = await events_of(pool, user.id)
        assert moved == PlanChange(1, 0)
        assert (event.target_utc, event.payload["message"]) == (utc(target), message)
    assert (user.version, event.version) == (4, 4)


async def test_a_change_of_destination_moves_nothing(pool: Pool) -> None:
    """A new email address does not move events; it is read at the handover."""
    user = await born(pool, "1990-11-20", now="2026-11-15T12:00")
    user, moved = await service.update_user(pool, user.id, {"email": "ada@example.org"}, policy=POSTING, actor="tests")
    assert (moved, user.version) == (PlanChange(0, 0), 2)


async def test_started_events_are_not_changed(pool: Pool) -> None:
    """PROCESSING, COMPLETED and FAILED events are not changed, and the result counts them."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    assert len(await hand_over_due(pool, POSTING, now=utc("2026-11-15T09:00"))) == 1
    for status in ("PROCESSING", "FAILED"):
        await pool.execute(
            "UPDATE scheduled_events SET status = $1, failure_reason = 'x' WHERE status = 'PROCESSING'", status
        )
        before = (await events_of(pool, user.id))[1]
        _, moved = await service.update_user(
            pool,
            user.id,
            {"timezone": "Asia/Tokyo", "first_name": status},
            policy=POSTING,
            now=utc("2026-11-15T10:00"),
            actor="tests",
        )
        assert moved == PlanChange(1, 1)
        assert (await events_of(pool, user.id))[1] == before


async def test_a_stale_version_changes_nothing(pool: Pool) -> None:
    """A change with an older version raises `VersionConflict`."""
    user = await born(pool, "1990-11-20", now="2026-11-15T12:00")
    await service.update_user(pool, user.id, {"first_name": "Augusta"}, policy=POSTING, version=1, actor="tests")
    with pytest.raises(VersionConflict):
        await service.update_user(pool, user.id, {"first_name": "Anna"}, policy=POSTING, version=1, actor="tests")
    assert (await service.get_user(pool, user.id)).person.first_name == "Augusta"


async def test_of_many_with_the_same_version_one_wins(pool: Pool) -> None:
    """Ten concurrent changes of one version give one change and nine conflicts."""
    user = await born(pool, "1990-11-20", now="2026-11-15T12:00")
    attempts = [
        service.update_user(pool, user.id, {"first_name": f"Ada {n}"}, policy=POSTING, version=1, actor="tests")
        for n in range(10)
    ]
    answers = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(isinstance(answer, VersionConflict) for answer in answers) == 9
    assert (await service.get_user(pool, user.id)).version == 2


async def test_trigger_updates_version_and_time(pool: Pool) -> None:
    """SQL changes update `updated_at` and version; planning does not."""
    user = await born(pool, "1990-11-20", now="2026-11-01T12:00")
    await pool.execute("UPDATE users SET last_name = 'Byron' WHERE id = $1", user.id)
    changed = await service.get_user(pool, user.id)
    assert changed.version == 2
    assert changed.updated_at > user.updated_at
    await pool.execute("UPDATE users SET planned_version = version")
    assert (await service.get_user(pool, user.id)).updated_at == changed.updated_at


async def test_greeted_in_tokyo_and_moved_to_new_york(pool: Pool) -> None:
    """A move after the greeting does not send a second one in the same year."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00", timezone="Asia/Tokyo")
    assert len(await hand_over_due(pool, POSTING, now=utc("2026-11-15T00:00"))) == 1
    await service.update_user(
        pool, user.id, {"timezone": "America/New_York"}, policy=POSTING, now=utc("2026-11-15T02:00"), actor="tests"
    )
    assert await hand_over_due(pool, POSTING, now=utc("2026-11-15T23:00")) == []
    events = await events_of(pool, user.id)
    assert [event.target_utc for event in events] == [utc("2027-11-15T14:00"), utc("2026-11-15T00:00")]


async def test_moved_east_on_the_birthday_is_sent_now(pool: Pool) -> None:
    """A greeting whose time is past in the new zone is sent at once and is not late."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00", timezone="America/New_York")
    now = utc("2026-11-15T05:00")
    await service.update_user(pool, user.id, {"timezone": "Asia/Tokyo"}, policy=POSTING, now=now, actor="tests")
    [result] = await hand_over_due(
        pool, SchedulePolicy(webhook_url=POSTING.webhook_url, max_lateness={"BIRTHDAY": timedelta(hours=1)}), now=now
    )
    assert (result.status, result.late_by) == (ScheduledEventStatus.PROCESSING, None)
    assert await statuses(pool, user.id) == [("2026", "PROCESSING"), ("2027", "PENDING")]


async def test_moved_across_the_date_line_loses_nothing(pool: Pool) -> None:
    """Greeting and reminder of a day that is over in the new zone are sent at once and are not late."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00", timezone="Pacific/Pago_Pago")
    rule = {"at": "2026-11-15T12:00"}
    await service.add_occasion(
        pool, user.id, "REMINDER", rule=rule, policy=POSTING, now=utc("2026-11-01T00:00"), actor="tests"
    )
    now = utc("2026-11-15T18:00")
    _, moved = await service.update_user(
        pool, user.id, {"timezone": "Pacific/Kiritimati"}, policy=POSTING, now=now, actor="tests"
    )
    assert moved == PlanChange(2, 0)
    strict = SchedulePolicy(
        webhook_url=POSTING.webhook_url,
        max_lateness={"BIRTHDAY": timedelta(hours=1), "REMINDER": timedelta(hours=1)},
    )
    results = await hand_over_due(pool, strict, now=now)
    assert sorted(result.event.kind for result in results) == ["BIRTHDAY", "REMINDER"]
    assert {(result.status, result.late_by) for result in results} == {(ScheduledEventStatus.PROCESSING, None)}
    assert await hand_over_due(pool, strict, now=now) == []


async def test_sql_delete_cancels_queued_greetings(pool: Pool) -> None:
    """Deleting a person on any connection cancels a greeting in retry."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await hand_over_due(pool, POSTING, now=utc("2026-11-15T09:00"))
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL search_path = pg_catalog")
        await connection.execute("DELETE FROM postroom.users WHERE id = $1", user.id)
    assert await pool.fetchrow("SELECT state::text, reason FROM deliveries") == ("cancelled", "person_deleted")


async def test_zone_is_stored_in_its_canonical_spelling(pool: Pool) -> None:
    """Europe/LONDON written by SQL becomes Europe/London; the session keeps its own zone."""
    async with pool.acquire() as connection:
        before = await connection.fetchval("SHOW timezone")
        user_id = await connection.fetchval(
            "INSERT INTO users (first_name, last_name, date_of_birth, timezone)"
            " VALUES ('Ada', 'Lovelace', '1990-11-15', 'Europe/LONDON') RETURNING id"
        )
        await connection.execute("UPDATE users SET timezone = 'ASIA/TOKYO'")
        assert await connection.fetchval("SHOW timezone") == before
    assert (await service.get_user(pool, user_id)).person.timezone == "Asia/Tokyo"
    await scheduler(pool).sweep()
    assert [status for _, status in await statuses(pool, user_id)] == ["PENDING"]


async def test_delete_removes_events_and_cancels_mail(pool: Pool) -> None:
    """Deleting a person deletes their events and cancels queued greetings."""
    user = await born(pool, "1990-11-15", now="2026-11-01T00:00")
    await hand_over_due(pool, POSTING, now=utc("2026-11-15T09:00"))
    await service.delete_user(pool, user.id, actor="tests")
    assert await pool.fetchval("SELECT count(*) FROM scheduled_events") == 0
    assert await pool.fetchrow("SELECT state::text, reason FROM deliveries") == ("cancelled", "person_deleted")
    with pytest.raises(UserNotFound):
        await service.delete_user(pool, user.id, actor="tests")


async def test_two_planned_events_of_one_kind_are_impossible(pool: Pool) -> None:
    """The table rejects a second PENDING birthday of one person."""
    user = await born(pool, "1990-11-20", now="2026-11-15T12:00")
    with pytest.raises(asyncpg.UniqueViolationError):
        await pool.execute(
            "INSERT INTO scheduled_events (user_id, target_timestamp_utc, target_timestamp_local, target_timezone,"
            " idempotency_key, delivery_payload) VALUES ($1, now(), now()::timestamp, 'UTC', 'mine', '{}')",
            user.id,
        )


async def test_pages_follow_each_other(pool: Pool) -> None:
    """Pages are newest first and have every person once."""
    made = [(await born(pool, "1990-11-20", now=f"2026-11-0{n}T12:00")).id for n in range(1, 6)]
    first, cursor = await service.list_users(pool, limit=3)
    rest, end = await service.list_users(pool, cursor=cursor, limit=3)
    assert [user.id for user in (*first, *rest)] == made[::-1]
    assert end is None


async def test_occasions_are_planned_and_deleted(pool: Pool) -> None:
    """An anniversary is planned with its message; removing it deletes its event."""
    user = await born(pool, "1990-11-20", now="2026-11-15T12:00")
    occasion = await service.add_occasion(
        pool, user.id, "ANNIVERSARY", rule={"date": "2020-06-01"}, message="Seven years!", policy=POSTING, actor="tests"
    )
    assert {event.kind for event in await events_of(pool, user.id)} == {"BIRTHDAY", "ANNIVERSARY"}
    for kind, rule in (("ANNIVERSARY", {}), ("REMINDER", {"at": "9999-12-31T23:59:00"})):
        with pytest.raises(BadInput):
            await service.add_occasion(pool, user.id, kind, rule=rule, policy=POSTING, actor="tests")
    await service.remove_occasion(pool, user.id, occasion.id, actor="tests")
    assert {event.kind for event in await events_of(pool, user.id)} == {"BIRTHDAY"}
    with pytest.raises(OccasionNotFound):
        await service.remove_occasion(pool, user.id, uuid4(), actor="tests")


NEVER: list[tuple[str, dict[str, Any], str]] = [
    ("BIRTHDAY", {}, "kind"),
    ("REMINDER", {"at": "2026-11-15T11:00:00"}, "rule.at"),
    ("RECURRING", {"every": "day", "start": "2026-11-01", "until": "2026-11-14"}, "rule.until"),
    ("RECURRING", {"every": "day", "start": "2026-11-20", "until": "2026-11-14"}, "rule.until"),
    ("RECURRING", {"every": "day", "start": "9999-12-31"}, "rule.start"),
    ("ANNIVERSARY", {"date": "9999-12-31"}, "rule.date"),
]


async def test_an_occasion_that_would_never_be_sent_is_refused(pool: Pool) -> None:
    """A rule in the past and a second birthday are rejected with the field and not stored."""
    user = await born(pool, "1990-11-20", now="2026-11-15T12:00")
    for kind, rule, field in NEVER:
        with pytest.raises(BadInput) as caught:
            await service.add_occasion(
                pool, user.id, kind, rule=rule, policy=POSTING, now=utc("2026-11-15T12:00"), actor="tests"
            )
        assert [error.field for error in caught.value.errors] == [field], rule
    assert await service.list_occasions(pool, user.id) == []
    with pytest.raises(asyncpg.CheckViolationError, match="user_occasions_not_birthday"):
        await pool.execute(
            "INSERT INTO user_occasions (user_id, event_type, message, rule) VALUES ($1, 'BIRTHDAY', '', '{}')", user.id
        )


async def test_sweep_replans_people_of_a_process_with_other_times(pool: Pool) -> None:
    """The sweep plans a person again whom a process with other times of day stored."""
    await scheduler(pool).refresh()
    other = SchedulePolicy(times={"BIRTHDAY": time(7, 15)})
    user = await born(pool, "1990-11-20", now="2026-11-15T08:00", policy=other)
    assert [event.target_utc for event in await events_of(pool, user.id)] == [utc("2026-11-20T07:15")]
    assert await scheduler(pool).sweep() == 1
    assert [event.target_utc for event in await events_of(pool, user.id)] == [utc("2026-11-20T09:00")]
    await born(pool, "1990-11-20", now="2026-11-15T08:00")
    assert await scheduler(pool).sweep() == 0


async def test_unknown_ids_are_not_found(pool: Pool) -> None:
    """Unknown ids raise `UserNotFound` or `OccasionNotFound`."""
    for call in (
        service.get_user(pool, uuid4()),
        agenda.list_user_events(pool, uuid4()),
        service.update_user(pool, uuid4(), {}, policy=POSTING, actor="tests"),
        service.add_occasion(
            pool, uuid4(), "REMINDER", rule={"at": "2030-01-01T09:00:00"}, policy=POSTING, actor="tests"
        ),
    ):
        with pytest.raises(UserNotFound):
            await call


async def test_blank_message_uses_the_text_of_the_kind(pool: Pool) -> None:
    """A blank message is replaced by the text of its kind, from the API and from SQL."""
    user = await born(pool, "1990-06-01", now="2026-11-01T00:00", email="ada@example.org", timezone="UTC")
    rule, now = {"at": "2026-11-15T09:00"}, utc("2026-11-14T00:00")
    given = await service.add_occasion(
        pool, user.id, "REMINDER", rule=rule, message=" \n ", policy=POSTING, now=now, actor="tests"
    )
    assert given.message == ""
    await pool.execute(
        "INSERT INTO user_occasions (user_id, event_type, message, rule)"
        " VALUES ($1, 'REMINDER', '  ', '{\"at\": \"2026-11-15T09:00\"}')", user.id,
    )  # fmt: skip
    await pool.execute("UPDATE users SET unplanned_since = $1", now)
    await scheduler(pool, "2026-11-14T00:00").sweep()
    await pool.execute(
        "INSERT INTO scheduled_events (user_id, event_type, target_timestamp_utc, target_timestamp_local,"
        " target_timezone, idempotency_key, delivery_payload)"
        " VALUES ($1, 'TEA', $2, '2026-11-15 09:00', 'UTC', 'tea', '{\"message\": \"  \"}')",
        user.id, utc("2026-11-15T09:00"),
    )  # fmt: skip
    assert await scheduler(pool).run_once() == 3
    assert await pool.fetchval("SELECT count(*) FROM scheduled_events WHERE status = 'FAILED'") == 0
    rows = await pool.fetch("SELECT subject FROM delivery_payloads ORDER BY subject")
    assert [row[0] for row in rows] == [*["Hey, Ada Lovelace here is your reminder"] * 2, "Tea"]
