"""The settings of http, read from the environment by `postroom.settings`."""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from urllib.parse import urlsplit

from postroom.runtime.setting import http_url, parse_address, positive, setting


def _networks(value: str) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(ip_network(part.strip()) for part in value.split(","))
    except ValueError as error:
        raise ValueError(f"must be addresses or networks such as 10.0.0.0/8: {error}") from None


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    http_addr: tuple[str, int] = setting(parse_address, ("127.0.0.1", 8025), "address where the HTTP server listens")
    public_url: str | None = setting(
        http_url,
        None,
        "public URL of the HTTP server, for links in mail; with many rooms, {room} is the place of a room's name",
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = setting(
        _networks, (), "networks of proxies whose X-Forwarded-For is trusted, separated by commas"
    )
    max_body_mb: int = setting(positive, 35, "largest request body, in megabytes")
    http_connections: int = setting(positive, 800, "most open HTTP connections per process")
    connections_per_peer: int = setting(
        positive,
        100,
        "most open connections from one address, for HTTP and for SMTP submission; "
        "the local host and POSTROOM_TRUSTED_PROXIES have no limit",
    )

    @property
    def base_url(self) -> str:
        """The public URL; without one, the address where the HTTP server listens."""
        host, port = self.http_addr
        return self.public_url or f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def url_path(self) -> str:
        """The path of the public URL, which a proxy or the process itself removes from requests; often empty."""
        return urlsplit(self.public_url or "").path
