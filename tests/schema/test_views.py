"""The views email_queue, send_logs, bounce_list and unsubscribe_list, read and written in plain SQL."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from tests.support.builders import NOON, a_mail, accepted, suppress

from postroom.db.pool import Pool, Session

INSERT = """
    INSERT INTO email_queue (recipient_email, recipient_name, subject, html_body, text_body, custom_data)
    VALUES ('ada@example.org', 'Ada Lovelace', 'Hello', '<p>Hello</p>', 'Hello', '{"merge_tag": "value"}')
    RETURNING *
"""
ATTEMPT = """
    INSERT INTO attempts (delivery_id, attempt_no, outcome, lane, code, enhanced_code, stage, reply_text, started_at,
        finished_at, campaign_id, sender_account_id, domain)
    VALUES ($1, $2, $3, 'bulk', $4, $5, $6, $7, $8::timestamptz - interval '250 milliseconds', $8, 7, 3, 'example.org')
"""


@pytest.fixture
async def session(pool: Pool) -> AsyncIterator[Session]:
    """One connection as psql has it, without our planner settings."""
    async with pool.acquire() as connection:
        await connection.execute("SET enable_seqscan = on")
        yield connection
        await connection.execute("SET enable_seqscan = off")


async def the_mail(session: Session, delivery_id: int) -> asyncpg.Record:
    row = await session.fetchrow("SELECT * FROM email_queue WHERE id = $1", delivery_id)
    assert row is not None
    return row


# ── email_queue, read ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_waiting_mail_is_pending(pool: Pool, session: Session) -> None:
    """The row has the first recipient, the content and the due time."""
    [mail] = await accepted(pool, a_mail("ada@example.org", "bob@example.org", custom_data={"order": 7}), now=NOON)
    row = await the_mail(session, mail)
    assert (row["recipient_email"], row["subject"], row["text_body"]) == ("ada@example.org", "Hello", "Hello, Ada.")
    assert (row["status"], row["retry_count"], row["next_retry_at"], row["created_at"]) == ("pending", 0, NOON, NOON)
    assert (row["assigned_to"], row["assigned_at"], row["sent_at"], row["last_error"]) == (None, None, None, None)


STATES = {
    "sending": ("assigned", "claim_id = 1, next_attempt_at = NULL, attempt_count = 1"),
    "sent": ("sent", "next_attempt_at = NULL, finished_at = now(), attempt_count = 1"),
    "failed": ("failed", "next_attempt_at = NULL, finished_at = now(), reason = 'refused', detail = 'go away'"),
    "dead_letter": ("failed", "next_attempt_at = NULL, finished_at = now(), reason = 'max_age'"),
    "suppressed": ("failed", "next_attempt_at = NULL, finished_at = now(), reason = 'recipient_suppressed'"),
    "cancelled": ("cancelled", "next_attempt_at = NULL, finished_at = now(), reason = 'expired'"),
}


@pytest.mark.parametrize("state", STATES)
async def test_every_state_has_its_status(pool: Pool, session: Session, state: str) -> None:
    """Eight states map to five statuses; a failed one has its reason."""
    [mail] = await accepted(pool)
    status, columns = STATES[state]
    await session.execute("ALTER TABLE deliveries DISABLE TRIGGER deliveries_guard")
    await session.execute(f"UPDATE deliveries SET state = '{state}', sender_account_id = 3, {columns}")
    row = await the_mail(session, mail)
    assert (row["status"], row["assigned_to"], row["retry_count"]) == (status, 3, 0)
    assert (row["sent_at"] is not None) == (state == "sent")
    assert (row["last_error"] is not None) == (status in {"failed", "cancelled"})


async def test_retry_count_excludes_the_first_attempt(pool: Pool, session: Session) -> None:
    """Retries are attempts after the first, finished or waiting."""
    [mail] = await accepted(pool)
    await session.execute("UPDATE deliveries SET attempt_count = 1, reason = 'deferred', detail = 'busy'")
    row = await the_mail(session, mail)
    assert (row["retry_count"], row["last_error"]) == (1, "busy")


async def test_webhooks_are_not_in_the_mail_queue(session: Session) -> None:
    """They go to a URL and have no subject."""
    await session.execute(
        "INSERT INTO deliveries (channel, next_attempt_at, ladder, source, recipient_email)"
        " VALUES ('webhook', now(), 'generic', 'x', 'https://shop.example.org/hook')"
    )
    assert await session.fetch("SELECT * FROM email_queue") == []


async def test_campaign_column_is_its_id_or_the_given_text(pool: Pool, session: Session) -> None:
    """A campaign has a number; mails grouped by the application have its text."""
    await accepted(pool, a_mail(), a_mail(tags={"campaign_id": "summer"}))
    await session.execute("UPDATE deliveries SET campaign_id = 7 WHERE id = 1")
    assert await session.fetch("SELECT campaign_id FROM email_queue ORDER BY id") == [("7",), ("summer",)]


async def test_unselected_columns_are_not_read(pool: Pool, session: Session) -> None:
    """A report on states reads no content."""
    await accepted(pool)
    plan = await session.fetch("EXPLAIN SELECT status, count(*) FROM email_queue GROUP BY status")
    assert "payload" not in str(plan)
    assert "recipient" not in str(plan)


# ── email_queue, written ────────────────────────────────────────────────────────────────────────────────────────────


async def test_insert_accepts_a_delivery(session: Session) -> None:
    """RETURNING has the row of the queue, and the delivery is an ordinary one."""
    row = await session.fetchrow(INSERT)
    assert row is not None
    assert (row["id"], row["status"], row["recipient_name"]) == (1, "pending", "Ada Lovelace")
    assert row == await the_mail(session, 1)
    delivery = await session.fetchrow("SELECT lane::text, source, ladder FROM deliveries")
    assert delivery == ("transactional", "email_queue", "generic")
    assert await session.fetchval("SELECT custom_data ->> 'merge_tag' FROM deliveries") == "value"


async def test_many_rows_can_be_inserted_from_a_query(session: Session) -> None:
    """INSERT … SELECT works as for a table."""
    await session.execute(
        """
        INSERT INTO email_queue (recipient_email, subject, html_body, campaign_id, next_retry_at)
        SELECT 'person' || n || '@example.org', 'Sale', '<p>Sale</p>', 'summer', $1
        FROM generate_series(1, 20) AS n
        """,
        NOON,
    )
    rows = await session.fetch("SELECT DISTINCT campaign_id, next_retry_at, status FROM email_queue")
    assert rows == [("summer", NOON, "pending")]
    assert await session.fetchval("SELECT count(*) FROM deliveries WHERE lane = 'bulk'") == 20


async def test_a_suppressed_address_gets_nothing(pool: Pool, session: Session) -> None:
    """The row exists with the reason it is not sent; case does not matter."""
    await suppress(pool, "ada@example.org")
    row = await session.fetchrow(INSERT.replace("ada@", "ADA@"))
    assert row is not None
    assert (row["status"], row["last_error"]) == ("failed", "recipient_suppressed")
    shown = await the_mail(session, row["id"])
    assert {**row, "updated_at": None} == {**shown, "updated_at": None}


@pytest.mark.parametrize(
    "column, values",
    [
        ("recipient_email", {"recipient_email": None}),
        ("recipient_email", {"recipient_email": "nobody"}),
        ("recipient_email", {"recipient_email": "Ada <ada@example.org>"}),
        ("recipient_name", {"recipient_name": "Ada\nBcc: eve@example.org"}),
        ("recipient_name", {"recipient_name": '" <eve@example.org>'}),
        ("subject", {"subject": None}),
        ("subject", {"subject": "Hello\nBcc: eve@example.org"}),
        ("html_body", {"html_body": None}),
        ("custom_data", {"custom_data": "[1]"}),
        ("status", {"status": "sent"}),
        ("assigned_to", {"assigned_to": 3}),
        ("max_retries", {"max_retries": 101}),
        ("tracking_token", {"tracking_token": "x"}),
        ("created_at", {"created_at": NOON}),
    ],
    ids=repr,
)
async def test_invalid_values_are_rejected_by_column(session: Session, column: str, values: dict[str, Any]) -> None:
    """Nothing is stored, and the error names the column of the view."""
    row = {"recipient_email": "ada@example.org", "subject": "Hello", "html_body": "<p>Hello</p>", **values}
    places = ", ".join(f"${place}" for place in range(1, len(row) + 1))
    with pytest.raises(asyncpg.PostgresError) as caught:
        await session.execute(f"INSERT INTO email_queue ({', '.join(row)}) VALUES ({places})", *row.values())
    assert caught.value.sqlstate in {"PR001", "PR101"}
    assert caught.value.column_name == column
    assert await session.fetchval("SELECT count(*) FROM deliveries") == 0


async def test_setting_the_status_to_cancelled_cancels(pool: Pool, session: Session) -> None:
    """Waiting mail is cancelled, with an audit entry; the rest of the queue is unchanged."""
    first, second = await accepted(pool, a_mail(), a_mail())
    row = await session.fetchrow(
        "UPDATE email_queue SET status = 'cancelled' WHERE id = $1 RETURNING id, status, last_error", first
    )
    assert row == (first, "cancelled", "cancelled_by_operator")
    assert (await the_mail(session, second))["status"] == "pending"
    audited = await session.fetchrow("SELECT actor, action, subject FROM audit_log")
    assert audited == ("sql:postroom", "delivery.cancel", f"delivery:{first}")


async def test_sent_mail_cannot_be_cancelled(pool: Pool, session: Session) -> None:
    """The error names the state; nothing changes."""
    await accepted(pool)
    await session.execute("UPDATE deliveries SET state = 'sending', claim_id = 1, next_attempt_at = NULL")
    with pytest.raises(asyncpg.PostgresError, match="a mail that is assigned cannot be cancelled") as caught:
        await session.execute("UPDATE email_queue SET status = 'cancelled'")
    assert caught.value.sqlstate == "PR100"


async def test_cancelling_twice_changes_nothing(pool: Pool, session: Session) -> None:
    """An UPDATE to the current status is no error."""
    await accepted(pool)
    for _ in range(2):
        await session.execute("UPDATE email_queue SET status = 'cancelled'")
    assert await session.fetchval("SELECT count(*) FROM audit_log") == 1


@pytest.mark.parametrize(
    "change, column",
    [
        ("status = 'sent'", "status"),
        ("subject = 'Other'", "subject"),
        ("status = 'cancelled', recipient_email = 'eve@example.org'", "recipient_email"),
        ("next_retry_at = now()", "next_retry_at"),
    ],
)
async def test_every_other_update_is_rejected(pool: Pool, session: Session, change: str, column: str) -> None:
    """The error names the column and the alternative."""
    await accepted(pool)
    with pytest.raises(asyncpg.PostgresError, match="a waiting mail can be cancelled") as caught:
        await session.execute(f"UPDATE email_queue SET {change}")
    assert (caught.value.sqlstate, caught.value.column_name) == ("PR101", column)


@pytest.mark.parametrize("view", ["email_queue", "send_logs"])
async def test_delete_through_a_view_is_rejected(pool: Pool, session: Session, view: str) -> None:
    """Retention deletes rows together with dependent ones."""
    [mail] = await accepted(pool)
    await session.execute(ATTEMPT, mail, 1, "sent", 250, "2.0.0", "final", "ok", NOON)
    with pytest.raises(asyncpg.PostgresError, match="retention") as caught:
        await session.execute(f"DELETE FROM {view}")
    assert caught.value.sqlstate == "PR102"


# ── send_logs ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "outcome, code, enhanced, stage, status",
    [
        ("sent", 250, "2.0.0", "final", "sent"),
        ("deferred", 451, "4.3.0", "recipient", "failed"),
        ("ambiguous", None, None, "final", "failed"),
        ("failed", 550, "5.1.1", "recipient", "bounced"),
        ("failed", 552, "5.2.2", "final", "bounced"),
        ("failed", 550, None, "recipient", "bounced"),
        ("failed", 554, "5.7.1", "final", "rejected"),
        ("failed", 554, None, "final", "rejected"),
        ("suppressed", None, None, None, "rejected"),
        ("cancelled", None, None, None, "rejected"),
    ],
)
async def test_each_attempt_has_a_send_logs_status(
    session: Session, outcome: str, code: int | None, enhanced: str | None, stage: str | None, status: str
) -> None:
    """A mailbox failure is bounced; any other failure is rejected."""
    await session.execute(ATTEMPT, 42, 2, outcome, code, enhanced, stage, "said so", NOON)
    row = await session.fetchrow("SELECT * FROM send_logs")
    assert row is not None
    assert (row["status"], row["email_queue_id"], row["retry_attempt"], row["sent_at"]) == (status, 42, 1, NOON)
    assert (row["sender_account_id"], row["campaign_id"], row["response_time_ms"]) == (3, "7", 250)
    assert row["error_message"] == (None if outcome == "sent" else "said so")
    assert row["error_code"] == (None if outcome == "sent" else enhanced or (str(code) if code else None))


async def test_returned_mail_is_bounced(session: Session) -> None:
    """Only a verified report about accepted mail counts; an unverified one, a rejection or a delay does not."""
    for delivery_id in range(1, 6):
        await session.execute(ATTEMPT, delivery_id, 1, "sent", 250, "2.0.0", "final", "ok", NOON)
    await session.execute(
        """
        INSERT INTO bounces (delivery_id, is_verified, class, origin, reported_at, kind, report_id)
        SELECT bounce.*, now(), 'bounce', sha256(bounce::text::bytea)
        FROM (VALUES (1, true, 'recipient_hard', 'smtp'), (2, false, 'recipient_hard', 'smtp'),
            (3, true, 'recipient_hard', 'session'), (4, true, 'transient', 'smtp')) AS bounce
        """
    )
    rows = await session.fetch("SELECT status FROM send_logs ORDER BY email_queue_id")
    assert [row["status"] for row in rows] == ["bounced", "sent", "sent", "sent", "sent"]


async def test_send_logs_ids_are_unique(session: Session) -> None:
    """Every attempt of every delivery has its own id."""
    for delivery_id, attempt_no in ((1, 1), (1, 2), (2, 1), (2**40, 32767)):
        await session.execute(ATTEMPT, delivery_id, attempt_no, "sent", 250, None, "final", "ok", NOON)
    assert await session.fetchval("SELECT count(DISTINCT id) FROM send_logs WHERE id > 0") == 4


async def test_webhooks_are_not_in_send_logs(session: Session) -> None:
    """An attempt of a webhook has no domain of a recipient; retired or not, send_logs does not show it."""
    await session.execute(ATTEMPT, 42, 1, "sent", 200, None, "final", "ok", NOON)
    await session.execute("UPDATE attempts SET domain = NULL, recipient = 'https://example.org/hook'")
    assert await session.fetch("SELECT * FROM send_logs") == []


@pytest.mark.parametrize(
    "question",
    [
        "recipient_email = 'b6bd8a93ea3dddbf4a8ab5eab2f5e6ae@example.org'",
        "other_recipients @> ARRAY['b6bd8a93ea3dddbf4a8ab5eab2f5e6ae@example.org']",
        "sent_at > now() - interval '5 minutes'",
        "status = 'failed' AND sent_at > now() - interval '5 minutes'",
        "sender_account_id = 711",
        "campaign_id = '711'",
        "campaign_id = 'spring 711'",
    ],
)
async def test_send_logs_are_indexed_by_recipient_sender_campaign_and_recent_time(
    session: Session, question: str
) -> None:
    """Finding one person, or the last minutes, does not scan a month of attempts."""
    await session.execute("SELECT ensure_partitions('attempts')")
    await session.execute(
        """
        INSERT INTO attempts (delivery_id, attempt_no, outcome, lane, started_at, finished_at, domain, recipient,
            other_recipients, sender_account_id, campaign_id, tags)
        SELECT n, 1, 'sent', 'bulk', now(),
            date_trunc('month', now()) + n * (now() - date_trunc('month', now())) / 20000,
            'example.org', format('%s@example.org', md5(n::text)),
            CASE WHEN n % 1000 = 711 THEN ARRAY[format('%s@example.org', md5(n::text))] END, n,
            CASE WHEN n % 2 = 0 THEN n END, jsonb_build_object('campaign_id', format('spring %s', n))
        FROM generate_series(1, 20000) AS n
        """
    )
    await session.execute("VACUUM ANALYZE attempts")
    plan = "\n".join(row[0] for row in await session.fetch(f"EXPLAIN SELECT count(*) FROM send_logs WHERE {question}"))
    month = await session.fetchval("SELECT to_char(now() AT TIME ZONE 'UTC', 'attempts_YYYY_MM')")
    assert f"Seq Scan on {month}" not in plan, plan


# ── bounce_list, unsubscribe_list ───────────────────────────────────────────────────────────────────────────────────


async def test_suppressions_are_split_by_reason(session: Session) -> None:
    """Bounces and complaints are on one list, unsubscribes on the other, manual ones on neither; each once."""
    await session.execute(
        """
        INSERT INTO suppressions (address, scope, reason) VALUES
            ('hard@example.org', 'all', 'hard_bounce'), ('soft@example.org', 'all', 'soft_bounce'),
            ('spam@example.org', 'all', 'complaint'), ('spam@example.org', 'bulk', 'soft_bounce'),
            ('enough@example.org', 'bulk', 'unsubscribe'), ('written@example.org', 'all', 'manual')
        """
    )
    bounced = await session.fetch("SELECT email, bounce_type, bounce_count FROM bounce_list ORDER BY email")
    assert bounced == [
        ("hard@example.org", "hard", 1),
        ("soft@example.org", "soft", 1),
        ("spam@example.org", "complaint", 1),
    ]
    left = await session.fetch("SELECT email FROM unsubscribe_list WHERE unsubscribed_at <= now()")
    assert left == [("enough@example.org",)]


async def test_unsubscribe_by_link_has_its_client(session: Session) -> None:
    """IP address, user agent and campaign are those of the request."""
    await session.execute(
        "SELECT unsubscribe('Ada@example.org', 7, 3, 'one-click', '192.0.2.7', 'Mail/1.0')"  # the function of the links
    )
    row = await session.fetchrow("SELECT email, campaign_id, host(ip_address), user_agent FROM unsubscribe_list")
    assert row == ("ada@example.org", "3", "192.0.2.7", "Mail/1.0")


BOUNCE = """
    INSERT INTO bounce_list (email, bounce_type, bounce_reason, bounce_code) VALUES ($1, $2, 'no such user', '5.1.1')
"""
UNSUBSCRIBE = """
    INSERT INTO unsubscribe_list (email, unsubscribe_reason, campaign_id, user_agent, ip_address)
    VALUES ('Ada@example.org', 'too often', 'spring', 'Mail/1.0', '192.0.2.7')
"""
STANDING = "SELECT address, scope::text, reason::text, until IS NULL AS is_permanent FROM suppressions"


@pytest.mark.parametrize(
    "bounce_type, reason, is_permanent",
    [("hard", "hard_bounce", True), ("soft", "soft_bounce", False), ("complaint", "complaint", True)],
)
async def test_insert_into_bounce_list_suppresses(
    session: Session, bounce_type: str, reason: str, *, is_permanent: bool
) -> None:
    """The address is suppressed for all mail, in lower case; a soft bounce holds it for a day."""
    await session.execute(BOUNCE, "Ada@example.org", bounce_type)
    assert await session.fetch(STANDING) == [("ada@example.org", "all", reason, is_permanent)]
    row = await session.fetchrow("SELECT email, bounce_type, bounce_reason, bounce_code, bounce_count FROM bounce_list")
    assert row == ("ada@example.org", bounce_type, "no such user", "5.1.1", 1)


async def test_bounce_list_takes_on_conflict(session: Session) -> None:
    """An import may repeat an address, in any case; its suppression follows the update."""
    await session.execute(BOUNCE, "ada@example.org", "soft")
    await session.execute(
        BOUNCE + "ON CONFLICT (email) DO UPDATE SET bounce_type = EXCLUDED.bounce_type, last_bounced_at = now(),"
        " bounce_count = bounce_list.bounce_count + 1",
        "ADA@example.org",
        "hard",
    )
    await session.execute(BOUNCE + "ON CONFLICT (email) DO NOTHING", "ada@example.org", "complaint")
    assert await session.fetch(STANDING) == [("ada@example.org", "all", "hard_bounce", True)]
    assert await session.fetch("SELECT bounce_type, bounce_count FROM bounce_list") == [("hard", 2)]
    with pytest.raises(asyncpg.UniqueViolationError):
        await session.execute(BOUNCE, "ada@example.org", "hard")


async def test_update_of_bounce_list_moves_the_suppression(session: Session) -> None:
    """A corrected address is suppressed instead of the wrong one."""
    await session.execute(BOUNCE, "adda@example.org", "hard")
    await session.execute("UPDATE bounce_list SET email = 'ada@example.org' WHERE email = 'adda@example.org'")
    assert await session.fetch(STANDING) == [("ada@example.org", "all", "hard_bounce", True)]
    assert await session.fetch("SELECT email FROM bounce_list") == [("ada@example.org",)]


@pytest.mark.parametrize("view, insert", [("bounce_list", BOUNCE), ("unsubscribe_list", UNSUBSCRIBE)])
async def test_delete_from_a_list_lifts_the_suppression(session: Session, view: str, insert: str) -> None:
    """Suppressions for another reason stay, and the history has the lift."""
    await session.execute(insert, *(("ada@example.org", "hard") if view == "bounce_list" else ()))
    await session.execute(
        "INSERT INTO suppressions (address, scope, reason) VALUES ('bob@example.org', 'all', 'manual')"
    )
    await session.execute(f"DELETE FROM {view}")
    assert await session.fetch(STANDING) == [("bob@example.org", "all", "manual", True)]
    lifted = "SELECT count(*) FROM suppression_changes WHERE change = 'lifted' AND address = 'ada@example.org'"
    assert await session.fetchval(lifted) == 1


async def test_insert_into_unsubscribe_list_closes_bulk_mail(session: Session) -> None:
    """The row keeps the client and the campaign's name; ON CONFLICT (email) applies."""
    await session.execute(UNSUBSCRIBE)
    await session.execute(UNSUBSCRIBE + "ON CONFLICT (email) DO NOTHING")
    assert await session.fetch(STANDING) == [("ada@example.org", "bulk", "unsubscribe", True)]
    row = await session.fetchrow("SELECT email, unsubscribe_reason, campaign_id, user_agent FROM unsubscribe_list")
    assert row == ("ada@example.org", "too often", "spring", "Mail/1.0")


async def test_lists_follow_a_report_and_a_lift(pool: Pool, session: Session) -> None:
    """A suppression by Postroom appears in the list and leaves it with its end, for any client."""
    await suppress(pool, "ada@example.org")
    await session.execute("UPDATE suppressions SET reason = 'complaint'")
    assert await session.fetch("SELECT email, bounce_type FROM bounce_list") == [("ada@example.org", "complaint")]
    await session.execute("DELETE FROM suppressions")
    assert await session.fetch("SELECT FROM bounce_list") == []


async def test_soft_bounce_does_not_lower_a_manual_suppression(session: Session) -> None:
    """Severity only rises: the address stays suppressed without an end, and the list does not show it."""
    manual = "INSERT INTO suppressions (address, scope, reason) VALUES ('ada@example.org', 'all', 'manual')"
    await session.execute(manual)
    await session.execute(BOUNCE, "ada@example.org", "soft")
    assert await session.fetch(STANDING) == [("ada@example.org", "all", "manual", True)]
    assert await session.fetch("SELECT email FROM bounce_list") == []
    await session.execute(BOUNCE, "ada@example.org", "hard")
    assert await session.fetch(STANDING) == [("ada@example.org", "all", "hard_bounce", True)]


async def test_unknown_bounce_type_is_refused(session: Session) -> None:
    """Nothing is suppressed."""
    with pytest.raises(asyncpg.CheckViolationError, match="bounced_addresses_type"):
        await session.execute(BOUNCE, "ada@example.org", "rubber")
    assert await session.fetch(STANDING) == []


# ── The statements people know ──────────────────────────────────────────────────────────────────────────────────────


async def test_batch_can_be_selected_for_update(pool: Pool, session: Session) -> None:
    """Two concurrent statements lock different mail."""
    pick = """
        SELECT id FROM email_queue
        WHERE status = 'pending' AND (next_retry_at IS NULL OR next_retry_at <= NOW())
        ORDER BY created_at ASC LIMIT 1
        FOR UPDATE SKIP LOCKED
    """
    await accepted(pool, a_mail(), a_mail())
    async with session.transaction(), pool.acquire() as other, other.transaction():
        assert await session.fetchval(pick) != await other.fetchval(pick)


async def test_setting_status_sending_is_rejected(pool: Pool, session: Session) -> None:
    """A status without a lease could not be recovered from a dead worker."""
    await accepted(pool)
    with pytest.raises(asyncpg.PostgresError, match="with a lease") as refused:
        await session.fetch(
            """
            WITH batch AS (
                SELECT id FROM email_queue
                WHERE status = 'pending' AND (next_retry_at IS NULL OR next_retry_at <= NOW())
                ORDER BY created_at ASC LIMIT 50 FOR UPDATE SKIP LOCKED
            )
            UPDATE email_queue SET status = 'assigned', assigned_to = 3, assigned_at = NOW()
            WHERE id IN (SELECT id FROM batch)
            RETURNING *
            """
        )
    assert (refused.value.column_name, (refused.value.hint or "").splitlines()[1:]) == (
        "status",
        ["postroom senders add ADDRESS --host HOST", "postroom work"],
    )


async def test_send_logs_can_be_exported_by_copy(session: Session) -> None:
    """Rows older than ninety days are exported."""
    await session.execute(ATTEMPT, 1, 1, "sent", 250, None, "final", "ok", NOON - timedelta(days=20 * 365))
    lines: list[bytes] = []

    async def keep(data: bytes) -> None:
        lines.append(data)

    old = "SELECT * FROM send_logs WHERE sent_at < NOW() - INTERVAL '90 days'"
    await session.copy_from_query(old, output=keep, format="csv", header=True)
    assert b"".join(lines).count(b"\n") == 2


@pytest.mark.parametrize(
    "question",
    [
        "SELECT status, count(*) FROM email_queue GROUP BY status",
        "SELECT * FROM email_queue WHERE assigned_to = 3 AND status = 'assigned'",
        "SELECT * FROM email_queue WHERE campaign_id = '7' ORDER BY created_at",
        "SELECT * FROM email_queue WHERE tracking_token = 'x'",
        "SELECT * FROM send_logs WHERE sender_account_id = 3 ORDER BY sent_at DESC",
        "SELECT * FROM send_logs WHERE campaign_id = '7' ORDER BY sent_at DESC",
        "SELECT * FROM send_logs WHERE recipient_email = 'ada@example.org'",
        "SELECT status, avg(response_time_ms) FROM send_logs WHERE sent_at > now() - interval '1 day' GROUP BY 1",
        "SELECT l.* FROM send_logs AS l JOIN email_queue AS q ON q.id = l.email_queue_id",
        "SELECT * FROM bounce_list WHERE email = 'ada@example.org' AND bounce_type = 'hard'",
        "SELECT 1 FROM unsubscribe_list WHERE email = 'ada@example.org'",
    ],
)
async def test_a_report_runs(session: Session, question: str) -> None:
    """Every column has the name and type that a report expects."""
    assert await session.fetch(question) == []


# ── custom_data ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def _plan(session: Session, sql: str) -> str:
    return "\n".join(row[0] for row in await session.fetch(f"EXPLAIN {sql}"))


async def test_custom_data_is_found_by_its_index(pool: Pool, session: Session) -> None:
    """Containment uses the index in the view."""
    await session.execute(
        """
        INSERT INTO deliveries (next_attempt_at, ladder, source, recipient_email, custom_data)
        SELECT now(), 'generic', 'test', 'ada@example.org', jsonb_build_object('merge_tag', n)
        FROM generate_series(1, 5000) AS n
        """
    )
    await session.execute("VACUUM ANALYZE deliveries")
    question = """SELECT * FROM email_queue WHERE custom_data @> '{"merge_tag": 7}'"""
    assert "deliveries_data_idx" in await _plan(session, question)
    assert [row["id"] for row in await session.fetch(question)] == [7]
