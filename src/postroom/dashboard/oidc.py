"""Sign-in at an OpenID Connect provider: authorization code flow with PKCE, state and nonce.

A cookie holds a random seed; state, nonce and PKCE verifier are derived from it with the installation's secret, so that
only the browser that began a sign-in can finish it. The provider's endpoints come from its discovery document.

HOSTILE INPUT  answers of the provider (`transports.exchange` bounds them, `id_token` checks them), and the parameters
         of the callback.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from postroom.dashboard.id_token import IdTokenInvalidError, read_id_token
from postroom.dashboard.session import base64url
from postroom.errors import SettingInvalid
from postroom.http.model import OidcIdentity, Role
from postroom.post.address import domain_of
from postroom.settings import Settings
from postroom.transports.exchange import Answered, Exchange, is_private_channel

FLOW_S = 600  # to sign in at the provider
TIMEOUT_S = 10.0  # a person waits for the page
CALLBACK = "/sign-in/oidc/callback"

_ANYONE = "*"
_LONGEST_SUBJECT = 255  # OpenID Connect Core, 2


class OidcRefusedError(Exception):
    """The sign-in failed; the message is for the person, and has no secret."""


class OidcFlow(msgspec.Struct, frozen=True, array_like=True):
    """A sign-in that a browser began: its cookie."""

    seed: str
    expires: int
    to: str


class ProviderEndpoints(msgspec.Struct, frozen=True):
    """The part of the discovery document that is used."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: list[str] = []


class OidcProvider:
    """The provider of the settings."""

    def __init__(self, settings: Settings, secret: bytes, *, room: str, now: Callable[[], float] = time.time) -> None:
        self._settings, self._now = settings, now
        self._issuer = settings.oidc_issuer or ""
        self._client = settings.oidc_client_id or ""
        self._key = hmac.digest(secret, b"postroom dashboard oidc\0" + room.encode(), "sha256")
        self._redirect = settings.base_url + CALLBACK

    @property
    def name(self) -> str:
        """For the button: the provider's host."""
        return urlsplit(self._issuer).hostname or self._issuer

    async def begin(self, to: str, *, again: bool = False) -> tuple[str, str]:
        """The address at the provider, and the cookie of the flow. Raises `OidcRefusedError`.

        With `again`, the provider is asked to authenticate a person who has a session there.
        """
        flow = OidcFlow(secrets.token_urlsafe(24), int(self._now()) + FLOW_S, to)
        async with _exchange() as exchange:
            provider = await self._discover(exchange)
        challenge = base64url(hashlib.sha256(self._derive("verifier", flow).encode()).digest())
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self._client,
                "redirect_uri": self._redirect,
                "scope": self._settings.oidc_scopes,
                "state": self._derive("state", flow),
                "nonce": self._derive("nonce", flow),
                "code_challenge": challenge,
                "code_challenge_method": "S256",
                **({"prompt": "login"} if again else {}),
            }
        )
        mark = "&" if "?" in provider.authorization_endpoint else "?"
        return f"{provider.authorization_endpoint}{mark}{query}", self._seal(flow)

    async def finish(self, cookie: str | None, query: Mapping[str, str]) -> tuple[dict[str, Any], str]:
        """The claims of the person who signed in, and the page that follows. Raises `OidcRefusedError`."""
        flow = self._open(cookie)
        if flow is None or not hmac.compare_digest(
            self._derive("state", flow).encode(), query.get("state", "").encode("utf-8", "replace")
        ):
            raise OidcRefusedError("This sign-in began in another browser, or took too long. Begin again.")
        if query.get("iss", self._issuer) != self._issuer or "error" in query or not query.get("code"):
            raise OidcRefusedError(f"{self.name} did not sign you in.")
        async with _exchange() as exchange:
            provider = await self._discover(exchange)
            token = await self._redeem(exchange, provider, query["code"], flow)
            keys = (await _fetch(exchange, provider.jwks_uri)).get("keys")
        try:
            claims = read_id_token(
                token,
                [key for key in keys if isinstance(key, dict)] if isinstance(keys, list) else [],
                issuer=self._issuer,
                audience=self._client,
                nonce=self._derive("nonce", flow),
                now=self._now(),
            )
        except IdTokenInvalidError as error:
            raise OidcRefusedError(f"The answer of {self.name} was refused: {error}.") from None
        return claims, flow.to

    async def _discover(self, exchange: Exchange) -> ProviderEndpoints:
        found = await _fetch(exchange, f"{self._issuer}/.well-known/openid-configuration")
        try:
            provider = msgspec.convert(found, ProviderEndpoints)
        except msgspec.ValidationError:
            raise OidcRefusedError(f"{self.name} has no valid discovery document.") from None
        used = (provider.authorization_endpoint, provider.token_endpoint, provider.jwks_uri)
        if provider.issuer != self._issuer or not all(is_private_channel(url) for url in used):
            raise OidcRefusedError(f"The discovery document of {self.name} names another issuer or an insecure URL.")
        return provider

    async def _redeem(self, exchange: Exchange, provider: ProviderEndpoints, code: str, flow: OidcFlow) -> str:
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect,
            "client_id": self._client,
            "code_verifier": self._derive("verifier", flow),
        }
        headers = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
        if (secret := self._settings.oidc_client_secret) is not None:
            if provider.token_endpoint_auth_methods_supported == ["client_secret_post"]:
                fields["client_secret"] = secret
            else:
                pair = f"{quote(self._client, safe='')}:{quote(secret, safe='')}"
                headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        answer = await _fetch(exchange, provider.token_endpoint, headers=headers, content=urlencode(fields).encode())
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise OidcRefusedError(f"{self.name} gave no ID token.")
        return token

    def _derive(self, purpose: str, flow: OidcFlow) -> str:
        return base64url(hmac.digest(self._key, f"{purpose}\0{flow.seed}".encode(), "sha256"))

    def _seal(self, flow: OidcFlow) -> str:
        body = base64url(msgspec.json.encode(flow))
        return f"{body}.{base64url(hmac.digest(self._key, body.encode(), 'sha256'))}"

    def _open(self, cookie: str | None) -> OidcFlow | None:
        body, _, seal = (cookie or "").partition(".")
        expected = base64url(hmac.digest(self._key, body.encode("utf-8", "replace"), "sha256"))
        if not hmac.compare_digest(expected.encode(), seal.encode("utf-8", "replace")):
            return None
        flow = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=OidcFlow)
        return flow if flow.expires > self._now() else None


def oidc_provider(settings: Settings, secret: bytes, *, room: str) -> OidcProvider | None:
    """The provider of the settings; None without one. Raises `SettingInvalid` if they are incomplete or unsafe."""
    if settings.oidc_issuer is None:
        return None
    if settings.oidc_client_id is None:
        raise SettingInvalid("POSTROOM_OIDC_CLIENT_ID", "is required with POSTROOM_OIDC_ISSUER")
    if not is_private_channel(settings.oidc_issuer):
        raise SettingInvalid("POSTROOM_OIDC_ISSUER", "must be an https URL, or an http URL on loopback")
    if any(value == _ANYONE for value, _role in settings.oidc_roles) and not settings.oidc_domains:
        raise SettingInvalid("POSTROOM_OIDC_DOMAINS", "is required with a role for * in POSTROOM_OIDC_ROLES")
    return OidcProvider(settings, secret, room=room)


def person_of(claims: Mapping[str, Any], settings: Settings) -> tuple[OidcIdentity, Role | None]:
    """The verified person, and the role that the settings map the claims to. Raises `OidcRefusedError`."""
    email, verified, subject = (claims.get(name) for name in ("email", "email_verified", "sub"))
    if not isinstance(email, str) or not (verified is True or verified == "true"):
        raise OidcRefusedError("The provider did not send a verified e-mail address.")
    if not isinstance(subject, str) or not 0 < len(subject) <= _LONGEST_SUBJECT:
        raise OidcRefusedError("The provider did not send a valid account id (claim sub).")
    if settings.oidc_domains and domain_of(email) not in settings.oidc_domains:
        raise OidcRefusedError(f"Addresses at {domain_of(email)} may not sign in here.")
    held = _values(claims, settings.oidc_role_claim)
    role = next((Role(role) for value, role in settings.oidc_roles if value in held), None)
    return OidcIdentity(email, str(claims.get("iss")), subject), role


def _values(claims: Mapping[str, Any], path: str) -> set[str]:
    """The values of a claim, such as `groups` or `realm_access.roles`; everyone has `*`."""
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
    listed = found if isinstance(found, list) else [found]
    return {_ANYONE, *(each for each in listed if isinstance(each, str) and each != _ANYONE)}


@asynccontextmanager
async def _exchange() -> AsyncIterator[Exchange]:
    exchange = Exchange(timeout_s=TIMEOUT_S, max_connections=1)
    try:
        yield exchange
    finally:
        await exchange.close()


async def _fetch(
    exchange: Exchange, url: str, *, headers: Mapping[str, str] | None = None, content: bytes = b""
) -> dict[str, Any]:
    """The JSON object at a URL. Raises `OidcRefusedError` unless the provider answers with one."""
    method = "POST" if content else "GET"
    answer = await exchange.ask(method, url, headers=headers or {"accept": "application/json"}, content=content)
    if not isinstance(answer, Answered) or not answer.is_success or not answer.json:
        raise OidcRefusedError(f"{urlsplit(url).hostname} cannot be reached, or refused the request.")
    return answer.json
