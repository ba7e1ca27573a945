"""Options of the command line that set limits, for keys and for rooms."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from postroom.limits.model import LARGEST
from postroom.runtime.terminal import parse_moment

NEVER = "never"
ANY = "any"

Expires = Annotated[str | None, typer.Option(help=f"When it expires: 2030-01-31T00:00:00Z, +90d, or '{NEVER}'.")]
Rate = Annotated[int | None, typer.Option(min=0, max=LARGEST, help="Most mails per minute; 0 for no limit.")]
DailyQuota = Annotated[
    int | None, typer.Option(min=0, max=LARGEST, help="Most mails per UTC day, one per recipient; 0 for no limit.")
]
FromDomain = Annotated[
    list[str] | None,
    typer.Option(help=f"Domain that From may have; repeatable, replaces all earlier ones; '{ANY}' for every domain."),
]


def read_limits(
    expires: str | None, rate: int | None, daily_quota: int | None, from_domain: Sequence[str] | None
) -> dict[str, Any]:
    """The limits that the options name; an option that is not given is left out."""
    found: dict[str, Any] = {}
    if expires is not None:
        found["expires_at"] = None if expires == NEVER else parse_moment(expires, "--expires")
    if rate is not None:
        found["rate_per_minute"] = rate or None
    if daily_quota is not None:
        found["daily_quota"] = daily_quota or None
    if from_domain:
        found["from_domains"] = () if list(from_domain) == [ANY] else tuple(from_domain)
    return found
