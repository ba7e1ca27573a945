"""The settings of backup, read from the environment by `postroom.settings`."""

from dataclasses import dataclass
from datetime import timedelta

from postroom.archive.settings import parse_archive_url
from postroom.runtime.setting import kept_for, positive, setting


@dataclass(frozen=True, kw_only=True)
class BackupSettings:
    backup_url: str | None = setting(
        parse_archive_url, None, "folder or s3://bucket/prefix for scheduled backups; absent: no scheduled backups"
    )
    backup_interval: timedelta = setting(kept_for, timedelta(days=7), "interval between scheduled backups")
    backup_keep: int = setting(positive, 4, "number of scheduled backups to keep; older ones are deleted")
