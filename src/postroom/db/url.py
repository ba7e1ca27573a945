"""The database's URL: its hosts, its TLS, and its form for other programs.

A URL may name several hosts, `postgresql://a:5432,b:5433/app` or `postgresql:///app?host=a,b&port=5432,5433`; the first
one that accepts writes is used. TLS is verified like `sslmode=verify-full` unless the host is local or the URL has an
`sslmode` of its own.
"""

import ssl
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import SplitResult, parse_qsl, quote, unquote, unquote_plus, urlsplit

DEFAULT_PORT = 5432  # PostgreSQL's
VERIFY_FULL = "verify-full"
READ_WRITE = "read-write"


@dataclass(frozen=True, slots=True)
class Host:
    """One server of a URL: a name, an IP address or the directory of a Unix socket, and a port."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"

    @property
    def is_local(self) -> bool:
        """True for a Unix socket and for loopback."""
        if self.name.startswith("/") or self.name == "localhost":
            return True
        try:
            return ip_address(self.name).is_loopback
        except ValueError:
            return False


def joined(parts: SplitResult) -> str:
    """Join a split URL; the standard library omits `//` without a host, and PostgreSQL needs it."""
    return f"{parts.scheme}://{parts.netloc}{parts.path}" + (f"?{parts.query}" if parts.query else "")


def hosts_of(url: str) -> list[Host]:
    """Every host of a URL, in order; empty if it leaves the choice to the driver. `ValueError` for invalid ports."""
    parts = urlsplit(url)
    parameters = parameters_of(url)
    before_path = parts.netloc.rpartition("@")[2]
    entries = (
        before_path.split(",") if before_path else [name for name in parameters.get("host", "").split(",") if name]
    )
    named = [_name_and_port(entry, is_encoded=bool(before_path)) for entry in entries]
    listed = [int(port) for port in parameters.get("port", "").split(",") if port]
    if len(listed) > 1 and len(listed) != len(named):
        raise ValueError(f"it names {len(named)} hosts and {len(listed)} ports")
    spread = listed if len(listed) == len(named) else (listed or [DEFAULT_PORT]) * len(named)
    return [Host(name, port or other) for (name, port), other in zip(named, spread, strict=True)]


def parameters_of(url: str) -> dict[str, str]:
    """The query parameters; the last one of a repeated name."""
    return dict(parse_qsl(urlsplit(url).query))


def tls_mode(url: str, host: Host) -> str | None:
    """The `sslmode` of a connection to this host; None leaves a local host to the driver's default."""
    return parameters_of(url).get("sslmode") or (None if host.is_local else VERIFY_FULL)


def tls_context(url: str) -> ssl.SSLContext:
    """A context that verifies certificate and host name by `sslrootcert`, or by the system's authorities."""
    parameters = parameters_of(url)
    authority = parameters.get("sslrootcert", "system")
    context = ssl.create_default_context(cafile=None if authority == "system" else authority)
    context.set_alpn_protocols(["postgresql"])
    if certificate := parameters.get("sslcert"):
        context.load_cert_chain(certificate, parameters.get("sslkey"), parameters.get("sslpassword"))
    return context


def needs_tls(url: str) -> bool:
    """True if a program that opens this URL must support TLS."""
    return any(tls_mode(url, host) not in (None, "disable", "allow", "prefer") for host in hosts_of(url))


def for_programs(url: str) -> tuple[str, str | None]:
    """The address for psql, pg_dump and pg_restore, with the same choice of host and TLS as our own connections.

    The password is separate, for the environment: every user of the host can read a command line.
    """
    address, password = without_password(url)
    parameters, hosts = parameters_of(url), hosts_of(url)
    if len(hosts) > 1 and "target_session_attrs" not in parameters:
        address = with_parameter(address, "target_session_attrs", READ_WRITE)
    mode = parameters.get("sslmode") or (VERIFY_FULL if any(not host.is_local for host in hosts) else None)
    if mode is not None:
        address = with_parameter(address, "sslmode", mode)
    if mode == VERIFY_FULL and "sslrootcert" not in parameters:
        # libpq knows sslrootcert=system only since version 16.
        address = with_parameter(address, "sslrootcert", ssl.get_default_verify_paths().cafile or "system")
    return address, password


def user_of(url: str) -> str | None:
    """The user, before the host or among the parameters."""
    named = urlsplit(url).username
    return unquote(named) if named else parameters_of(url).get("user")


def without_parameters(url: str, names: Collection[str]) -> str:
    """The URL without these parameters."""
    parts = urlsplit(url)
    kept = [parameter for parameter in parts.query.split("&") if parameter and _name(parameter) not in names]
    return joined(parts._replace(query="&".join(kept)))


def with_parameter(url: str, name: str, value: str) -> str:
    """The URL with this parameter, replacing one of the same name."""
    parts = urlsplit(without_parameters(url, (name,)))
    others = [parts.query] if parts.query else []
    return joined(parts._replace(query="&".join([*others, f"{name}={quote(value, safe='')}"])))


def without_password(url: str) -> tuple[str, str | None]:
    """The address for a command line, which every user of the host can read, and the password or None.

    The password may be before the host or among the parameters; with both, the first is used, as by our driver.
    """
    parts = urlsplit(url)
    user, separator, host = parts.netloc.rpartition("@")
    parameters = [parameter for parameter in parts.query.split("&") if parameter]
    secret = [parameter for parameter in parameters if _name(parameter) == "password"]
    open_ones = "&".join(parameter for parameter in parameters if parameter not in secret)
    address = joined(parts._replace(netloc=f"{user.partition(':')[0]}{separator}{host}", query=open_ones))
    if parts.password:
        return address, unquote(parts.password)
    return address, unquote_plus(secret[-1].partition("=")[2]) if secret else None


def _name_and_port(entry: str, *, is_encoded: bool) -> tuple[str, int | None]:
    """Parse `host`, `host:5432`, `[::1]:5432` or a socket's directory, which is encoded before the path."""
    text = entry.strip()
    if text.startswith("["):
        name, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.startswith("/"):
        name, port = text, ""
    else:
        name, _, port = text.partition(":")
    return unquote(name) if is_encoded else name, int(port) if port else None


def _name(parameter: str) -> str:
    return unquote_plus(parameter.partition("=")[0])
