"""Erasing in rare places: other spellings, machine-made keys, free text, unfinished restores."""

import json
import signal
from pathlib import Path

import pytest
from tests.erasure.test_erasure import ANN, everything
from tests.support.archive import ACTOR, JANUARY, NOW, add_attempts, files_of, make_months, options_for, run
from tests.support.archive_process import Orders, run_to_its_end
from tests.support.builders import a_mail, accepted, state_of, suppress
from tests.support.feedback import PATHS, report, sent

from postroom.archive.service import archive_session
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.delivery.model import DeliveryState
from postroom.erasure.model import spellings
from postroom.erasure.service import erase, resume_erasures
from postroom.events import Event, EventStore
from postroom.events.audit import record_audit
from postroom.feedback import service as feedback
from postroom.feedback.attribution import Incoming
from postroom.feedback.ingest import ingest
from postroom.feedback.lists import ListReader, write_lines
from postroom.feedback.model import NewSuppression, SuppressionReason
from postroom.post.address import Address

JOERG = "jörg@bücher.example"


async def lines_with(pool: Pool, *wanted: str) -> list[str]:
    """The matching lines of all tables."""
    return [line for line in (await everything(pool)).splitlines() if any(each in line for each in wanted)]


@pytest.mark.parametrize("tables", ["recorded", "half filled"])
async def test_restored_month_is_searched(room: Room, tmp_path: Path, tables: str) -> None:
    """The table of an unfinished restore without a record is searched too."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 3)
    await room.pool.execute("SELECT make_restored_table('attempts', 'attempts_restored_2029_03')")
    await room.pool.execute("SELECT make_restored_table('open_events', 'open_events_restored_2029_03')")
    await room.pool.execute("INSERT INTO attempts_restored_2029_03 SELECT * FROM attempts")
    await room.pool.execute("UPDATE attempts_restored_2029_03 SET reply_text = 'no ann@example.org here'")
    await room.pool.execute(
        "INSERT INTO open_events_restored_2029_03 (id, email_queue_id, opened_at, recipient_email)"
        " VALUES (7, 7, '2029-03-03Z', 'Ann@example.org')"
    )
    if tables == "recorded":
        await room.pool.execute(
            "INSERT INTO archived_partitions (state, is_attached, part, from_time, to_time, rows, bytes, file_sha256,"
            " content_sha256, table_name, source_name, path, restored_at, restored_name)"
            " VALUES ('expired', false, 1, '2029-03-01Z', '2029-04-01Z', 3, 3, '', '', 'attempts', 'attempts_2029_03',"
            " 'nowhere', now(), 'attempts_restored_2029_03')"
        )
    done = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert (done.is_done, done.counts["attempts"], done.counts["open_events"]) == (True, 3, 1)
    assert await lines_with(room.pool, ANN) == []


async def test_month_restored_during_an_erasure_is_searched(room: Room, tmp_path: Path) -> None:
    """The restored table is searched with the files, after the database part."""
    async with archive_session(room):
        waiting = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
        assert not waiting.is_done
    await room.pool.execute("SELECT make_restored_table('open_events', 'open_events_restored_2029_03')")
    await room.pool.execute(
        "INSERT INTO open_events_restored_2029_03 (id, email_queue_id, opened_at, recipient_email)"
        " VALUES (7, 7, '2029-03-03Z', 'Ann@example.org')"
    )
    await resume_erasures(room, options_for(tmp_path))
    assert await lines_with(room.pool, ANN) == []


async def test_repeated_request_searches_again(room: Room, tmp_path: Path) -> None:
    """Also while the first erasure waits for a file: the address may have been stored since."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 3)
    await run(room, options_for(tmp_path))
    [january] = files_of(tmp_path)
    whole = january.read_bytes()
    january.unlink()
    first = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    await EventStore(room.pool).append(Event("Ordered", {"by": ANN}, ("order=7",)))
    second = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert (first.is_done, second.is_done, second.id) == (False, False, first.id)
    assert await lines_with(room.pool, f'"{ANN}"') == []
    january.write_bytes(whole)
    await resume_erasures(room, options_for(tmp_path))
    assert await lines_with(room.pool, ANN) == []


@pytest.mark.parametrize(
    "key, left",
    [
        ("signup-ann@example.org", "signup-erased:x"),
        ("welcome.ann@example.org-2", "welcome.erased:x-2"),
        ("welcome_ann@example.org_2", "welcome_erased:x_2"),
        ("k=welcome-ann@example.org", "k=welcome-erased:x"),
        ("joann@example.org", "joann@example.org"),
        ("bob+ann@example.org", "bob+ann@example.org"),
        ("ann@example.org.uk", "ann@example.org.uk"),
        ("k=mary-ann@example.org", "k=mary-ann@example.org"),
    ],
)
async def test_address_behind_a_separator_is_erased_from_keys(room: Room, tmp_path: Path, key: str, left: str) -> None:
    """The key stays if the longer address belongs to a known person, such as Mary-Ann."""
    await accepted(room.pool, a_mail("Mary-Ann@example.org"))
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    pseudonym = await room.pool.fetchval("SELECT erased_address($1)", ANN)
    erased = await room.pool.fetchval("SELECT erase_key($1, $2, $3)", key, ANN, pseudonym)
    assert erased.replace(pseudonym, "erased:x") == left


async def test_keys_that_differ_in_case_stay_distinct(room: Room, tmp_path: Path) -> None:
    """Command ids are unique: two spellings of one address must not become one id."""
    for spelling in (ANN, "Ann@example.org", "ANN@example.org"):
        await room.pool.execute(
            "INSERT INTO commands (type, command_id, data) VALUES ('Order', $1, '{}')", f"signup-{spelling}"
        )
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert await room.pool.fetchval("SELECT count(DISTINCT command_id) FROM commands") == 3
    assert await lines_with(room.pool, ANN) == []


def test_spellings_of_an_address() -> None:
    """The ASCII and Unicode forms of a domain, and their JSON escapes; usually there is one."""
    assert spellings(ANN) == (ANN,)
    assert spellings("jörg@xn--bcher-kva.example") == (
        "jörg@xn--bcher-kva.example",
        JOERG,
        "jÖrg@xn--bcher-kva.example",
        "jÖrg@bÜcher.example",
        "j\\u00f6rg@xn--bcher-kva.example",
        "j\\u00f6rg@b\\u00fccher.example",
        "j\\u00d6rg@xn--bcher-kva.example",
        "j\\u00d6rg@b\\u00dccher.example",
    )


@pytest.mark.parametrize("asked", [JOERG, "Jörg@xn--bcher-kva.example", "JÖRG@BÜCHER.example"])
async def test_non_ascii_addresses_are_found_in_every_spelling(room: Room, tmp_path: Path, asked: str) -> None:
    """In texts, JSON and bytes; with an ASCII or Unicode domain, in any case."""
    written = (JOERG, "Jörg@Bücher.example", "jörg@xn--bcher-kva.example", "JÖRG@xn--bcher-kva.example")
    await accepted(room.pool, *(a_mail(each) for each in written))
    for number, each in enumerate(written):
        await EventStore(room.pool).append(Event("Ordered", {"by": f"“{each}”"}, (f"customer={each}",)))
        for raw in (f"To: “{each}”", json.dumps({"to": f"“{each}"})):
            await room.pool.execute(
                "INSERT INTO malformed_commands (source, reason, raw) VALUES ('x', 'y', $1)", raw.encode()
            )
        await room.pool.execute(
            "INSERT INTO open_events (email_queue_id, recipient_email) VALUES ($1, $2)", number, each
        )
    done = await erase(room, options_for(tmp_path), address=asked, actor=ACTOR)
    assert done.is_done
    assert await lines_with(room.pool, "rg@b", "rg@xn") == []


async def test_free_text_loses_the_address(room: Room, tmp_path: Path) -> None:
    """Origins, notes, details, custom data and the audit log are searched."""
    pool = room.pool
    await suppress(pool, "bob@example.org")
    await suppress(pool, ANN)
    await pool.execute("UPDATE suppressions SET origin = 'form of ann@example.org', detail = 'Ann@example.org said so'")
    await pool.execute(
        "UPDATE suppression_changes SET origin = 'form of ann@example.org', actor = 'key:ann@example.org'"
    )
    async with pool.acquire() as connection:
        told = {"origin": f"form of {ANN}"}
        await record_audit(connection, actor="key:x", action="suppression.lift", subject="s:1", before=told, after=told)
    await pool.execute(
        "INSERT INTO malformed_commands (source, reason, detail, raw) VALUES ('mail-ann@example.org', 'y', $1, 'z'),"
        " ('x', 'y', $1, 'z')",
        f"{ANN} is not known",
    )
    await pool.execute("INSERT INTO accounts (email, login) VALUES ('new@example.org', 'Ann@example.org')")
    await pool.execute("INSERT INTO campaigns (name, subject, text_body, total_count) VALUES ('n', 's', 't', 1)")
    await pool.execute(
        "INSERT INTO campaign_recipients (campaign_id, email, name, custom_data)"
        " SELECT id, 'bob@example.org', 'friend of ann@example.org', '{\"by\": \"ann@example.org\"}' FROM campaigns"
    )
    done = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert done.is_done
    assert await lines_with(pool, ANN) == []
    assert await pool.fetchval("SELECT count(*) FROM accounts") == 1
    assert "erased:" in await pool.fetchval(
        "SELECT before ->> 'origin' FROM audit_log WHERE action = 'suppression.lift'"
    )
    changed = "SELECT subject, after ->> 'entries' FROM audit_log WHERE action = 'erasure.audit'"
    assert tuple(await pool.fetchrow(changed)) == (f"erasure:{done.id}", "1")


async def test_the_audit_log_stays_append_only(room: Room, tmp_path: Path) -> None:
    """Only an erasure that runs changes it, by its own address; the change has an entry."""
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    with pytest.raises(Exception, match="append-only"):
        await room.pool.execute("UPDATE audit_log SET actor = 'another'")
    with pytest.raises(Exception, match="append-only"):
        await room.pool.execute("SELECT erase_audit($1, erased_address($1))", ANN)
    with pytest.raises(Exception, match="append-only"):
        await room.pool.execute("SET postroom.erasing = 'on'; DELETE FROM audit_log")


async def test_mail_from_the_person_loses_the_address(room: Room, tmp_path: Path) -> None:
    """Keys, tags and data too; it is sent to its recipients from the installation's own sender."""
    named = {
        "tags": {"k": f"welcome-{ANN}", "n": "1"},
        "custom_data": {"by": ANN},
        "idempotency_key": f"signup-{ANN}",
    }
    [answered, sent] = await accepted(
        room.pool,
        a_mail("bob@example.org", **named),
        a_mail("bob@example.org", sender=Address("Ann@example.org", "Ann")),
    )
    await room.pool.execute(
        "INSERT INTO other_recipients (delivery_id, kind, position, email) VALUES ($1, 'reply_to', 0, $2)",
        answered,
        ANN,
    )
    done = await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    assert done.is_done
    assert await lines_with(room.pool, ANN) == []
    rows = await room.pool.fetch("SELECT state::text, idempotency_key, tags ->> 'n' AS n FROM deliveries ORDER BY id")
    assert [(row["state"], row["idempotency_key"]) for row in rows] == [("queued", None)] * 2
    assert rows[0]["n"] == "1"
    assert await room.pool.fetchval("SELECT from_email FROM delivery_payloads WHERE delivery_id = $1", sent) is None


async def test_bodies_of_webhooks_lose_the_address(room: Room, tmp_path: Path) -> None:
    """A webhook has no address to find it by; mail to others that mentions the person stays."""
    [hook, mail] = await accepted(
        room.pool,
        a_mail("bob@example.org", text=f'{{"to": "{ANN}"}}'),
        a_mail("bob@example.org", text=f"ask {ANN}"),
    )
    await room.pool.execute(
        "UPDATE deliveries SET channel = 'webhook', recipient_email = 'https://shop.example.org' WHERE id = $1", hook
    )
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    bodies = dict(await room.pool.fetch("SELECT delivery_id, text_body FROM delivery_payloads"))
    assert bodies[hook].startswith('{"to": "erased:')
    assert bodies[mail] == f"ask {ANN}"


async def test_bounce_during_an_erasure_is_erased_too(room: Room, tmp_path: Path) -> None:
    """The suppression of a concurrent hard bounce is kept, its address is not."""
    dying = Orders(room.url, str(tmp_path), NOW, task="erase", die_at="begun")
    assert await run_to_its_end(dying) == -signal.SIGKILL
    await suppress(room.pool, ANN)
    await resume_erasures(room, options_for(tmp_path))
    assert await lines_with(room.pool, ANN) == []
    assert await room.pool.fetchval("SELECT address LIKE 'erased:%' FROM suppressions")


async def test_suppression_of_an_erased_person_can_be_lifted(room: Room, tmp_path: Path) -> None:
    """The given address finds it, also after a second suppression; afterwards mail is sent."""
    await suppress(room.pool, ANN)
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    [found] = await feedback.find_suppressions(room.pool, "Ann@example.org")
    assert found.email.startswith("erased:")
    [listed], _ = await feedback.list_suppressions(room.pool, feedback.SuppressionFilter(email=ANN))
    assert listed == found
    assert await feedback.list_history(room.pool, ANN)
    made = await feedback.suppress(
        room.pool, NewSuppression(email=ANN, reason=SuppressionReason.MANUAL, origin="api"), actor=ACTOR
    )
    assert made.email == ANN
    assert len(await feedback.lift(room.pool, ANN, actor=ACTOR)) == 2
    [mail] = await accepted(room.pool, a_mail(ANN))
    assert await state_of(room.pool, mail) is DeliveryState.QUEUED


async def test_suppression_list_keeps_pseudonyms_on_export_and_import(room: Room, tmp_path: Path) -> None:
    """The pseudonym is exported and imported unchanged, and still suppresses."""
    await suppress(room.pool, ANN)
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    lines = [line async for page in feedback.export(room.pool) for line in write_lines(page, header=True).splitlines()]
    await feedback.lift(room.pool, ANN, actor=ACTOR)
    reader = ListReader()
    await feedback.import_batch(room.pool, reader.read(lines), actor=ACTOR)
    assert reader.result.problems == []
    [mail] = await accepted(room.pool, a_mail(ANN))
    assert await state_of(room.pool, mail) is DeliveryState.SUPPRESSED


async def test_sql_send_finds_the_pseudonym_of_an_erased_address(room: Room, tmp_path: Path) -> None:
    """The suppressed person gets nothing, in any spelling; other people get mail."""
    await suppress(room.pool, ANN)
    await erase(room, options_for(tmp_path), address=ANN, actor=ACTOR)
    send = "SELECT send(ARRAY[$1], p_subject => 'Hello', p_text => 'Hello.')"
    ids = [await room.pool.fetchval(send, address) for address in (ANN, ANN.title(), "bob@example.org")]
    suppressed, queued = DeliveryState.SUPPRESSED, DeliveryState.QUEUED
    assert [await state_of(room.pool, each) for each in ids] == [suppressed, suppressed, queued]


@pytest.mark.parametrize("others", [(), ("carol@example.org",)])
async def test_bounce_after_the_erasure_suppresses_the_pseudonym(
    room: Room, tmp_path: Path, others: tuple[str, ...]
) -> None:
    """Mail with several recipients too; the address is not stored again."""
    delivery_id = await sent(room.pool, "ada@example.org", *others)
    await erase(room, options_for(tmp_path), address="ada@example.org", actor=ACTOR)
    raw = report("postfix-unknown-user", delivery_id=delivery_id)
    await ingest(room.pool, [Incoming(raw, "smtp")], paths=PATHS)
    assert await room.pool.fetchval("SELECT address LIKE 'erased:%' FROM suppressions")
    assert await lines_with(room.pool, "ada@example.org") == []
