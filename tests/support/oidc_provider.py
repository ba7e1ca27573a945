"""An OpenID Connect provider on loopback: Authlib's server with PKCE and nonce required, behind werkzeug."""

import base64
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import flask
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import AuthorizationCodeGrant, ClientMixin
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import AuthorizationCodeMixin, OpenIDCode
from joserfc.jwk import ECKey, RSAKey
from werkzeug.serving import WSGIRequestHandler, make_server

CLIENT_ID, CLIENT_SECRET = "postroom", "a secret with / and :"
ADA = {"sub": "248289761001", "email": "ada@example.org", "email_verified": True, "groups": ["staff", "mail-admins"]}


@dataclass(slots=True)
class Provider:
    """The provider: who signs in there, and what it says about them. Claims of the person replace its own."""

    url: str = ""
    person: Mapping[str, Any] = field(default_factory=lambda: dict(ADA))
    alg: str = "RS256"
    is_signed: bool = True
    is_key_published: bool = True
    asks_first: bool = False  # a page of the provider before it sends the browser back
    keys: dict[str, Any] = field(
        default_factory=lambda: {
            "RS256": RSAKey.generate_key(2048, {"kid": "one", "use": "sig"}),
            "ES256": ECKey.generate_key("P-256", {"kid": "two", "use": "sig"}),
        }
    )
    codes: dict[str, "_Code"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Code(AuthorizationCodeMixin):  # type: ignore[misc]  # Authlib is shipped without type information
    redirect_uri: str
    scope: str
    nonce: str
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str:
        return self.nonce

    def get_auth_time(self) -> int:
        return int(time.time())


class _Client(ClientMixin):  # type: ignore[misc]  # as above
    def get_client_id(self) -> str:
        return CLIENT_ID

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri.endswith("/sign-in/oidc/callback")

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == CLIENT_SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


def _grant(provider: Provider) -> type:
    class Grant(AuthorizationCodeGrant):  # type: ignore[misc]  # as above
        def save_authorization_code(self, code: str, request: Any) -> None:
            asked = request.payload.data
            names = ("redirect_uri", "scope", "nonce", "code_challenge", "code_challenge_method")
            provider.codes[code] = _Code(*(asked[name] for name in names))

        def query_authorization_code(self, code: str, client: _Client) -> _Code | None:
            return provider.codes.get(code)

        def delete_authorization_code(self, authorization_code: _Code) -> None:
            provider.codes = {code: kept for code, kept in provider.codes.items() if kept is not authorization_code}

        def authenticate_user(self, authorization_code: _Code) -> Mapping[str, Any]:
            return provider.person

    return Grant


class _IdTokens(OpenIDCode):  # type: ignore[misc]  # as above
    def __init__(self, provider: Provider) -> None:
        super().__init__(require_nonce=True)
        self._provider = provider

    def exists_nonce(self, nonce: str, request: Any) -> bool:
        return any(code.nonce == nonce for code in self._provider.codes.values())

    def get_client_algorithm(self, client: _Client) -> str:
        return self._provider.alg if self._provider.is_signed else "RS256"

    def get_encode_header(self, client: _Client) -> dict[str, str]:
        alg = self.get_client_algorithm(client)
        return {"alg": alg, "kid": self._provider.keys[alg].kid}

    def resolve_client_private_key(self, client: _Client) -> Any:
        return self._provider.keys[self.get_client_algorithm(client)]

    def encode_id_token(self, token: Mapping[str, Any], request: Any) -> str:
        encoded: str = super().encode_id_token(token, request)
        if self._provider.is_signed:
            return encoded
        header = base64.urlsafe_b64encode(f'{{"alg":"{self._provider.alg}"}}'.encode()).decode().rstrip("=")
        return f"{header}.{encoded.split('.')[1]}."

    def get_client_claims(self, client: _Client) -> dict[str, Any]:
        now = int(time.time())
        return {"iss": self._provider.url, "aud": [CLIENT_ID], "iat": now, "exp": now + 300}

    def generate_user_info(self, user: Mapping[str, Any], scope: str) -> Mapping[str, Any]:
        return user


def _app(provider: Provider) -> flask.Flask:
    app = flask.Flask("provider")
    server = AuthorizationServer(
        app,
        query_client=lambda client_id: _Client() if client_id == CLIENT_ID else None,
        save_token=lambda _token, _request: None,
    )
    server.register_grant(_grant(provider), [_IdTokens(provider), CodeChallenge(required=True)])

    @app.get("/.well-known/openid-configuration")
    def discover() -> Any:
        paths = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        return {"issuer": provider.url, **{name: f"{provider.url}/{path}" for name, path in paths.items()}}

    @app.get("/keys")
    def keys() -> Any:
        shown = provider.keys.values() if provider.is_key_published else ()
        return {"keys": [key.as_dict(private=False) for key in shown]}

    @app.get("/authorize")
    def authorize() -> Any:
        if provider.asks_first and "agreed" not in flask.request.args:
            return flask.render_template_string('<a href="{{ request.full_path }}&agreed=1">Agree</a>')
        grant = server.get_consent_grant(end_user=provider.person)
        return server.create_authorization_response(grant_user=provider.person, grant=grant)

    @app.post("/token")
    def token() -> Any:
        return server.create_token_response()

    return app


class _QuietHandler(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Keep addresses with codes out of the output that tests search for them."""


@contextmanager
def running_provider() -> Iterator[Provider]:
    """A provider on a free port of loopback, at which its person is signed in already."""
    provider = Provider()
    server = make_server("127.0.0.1", 0, _app(provider), threaded=True, request_handler=_QuietHandler)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
