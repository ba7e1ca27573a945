"""The database roles of the manual: roles.sql and grants.sql, and the work of each role."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import asyncpg
import pytest
from tests.support.archive import (
    ACTOR,
    FEBRUARY,
    JANUARY,
    add_attempts,
    at_now,
    delivery_ids,
    options_for,
)
from tests.support.builders import Recording, a_mail, a_worker, accepted, state_of
from tests.support.http import open_browser
from tests.support.retention import swept

import postroom
from postroom.archive.model import Month
from postroom.archive.restore import release_month, restore_month
from postroom.archive.service import run_archive
from postroom.background import RETENTION
from postroom.db.migrate import migrate
from postroom.db.pool import Pool, Session
from postroom.db.room import Room, open_room
from postroom.delivery.maintenance import Maintenance
from postroom.delivery.model import DeliveryState, Lane
from postroom.embedded.data_directory import DataDirectory
from postroom.erasure import store as erasure_store
from postroom.erasure.service import erase, resume_erasures
from postroom.events.audit import record_audit
from postroom.settings import Settings
from postroom.stats import service
from postroom.stats.model import Figures, Selection
from postroom.stats.worker import Rollup

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
ROLES = ("postroom_owner", "postroom_worker", "postroom_api", "postroom_reader", "postroom_sender")


async def run(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


@dataclass(frozen=True, slots=True)
class House:
    """A database with the roles of the manual, and a connection for each."""

    url_of: Callable[[str], str]

    async def let_all_make_temporary_tables(self) -> None:
        """Remove one of the two protections of roles.sql, so that the test covers the other."""
        grant = "DO $$ BEGIN EXECUTE format('GRANT TEMP ON DATABASE %I TO PUBLIC', current_database()); END $$"
        await run(self.url_of("postgres"), grant)

    @asynccontextmanager
    async def room(self, role: str) -> AsyncIterator[Room]:
        async with open_room(Settings(database_url=self.url_of(role))) as room:
            yield room

    @asynccontextmanager
    async def session(self, role: str) -> AsyncIterator[Session]:
        """Connect as psql does, with the settings of the role only."""
        connection = await asyncpg.connect(self.url_of(role))
        try:
            yield connection
        finally:
            await connection.close()


@pytest.fixture
async def house(database_url: str, server_directory: Path) -> AsyncIterator[House]:
    """Run roles.sql as administrator, the migration, and grants.sql twice as owner."""
    state = DataDirectory(server_directory / "data").read_state()
    assert state is not None
    host, database = quote(state.socket_dir, safe=""), urlsplit(database_url).path.strip("/")

    def url_of(role: str) -> str:
        return f"postgresql://{role}@/{database}?host={host}&port={state.port}"

    try:
        await run(url_of("postgres"), "DROP SCHEMA postroom CASCADE")
        await run(url_of("postgres"), (EXAMPLES / "roles.sql").read_text("utf-8"))
        await migrate(url_of("postroom_owner"), "postroom")
        for _ in range(2):
            await run(url_of("postroom_owner"), (EXAMPLES / "grants.sql").read_text("utf-8"))
        await run(url_of("postgres"), "ALTER ROLE postroom_sender LOGIN")
        yield House(url_of)
    finally:
        await run(url_of("postgres"), "DROP SCHEMA IF EXISTS postroom CASCADE")
        for role in ROLES:
            await run(url_of("postgres"), f"DROP OWNED BY {role}; DROP ROLE {role}")


async def is_refused(session: Session, sql: str) -> bool:
    """True if the role lacks the right to run a statement."""
    try:
        await session.execute(sql)
    except asyncpg.InsufficientPrivilegeError:
        return True
    return False


async def test_worker_role_can_do_its_work(house: House) -> None:
    """The worker claims, sends, completes, counts, folds, cleans up and creates partitions, and owns nothing."""
    async with house.room("postroom_worker") as room:
        assert await Maintenance(room.pool).make_partitions() == 6
        [mail] = await accepted(room.pool)
        await a_worker(room.pool, Recording()).run_once(Lane.TRANSACTIONAL)
        assert await state_of(room.pool, mail) is DeliveryState.SENT
        await _keep_house(room.pool)
        assert await service.total(room.pool, Selection()) == Figures(accepted=1, sent=1)
        owners = await room.pool.fetch("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'postroom'")
        assert [row["tableowner"] for row in owners] == ["postroom_owner"]


async def _keep_house(pool: Pool) -> None:
    keeping = Maintenance(pool)
    await keeping.recover()
    await keeping.expire()
    await swept(pool, RETENTION)
    assert await Rollup(pool).run_once() == 2


async def test_worker_role_has_no_other_rights(house: House) -> None:
    """The worker cannot write keys or history or change a table."""
    async with house.session("postroom_worker") as session:
        assert await is_refused(session, "SELECT * FROM api_keys")
        assert await is_refused(session, "DELETE FROM audit_log")
        assert await is_refused(session, "UPDATE migrations SET checksum = ''")
        assert await is_refused(session, "ALTER TABLE deliveries ADD COLUMN extra text")
        assert await is_refused(session, "CREATE TABLE extra ()")


async def test_worker_role_archives(house: House, tmp_path: Path) -> None:
    """The worker archives a month and late rows, restores and releases them, and erases a person."""
    options = options_for(tmp_path)
    async with house.session("postroom_owner") as session:
        await session.execute(
            "CREATE TABLE attempts_2030_01 PARTITION OF attempts FOR VALUES FROM ('2030-01-01Z') TO ('2030-02-01Z')"
        )
    async with house.room("postroom_worker") as room:
        for month in (JANUARY, FEBRUARY):
            await add_attempts(room.pool, month, 5, first=month.month * 100)
        report = await run_archive(room, options, actor=ACTOR, clock=at_now)
        assert (report.rows, await delivery_ids(room.pool)) == (10, [])
        assert report.partitions_made == 12
        await restore_month(room, options, Month("attempts", JANUARY), attach=True, actor=ACTOR)
        assert len(await delivery_ids(room.pool)) == 5
        assert await release_month(room, Month("attempts", JANUARY), actor=ACTOR) == 1
    async with house.room("postroom_api") as room:
        assert (await erase(room, options, address="api@example.org", actor=ACTOR)).is_done
        await refused_to(room, "SELECT * FROM erasure_key")
        async with room.pool.acquire() as session:
            await erasure_store.begin_erasure(session, actor=ACTOR, address="worker@example.org")
    async with house.room("postroom_worker") as room:
        assert await resume_erasures(room, options) == 1
        assert await room.pool.fetchval("SELECT array_agg(DISTINCT state::text) FROM erasures") == ["done"]
        await refused_to(room, "SELECT * FROM erasure_key")


async def test_worker_role_cannot_rewrite_the_audit_log(house: House) -> None:
    """`erase_audit` needs an erasure that runs, which the worker cannot request or redirect to another address."""
    forged = ("mallory@example.org", "erased:" + "0" * 64)
    async with house.session("postroom_api") as session:
        await record_audit(session, "operator:mallory@example.org", "key.create", "key:7")
        await erasure_store.make_erasure_key(session)
        await erasure_store.begin_erasure(session, actor=ACTOR, address="ada@example.org")
    async with house.session("postroom_worker") as session:
        pseudonyms = [forged[1], await session.fetchval("SELECT erased_address($1)", forged[0])]
        pseudonyms.append(await session.fetchval("SELECT pseudonym FROM erasures"))
        for statement in (
            "INSERT INTO erasures (requested_by, pseudonym, address) VALUES ('a', 'b', 'mallory@example.org')",
            "UPDATE erasures SET pseudonym = erased_address('mallory@example.org')",
            "DELETE FROM erasures",
        ):
            assert await is_refused(session, statement)
        await session.execute("UPDATE erasures SET address = $1", forged[0])
        for pseudonym in pseudonyms:
            with pytest.raises(asyncpg.PostgresError, match="append-only"):
                await session.execute("SELECT erase_audit($1, $2)", forged[0], pseudonym)
        assert await session.fetchval("SELECT actor FROM audit_log") == f"operator:{forged[0]}"


async def refused_to(room: Room, sql: str) -> None:
    async with room.pool.acquire() as session:
        assert await is_refused(session, sql)


async def test_archiving_reaches_no_other_table(house: House) -> None:
    """Forged archive records and temporary tables of the worker give no access to other tables."""
    lie = """
        INSERT INTO archived_partitions (id, state, is_attached, part, rows, bytes, from_time, to_time, table_name,
            source_name, path, file_sha256, content_sha256, restored_at, restored_name)
        VALUES ($1, 'detached', false, 1, 0, 0, '2030-01-01Z', '2030-02-01Z', $2, $3, '', '', '', now(), $3)
    """
    await house.let_all_make_temporary_tables()
    async with house.session("postroom_worker") as session:
        await session.execute("CREATE TEMP TABLE api (at timestamptz) PARTITION BY RANGE (at)")
        for number, (table, name) in enumerate(
            [("attempts", "api_keys"), ("api", "api_keys"), ("attempts", "attempts_default")], start=1
        ):
            await session.execute("DELETE FROM archived_partitions")
            await session.execute(lie, number, table, name)
            for call in (
                f"SELECT drop_archived_source({number})",
                f"SELECT drop_restored_table('{name}')",
                f"SELECT make_restored_table('{table}', '{name}')",
                f"SELECT attach_restored_table('{table}', '{name}', '2030-01-01Z')",
            ):
                with pytest.raises(asyncpg.PostgresError, match=r"is not a monthly piece|is still part"):
                    await session.execute(call)
    for role in ("postroom_reader", "postroom_sender"):
        async with house.session(role) as session:
            assert await is_refused(session, "SELECT postroom.drop_archived_source(1)")
            for call in (
                "ensure_partitions('attempts', 100000)",
                "erased_address('ada@example.org')",
                "archive_place()",
            ):
                assert await is_refused(session, f"SELECT postroom.{call}")


async def test_partitions_are_created_near_the_present_only(house: House) -> None:
    """A role that may create partitions cannot create thousands of them."""
    async with house.session("postroom_worker") as session:
        for call in ("ensure_partitions('attempts', 2, '2100-01-01Z')", "ensure_partitions('attempts', 25)"):
            with pytest.raises(asyncpg.RaiseError, match="within ten years of now"):
                await session.execute(f"SELECT {call}")


async def test_api_role_accepts_over_http(house: House) -> None:
    """The API role creates a key, accepts mail with it, lists it and reads figures."""
    async with house.room("postroom_api") as room:
        browser = await open_browser(room)
        mail = {"to": ["ada@example.org"], "subject": "Hello", "text": "Hello"}
        assert (await browser.post("/v1/deliveries", json=mail)).status == 202
        listed = await browser.get("/v1/deliveries")
        assert [item["status"] for item in listed.json["items"]] == ["queued"]
        cancelled = await browser.post(f"/v1/deliveries/{listed.json['items'][0]['id']}/cancel")
        assert cancelled.status in {200, 204}
        assert await service.total(room.pool, Selection()) == Figures(accepted=1, cancelled=1)


async def test_api_role_cannot_rewrite_history(house: House) -> None:
    """The audit log is append-only for the API role, and only the owner migrates."""
    async with house.session("postroom_api") as session:
        await session.execute("INSERT INTO audit_log (actor, action, subject) VALUES ('tests', 'test', 'nothing')")
        assert await is_refused(session, "UPDATE audit_log SET actor = 'root'")
        assert await is_refused(session, "DELETE FROM migrations")
        assert await is_refused(session, "DROP TABLE deliveries")


async def test_later_tables_are_open_to_working_roles(house: House) -> None:
    """Default privileges open new tables to worker and API, and not to the reader."""
    async with house.session("postroom_owner") as session:
        await session.execute("CREATE TABLE later (id bigint GENERATED BY DEFAULT AS IDENTITY, secret text)")
    for role in ("postroom_worker", "postroom_api"):
        async with house.session(role) as session:
            await session.execute("INSERT INTO later (secret) VALUES ('x')")
            await session.execute("UPDATE later SET secret = 'y'")
            await session.execute("DELETE FROM later")
    for role in ("postroom_reader", "postroom_sender"):
        async with house.session(role) as session:
            assert await is_refused(session, "SELECT * FROM postroom.later")


async def test_reader_role_reads_ledger_and_figures(house: House) -> None:
    """The reader has tables, views and statistics, without the content columns."""
    async with house.room("postroom_api") as room:
        await accepted(room.pool, a_mail(headers={"Message-ID": "<mine@example.org>"}))
        await a_worker(room.pool, Recording()).run_once(Lane.TRANSACTIONAL)
    async with house.session("postroom_reader") as session:
        row = await session.fetchrow("SELECT status, recipient_email, assigned_at, last_error FROM email_queue")
        assert row == ("sent", "ada@example.org", None, None)
        row = await session.fetchrow("SELECT * FROM send_logs")
        assert row is not None
        assert (row["status"], row["message_id"]) == ("sent", "<mine@example.org>")
        assert await session.fetch("SELECT * FROM bounce_list UNION ALL SELECT * FROM bounce_list") == []
        assert await session.fetch("SELECT * FROM unsubscribe_list") == []
        figures = await session.fetchval("SELECT sum(amount) FROM read_counts() WHERE metric = 'sent'")
        assert figures == 1


@pytest.mark.parametrize(
    "table",
    [
        "delivery_payloads",
        "inbox_messages",
        "tokens",
        "api_keys",
        "sender_accounts",
        "webhook_endpoints",
        "erasure_key",
    ],
)
async def test_reader_role_sees_no_content_and_no_secret(house: House, table: str) -> None:
    """Bodies, one-time codes, key hashes and sealed credentials are closed to the reader."""
    async with house.session("postroom_reader") as session:
        assert await is_refused(session, f"SELECT * FROM {table}")


async def test_reader_role_cannot_write(house: House) -> None:
    """The reader writes neither to tables nor through views or functions."""
    async with house.session("postroom_reader") as session:
        assert await is_refused(session, "UPDATE deliveries SET reason = 'x'")
        assert await is_refused(session, "DELETE FROM suppressions")
        assert await is_refused(session, "INSERT INTO email_queue (recipient_email) VALUES ('ada@example.org')")
        assert await is_refused(session, "SELECT send('{ada@example.org}', p_subject => 'a', p_text => 'b')")
        assert await is_refused(session, "SELECT fold_stats(1)")
        assert await is_refused(session, "SELECT subject FROM email_queue")


async def test_sender_role_sends(house: House) -> None:
    """Mail is sent by the function, from Python and by inserting into the view, under the name of the role."""
    async with house.session("postroom_sender") as session:
        send = "SELECT postroom.send('{ada@example.org}', p_subject => 'a', p_text => 'b', p_idempotency_key => 'k')"
        assert [await session.fetchval(send) for _ in range(2)] == [1, 1]
        await session.execute(
            """
            INSERT INTO postroom.email_queue (recipient_email, subject, html_body)
            VALUES ('ada@example.org', 'a', '<p>b</p>')
            """
        )
        await postroom.send(session, to='"Ada \\"Countess\\" L." <ada@example.org>', subject="a", text="b")
    async with house.room("postroom_api") as room:
        assert await service.total(room.pool, Selection()) == Figures(accepted=3)
        rows = await room.pool.fetch("SELECT DISTINCT source FROM deliveries")
        assert [row["source"] for row in rows] == ["postroom_sender"]


@pytest.mark.parametrize(
    "invalid",
    [
        "p_email => E'ada@example.org\\nBcc: bob@example.org', p_subject => 'a', p_text => 'b'",
        "p_email => 'ada@example.org', p_subject => E'a\\nBcc: bob@example.org', p_text => 'b'",
        "p_email => 'ada@example.org', p_subject => 'a', p_text => 'b', p_source => 'accounts'",
        "p_email => 'ada@example.org', p_subject => 'a', p_text => 'b', p_idempotency_key => E'k\\n'",
    ],
)
@pytest.mark.parametrize("sets_role", [False, True])
async def test_mail_of_the_sender_role_is_always_checked(
    house: House,
    invalid: str,
    sets_role: bool,  # noqa: FBT001 - a case
) -> None:
    """Only Postroom's own roles may say that a mail was checked, and not after SET ROLE to another role."""
    async with house.session("postgres" if sets_role else "postroom_sender") as session:
        if sets_role:
            await session.execute("SET ROLE postroom_sender")
        with pytest.raises(asyncpg.PostgresError) as refused:
            await session.execute(f"SELECT postroom.send({invalid})")
    assert refused.value.sqlstate == "PR001"


async def test_sender_role_has_no_right_on_any_table(house: House) -> None:
    """The sender role cannot change other applications' mail, write webhooks, release keys or read."""
    async with house.session("postroom_sender") as session:
        for statement in (
            "INSERT INTO postroom.other_recipients (delivery_id, kind, position, email) VALUES (1, 'bcc', 9, 'm@e')",
            "INSERT INTO postroom.deliveries (channel, ladder, source) VALUES ('webhook', 'webhook', 'outbox')",
            "UPDATE postroom.deliveries SET idempotency_key = NULL",
            "SELECT id FROM postroom.deliveries",
            "SELECT * FROM postroom.suppressions",
            "SELECT * FROM postroom.delivery_payloads",
            "SELECT * FROM postroom.email_queue",
        ):
            assert await is_refused(session, statement)
        tables = await session.fetch(
            """
            SELECT c.relname, p.privilege
            FROM pg_class AS c, unnest('{SELECT,INSERT,UPDATE,DELETE,REFERENCES,TRIGGER}'::text[]) AS p(privilege)
            WHERE c.relnamespace = 'postroom'::regnamespace AND c.relkind IN ('r', 'p', 'v')
                AND has_any_column_privilege(c.oid, 'SELECT,INSERT,UPDATE,REFERENCES')
                AND has_table_privilege(c.oid, p.privilege)
            """
        )
        assert [tuple(row) for row in tables] == [("email_queue", "INSERT")]


async def test_source_is_bound_to_the_role(house: House) -> None:
    """An application sends under its role's name or a name below it, not under another's or a reserved one."""
    admin = house.url_of("postgres")
    await run(admin, "CREATE ROLE shop LOGIN IN ROLE postroom_sender; CREATE ROLE outbox LOGIN IN ROLE postroom_sender")
    try:
        async with house.session("shop") as session:
            for source in ("shop", "shop:orders", "sql", None):
                await session.execute(SEND, source)
            for source in ("bank", "shopping", "outbox", "postroom", "postroom_sender"):
                with pytest.raises(asyncpg.PostgresError, match="the role shop sends as shop") as caught:
                    await session.execute(SEND, source)
                assert (caught.value.sqlstate, caught.value.column_name) == ("PR001", "source")
        async with house.session("outbox") as session:
            with pytest.raises(asyncpg.PostgresError, match="outbox is reserved"):
                await session.execute(SEND, None)
            await session.execute(SEND, "outbox:app")
        async with house.session("postgres") as session:  # SET ROLE counts: poolers of tenants use it
            await session.execute("SET ROLE shop")
            with pytest.raises(asyncpg.PostgresError, match="the role shop sends as shop"):
                await session.execute(SEND, "bank")
        async with house.session("postroom_api") as session:
            await session.execute(SEND, "bank")
            rows = await session.fetch("SELECT source, count(*) FROM deliveries GROUP BY 1 ORDER BY source")
        assert [tuple(row) for row in rows] == [("bank", 1), ("outbox:app", 1), ("shop", 3), ("shop:orders", 1)]
    finally:
        await run(admin, "DROP ROLE shop; DROP ROLE outbox")


SEND = "SELECT postroom.send('{ada@example.org}', p_subject => 'a', p_text => 'b', p_source => $1)"

ATTACK = """
    CREATE TYPE pg_temp.lure AS ENUM ('x');
    CREATE FUNCTION pg_temp.spring(pg_temp.lure) RETURNS bigint LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE 'GRANT SELECT ON ALL TABLES IN SCHEMA postroom TO ' || quote_ident(session_user);
        RETURN 0;
    END $$;
    CREATE CAST (pg_temp.lure AS bigint) WITH FUNCTION pg_temp.spring(pg_temp.lure) AS IMPLICIT;
    CREATE TEMP TABLE bait (account pg_temp.lure);
"""


@pytest.mark.parametrize("role", ["postroom_reader", "postroom_sender", "postroom_worker", "postroom_api"])
async def test_roles_cannot_attach_owners_trigger_functions(house: House, role: str) -> None:
    """A temporary table with the attacker's type would run the attacker's cast as the owner."""
    async with house.session(role) as session:
        assert await is_refused(session, "CREATE TEMP TABLE bait ()")
    await house.let_all_make_temporary_tables()
    async with house.session("postroom_owner") as session:
        functions = await session.fetch(
            "SELECT oid::regprocedure::text AS name FROM pg_proc WHERE prorettype = 'trigger'::regtype"
            " AND pronamespace = 'postroom'::regnamespace"
        )
    assert len(functions) > 10
    async with house.session(role) as session:
        await session.execute(ATTACK)
        for row in functions:
            name = row["name"].removeprefix("postroom.")
            assert await is_refused(
                session, f"CREATE TRIGGER t AFTER INSERT ON bait FOR EACH ROW EXECUTE FUNCTION postroom.{name}"
            )
