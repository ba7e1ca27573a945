"""The settings of accounts, read from the environment by `postroom.settings`."""

from dataclasses import dataclass
from datetime import timedelta

from postroom.runtime.setting import kept_for, parse_duration, setting, switch, up_to


@dataclass(frozen=True, kw_only=True)
class AccountsSettings:
    token_retention: timedelta = setting(kept_for, timedelta(days=30), "retention of expired tokens")
    account_mail: bool = setting(
        switch, default=True, about="workers mail the tokens of accounts; off leaves them to `postroom tokens collect`"
    )
    batch_limit: int = setting(up_to(10_000), 10, "tokens the collector gathers before it mails them")
    batch_timeout: timedelta = setting(
        parse_duration,
        timedelta(seconds=5),
        "longest time the collector gathers tokens for one batch; 0 mails each token at once",
    )
