"""AWS credentials from the default chain, as Amazon's own tools find them.

The first source that is configured is used, in this order:

    environment    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN
    web identity   AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE, as EKS sets them
    shared files   the profile of AWS_PROFILE in ~/.aws/credentials and ~/.aws/config: keys, or a web identity
    container      AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI, as ECS and EKS Pod Identity set them
    instance       the role of an EC2 instance, by IMDSv2; AWS_EC2_METADATA_DISABLED=true skips it

Credentials are replaced five minutes before they expire. If that fails, they are used until they expire. Profiles that
need another program or another profile (`credential_process`, `source_profile`, SSO) are rejected with an error.
"""

import asyncio
import configparser
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import msgspec
import structlog

from postroom.errors import ConfigurationError
from postroom.runtime.aws import AwsCredentials

REFRESH_BEFORE = timedelta(minutes=5)  # AWS recommends to renew credentials some minutes before they expire
TIMEOUT_S = 5.0  # metadata services are local

_log = structlog.get_logger()

_ECS = "http://169.254.170.2"
_IMDS = "http://169.254.169.254"
_IMDS_ROLES = "/latest/meta-data/iam/security-credentials/"
_OK = 200  # HTTP status
_UNSUPPORTED = ("credential_process", "source_profile", "credential_source", "sso_session", "sso_start_url")
_CONTAINER_HOSTS = tuple(ip_network(each) for each in ("127.0.0.0/8", "::1/128", "169.254.170.0/23", "fd00:ec2::/112"))
_FAULTS = (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError, ValueError)


class _Answer(msgspec.Struct, rename="pascal"):
    """The response of the container endpoint and of IMDS."""

    access_key_id: str
    secret_access_key: str
    token: str
    expiration: datetime

    def credentials(self) -> AwsCredentials:
        return AwsCredentials(self.access_key_id, self.secret_access_key, self.token, self.expiration)


@dataclass(frozen=True, slots=True)
class _Identity:
    """A role and the file of the token that allows this process to assume it."""

    role: str
    token_file: str
    session_name: str


class CredentialChain:
    """Finds credentials, caches them, and replaces them before they expire. Safe for concurrent tasks."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        self._found: AwsCredentials | None = None
        self._turn = asyncio.Lock()  # one task renews, the others use its result

    async def current(self) -> AwsCredentials:
        """Credentials that are valid now. Raises `ConfigurationError` if no source has any."""
        async with self._turn:
            if self._found is None or _expires_within(self._found, REFRESH_BEFORE):
                self._found = await self._replaced(self._found)
            return self._found

    async def _replaced(self, old: AwsCredentials | None) -> AwsCredentials:
        try:
            return await self._find()
        except ConfigurationError as error:
            if old is None or _expires_within(old, timedelta()):
                raise
            _log.warning("aws_credentials_kept", reason=str(error), expires_at=old.expires_at)
            return old

    async def _find(self) -> AwsCredentials:
        env = self._environment
        if (key_id := env.get("AWS_ACCESS_KEY_ID")) and (secret := env.get("AWS_SECRET_ACCESS_KEY")):
            return AwsCredentials(key_id, secret, env.get("AWS_SESSION_TOKEN") or None)
        if (role := env.get("AWS_ROLE_ARN")) and (token_file := env.get("AWS_WEB_IDENTITY_TOKEN_FILE")):
            return await self._assume(_Identity(role, token_file, env.get("AWS_ROLE_SESSION_NAME", "postroom")))
        profile = await asyncio.to_thread(read_profile, env)
        if profile:
            return await self._from_profile(profile)
        if env.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") or env.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
            return await self._from_container()
        if env.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true":
            return await self._from_instance()
        raise ConfigurationError(
            "No AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile with "
            "AWS_PROFILE, or give this host or container a role."
        )

    async def _from_profile(self, profile: Mapping[str, str]) -> AwsCredentials:
        if "aws_access_key_id" in profile and "aws_secret_access_key" in profile:
            token = profile.get("aws_session_token")
            return AwsCredentials(profile["aws_access_key_id"], profile["aws_secret_access_key"], token)
        if "role_arn" in profile and "web_identity_token_file" in profile:
            name = profile.get("role_session_name", "postroom")
            return await self._assume(_Identity(profile["role_arn"], profile["web_identity_token_file"], name))
        needs = next((name for name in _UNSUPPORTED if name in profile), "no access key")
        raise ConfigurationError(
            f"The AWS profile {profile_name(self._environment)!r} has {needs}; Postroom reads profiles with an access "
            "key or a web identity token file."
        )

    async def _assume(self, identity: _Identity) -> AwsCredentials:
        region = find_region(self._environment) or "us-east-1"
        url = self._environment.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com"
        try:
            token = await asyncio.to_thread(Path(identity.token_file).read_text, "utf-8")
            form = {
                "Action": "AssumeRoleWithWebIdentity",
                "Version": "2011-06-15",
                "RoleArn": identity.role,
                "RoleSessionName": identity.session_name,
                "WebIdentityToken": token.strip(),
            }
            return _from_xml(await _ask("POST", f"{url.rstrip('/')}/", form=form))
        except _FAULTS as error:
            raise _failed(f"AWS STS, for the role {identity.role}", error) from error

    async def _from_container(self) -> AwsCredentials:
        env = self._environment
        relative, full = (
            env.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
            env.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        )
        url = f"{_ECS}{relative}" if relative else str(full)
        if not relative and not _is_container_url(url):
            raise ConfigurationError(
                f"AWS_CONTAINER_CREDENTIALS_FULL_URI must be https or a local address, not {url!r}."
            )
        try:
            token = env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
            if file := env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
                token = (await asyncio.to_thread(Path(file).read_text, "utf-8")).strip()
            headers = {"Authorization": token} if token else {}
            answer = await _ask("GET", url, headers=headers)
            return msgspec.json.decode(answer, type=_Answer).credentials()
        except _FAULTS as error:
            raise _failed("the container endpoint", error) from error

    async def _from_instance(self) -> AwsCredentials:
        url = (self._environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _IMDS).rstrip("/")
        try:
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
            token = (await _ask("PUT", f"{url}/latest/api/token", headers=lifetime)).decode()
            headers = {"X-aws-ec2-metadata-token": token}
            role = (await _ask("GET", url + _IMDS_ROLES, headers=headers)).decode().strip().splitlines()[0]
            answer = await _ask("GET", f"{url}{_IMDS_ROLES}{role}", headers=headers)
            return msgspec.json.decode(answer, type=_Answer).credentials()
        except (*_FAULTS, IndexError) as error:
            raise ConfigurationError(
                "No AWS credentials were found: neither in the environment nor in a profile, and the EC2 metadata "
                f"service gave none ({type(error).__name__})."
            ) from error


def profile_name(environment: Mapping[str, str]) -> str:
    return environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"


def read_profile(environment: Mapping[str, str]) -> dict[str, str]:
    """The chosen profile of both shared files, credentials over config; empty if neither has it. Blocks.

    Raises `ConfigurationError` if a profile is named and exists in neither file.
    """
    name = profile_name(environment)
    config = _config_section(environment)
    keys = _section(environment.get("AWS_SHARED_CREDENTIALS_FILE") or str(_home(environment) / "credentials"), name)
    if config is None and keys is None and environment.get("AWS_PROFILE"):
        raise ConfigurationError(f"The AWS profile {name!r} is in neither the credentials nor the config file.")
    found = {**(config or {}), **(keys or {})}
    is_source = {"aws_access_key_id", "role_arn", *_UNSUPPORTED} & found.keys()
    return found if is_source or environment.get("AWS_PROFILE") else {}


def find_region(environment: Mapping[str, str] | None = None) -> str | None:
    """AWS_REGION, AWS_DEFAULT_REGION, or the region of the profile. Blocks."""
    env = os.environ if environment is None else environment
    named = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    if named:
        return named
    section = _config_section(env)
    return (section or {}).get("region")


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or "~").expanduser() / ".aws"


def _config_section(environment: Mapping[str, str]) -> dict[str, str] | None:
    name = profile_name(environment)
    file = environment.get("AWS_CONFIG_FILE") or str(_home(environment) / "config")
    return _section(file, name if name == "default" else f"profile {name}")


def _section(file: str, name: str) -> dict[str, str] | None:
    parser = configparser.ConfigParser(interpolation=None, default_section="-")
    try:
        parser.read(Path(file).expanduser(), "utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {type(error).__name__}.") from error
    return dict(parser[name]) if parser.has_section(name) else None


def _is_container_url(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    try:
        address = ip_address(parts.hostname or "")
    except ValueError:
        return parts.hostname == "localhost"
    return any(address in network for network in _CONTAINER_HOSTS)


def _expires_within(credentials: AwsCredentials, time: timedelta) -> bool:
    return credentials.expires_at is not None and credentials.expires_at - datetime.now(UTC) <= time


def _from_xml(answer: bytes) -> AwsCredentials:
    """The four values of STS's response; one regular expression each, so no XML parser can expand entities."""
    text = answer.decode()
    values = [
        re.search(rf"<{name}>\s*([^<]+?)\s*</{name}>", text)
        for name in ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
    ]
    if not all(values):
        raise ValueError("the answer has no credentials")
    key_id, secret, token, expires = (found[1] for found in values if found)
    return AwsCredentials(key_id, secret, token, datetime.fromisoformat(expires))


async def _ask(
    method: str, url: str, *, headers: Mapping[str, str] | None = None, form: Mapping[str, str] | None = None
) -> bytes:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with (
        aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
        session.request(method, url, headers=headers, data=form, allow_redirects=False) as response,
    ):
        answer = await response.read()
        if response.status != _OK:
            raise ValueError(f"status {response.status}")
        return answer


def _failed(source: str, error: Exception) -> ConfigurationError:
    reason = (
        str(error) if isinstance(error, ValueError) and not isinstance(error, UnicodeError) else type(error).__name__
    )
    return ConfigurationError(f"AWS credentials could not be loaded from {source}: {reason}.")
