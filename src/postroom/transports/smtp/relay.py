"""The relay: its server and the protection of the channel to it.

    smtp://user:password@mail.example.org:587     STARTTLS required, certificate and host name verified
    smtps://user:password@mail.example.org:465    TLS from the first byte, verified
    smtp://127.0.0.1:1025                         loopback: TLS if offered, nothing verified

Parameters: `tls=starttls|opportunistic|none`, `verify=yes|no`, `ca_file=/path/to/authorities.pem`.

HOSTILE INPUT  the URL may be mistyped anywhere, so no error message repeats any part of it: text that looks
like a port may be half a password.
"""

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

TlsMode = Literal["starttls", "implicit", "none", "opportunistic"]

DEFAULT_PORTS = {"smtp": 587, "smtps": 465}
PARAMETERS = frozenset({"tls", "verify", "ca_file"})


@dataclass(frozen=True, slots=True)
class SmtpRelay:
    """One mail server. The password is never part of a representation."""

    host: str
    port: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TlsMode = "starttls"
    verify: bool = True
    ca_file: Path | None = None

    @property
    def address(self) -> str:
        """`host:port`, for display."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def on_loopback(self) -> bool:
        return is_loopback(self.host)

    @classmethod
    def parse(cls, url: str) -> "SmtpRelay":
        """Parse a relay URL; ValueError names the problem without repeating the input."""
        parts = _split(url)
        parameters = _parameters(parts.query)
        host = parts.hostname or ""
        tls = _tls_mode(parts.scheme, host, parameters.get("tls"))
        relay = cls(
            host=host,
            port=parts.port or DEFAULT_PORTS[parts.scheme],
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            tls=tls,
            verify=_verify(tls, parameters.get("verify")),
            ca_file=Path(parameters["ca_file"]) if "ca_file" in parameters else None,
        )
        _check_credentials(relay)
        return relay


def is_loopback(host: str) -> bool:
    """True if traffic to this host stays on the machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # urllib's own message quotes the invalid text.
        raise ValueError("not a URL: write reserved characters of the password as %XX") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError("the scheme must be smtp:// or smtps://")
    if not parts.hostname:
        raise ValueError("a host is missing")
    if port == 0:
        raise ValueError("the port must be between 1 and 65535")
    if parts.path not in {"", "/"} or parts.fragment:
        raise ValueError("nothing but ?parameters may follow the host: write / and # in a password as %2F and %23")
    return parts


def _parameters(query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    parameters = dict(pairs)
    if len(parameters) != len(pairs):
        raise ValueError("a parameter is given twice")
    if not parameters.keys() <= PARAMETERS:
        raise ValueError(f"unknown parameter; there are {', '.join(sorted(PARAMETERS))}")
    if parameters.get("ca_file") == "":
        raise ValueError("ca_file must be a path")
    return parameters


def _tls_mode(scheme: str, host: str, asked: str | None) -> TlsMode:
    if scheme == "smtps":
        if asked not in {None, "implicit"}:
            raise ValueError("smtps:// is TLS from the first byte; use smtp:// for another tls mode")
        return "implicit"
    if asked is None:
        return "opportunistic" if is_loopback(host) else "starttls"
    for mode in get_args(TlsMode):
        if asked == mode and mode != "implicit":
            return mode  # type: ignore[no-any-return]  # get_args loses the literal types
    raise ValueError("tls must be starttls, opportunistic or none (smtps:// for TLS from the first byte)")


def _verify(tls: TlsMode, asked: str | None) -> bool:
    if asked is None:
        # Verification adds nothing on a relay that also accepts no TLS.
        return tls in {"starttls", "implicit"}
    if asked not in {"yes", "no"}:
        raise ValueError("verify must be yes or no")
    return asked == "yes"


def _check_credentials(relay: SmtpRelay) -> None:
    if (relay.username is None) != (relay.password is None):
        raise ValueError("give both user name and password, or neither")
    if relay.username is not None and relay.tls == "none" and not relay.on_loopback:
        raise ValueError("credentials are never sent without TLS; remove tls=none or the credentials")
