"""Types that several tags use.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    Lane = Literal["auth", "bulk", "transactional"]
    StateFilter = Literal[
        "cancelled", "dead_letter", "failed", "queued", "rendered", "sending", "sent", "suppressed", "waiting"
    ]
    Channel = Literal["email", "webhook"]
    DeliveryState = Literal["cancelled", "dead_letter", "failed", "queued", "rendered", "sending", "sent", "suppressed"]
else:  # a newer server may have more values
    Lane = str
    StateFilter = str
    Channel = str
    DeliveryState = str


class Engagement(Struct, frozen=True, kw_only=True):
    """Opens or clicks: all, those by machines, and `unique`: mails that people opened or clicked."""

    total: int
    unique: int
    machine: int


class LetterWarning(Struct, frozen=True, kw_only=True):
    """One warning: a stable code, the part of the letter, and the message."""

    code: str
    part: str
    message: str
    failing: int
