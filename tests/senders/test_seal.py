"""Sealed secrets: key id, purpose, own key or AWS KMS, and rotation."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from moto.server import ThreadedMotoServer
from tests.support.senders import KEY, account_of, an_account

from postroom.db.pool import Pool
from postroom.errors import ConfigurationError, SecretKeyMissing
from postroom.runtime.aws import AwsCredentials
from postroom.runtime.secrets import SecretBox
from postroom.senders import kms as kms_module
from postroom.senders import service, store
from postroom.senders.credentials import open_credentials
from postroom.senders.kms import KmsSealer
from postroom.senders.model import SealedAccount, SmtpCredentials
from postroom.senders.seal import LocalSealer, Sealer, Sealers, purpose_of

NEW_KEY = bytes(range(32, 64))
SECRET = b"correct horse"
PURPOSE = purpose_of("smtp", 1)


@pytest.fixture(scope="module")
def kms() -> Iterator[KmsSealer]:
    """AWS KMS by moto, on loopback, with one key."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    patch = pytest.MonkeyPatch()
    patch.setattr(kms_module, "_TIMEOUT_S", 60.0)
    nobody = KmsSealer(
        key_id="", region="eu-west-1", credentials=AwsCredentials("test", "test"), endpoint_url=f"http://{host}:{port}"
    )
    made = asyncio.run(nobody._ask("CreateKey", {}, ""))
    yield replace(nobody, key_id=made["KeyMetadata"]["KeyId"])
    patch.undo()
    server.stop()


async def test_sealed_secret_names_its_key() -> None:
    """The text names provider and key, and does not contain the secret."""
    sealer = LocalSealer.from_keys(KEY)
    key_id, text = await sealer.seal(SECRET, purpose=PURPOSE)
    assert text.startswith(f"local:{key_id}:")
    assert "horse" not in text
    assert await sealer.open(text, purpose=PURPOSE) == SECRET


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-2] + ("AA" if text[-2:] != "AA" else "BB"),
        lambda text: text.replace("local:", "local:0"),
        lambda _text: "local:only",
        lambda _text: "local:key:not base64!",
    ],
)
async def test_a_changed_text_is_refused(change: object) -> None:
    """A modified text is rejected, so write access to the table cannot replace a secret."""
    sealer = LocalSealer.from_keys(KEY)
    _, text = await sealer.seal(SECRET, purpose=PURPOSE)
    with pytest.raises(ConfigurationError):
        await sealer.open(change(text), purpose=PURPOSE)  # type: ignore[operator]


async def test_another_purpose_opens_nothing() -> None:
    """An SMTP password cannot be opened as an SES access key."""
    sealer = LocalSealer.from_keys(KEY)
    _, text = await sealer.seal(SECRET, purpose=PURPOSE)
    with pytest.raises(ConfigurationError):
        await sealer.open(text, purpose=purpose_of("ses", 1))


async def test_without_a_key_nothing_is_sealed() -> None:
    """An installation without POSTROOM_SECRET_KEY stores no secrets."""
    with pytest.raises(SecretKeyMissing):
        await LocalSealer.from_keys(None).seal(SECRET, purpose=PURPOSE)


async def test_kms_seals_and_opens(kms: KmsSealer) -> None:
    """A data key per secret, wrapped by KMS; the text names the key by its ARN."""
    key_id, text = await kms.seal(SECRET, purpose=PURPOSE)
    _, again = await kms.seal(SECRET, purpose=PURPOSE)
    assert key_id.startswith("arn:aws:kms:")
    assert text.startswith(f"kms:{key_id}:")
    assert text != again
    assert await kms.open(text, purpose=PURPOSE) == SECRET


async def test_kms_keeps_purposes_apart(kms: KmsSealer) -> None:
    """KMS rejects another encryption context."""
    _, text = await kms.seal(SECRET, purpose=PURPOSE)
    with pytest.raises(ConfigurationError, match="KMS rejected"):
        await kms.open(text, purpose=purpose_of("ses", 1))


async def test_kms_refusals_name_no_secret(kms: KmsSealer) -> None:
    """An unknown key is reported by the error code alone."""
    stranger = KmsSealer(key_id="nobody", region=kms.region, credentials=kms.credentials, endpoint_url=kms.endpoint_url)
    with pytest.raises(ConfigurationError, match=r"^AWS KMS rejected the request: NotFoundException\.$"):
        await stranger.seal(SECRET, purpose=PURPOSE)


async def test_a_silent_kms_is_an_error_that_says_so() -> None:
    """An unreachable KMS is reported as such."""
    nowhere = KmsSealer(
        key_id="k", region="eu-west-1", credentials=AwsCredentials("a", "b"), endpoint_url="http://127.0.0.1:9"
    )
    with pytest.raises(ConfigurationError, match="cannot be reached"):
        await nowhere.seal(SECRET, purpose=PURPOSE)


async def an_account_with_login(pool: Pool, sealer: Sealer, email: str) -> int:
    async with pool.acquire() as connection:
        account = await store.reserve_id(connection)
    key_id, text = await sealer.seal(SECRET, purpose=purpose_of("smtp", account))
    return await an_account(
        pool, email, id=account, smtp_username="ada", smtp_password_encrypted=text, credentials_key_id=key_id
    )


async def password_of(pool: Pool, account: int, sealer: Sealer) -> str | None:
    async with pool.acquire() as connection:
        text = await connection.fetchval("SELECT smtp_password_encrypted FROM sender_accounts WHERE id = $1", account)
    opened = await open_credentials(SealedAccount(await account_of(pool, account), text), sealer)
    assert isinstance(opened, SmtpCredentials)
    return opened.password


async def test_a_secret_copied_to_another_account_does_not_open(pool: Pool) -> None:
    """A password copied to another account's row cannot be decrypted."""
    sealer = LocalSealer.from_keys(KEY)
    first = await an_account_with_login(pool, sealer, "first@example.org")
    second = await an_account_with_login(pool, sealer, "second@example.org")
    await pool.execute(
        "UPDATE sender_accounts AS t SET smtp_password_encrypted = s.smtp_password_encrypted "
        "FROM sender_accounts AS s WHERE s.id = $1 AND t.id = $2",
        first,
        second,
    )
    assert await password_of(pool, first, sealer) == SECRET.decode()
    with pytest.raises(
        ConfigurationError, match=f"SMTP password of sender account {second} does not open.*another row"
    ):
        await password_of(pool, second, sealer)


async def test_rotation_reseals_every_secret(pool: Pool) -> None:
    """After a rotation only the new key opens the secrets; the audit log contains no secret."""
    old = LocalSealer.from_keys(KEY)
    accounts = [await an_account_with_login(pool, old, f"{n}@example.org") for n in range(3)]
    await an_account(pool, "nosecret@example.org")
    both = LocalSealer(SecretBox([NEW_KEY, KEY]))
    assert await service.rotate_keys(pool, both, actor="tests") == 3
    new = LocalSealer.from_keys(NEW_KEY)
    assert [await password_of(pool, account, new) for account in accounts] == [SECRET.decode()] * 3
    with pytest.raises(ConfigurationError):
        await password_of(pool, accounts[0], old)
    async with pool.acquire() as connection:
        rows = await connection.fetch("SELECT before, after FROM audit_log WHERE action = 'sender.rotate_key'")
    assert len(rows) == 3
    assert "horse" not in str([dict(row) for row in rows])


async def test_rotation_without_the_old_key_changes_nothing(pool: Pool) -> None:
    """The rotation stops at the first secret it cannot open."""
    account = await an_account_with_login(pool, LocalSealer.from_keys(KEY), "a@example.org")
    with pytest.raises(ConfigurationError):
        await service.rotate_keys(pool, LocalSealer.from_keys(NEW_KEY), actor="tests")
    assert await password_of(pool, account, LocalSealer.from_keys(KEY)) == SECRET.decode()


async def test_moving_to_kms(pool: Pool, kms: KmsSealer) -> None:
    """With KMS first and our key behind it, rotation moves every secret to KMS."""
    account = await an_account_with_login(pool, LocalSealer.from_keys(KEY), "a@example.org")
    sealers = Sealers(kms, LocalSealer.from_keys(KEY))
    assert await service.rotate_keys(pool, sealers, actor="tests") == 1
    assert await password_of(pool, account, kms) == SECRET.decode()


async def test_an_unknown_provider_is_refused(kms: KmsSealer) -> None:
    """An installation without KMS reports that it cannot open a KMS secret."""
    _, text = await kms.seal(SECRET, purpose=PURPOSE)
    with pytest.raises(ConfigurationError, match="not configured"):
        await Sealers(LocalSealer.from_keys(KEY)).open(text, purpose=PURPOSE)


def test_secrets_are_in_no_representation(kms: KmsSealer) -> None:
    """Representations, which logs and tracebacks show, contain no secret."""
    shown = [SmtpCredentials("hunter2"), SealedAccount(None, "sealed-text"), kms]  # type: ignore[arg-type]
    assert "hunter2" not in repr(shown)
    assert "sealed-text" not in repr(shown)
