"""The settings of archive, read from the environment by `postroom.settings`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from postroom.runtime.setting import http_url, kept_for, parse_duration, per_kind, setting

ARCHIVED_TABLES = ("attempts", "delivery_steps", "open_events", "click_events")


def parse_archive_url(value: str) -> str:
    """The normal form of a folder, `file:///folder` or `s3://bucket/prefix`: absolute, without credentials."""
    scheme, separator, rest = value.strip().partition("://")
    if not separator:
        return f"file://{Path(value.strip()).absolute()}"
    if scheme == "file" and rest.startswith("/"):
        return f"file://{Path(rest)}"
    if scheme == "s3" and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]+(/[^@?#\s]*)?", rest):
        return f"s3://{rest.rstrip('/')}"
    raise ValueError("must be a folder, file:///folder or s3://bucket/prefix, without credentials")


def _per_table(*tables: str) -> Callable[[str], "timedelta | tuple[tuple[str, timedelta], ...]"]:
    """A parser of `90d` for all tables, or `attempts=90d,open_events=30d`; other tables keep the default."""

    def parse(value: str) -> "timedelta | tuple[tuple[str, timedelta], ...]":
        if "=" not in value:
            return kept_for(value)
        chosen = tuple((table.lower(), duration) for table, duration in per_kind(kept_for)(value))
        if any(table not in tables for table, _ in chosen):
            raise ValueError(f"must be a duration, or table=duration for some of {', '.join(tables)}")
        return chosen

    return parse


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings:
    archive_url: str | None = setting(
        parse_archive_url,
        None,
        "a folder that all workers share, or s3://bucket/prefix, for old rows; absent: <data dir>/archive with the "
        "embedded server, and nothing is archived with another database",
    )
    archive_endpoint: str | None = setting(
        http_url, None, "an S3-compatible server instead of Amazon's, for archive and backups"
    )
    archive_after: timedelta | tuple[tuple[str, timedelta], ...] = setting(
        _per_table(*ARCHIVED_TABLES),
        timedelta(days=90),
        "age at which a month of attempts, steps, opens and clicks moves into the archive; "
        "or by table, such as attempts=90d,open_events=30d",
    )
    archive_retention: timedelta | tuple[tuple[str, timedelta], ...] = setting(
        _per_table(*ARCHIVED_TABLES),
        timedelta(days=365),
        "retention of archived months; or by table, such as attempts=365d,click_events=90d",
    )
    archive_interval: timedelta = setting(
        parse_duration, timedelta(hours=1), "interval at which the archive worker looks for old months"
    )
