"""Every setting of a Postroom process: the sum of the capabilities' settings, read once from `POSTROOM_*` variables.

Each capability declares its own in its `settings.py`; the variable of `outbox_batch` is `POSTROOM_OUTBOX_BATCH`. An
invalid value stops the start with an error that names the variable.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from postroom.accounts.settings import AccountsSettings
from postroom.archive.settings import ARCHIVED_TABLES, ArchiveSettings
from postroom.backup.settings import BackupSettings
from postroom.campaigns.settings import CampaignsSettings
from postroom.dashboard.settings import DashboardSettings
from postroom.db.settings import DatabaseSettings
from postroom.delivery.settings import DeliverySettings
from postroom.embedded.settings import EmbeddedSettings
from postroom.errors import SettingInvalid
from postroom.feedback.settings import FeedbackSettings
from postroom.http.settings import HttpSettings
from postroom.inbox.settings import InboxSettings
from postroom.intake.settings import IntakeSettings
from postroom.mail.settings import MailSettings
from postroom.outbox.settings import OutboxSettings
from postroom.rooms.settings import RoomsSettings
from postroom.runtime.setting import variable_of
from postroom.runtime.settings import ProcessSettings
from postroom.schedule.settings import ScheduleSettings
from postroom.senders.settings import SendersSettings
from postroom.stats.settings import StatsSettings
from postroom.tracking.settings import TrackingSettings
from postroom.transports.settings import TransportsSettings


@dataclass(frozen=True, kw_only=True)
class Settings(
    DashboardSettings,
    OutboxSettings,
    IntakeSettings,
    ScheduleSettings,
    AccountsSettings,
    BackupSettings,
    RoomsSettings,
    ArchiveSettings,
    FeedbackSettings,
    CampaignsSettings,
    SendersSettings,
    StatsSettings,
    DeliverySettings,
    InboxSettings,
    TransportsSettings,
    MailSettings,
    TrackingSettings,
    HttpSettings,
    ProcessSettings,
    EmbeddedSettings,
    DatabaseSettings,
):
    """One frozen value handed to every component that needs it; nothing else reads the environment."""

    @property
    def unset_for_mail(self) -> tuple[str, ...]:
        """Variables without which mail leaves with a wrong sender or dead links; none while it is captured."""
        if not self.uses_senders:
            return ()
        needed = {"POSTROOM_FROM": self.given_from, "POSTROOM_PUBLIC_URL": self.public_url}
        return tuple(variable for variable, value in needed.items() if value is None)


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the environment; an unknown POSTROOM_* variable is rejected like an invalid value, because it is a typo."""
    given = os.environ if environ is None else environ
    known = {variable_of(entry): entry for entry in fields(Settings)}
    values: dict[str, Any] = {}
    for variable, text in given.items():
        if not variable.startswith("POSTROOM_"):
            continue
        if variable not in known:
            raise SettingInvalid(variable, "is not a setting of Postroom")
        if text == "":
            continue
        try:
            values[known[variable].name] = known[variable].metadata["parse"](text)
        except ValueError as error:
            raise SettingInvalid(variable, str(error)) from error
    settings = Settings(**values)
    _check_together(settings)
    return settings


def _check_together(settings: Settings) -> None:
    if settings.transport == "smtp" and settings.smtp_relay is None:
        raise SettingInvalid("POSTROOM_SMTP_RELAY", "is required with POSTROOM_TRANSPORT=smtp")
    for table in ARCHIVED_TABLES:
        if _of_table(settings, "archive_retention", table) < _of_table(settings, "archive_after", table):
            problem = f"must not be shorter than POSTROOM_ARCHIVE_AFTER: {table} would be deleted on arrival"
            raise SettingInvalid("POSTROOM_ARCHIVE_RETENTION", problem)


def _of_table(settings: Settings, name: str, table: str) -> timedelta:
    chosen, default = getattr(settings, name), getattr(Settings(), name)
    found: timedelta = chosen if isinstance(chosen, timedelta) else dict(chosen).get(table, default)
    return found
