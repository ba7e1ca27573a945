"""The settings of the dashboard, read from the environment by `postroom.settings`."""

from dataclasses import dataclass

from postroom.http.model import Role
from postroom.runtime.setting import http_url, one_of, setting, switch


def _words(value: str) -> tuple[str, ...]:
    return tuple(part.strip().lower() for part in value.split(",") if part.strip())


def _scopes(value: str) -> str:
    if "openid" not in value.split():
        raise ValueError("must contain openid")
    return " ".join(value.split())


def _roles(value: str) -> tuple[tuple[str, str], ...]:
    """`mail-admins=admin,*=read-only`: values of a claim and the role that each gives."""
    pairs = [part.rpartition("=") for part in value.split(",") if part.strip()]
    known = set(Role)
    if any(not claim.strip() or role.strip() not in known for claim, _, role in pairs):
        raise ValueError(f"must be value=role, separated by commas; roles are {', '.join(Role)}")
    return tuple((claim.strip(), role.strip()) for claim, _, role in pairs)


@dataclass(frozen=True, kw_only=True)
class DashboardSettings:
    """The settings of the dashboard."""

    sign_in_codes: bool = setting(
        switch, default=True, about="operators sign in to the dashboard with a code that is mailed to them"
    )
    second_factor: str = setting(
        one_of("required", "optional"),
        "required",
        "whether operators who manage keys and operators need a second factor to do so after a sign-in by mailed code",
    )
    oidc_issuer: str | None = setting(http_url, None, "URL of the OpenID Connect provider at which operators sign in")
    oidc_client_id: str | None = setting(str, None, "client id of the dashboard at the OpenID Connect provider")
    oidc_client_secret: str | None = setting(
        str, None, "client secret of the dashboard; absent: a public client, protected by PKCE only", secret=True
    )
    oidc_scopes: str = setting(_scopes, "openid email", "scopes that the provider is asked for, separated by spaces")
    oidc_domains: tuple[str, ...] = setting(
        _words, (), "domains of addresses that may sign in by OpenID Connect; absent: all"
    )
    oidc_role_claim: str = setting(
        str, "groups", "claim of the ID token that POSTROOM_OIDC_ROLES is about, such as groups or realm_access.roles"
    )
    oidc_roles: tuple[tuple[str, str], ...] = setting(
        _roles,
        (),
        "roles by value of the claim, the first that fits: mail-admins=admin,*=read-only. People without a role "
        "must be operators already",
    )
