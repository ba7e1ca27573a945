"""The settings of db, read from the environment by `postroom.settings`."""

import re
from dataclasses import dataclass
from datetime import timedelta

from postroom.runtime.setting import duration_from, positive, postgres_url, setting


def parse_schema(value: str) -> str:
    """The name of a room. PostgreSQL reserves names that begin with pg_."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", value) or value.startswith("pg_") or value == "information_schema":
        raise ValueError("must be a lower-case identifier of at most 48 characters that does not begin with pg_")
    return value


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings:
    database_url: str | None = setting(
        postgres_url, None, "URL of the PostgreSQL database; absent: the embedded server", secret=True
    )
    database_direct_url: str | None = setting(
        postgres_url,
        None,
        "direct URL of the same database, when POSTROOM_DATABASE_URL goes through a transaction pooler",
        secret=True,
    )
    replica_url: str | None = setting(
        postgres_url,
        None,
        "URL of a streaming replica, which the API reads for listings, statistics and exports",
        secret=True,
        variable="POSTROOM_DATABASE_REPLICA_URL",
    )
    replica_lag: timedelta = setting(
        duration_from(timedelta(seconds=2)),
        timedelta(seconds=5),
        "the API reads the primary while the replica is further behind than this",
        variable="POSTROOM_DATABASE_REPLICA_LAG",
    )
    schema: str = setting(parse_schema, "postroom", "the room: one PostgreSQL schema")
    pool_size: int = setting(positive, 20, "database connections per process")
    database_timeout: timedelta = setting(
        duration_from(timedelta(seconds=1)),
        timedelta(seconds=30),
        "statement timeout of API and worker processes, and the longest pause within a transaction; then the "
        "connection is closed",
    )

    @property
    def is_pooled(self) -> bool:
        """True behind a transaction pooler: without prepared statements, and LISTEN uses the direct URL."""
        return self.database_direct_url is not None
