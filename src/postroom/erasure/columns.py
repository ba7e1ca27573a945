"""Columns that may contain an address, and how each is erased. Pure; the list is the policy.

A test fails if a table has a column that looks personal and is on neither list.
"""

from dataclasses import dataclass
from enum import StrEnum


class How(StrEnum):
    """The way an address is erased from columns."""

    DELETE = "delete"  # delete the row
    REPLACE = "replace"  # replace the value by the pseudonym
    WITHIN = "within"  # inside a value: texts get the pseudonym, a row whose bytes contain the address is deleted


@dataclass(frozen=True, slots=True)
class ErasedColumns:
    """Some columns of a table."""

    table: str
    how: How
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()  # machine-made: the address is also found behind a separator, as in signup-ann@…
    is_account: bool = False  # the person's own row, which --keep-accounts keeps


PLACES = (
    ErasedColumns("accounts", How.DELETE, ("email",), is_account=True),  # and its tokens
    ErasedColumns(
        "accounts", How.REPLACE, ("login",), is_account=True
    ),  # of an account whose address has changed since
    ErasedColumns("users", How.DELETE, ("email",), is_account=True),  # and their occasions and scheduled events
    ErasedColumns("open_events", How.DELETE, ("recipient_email",)),
    ErasedColumns("click_events", How.DELETE, ("recipient_email",)),
    ErasedColumns("unsubscriptions", How.DELETE, ("email",)),
    ErasedColumns("soft_bounces", How.DELETE, ("address",)),
    ErasedColumns("bounces", How.REPLACE, ("address",)),
    ErasedColumns("suppression_changes", How.REPLACE, ("address",)),
    ErasedColumns(
        "attempts", How.WITHIN, ("reply_text", "message_id", "custom_data"), keys=("idempotency_key", "tags")
    ),
    ErasedColumns("mass_actions", How.WITHIN, ("filter", "actor"), keys=("idempotency_key",)),
    ErasedColumns("delivery_steps", How.WITHIN, ("reason",), keys=("source",)),
    ErasedColumns("bounces", How.WITHIN, ("text", "origin")),
    ErasedColumns("suppressions", How.WITHIN, ("origin", "detail")),
    ErasedColumns("suppression_changes", How.WITHIN, ("note", "origin", "actor")),
    ErasedColumns("campaign_recipients", How.WITHIN, ("name", "custom_data")),
    ErasedColumns("events", How.WITHIN, ("data",), keys=("tags", "correlation_id", "causation_id")),
    ErasedColumns("event_tags", How.WITHIN, (), keys=("tag",)),
    ErasedColumns("commands", How.WITHIN, ("data", "metadata", "result"), keys=("command_id",)),
    ErasedColumns("malformed_commands", How.WITHIN, ("raw", "reason", "detail"), keys=("source", "entry")),
    ErasedColumns("unread_feedback", How.WITHIN, ("raw", "reason", "origin")),
    ErasedColumns("inbox_messages", How.WITHIN, ("raw", "mail_from", "subject", "recipients", "author", "content")),
)

BY_FUNCTION = (
    "attempts",
    "audit_log",
    "deliveries",
    "other_recipients",
    "delivery_payloads",
    "dead_letters",
    "suppressions",
    "bounced_addresses",  # which follow the suppressions
    "unsubscribed_addresses",
    "campaign_recipients",
    "inbox_messages",
    "address_limits",
    "reserved_logins",
)
"""Tables with a stored function of their own, because their rows must change together."""

CASCADED = ("tokens", "user_occasions", "scheduled_events")
"""Tables whose rows are deleted with the person's own."""

EXEMPT = {
    "allowances": "numbers",
    "api_keys": "keys of programs",
    "archived_partitions": "names of tables and files",
    "campaigns": "the installation's own sender and letter",
    "engagements": "knows a delivery, whose recipient is the pseudonym by then",
    "erasures": "holds the address while the work needs it",
    "erasure_key": "the key itself",
    "operators": "people of the installation, removed by `postroom operators remove`",
    "ses_signatures": "hashes",
    "outbox_mail_rules": "a path into data, not data",
    "outbox_topics": "definitions of topics",
    "outbox_lag": "numbers",
    "outbox_topic_progress": "positions of publishers",
    "room_limits": "numbers and domains of the installation",
    "sender_accounts": "mailboxes of the installation",
    "sign_in_codes": "keyed hashes, deleted after a day",
    "template_versions": "files of templates, whose samples are about invented people",
    "used_feedback_tokens": "tokens of providers",
    "ways_out": "mailboxes of the installation, and replies from before a mail was offered",
    "webhook_endpoints": "addresses of programs",
    "workers": "processes",
}
"""Tables that look personal and are not, with the reason."""


def tables_erased() -> set[str]:
    return {place.table for place in PLACES} | set(BY_FUNCTION) | set(CASCADED)
