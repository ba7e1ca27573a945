"""Hostile text in every column of the schema that can hold text."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import asyncpg

from postroom.db.pool import Pool, Session

COLUMNS = """
SELECT c.relname AS table_name, a.attname AS name, t.typname AS kind, t.typname LIKE E'\\\\_%' AS is_array
FROM pg_attribute AS a
JOIN pg_class AS c ON c.oid = a.attrelid
JOIN pg_type AS t ON t.oid = a.atttypid
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND a.attnum > 0 AND NOT a.attisdropped
    AND ltrim(t.typname, '_') IN ('text', 'varchar', 'bpchar', 'citext', 'name', 'json', 'jsonb', 'xml', 'bytea')
ORDER BY c.relname, a.attnum
"""
"""Columns of all tables, without partitions, that can hold text."""

VALUES = (
    'javascript:"><b onx={mark}>',
    '"><b onx={mark}>',
    'https://x.example/"><b onx={mark}>',
    'x"><b onx={mark}>@example.org',
)
"""The first that the schema accepts is stored: an address of a script, and an element with a handler."""


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column, and the number that marks its text."""

    table: str
    name: str
    kind: str
    is_array: bool
    mark: int

    @property
    def path(self) -> str:
        return f"{self.table}.{self.name}"


async def list_columns(pool: Pool) -> list[TextColumn]:
    rows = await pool.fetch(COLUMNS)
    found = [
        TextColumn(row["table_name"], row["name"], row["kind"].lstrip("_"), row["is_array"], mark)
        for mark, row in enumerate(rows, 1)
    ]
    return sorted(found, key=lambda column: column.path in SPECIAL)


MAIL = "E'From: %1$s\\r\\nSubject: %1$s\\r\\nX-Other: %1$s\\r\\n\\r\\n%1$s'"
SUPPRESSED = "(SELECT min(address) FROM suppressions) || left($1::text, 0)"
SPECIAL = {
    "archived_partitions.columns": "jsonb_build_array(jsonb_build_object('name', $1::text, 'type', $1::text))",
    "bounces.address": SUPPRESSED,
    "delivery_payloads.attachments": (
        "jsonb_build_array(jsonb_build_object('filename', $1::text, 'content_type', $1::text, 'content', 'eA=='))"
    ),
    "inbox_messages.raw": f"convert_to(format({MAIL}, $1::text), 'UTF8')",
    "mass_actions.filter": "jsonb_build_object('source', $1::text)",
    "erasures.counts": "jsonb_build_object($1::text, 1)",
    "mass_actions.skipped": "jsonb_build_object($1::text, 1)",
    "suppression_changes.address": SUPPRESSED,
    "template_versions.files": "files || jsonb_build_object('en/subject', $1::text, 'en/html', $1::text)",
    "template_versions.template": "(SELECT min(id) FROM templates) || left($1::text, 0)",
}
"""Values of columns that are read as JSON of a form, and of those that have to equal another column."""


def expression(column: TextColumn) -> str:
    """SQL for the hostile value; rows of a table differ by their place, so that unique columns accept it."""
    if column.path in SPECIAL:
        return SPECIAL[column.path]
    if column.kind in ("jsonb", "json"):
        one = "jsonb_build_object($1::text, $1::text)"
    elif column.kind == "bytea":
        one = "convert_to($1::text || ctid, 'UTF8')"
    else:
        one = "$1::text || CASE WHEN ctid = (SELECT min(ctid) FROM {table}) THEN '' ELSE ctid::text END"
    return f"ARRAY[{one}]" if column.is_array else one


async def store_text(connection: Session, column: TextColumn) -> str | None:
    """Store the hostile text in all rows, or in those with a value; the last error if none is accepted."""
    refusal = "no row"
    for where, value in itertools.product(("true", f"{column.name} IS NOT NULL"), VALUES):
        written = expression(column).replace("{table}", column.table)
        statement = f"UPDATE {column.table} SET {column.name} = {written} WHERE {where}"
        try:
            async with connection.transaction():
                done = await connection.execute(statement, value.format(mark=column.mark))
        except asyncpg.PostgresError as error:
            refusal = str(error)
        else:
            if done != "UPDATE 0":
                return None
    return refusal


NEEDED = """
SELECT a.attname AS name, CASE
    WHEN t.typtype = 'e' THEN (SELECT quote_literal(min(enumlabel)) FROM pg_enum WHERE enumtypid = t.oid)
    WHEN t.typcategory = 'S' THEN quote_literal('x')
    WHEN t.typcategory = 'A' THEN quote_literal('{}')
    WHEN t.typcategory = 'N' THEN '1'
    WHEN t.typcategory = 'B' THEN 'false'
    WHEN t.typcategory = 'T' THEN quote_literal('1 hour')
    WHEN t.typname = 'jsonb' THEN quote_literal('{}')
    WHEN t.typname = 'uuid' THEN 'gen_random_uuid()'
    WHEN t.typname = 'bytea' THEN quote_literal('x')
    WHEN t.typname = 'xid8' THEN 'pg_current_xact_id()'
    ELSE 'now()' END AS value
FROM pg_attribute AS a
JOIN pg_type AS t ON t.oid = a.atttypid
WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull AND NOT a.atthasdef
    AND a.attidentity = ''
"""
"""Columns that a row needs, and a value of each one's type."""


ROWS = """
INSERT INTO archived_partitions (
    state, is_attached, part, from_time, to_time, table_name, source_name, path, rows, bytes, file_sha256,
    content_sha256, restored_at, restored_name, store_url, spare_path, columns)
VALUES ('archived', false, 1, now(), now() + interval '1 day', 'attempts', 'x', 'x', 1, 1, 'x', 'x', now(), 'x', 'x',
    'x', '[]');
INSERT INTO erasures (requested_by, pseudonym, address) VALUES ('x', 'x', 'x');
INSERT INTO erasure_key (inner_pad, outer_pad)
VALUES (decode(repeat('00', 64), 'hex'), decode(repeat('00', 64), 'hex'));
INSERT INTO outbox_mail_rules (topic, event_type, template, recipient_path) VALUES ('orders', 'x', 'x', 'x');
INSERT INTO bounce_list (email, bounce_type, bounce_reason) VALUES ('y@example.org', 'hard', 'x');
INSERT INTO unsubscriptions (delivery_id, origin, email) VALUES (1, 'page', 'x');
INSERT INTO user_occasions (user_id, event_type, message, rule) SELECT id, 'REMINDER', 'x', '{}' FROM users LIMIT 1;
INSERT INTO sender_accounts (
    email, auth_type, smtp_host, smtp_port, smtp_username, smtp_password_encrypted, credentials_key_id)
VALUES ('a', 'smtp', 'x', 25, 'x', 'x', 'x');
INSERT INTO sender_accounts (email, auth_type, gmail_subject_email, credentials_encrypted, credentials_key_id)
VALUES ('b', 'gmail', 'x', 'x', 'x');
INSERT INTO sender_accounts (email, auth_type, ses_region) VALUES ('c', 'ses', 'x');
INSERT INTO click_events (email_queue_id, campaign_id, recipient_email, link_url)
SELECT id, (SELECT min(id) FROM campaigns), 'x', 'x' FROM deliveries;
INSERT INTO open_events (email_queue_id, campaign_id, recipient_email)
SELECT id, (SELECT min(id) FROM campaigns), 'x' FROM deliveries;
UPDATE webhook_endpoints SET previous_secret = 'x', previous_key_id = 'x', previous_until = now();
UPDATE outbox_topic_progress SET leader_instance = 'x', leader_since = now(), leader_heartbeat = now();
UPDATE deliveries SET idempotency_key = 'x' || id, request_fingerprint = 1, idempotency_expires_at = now();
INSERT INTO dashboard_sessions (nonce, expires_at, owner_id, owner_kind, method, client, browser)
VALUES ('x', now() + interval '1 hour', 1, 'key', 'x', 'x', 'x');
INSERT INTO operators (email, role, origin, second_factor_since, totp_secret, totp_key_id)
VALUES ('x', 'support', 'added', now(), 'x', 'x');
ALTER TABLE audit_log DISABLE TRIGGER USER; -- it is append-only
"""
"""Rows that constraints keep `add_rows` from making, and columns that are only filled together."""


async def add_rows(connection: Session, tables: Iterable[str]) -> None:
    """Give each table at least one row."""
    await connection.execute(ROWS)
    for table in tables:
        if not await connection.fetchval(f"SELECT EXISTS (SELECT FROM {table})"):
            needed = await connection.fetch(NEEDED, table)
            names, values = (", ".join(row[part] for row in needed) for part in ("name", "value"))
            given = f"({names}) VALUES ({values})" if needed else "DEFAULT VALUES"
            await connection.execute(f"INSERT INTO {table} {given}")


def shown_marks(page: str, columns: Sequence[TextColumn]) -> set[str]:
    """The columns whose text a page shows."""
    return {column.path for column in columns if f"onx={column.mark}&gt;" in page}
