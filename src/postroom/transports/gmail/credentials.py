"""A service account, from the key file that Google issues. No text here repeats the content of the file."""

from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import urlsplit

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from postroom.transports.exchange import is_private_channel

TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - a URL, not a secret


class _KeyFile(msgspec.Struct, frozen=True):
    """The fields read from the file; it has more."""

    client_email: str
    private_key: str
    token_uri: str = TOKEN_URI
    private_key_id: str | None = None


@dataclass(frozen=True)
class GmailCredentials:
    """A service account with domain-wide delegation. No representation contains the key."""

    client_email: str
    private_key: str = field(repr=False)  # PEM
    token_uri: str = TOKEN_URI
    private_key_id: str | None = None

    @classmethod
    def from_json(cls, text: str | bytes) -> "GmailCredentials":
        """Read the key file; ValueError names the problem without repeating the content."""
        try:
            file = msgspec.json.decode(text, type=_KeyFile)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            raise ValueError("is not the JSON key file of a service account") from None
        credentials = cls(file.client_email, file.private_key, file.token_uri, file.private_key_id)
        if not is_private_channel(credentials.token_uri):
            raise ValueError("its token_uri is not an https address")
        assert credentials.key is not None, "reading it is the check"
        return credentials

    def check_token_uri(self, base_url: str | None) -> None:
        """Raise ValueError unless tokens come from Google or from the configured base URL."""
        allowed = {_origin(TOKEN_URI)} | ({_origin(base_url)} if base_url else set())
        if _origin(self.token_uri) not in allowed:
            raise ValueError("its token_uri must be at https://oauth2.googleapis.com or POSTROOM_GMAIL_BASE_URL")

    @cached_property
    def key(self) -> RSAPrivateKey:
        """The parsed key; ValueError if it is invalid."""
        try:
            key = load_pem_private_key(self.private_key.encode(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ValueError("its private_key cannot be read") from None
        if not isinstance(key, RSAPrivateKey):
            raise ValueError("its private_key is not an RSA key")  # noqa: TRY004 - an invalid file, not a wrong argument type
        return key


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()
