"""Build the mail of a token. Pure: the mail depends on the token and the settings only.

A token that is read twice is therefore mailed once: the second request is identical and has the same idempotency key.
"""

from dataclasses import dataclass

from postroom.accounts.model import Action, DueToken
from postroom.accounts.signature import PATHS, sign
from postroom.delivery.check import is_locale
from postroom.delivery.model import DeliveryRequest, Lane
from postroom.errors import SettingInvalid
from postroom.post.address import parse_address
from postroom.settings import Settings

SOURCE = "accounts"
TEMPLATES = {Action.ACTIVATION: "account-activation", Action.PASSWORD_RECOVERY: "account-recovery"}


@dataclass(frozen=True, slots=True)
class AccountMailOptions:
    """The base URL of links, the key that signs them, and the default language."""

    public_url: str
    key: bytes
    locale: str | None = None  # for accounts without a locale

    @classmethod
    def of(cls, settings: Settings) -> "AccountMailOptions":
        """Raises `SettingInvalid` without a key: unsigned links could be guessed."""
        if not is_locale(settings.default_locale):
            raise SettingInvalid("POSTROOM_DEFAULT_LOCALE", "is not a locale such as fr or fr-FR")
        return cls(settings.base_url, signing_key(settings), settings.default_locale)

    def sign(self, token: DueToken) -> str:
        return sign(self.key, token.action, token.secret)

    def link(self, token: DueToken) -> str:
        return f"{self.public_url}{PATHS[token.action]}?token={self.sign(token)}"

    def request(self, token: DueToken) -> DeliveryRequest:
        """The mail of a token: in the auth lane, and not sent after the token has expired."""
        return DeliveryRequest(
            to=(parse_address(token.email),),
            template=TEMPLATES[token.action],
            locale=token.locale or self.locale,
            variables={
                "link": self.link(token),
                "code": token.code,
                "login": token.login,
                "minutes": token.minutes,
            },
            tags={"account": str(token.account)},
            lane=Lane.AUTH,
            source=SOURCE,
            idempotency_key=f"token:{token.id}",
            expires_at=token.expires_at,
        )


def signing_key(settings: Settings) -> bytes:
    if settings.secret_key is None:
        raise SettingInvalid("POSTROOM_SECRET_KEY", "is required to sign the links in account mail")
    return settings.secret_key
