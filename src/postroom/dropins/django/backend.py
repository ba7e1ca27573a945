"""The e-mail backend that Django calls."""

import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.mail.backends.base import BaseEmailBackend
from django.db import Error as DatabaseTrouble

from postroom.dropins.django.database import DatabaseIntake
from postroom.dropins.django.message import deliveries_of
from postroom.dropins.django.options import read_options
from postroom.dropins.django.web import HttpIntake
from postroom.errors import PostroomError
from postroom.settings import read_settings

_ATTEMPT = "_postroom_attempt"  # on a message whose last sending has not succeeded
_TTL = "POSTROOM_IDEMPOTENCY_TTL"


class EmailBackend(BaseEmailBackend):  # type: ignore[misc] # Django has no types of its own
    """Hands mail to Postroom. With `fail_silently`, rejected messages are only left out of the count."""

    def __init__(self, fail_silently: bool = False, **_ignored: Any) -> None:  # noqa: FBT001, FBT002 - Django's own
        super().__init__(fail_silently=fail_silently)
        self._door = _door(read_options())

    def send_messages(self, email_messages: Sequence[Any]) -> int:
        """Accept each message; return the number of accepted ones."""
        return sum(self._send(message) for message in email_messages or ())

    def _send(self, message: Any) -> bool:
        attempt = vars(message).setdefault(_ATTEMPT, secrets.token_hex(16))
        try:
            deliveries = list(deliveries_of(message))
            self._door.accept(deliveries, attempt=attempt)
        except (PostroomError, DatabaseTrouble, OSError):
            if not self.fail_silently:
                raise
            return False
        del vars(message)[_ATTEMPT]
        return bool(deliveries)


def _door(chosen: Mapping[str, Any]) -> DatabaseIntake | HttpIntake:
    """The intake chosen by the settings: HTTP if they have a URL, otherwise the site's own database."""
    if "URL" not in chosen:
        return DatabaseIntake(
            chosen.get("DATABASE", "default"),
            chosen.get("ROOM", "postroom"),
            chosen.get("SOURCE", "django"),
            read_settings({_TTL: os.environ.get(_TTL, "")}).idempotency_ttl,
        )
    return HttpIntake(chosen["URL"], chosen["KEY"], float(chosen.get("TIMEOUT", 30)))
