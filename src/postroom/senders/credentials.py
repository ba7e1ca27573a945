"""Conversion of credentials between requests and sealed storage. Each account type has one secret."""

import msgspec

from postroom.errors import BadInput
from postroom.runtime.aws import AwsCredentials
from postroom.runtime.aws_credentials import CredentialChain
from postroom.senders.model import AuthType, SealedAccount, SmtpCredentials
from postroom.senders.seal import Sealer, purpose_of
from postroom.transports.gmail import GmailCredentials

Credentials = SmtpCredentials | GmailCredentials | AwsCredentials | CredentialChain


class AccessKey(msgspec.Struct, frozen=True):
    """An AWS access key, as it is sealed."""

    access_key_id: str
    secret_access_key: str

    def __repr__(self) -> str:
        return f"AccessKey({self.access_key_id!r}, …)"


def check_gmail(service_account: str, *, base_url: str | None) -> bytes:
    """Return the key file of a service account if its token URI is allowed. Raises `BadInput`."""
    try:
        GmailCredentials.from_json(service_account).check_token_uri(base_url)
    except ValueError as error:
        raise BadInput.of("gmail_credentials", str(error)) from error
    return service_account.encode()


async def open_credentials(sealed: SealedAccount, sealer: Sealer) -> Credentials:
    """Return the credentials of an account. Raises `ConfigurationError` if they cannot be decrypted."""
    kind = sealed.account.auth_type
    if sealed.secret is None:
        return CredentialChain() if kind is AuthType.SES else SmtpCredentials()
    secret = await sealer.open(sealed.secret, purpose=purpose_of(kind, sealed.account.id))
    match kind:
        case AuthType.SMTP:
            return SmtpCredentials(secret.decode())
        case AuthType.GMAIL:
            return GmailCredentials.from_json(secret)
        case AuthType.SES:
            key = msgspec.json.decode(secret, type=AccessKey)
            return AwsCredentials(key.access_key_id, key.secret_access_key)
