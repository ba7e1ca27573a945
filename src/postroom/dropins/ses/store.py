"""One function per statement of `queries.sql`."""

import asyncpg

from postroom.db.queries import load
from postroom.dropins.ses.credentials import SesKey

QUERIES = load("postroom.dropins.ses")


def _key(row: asyncpg.Record) -> SesKey:
    return SesKey(row["id"], row["created_at"], row["name"], tuple(row["scopes"]), row["expires_at"])


find_key = QUERIES["find_key"].maybe_as(_key)
use_key = QUERIES["use_key"].maybe_as(_key)
