"""One function per statement of `queries.sql`."""

import asyncpg

from postroom.db.queries import column, load
from postroom.delivery.model import Lane
from postroom.outbox.mails.model import MailRule

QUERIES = load("postroom.outbox.mails")


def _rule(row: asyncpg.Record) -> MailRule:
    return MailRule(**{**row, "lane": Lane(row["lane"])})


delete_rule = QUERIES["delete_rule"].maybe_as(column("topic", str))
insert_rule = QUERIES["insert_rule"].maybe_as(_rule)
list_rules = QUERIES["list_rules"].many_as(_rule)
