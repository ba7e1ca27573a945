"""API keys, operators and roles, and the scopes that each of them has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from postroom.limits.model import MailLimits
from postroom.runtime.secrets import Sealed


class Role(StrEnum):
    """The bundle of scopes of an operator, given by `SCOPE_ROLES`."""

    ADMIN = "admin"
    OPERATOR = "operator"
    SUPPORT = "support"
    READ_ONLY = "read-only"

    def allows(self, scope: str) -> bool:
        return self is Role.ADMIN or self in SCOPE_ROLES.get(scope, ())


_READ = (Role.OPERATOR, Role.SUPPORT, Role.READ_ONLY)
_HELP = (Role.OPERATOR, Role.SUPPORT)
_RUN = (Role.OPERATOR,)

SCOPE_ROLES: Mapping[str, tuple[Role, ...]] = {
    "deliveries:write": _RUN,
    "deliveries:read": _READ,
    "deliveries:operate": _HELP,
    "inbox:read": _READ,
    "inbox:write": _RUN,
    "templates:read": _READ,
    "templates:write": _RUN,
    "accounts:read": _READ,
    "accounts:write": _RUN,
    "accounts:operate": _HELP,
    "users:read": _READ,
    "users:write": _RUN,
    "events:read": _READ,
    "events:write": _RUN,
    "outbox:read": _READ,
    "outbox:operate": _RUN,
    "webhooks:manage": _RUN,
    "senders:read": _READ,
    "senders:manage": _RUN,
    "campaigns:read": _READ,
    "campaigns:write": _RUN,
    "suppressions:read": _READ,
    "suppressions:write": _HELP,
    "stats:read": _READ,
    "archive:operate": _RUN,
    "erasures:manage": (),
    "audit:read": (Role.OPERATOR, Role.READ_ONLY),
    "keys:manage": (),
    "operators:manage": (),
}
"""Every scope, and the roles that have it besides admin, which has all."""

SCOPES = tuple(SCOPE_ROLES)
ALL = "*"
"""The scope that holds every other, now and later."""

ROLE_SCOPES: Mapping[Role, tuple[str, ...]] = {
    role: (ALL,) if role is Role.ADMIN else tuple(scope for scope, roles in SCOPE_ROLES.items() if role in roles)
    for role in Role
}


MANAGING = frozenset({"keys:manage", "operators:manage"})
"""The scopes that lead to all others."""


class Principal(Protocol):
    """An API key or an operator: the one who makes a request, with its scopes."""

    @property
    def id(self) -> int: ...

    @property
    def name(self) -> str:
        """For people: the name of a key, the address of an operator."""
        ...

    @property
    def actor(self) -> str:
        """For the audit log."""
        ...

    def allows(self, scope: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key as it may be shown: everything but the key."""

    id: int
    name: str
    prefix: str
    scopes: tuple[str, ...]
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    expires_at: datetime | None = None
    rate_per_minute: int | None = None
    daily_quota: int | None = None
    from_domains: tuple[str, ...] = ()

    @property
    def limits(self) -> MailLimits:
        return MailLimits(
            expires_at=self.expires_at,
            rate_per_minute=self.rate_per_minute,
            daily_quota=self.daily_quota,
            from_domains=self.from_domains,
        )

    @property
    def actor(self) -> str:
        """How the audit log names the key: its id too, because a name can be given again once its key was revoked."""
        return f"key:{self.id}:{self.name}"

    def allows(self, scope: str) -> bool:
        return ALL in self.scopes or scope in self.scopes


class OperatorOrigin(StrEnum):
    """How an operator came to be: added by a person, or by the first OIDC sign-in with a mapped role."""

    ADDED = "added"
    OIDC = "oidc"


@dataclass(frozen=True, slots=True)
class Operator:
    """A person who signs in to the dashboard."""

    id: int
    email: str
    role: Role
    origin: OperatorOrigin
    created_at: datetime
    last_sign_in_at: datetime | None
    disabled_at: datetime | None
    sessions_since: datetime  # every session holds this value; a new value ends them all
    second_factor_since: datetime | None = None

    @property
    def name(self) -> str:
        return self.email

    @property
    def actor(self) -> str:
        return operator_actor(self.email)

    @property
    def scopes(self) -> tuple[str, ...]:
        return ROLE_SCOPES[self.role]

    def allows(self, scope: str) -> bool:
        return self.role.allows(scope)


@dataclass(frozen=True, slots=True)
class TriedFactor:
    """The second factor of an operator, for which a try was counted."""

    totp_secret: Sealed = field(repr=False)
    totp_step: int
    recovery_hashes: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session of the dashboard, as its owner sees it."""

    nonce: str
    began_at: datetime
    seen_at: datetime
    expires_at: datetime
    method: str  # how it was opened: key, code, link or oidc
    client: str  # address or IPv6 network
    browser: str


@dataclass(frozen=True, slots=True)
class OidcIdentity:
    """A person as an OpenID Connect provider knows them: the verified address, and the account that stays the same."""

    email: str
    issuer: str
    subject: str


def operator_actor(email: str) -> str:
    """How the audit log names an operator."""
    return f"operator:{email}"
