"""AWS's default credential chain, with local servers for STS, ECS, EKS and IMDS."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.aws import moto_running

from postroom.errors import ConfigurationError
from postroom.runtime.aws import AwsCredentials
from postroom.runtime.aws_credentials import CredentialChain, find_region

ROLE = "arn:aws:iam::123456789012:role/postroom"
NOWHERE = {"AWS_EC2_METADATA_DISABLED": "true"}


@dataclass
class Metadata:
    """The endpoints that return credentials, and the requests they got."""

    lifetime: timedelta = timedelta(hours=6)
    is_broken: bool = False
    asked: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""

    def answer(self) -> web.Response:
        expiration = (datetime.now(UTC) + self.lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
        return web.json_response(
            {
                "Code": "Success",
                "AccessKeyId": f"ID{len(self.asked)}",
                "SecretAccessKey": "example-secret",
                "Token": "example-token",
                "Expiration": expiration,
            }
        )

    async def token(self, request: web.Request) -> web.Response:
        assert request.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "21600"
        return web.Response(text="session")

    async def roles(self, request: web.Request) -> web.Response:
        return web.Response(text="the-role\n", status=200 if _has_session(request) else 401)

    async def role(self, request: web.Request) -> web.Response:
        self.asked.append(("instance", request.match_info["role"]))
        return self.answer() if _has_session(request) else web.Response(status=401)

    async def container(self, request: web.Request) -> web.Response:
        self.asked.append(("container", request.headers.get("Authorization", "")))
        return web.Response(status=500) if self.is_broken else self.answer()


def _has_session(request: web.Request) -> bool:
    return request.headers.get("X-aws-ec2-metadata-token") == "session"


@contextlib.asynccontextmanager
async def metadata_running(metadata: Metadata) -> AsyncIterator[Metadata]:
    app = web.Application()
    app.router.add_put("/latest/api/token", metadata.token)
    app.router.add_get("/latest/meta-data/iam/security-credentials/", metadata.roles)
    app.router.add_get("/latest/meta-data/iam/security-credentials/{role}", metadata.role)
    app.router.add_get("/container", metadata.container)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    metadata.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield metadata
    finally:
        await runner.cleanup()


def home_with(folder: Path, *, credentials: str = "", config: str = "") -> dict[str, str]:
    (folder / ".aws").mkdir(exist_ok=True)
    (folder / ".aws" / "credentials").write_text(credentials)
    (folder / ".aws" / "config").write_text(config)
    return {"HOME": str(folder), **NOWHERE}


async def test_the_environment_comes_first(tmp_path: Path) -> None:
    """The environment precedes a profile, as in Amazon's own tools."""
    files = home_with(tmp_path, credentials="[default]\naws_access_key_id = FILE\naws_secret_access_key = s\n")
    env = {**files, "AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}
    assert await CredentialChain(env).current() == AwsCredentials("ENV", "s", "t")
    assert (await CredentialChain(files).current()).access_key_id == "FILE"


@pytest.mark.parametrize("profile, found", [(None, "DEFAULT"), ("work", "WORK"), ("other", "OTHER")])
async def test_a_profile_is_read_from_both_files(tmp_path: Path, profile: str | None, found: str) -> None:
    """`credentials` names it directly, `config` as `profile x`; the region is in `config`."""
    env = home_with(
        tmp_path,
        credentials="[default]\naws_access_key_id=DEFAULT\naws_secret_access_key=s\n"
        "[work]\naws_access_key_id=WORK\naws_secret_access_key=s%s\naws_session_token=t\n",
        config="[default]\nregion = eu-west-1\n[profile work]\nregion = eu-west-2\n"
        "[profile other]\naws_access_key_id=OTHER\naws_secret_access_key=s\n",
    )
    if profile:
        env["AWS_PROFILE"] = profile
    assert (await CredentialChain(env).current()).access_key_id == found
    assert find_region(env) == {None: "eu-west-1", "work": "eu-west-2", "other": None}[profile]


@pytest.mark.parametrize(
    "config, message",
    [
        ("", "'work' is in neither"),
        ("[profile work]\nsource_profile = x\nrole_arn = y\n", "has source_profile"),
        ("[profile work]\nregion = eu-west-1\n", "has no access key"),
        ("nonsense", "config cannot be read"),
    ],
)
async def test_unusable_profile_is_an_error(tmp_path: Path, config: str, message: str) -> None:
    """It is not replaced by another source, which may belong to another account."""
    env = {**home_with(tmp_path, config=config), "AWS_PROFILE": "work"}
    with pytest.raises(ConfigurationError, match=message):
        await CredentialChain(env).current()


async def test_a_web_identity_assumes_its_role(tmp_path: Path) -> None:
    """The token of the file is sent to moto's STS; the role comes from the environment or a profile."""
    (tmp_path / "token").write_text("example-web-identity-token\n")
    with moto_running() as sts:
        base = {**NOWHERE, "HOME": str(tmp_path), "AWS_ENDPOINT_URL_STS": sts, "AWS_REGION": "eu-west-1"}
        env = {**base, "AWS_ROLE_ARN": ROLE, "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token")}
        found = await CredentialChain(env).current()
        profile = f"[default]\nrole_arn = {ROLE}\nweb_identity_token_file = {tmp_path / 'token'}\n"
        by_profile = await CredentialChain({**base, **home_with(tmp_path, config=profile)}).current()
    for each in (found, by_profile):
        assert each.session_token is not None
        assert each.expires_at is not None
        assert each.expires_at > datetime.now(UTC)


async def test_a_missing_token_file_is_reported(tmp_path: Path) -> None:
    """The error names the role."""
    env = {"AWS_ROLE_ARN": ROLE, "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "none"), "HOME": str(tmp_path)}
    with pytest.raises(ConfigurationError, match=f"AWS STS, for the role {ROLE}: FileNotFoundError"):
        await CredentialChain(env).current()


async def test_container_endpoint_gets_its_token(tmp_path: Path) -> None:
    """The token of EKS Pod Identity is read from its file."""
    (tmp_path / "token").write_text("Bearer x\n")
    async with metadata_running(Metadata()) as metadata:
        env = {
            "HOME": str(tmp_path),
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{metadata.url}/container",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
        }
        found = await CredentialChain(env).current()
    assert (found.access_key_id, found.session_token) == ("ID1", "example-token")
    assert metadata.asked == [("container", "Bearer x")]


async def test_remote_container_endpoint_is_rejected(tmp_path: Path) -> None:
    """The token is not sent in clear text to a remote host."""
    env = {"HOME": str(tmp_path), "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://192.0.2.7/x"}
    with pytest.raises(ConfigurationError, match="must be https or a local address"):
        await CredentialChain(env).current()


async def test_instance_uses_the_credentials_of_its_role(tmp_path: Path) -> None:
    """IMDSv2: first a session token, then the role, then its credentials."""
    async with metadata_running(Metadata()) as metadata:
        env = {"HOME": str(tmp_path), "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.url}
        found = await CredentialChain(env).current()
    assert found.access_key_id == "ID1"
    assert metadata.asked == [("instance", "the-role")]


async def test_credentials_are_cached_until_shortly_before_expiry(tmp_path: Path) -> None:
    """Then they are replaced; if that fails, they are used while they are valid."""
    async with metadata_running(Metadata()) as metadata:
        env = {"HOME": str(tmp_path), "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{metadata.url}/container"}
        chain = CredentialChain(env)
        assert [(await chain.current()).access_key_id for _ in range(3)] == ["ID1", "ID1", "ID1"]
        metadata.lifetime = timedelta(minutes=4)
        fresh = CredentialChain(env)
        assert [(await fresh.current()).access_key_id for _ in range(2)] == ["ID2", "ID3"]
        metadata.is_broken = True
        assert (await fresh.current()).access_key_id == "ID3"
        with pytest.raises(ConfigurationError, match="the container endpoint: status 500"):
            await CredentialChain(env).current()


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:9"])
async def test_error_without_credentials_names_the_sources(tmp_path: Path, endpoint: str | None) -> None:
    """One sentence, with the metadata service disabled or unreachable."""
    env = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint} if endpoint else NOWHERE
    with pytest.raises(ConfigurationError, match="No AWS credentials were found"):
        await CredentialChain({"HOME": str(tmp_path), **env}).current()
