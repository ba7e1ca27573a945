"""Passwords from AWS IAM, for PostgreSQL on Amazon RDS and Aurora.

A URL with `auth=rds-iam` has no password. Each new connection signs a token with the AWS credentials of the process
(`runtime.aws_credentials`), which is valid for 15 minutes and for one host, port and user. The region comes from the
parameter `region`, from the host name, or from AWS_REGION. Tokens are secrets, so they need verified TLS.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from postroom.db.url import VERIFY_FULL, Host, hosts_of, parameters_of, user_of, with_parameter, without_parameters
from postroom.errors import ConfigurationError, SettingInvalid
from postroom.runtime.aws import presign

if TYPE_CHECKING:
    from postroom.runtime.aws_credentials import CredentialChain

LIFETIME = timedelta(minutes=15)  # the longest that RDS accepts
PARAMETERS = ("auth", "region")

_REGION = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-\d)\.rds\.amazonaws\.com(?:\.cn)?\.?$")


def uses_iam(url: str) -> bool:
    """True for a URL with `auth=rds-iam`; `SettingInvalid` for one that cannot be used."""
    parameters = parameters_of(url)
    if "auth" not in parameters:
        return False
    problem = None
    if parameters["auth"] != "rds-iam":
        problem = f"has auth={parameters['auth']}; the only value is rds-iam"
    elif not hosts_of(url) or user_of(url) is None:
        problem = "needs a host and a user for auth=rds-iam"
    elif parameters.get("sslmode", VERIFY_FULL) != VERIFY_FULL:
        problem = "must not have an sslmode other than verify-full with auth=rds-iam: tokens need verified TLS"
    elif urlsplit(url).password or "password" in parameters:
        problem = "has a password and auth=rds-iam; remove one of them"
    if problem is not None:
        raise SettingInvalid("POSTROOM_DATABASE_URL", problem)
    return True


def without_auth(url: str) -> str:
    """The URL for drivers and programs, which do not know our parameters, with verified TLS."""
    return with_parameter(without_parameters(url, PARAMETERS), "sslmode", VERIFY_FULL)


async def make_token(url: str, host: Host) -> str:
    """A password for this host. Raises `ConnectionError` without credentials or a region, as for a lost host."""
    from postroom.runtime.aws_credentials import find_region

    region = parameters_of(url).get("region") or _region_of(host) or find_region()
    if region is None:
        raise ConnectionError(f"no AWS region is known for {host}; add region=… to the URL or set AWS_REGION")
    try:
        credentials = await _chain().current()
    except ConfigurationError as error:
        raise ConnectionError(f"no IAM token: {error}") from error
    address = f"https://{host}/?Action=connect&DBUser={quote(user_of(url) or '', safe='')}"
    signed = presign(
        address, credentials=credentials, region=region, service="rds-db", lifetime=LIFETIME, now=datetime.now(UTC)
    )
    return signed.removeprefix("https://")


async def with_token(url: str) -> str:
    """The URL for another program, with a token for its first host as the password; other URLs are unchanged."""
    if not uses_iam(url):
        return url
    return with_parameter(without_auth(url), "password", await make_token(url, hosts_of(url)[0]))


def _region_of(host: Host) -> str | None:
    found = _REGION.search(host.name)
    return found[1] if found else None


@cache
def _chain() -> "CredentialChain":
    """One per process: it caches credentials until they expire."""
    from postroom.runtime.aws_credentials import CredentialChain

    return CredentialChain()
