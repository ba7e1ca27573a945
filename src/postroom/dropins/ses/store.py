"""One function per statement of `queries.sql`."""

import asyncpg

from postroom.db.queries import load
from postroom.dropins.ses.credentials import SesKey

QUERIES = load("postroom.dropins.ses")


def _key(row: asyncpg.Record) -> SesKey:
    return SesKey(
        row["id"], row["created_at"], row["name"], tuple(row["scopes"]), row["expires_at"], row["last_used_at"]
    )


def _is_first(row: asyncpg.Record) -> bool:
    return bool(row["is_first"])


claim_signature = QUERIES["claim_signature"].maybe_as(_is_first)
drop_signatures = QUERIES["drop_signatures"].exec
find_key = QUERIES["find_key"].maybe_as(_key)
find_keys = QUERIES["find_keys"].many_as(_key)
touch_key = QUERIES["touch_key"].exec
