"""Acceptance over HTTP, for sites whose database is not Postroom's. Django waits, so this waits too.

A lost response may have been a success. So every mail has an idempotency key: its own, or one derived from its content
and the attempt, which stays the same until the mail is accepted. Sending the same message again after an error returns
the first delivery; sending it again after a success creates a second one.
"""

import hashlib
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.error import HTTPError

import msgspec
from django.core.exceptions import ImproperlyConfigured

from postroom.client.session import read_problem
from postroom.dropins.django.message import Keyed


@dataclass(frozen=True, slots=True)
class HttpIntake:
    """The way into a room by its API. The key is in no representation."""

    url: str
    key: str = field(repr=False)
    timeout_s: float

    def accept(self, deliveries: Sequence[Keyed], *, attempt: str) -> None:
        """Accept each of them; committed on return. Raises `BadInput` and others, and OSError for the network."""
        if not self.url.startswith(("http://", "https://")):
            raise ImproperlyConfigured("POSTROOM['URL'] is not an http or https address.")
        for body, key in deliveries:
            content = msgspec.json.encode(body)
            self._post(content, key or f"django:{hashlib.sha256(attempt.encode() + content).hexdigest()}")

    def _post(self, content: bytes, key: str) -> None:
        headers = {
            "Authorization": f"Bearer {self.key}",
            "Content-Type": "application/json",
            "Idempotency-Key": key,
        }
        url = f"{self.url.rstrip('/')}/v1/deliveries"
        request = urllib.request.Request(url, content, headers)  # noqa: S310 - checked above
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s):  # noqa: S310 - checked above
                return
        except HTTPError as answer:
            with answer:
                raise read_problem(answer.code, answer.read()) from None
