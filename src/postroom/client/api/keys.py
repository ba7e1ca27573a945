"""The endpoints of keys, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from postroom.client.calls import Kind, Resource, ResultPage, call, listing


class ApiKey(Struct, frozen=True, kw_only=True):
    """One key as it may be shown: everything but the key."""

    id: int
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    expires_at: datetime | None
    rate_per_minute: int | None
    daily_quota: int | None
    from_domains: list[str]


class CreatedKey(Struct, frozen=True, kw_only=True):
    """One key as it may be shown: everything but the key."""

    id: int
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    rate_per_minute: int | None
    daily_quota: int | None
    from_domains: list[str]
    key: str


class KeysApi(Resource[Kind]):
    """The endpoints of keys."""

    @listing("/v1/keys")
    def list(self, *, cursor: str | None = None, limit: int = 50) -> ResultPage[ApiKey]:
        """List API keys, newest first, the revoked ones too."""

    @call("POST", "/v1/keys", body=True)
    def create(
        self,
        *,
        name: str,
        scopes: Sequence[str],
        expires_at: datetime | None = None,
        rate_per_minute: int | None = None,
        daily_quota: int | None = None,
        from_domains: Sequence[str] = (),
    ) -> CreatedKey:
        """Create an API key and show it once.

        Scopes: deliveries:write, deliveries:read, deliveries:operate, inbox:read, inbox:write, templates:read,
        templates:write, accounts:read, accounts:write, accounts:operate, users:read, users:write, events:read,
        events:write, outbox:read, outbox:operate, webhooks:manage, senders:read, senders:manage, campaigns:read,
        campaigns:write, suppressions:read, suppressions:write, stats:read, archive:operate, erasures:manage,
        audit:read, keys:manage, operators:manage, or * for all.
        """

    @call("PATCH", "/v1/keys/{key_id}", body=True)
    def change(
        self,
        key_id: int,
        *,
        expires_at: datetime | None = ...,
        rate_per_minute: int | None = ...,
        daily_quota: int | None = ...,
        from_domains: Sequence[str] = ...,
    ) -> ApiKey:
        """Change the limits of an API key; your key must have all its scopes."""

    @call("DELETE", "/v1/keys/{key_id}")
    def revoke(self, key_id: int) -> ApiKey:
        """Revoke an API key permanently; your key must have all its scopes."""
