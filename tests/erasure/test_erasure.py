"""Erasing a person from every table and file, while the suppression stays."""

import hashlib
import hmac
import signal
from pathlib import Path

import pytest
from tests.support.archive import ACTOR, JANUARY, NOW, add_attempts, make_months, options_for, run
from tests.support.archive_process import Orders, run_to_its_end
from tests.support.builders import (
    Recording,
    a_mail,
    a_worker,
    accepted,
    claimed,
    outcomes_of,
    state_of,
    suppress,
)
from tests.support.campaigns import a_running_campaign

from postroom.archive.parquet import read_tables
from postroom.archive.service import archive_session, verify_archive
from postroom.campaigns.worker import Feeder
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery.model import DeliveryState, Lane
from postroom.delivery.service import resend
from postroom.erasure.columns import EXEMPT, tables_erased
from postroom.erasure.files import address_pattern
from postroom.erasure.service import erase, list_erasures, resume_erasures
from postroom.errors import BadInput
from postroom.events import Event, EventStore
from postroom.post.address import Address

ANN, BOB = "ann@example.org", "bob@example.org"
PERSONAL = r"email|address|recipient|login|raw|payload|custom_data|user_agent|ip_"


async def everything(pool: Pool) -> str:
    """All rows of all tables of the room, as lower-case text, without the audit entries of the erasure."""
    said: list[str] = []
    for table in await pool.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'postroom'::regnamespace AND relkind = 'r'"
    ):
        name = table["relname"]
        rows = await pool.fetch(f'SELECT t::text AS row FROM "{name}" AS t')
        said += [f"{name}: {row['row']}" for row in rows]
        for column in await pool.fetch(
            "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND atttypid = 'bytea'::regtype",
            f'"{name}"',
        ):
            rows = await pool.fetch(f"SELECT encode({column['attname']}, 'escape') AS text FROM \"{name}\"")
            said += [f"{name}: {row['text']}" for row in rows]
    return "\n".join(said).lower()


async def fill(room: Room, email: str) -> None:
    """Store a person in every table that holds people."""
    pool = room.pool
    mixed = email.replace("example", "Example").capitalize()
    await accepted(
        pool,
        a_mail(mixed, tags={"who": email}, custom_data={"mail": email}, idempotency_key=f"welcome:{email}"),
        a_mail(email, "carol@example.org", text=f"Dear {email} and Carol"),
    )
    await pool.execute("INSERT INTO accounts (email, login) VALUES ($1, $2)", mixed, email)
    await pool.execute(
        "INSERT INTO users (date_of_birth, timezone, first_name, last_name, email) "
        "VALUES ('1990-01-01', 'UTC', 'A', 'B', $1)",
        mixed,
    )
    await pool.execute(
        "INSERT INTO address_limits (address_hash, action) VALUES (sha256(convert_to($1, 'UTF8')), 'activation')", email
    )
    await pool.execute(
        "INSERT INTO open_events (email_queue_id, recipient_email, ip_address) VALUES (1, $1, '192.0.2.1')", email
    )
    await pool.execute(
        "INSERT INTO click_events (email_queue_id, recipient_email, link_url) VALUES (1, $1, 'https://x')", email
    )
    await pool.execute("INSERT INTO unsubscriptions (delivery_id, origin, email) VALUES (1, 'page', $1)", email)
    await pool.execute(
        "INSERT INTO bounces (reported_at, is_verified, kind, address, origin, text, report_id) "
        "VALUES (now(), true, 'complaint', $1, 'smtp', $2, convert_to($3, 'UTF8'))",
        email,
        f"from <{mixed}>",
        hashlib.sha256(email.encode()).hexdigest(),
    )
    await pool.execute("INSERT INTO soft_bounces (address, steps, last_step_at) VALUES ($1, 1, now())", email)
    await pool.execute(
        "INSERT INTO unread_feedback (origin, reason, report_id, raw) VALUES ('smtp', 'odd', sha256($1), $1)",
        f"To: {mixed}\r\n\r\nhello".encode(),
    )
    await pool.execute(
        "INSERT INTO malformed_commands (source, reason, raw) VALUES ('x', 'y', $1)", f'{{"to":"{mixed}"}}'.encode()
    )
    await pool.execute(
        "INSERT INTO inbox_messages (delivery_id, mail_from, recipients, subject, raw) "
        "VALUES (1, 'a@b', ARRAY[$1], 's', $2)",
        email,
        f"To: {mixed}\r\n\r\nhello".encode(),
    )
    await EventStore(pool).append(
        Event("Ordered", {"note": f"line\n{mixed}, and more"}, (f"customer={email}", "order=7"))
    )
    await pool.execute(
        "INSERT INTO commands (type, command_id, data) VALUES ('Order', $1, $2::text::jsonb)",
        f"order:{email}",
        f'{{"by":"{email}"}}',
    )
    await pool.execute("INSERT INTO campaigns (name, subject, text_body, total_count) VALUES ($1, 's', 't', 1)", "n")
    await pool.execute(
        "INSERT INTO campaign_recipients (campaign_id, email, name, custom_data) "
        "VALUES ((SELECT max(id) FROM campaigns), $1, 'Ann', $2::text::jsonb)",
        mixed,
        f'{{"email": "{email}"}}',
    )
    await suppress(pool, email, scope="bulk")


async def test_nothing_is_left_of_the_address(room: Room, tmp_path: Path) -> None:
    """No column of any table contains the address in any case; other addresses stay."""
    await fill(room, ANN)
    await fill(room, f"jo{ANN}")
    await fill(room, f"{ANN}.uk")
    done = await erase(room, options_for(tmp_path), address="Ann@Example.ORG", actor=ACTOR)
    assert done.is_done
    said = await everything(room.pool)
    for other in (f"jo{ANN}", f"{ANN}.uk"):
        assert said.count(other) >= 25
        said = said.replace(other, "")
    assert ANN not in said, [line for line in said.splitlines() if ANN in line]


async def test_audit_log_records_the_erasure_without_the_address(room: Room, tmp_path: Path) -> None:
    """It has actor, time and counts; a second erasure finds nothing more."""
    await fill(room, ANN)
    await erase(room, options_for(tmp_path), address=ANN, actor="key:ops")
    rows = await room.pool.fetch("SELECT actor, action, subject, after::text FROM audit_log ORDER BY id")
    assert [(row["actor"], row["action"], row["subject"]) for row in rows] == [
        ("key:ops", "erasure.begin", "erasure:1"),
        ("key:ops", "erasure.finish", "erasure:1"),
    ]
    assert '"deliveries": 2' in rows[1]["after"]
    again = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert (again.id, again.counts) == (2, {})
    assert [found.id for found in (await list_erasures(room.pool))[0]] == [2, 1]


async def test_suppression_survives_as_a_keyed_hash(room: Room, tmp_path: Path) -> None:
    """It is kept as HMAC-SHA-256 under the room's key, and a second erasure gives the same hash."""
    await suppress(room.pool, ANN)
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    [kept] = await room.pool.fetch("SELECT address, scope::text, reason::text FROM suppressions")
    key = await room.pool.fetchval("SELECT inner_pad FROM erasure_key")
    expected = hmac.new(bytes(byte ^ 0x36 for byte in key), ANN.encode(), "sha256").hexdigest()
    assert kept["address"] == f"erased:{expected}"
    assert (kept["scope"], kept["reason"]) == ("all", "manual")
    await suppress(room.pool, ANN)
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert await room.pool.fetchval("SELECT count(*) FROM suppressions") == 1


async def test_erased_person_gets_no_mail_by_any_path(room: Room, tmp_path: Path) -> None:
    """The kept hash is checked at acceptance, before sending, and when a campaign is fed."""
    await suppress(room.pool, ANN)
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    [refused] = await accepted(room.pool, a_mail("Ann@Example.org"))
    assert await state_of(room.pool, refused) is DeliveryState.SUPPRESSED

    await room.pool.execute("CREATE TABLE kept AS TABLE suppressions; DELETE FROM suppressions")
    [waiting] = await accepted(room.pool, a_mail(ANN))
    campaign = await a_running_campaign(room.pool, ["Ann@example.org", BOB])
    await room.pool.execute("INSERT INTO suppressions SELECT * FROM kept")
    transport = Recording()
    await a_worker(room.pool, transport).run_once(Lane.TRANSACTIONAL)
    assert (await state_of(room.pool, waiting), transport.envelopes) == (DeliveryState.SUPPRESSED, [])
    assert await Feeder(room.pool).run_once() == 1
    rows = await room.pool.fetch(
        "SELECT lower(email), state::text FROM campaign_recipients WHERE campaign_id = $1", campaign
    )
    assert {tuple(row) for row in rows} == {(ANN, "suppressed"), (BOB, "fed")}


async def test_waiting_mail_to_the_person_is_cancelled(room: Room, tmp_path: Path) -> None:
    """Claimed mail too; mail with other recipients is sent to them alone."""
    alone, held, shared = await accepted(room.pool, a_mail(ANN), a_mail(ANN), a_mail(ANN, BOB, text=f"Dear {ANN}"))
    await room.pool.execute("UPDATE deliveries SET next_attempt_at = now() + interval '1 h' WHERE id <> $1", held)
    assert [outgoing.id for outgoing in await claimed(room.pool)] == [held]
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert await state_of(room.pool, alone) is DeliveryState.CANCELLED
    assert await state_of(room.pool, held) is DeliveryState.CANCELLED
    assert await state_of(room.pool, shared) is DeliveryState.QUEUED
    outcomes = await outcomes_of(room.pool, shared)
    assert outcomes.pop(BOB) == "pending"
    assert list(outcomes.values()) == ["suppressed"]
    assert await room.pool.fetchval("SELECT count(*) FROM delivery_payloads") == 1
    body = await room.pool.fetchval("SELECT text_body FROM delivery_payloads")
    assert body.startswith("Dear erased:")


async def test_shared_mail_leaves_without_the_erased_person(room: Room, tmp_path: Path) -> None:
    """No header names the person any more, and the other recipients get their mail."""
    shared, copied, answered = await accepted(
        room.pool,
        a_mail(ANN, BOB),
        a_mail(ANN, cc=(Address(BOB),)),
        a_mail(BOB, reply_to=(Address(ANN),)),
    )
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    transport = Recording()
    await a_worker(room.pool, transport).run_once(Lane.TRANSACTIONAL)
    assert [each.recipients for each in transport.envelopes] == [(BOB,)] * 3
    for delivery in (shared, copied, answered):
        assert await state_of(room.pool, delivery) is DeliveryState.SENT
    assert not any(b"erased:" in content or ANN.encode() in content for content in transport.contents)


async def test_resent_mail_leaves_without_the_erased_person(room: Room, tmp_path: Path) -> None:
    """A pseudonym is no recipient of the new delivery either."""
    [shared] = await accepted(room.pool, a_mail(ANN, BOB, cc=(Address(ANN),)))
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    transport = Recording()
    await a_worker(room.pool, transport).run_once(Lane.TRANSACTIONAL)
    again = await resend(room.pool, shared, actor=ACTOR)
    await a_worker(room.pool, transport).run_once(Lane.TRANSACTIONAL)
    assert [each.recipients for each in transport.envelopes] == [(BOB,)] * 2
    assert await state_of(room.pool, again) is DeliveryState.SENT


async def test_erasure_can_keep_the_account(room: Room, tmp_path: Path) -> None:
    """Some applications delete their accounts themselves."""
    await fill(room, ANN)
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR, keep_accounts=True)
    assert await room.pool.fetchval("SELECT count(*) FROM accounts") == 1
    assert await room.pool.fetchval("SELECT count(*) FROM users") == 1
    assert await room.pool.fetchval("SELECT count(*) FROM open_events") == 0


async def test_waiting_campaign_recipient_is_counted_as_suppressed(room: Room, tmp_path: Path) -> None:
    """The campaign's counts still add up."""
    await fill(room, ANN)
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    row = await room.pool.fetchrow("SELECT suppressed_count, total_count FROM campaigns")
    assert (row["suppressed_count"], row["total_count"]) == (1, 1)
    assert await room.pool.fetchval("SELECT state::text FROM campaign_recipients") == "suppressed"


async def test_events_keep_their_positions(room: Room, tmp_path: Path) -> None:
    """Every event stays at its position; only data and tags lose the address."""
    store = EventStore(room.pool)
    await store.append([Event("Ordered", {"by": ANN}, (f"customer={ANN}",)), Event("Paid", {"n": 1}, ("order=7",))])
    before = await room.pool.fetch("SELECT position, transaction_id::text, type FROM events ORDER BY 1")
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert await room.pool.fetch("SELECT position, transaction_id::text, type FROM events ORDER BY 1") == before
    tags = await room.pool.fetch(
        "SELECT e.tags[1] AS own, t.tag FROM events e JOIN event_tags t USING (position) WHERE e.type = 'Ordered'"
    )
    assert [(row["own"] == row["tag"], row["tag"].startswith("customer=erased:")) for row in tags] == [(True, True)]


async def archive_of(room: Room, tmp_path: Path) -> None:
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 100)
    await room.pool.execute(
        "UPDATE attempts SET reply_text = '550 <Ann@example.org> unknown' WHERE delivery_id % 10 = 0"
    )
    await room.pool.execute(
        "INSERT INTO open_events (email_queue_id, opened_at, recipient_email) "
        "SELECT n, $1, CASE WHEN n % 3 = 0 THEN 'ann@example.org' ELSE 'bob@example.org' END "
        "FROM generate_series(1, 30) AS n",
        JANUARY,
    )
    await run(room, options_for(tmp_path))


def rows_of(tmp_path: Path, table: str) -> list[dict[str, object]]:
    paths = sorted(tmp_path.glob(f"**/{table}/2030-01/*.parquet"))
    return [row for path in paths for part in read_tables(path) for row in part.to_pylist()]


async def check_archive(room: Room, tmp_path: Path) -> None:
    assert len(rows_of(tmp_path, "attempts")) == 100
    assert not [row for row in rows_of(tmp_path, "attempts") if ANN in str(row).lower()]
    assert [row["recipient_email"] for row in rows_of(tmp_path, "open_events")] == [BOB] * 20
    assert [
        found.problem async for found in verify_archive(room.pool, options_for(tmp_path)) if not found.is_good
    ] == []


async def test_archive_files_are_rewritten(room: Room, tmp_path: Path) -> None:
    """Opens are deleted, texts lose the address, files still match their records, other files are unchanged."""
    await archive_of(room, tmp_path)
    done = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert (done.is_done, done.counts["archive"]) == (True, 20)
    await check_archive(room, tmp_path)


@pytest.mark.parametrize(
    "step, occurrence",
    [("begun", 1), ("searched", 3), ("rewritten", 1), ("replaced", 1), ("replaced", 2), ("switched", 1)],
)
async def test_killed_erasure_is_finished_by_the_next_run(
    room: Room, tmp_path: Path, step: str, occurrence: int
) -> None:
    """Afterwards files and records agree, and no copy of the address is left."""
    await fill(room, ANN)
    await archive_of(room, tmp_path)
    dying = Orders(room.url, str(tmp_path), NOW, task="erase", die_at=step, occurrence=occurrence)
    assert await run_to_its_end(dying) == -signal.SIGKILL
    assert await resume_erasures(room, options_for(tmp_path)) == 1
    await check_archive(room, tmp_path)
    assert ANN not in await everything(room.pool)
    assert [found.is_done for found in (await list_erasures(room.pool))[0]] == [True]


async def test_erasure_waits_for_the_archive_lock(room: Room, tmp_path: Path) -> None:
    """The database part is done at once, the archive part later; only then the row loses the address."""
    await archive_of(room, tmp_path)
    async with archive_session(room):
        running = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
        assert (running.is_done, running.state.value) == (False, "archive")
    await resume_erasures(room, options_for(tmp_path))
    await check_archive(room, tmp_path)


@pytest.mark.parametrize(
    "text, is_found",
    [
        ("ann@example.org", True),
        ("<ANN@Example.org>, said", True),
        ("customer=ann@example.org", True),
        ("Write to ann@example.org.", True),
        ('{"note": "a\\nann@example.org"}', True),
        ("joann@example.org", False),
        ("jo.ann@example.org", False),
        ("ann@example.org.uk", False),
        ("ann@example.organic", False),
        ("annxexample.org", False),
    ],
)
async def test_address_is_not_found_inside_a_longer_one(pool: Pool, text: str, *, is_found: bool) -> None:
    """The stored function and the rewriting of files use the same rule."""
    assert (address_pattern(ANN).search(text) is not None) is is_found
    erased = await pool.fetchval("SELECT erase_text($1, $2, 'erased:x')", text, ANN)
    assert (erased != text) is is_found


async def test_invalid_address_is_rejected(room: Room, tmp_path: Path) -> None:
    """The error names the field, and no erasure is recorded."""
    with pytest.raises(BadInput, match="email"):
        await erase(room, options_for(tmp_path), address="nonsense", actor=ACTOR)
    assert (await list_erasures(room.pool))[0] == []


async def test_erasure_key_is_readable_by_the_owner_only(room: Room, tmp_path: Path) -> None:
    """Another role cannot read the key, but can compute a pseudonym."""
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    grants = await room.pool.fetch(
        "SELECT grantee FROM information_schema.role_table_grants "
        "WHERE table_name = 'erasure_key' AND grantee <> 'postroom'"
    )
    assert grants == []
    definer = await room.pool.fetchval("SELECT prosecdef FROM pg_proc WHERE proname = 'erased_address'")
    assert definer is True


async def test_every_personal_table_has_an_erasure_rule(pool: Pool) -> None:
    """A new table with addresses must be listed with its rule, or with the reason for none."""
    rows = await pool.fetch(
        """
        SELECT DISTINCT c.relname AS table_name
        FROM pg_class AS c
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = 'postroom'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
            AND (a.attname ~ $1 OR a.atttypid IN ('jsonb'::regtype, 'bytea'::regtype))
        """,
        PERSONAL,
    )
    looked_at = {row["table_name"] for row in rows}
    assert looked_at - tables_erased() - set(EXEMPT) == set()


async def test_erased_columns_exist(pool: Pool) -> None:
    """A renamed column would otherwise be skipped silently."""
    from postroom.erasure.columns import PLACES

    rows = await pool.fetch("SELECT table_name, column_name FROM information_schema.columns")
    existing = {(row["table_name"], row["column_name"]) for row in rows}
    assert {(place.table, column) for place in PLACES for column in place.columns} <= existing
