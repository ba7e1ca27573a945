"""Creation of the transport of an account."""

from collections.abc import Callable
from dataclasses import dataclass, field

from postroom.post.reply import Content, Envelope, Reply, Stage
from postroom.senders.credentials import Credentials
from postroom.senders.model import SenderAccount, SmtpCredentials
from postroom.transports.base import Transport
from postroom.transports.gmail import GmailCredentials, GmailTransport
from postroom.transports.gmail.transport import BASE_URL as GMAIL_BASE_URL
from postroom.transports.guard import GuardedResolver
from postroom.transports.ses import SesTransport
from postroom.transports.smtp import SmtpRelay, SmtpTransport, Timeouts
from postroom.transports.smtp.relay import TlsMode, is_loopback

TransportFactory = Callable[[SenderAccount, Credentials], Transport]

IMPLICIT_TLS_PORT = 465  # RFC 8314


class UnusableTransport:
    """Replaces the transport of an account that cannot be used here; every send returns the reason.

    The reply asks for a pause and not for a suspension: the fault may be on this host, for example a wrong key.
    """

    name = "unusable"

    def __init__(self, problem: str) -> None:
        self._problem = problem

    async def send(self, _envelope: Envelope, _content: Content) -> Reply:
        return Reply(Stage.CONNECT, 421, "4.3.5", self._problem)

    async def close(self) -> None:
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAddresses:
    """Connection settings of the providers; addresses are configurable so that a local server can replace them."""

    local_name: str = "localhost"
    connections: int = 10  # per account and lane
    timeouts: Timeouts = field(default_factory=Timeouts)
    gmail_base_url: str | None = None
    ses_endpoint_url: str | None = None
    allow_private: bool = False  # accounts may name servers on loopback and in private networks

    def __call__(self, account: SenderAccount, credentials: Credentials) -> Transport:
        """Create a transport; the `TransportFactory` protocol."""
        if isinstance(credentials, SmtpCredentials):
            return SmtpTransport(
                relay_of(account, credentials),
                local_name=self.local_name,
                max_connections=self.connections,
                timeouts=self.timeouts,
                guard=host_guard(allow_private=self.allow_private),
            )
        if isinstance(credentials, GmailCredentials):
            credentials.check_token_uri(self.gmail_base_url)
            subject = account.gmail_subject_email or account.email
            base_url = self.gmail_base_url or GMAIL_BASE_URL
            return GmailTransport(credentials, subject=subject, base_url=base_url, max_connections=self.connections)
        return SesTransport(
            credentials,
            region=account.ses_region or "",
            endpoint_url=self.ses_endpoint_url,
            max_connections=self.connections,
        )


def host_guard(*, allow_private: bool) -> GuardedResolver:
    """The guard for the servers of accounts: an API key that manages accounts must not reach the private network."""
    return GuardedResolver(allow_private=allow_private, setting="POSTROOM_SENDERS_ALLOW_PRIVATE")


def relay_of(account: SenderAccount, credentials: SmtpCredentials) -> SmtpRelay:
    """The server of an account. TLS is required and verified; on loopback it is used if offered."""
    host, port = account.smtp_host or "", account.smtp_port or 0
    return SmtpRelay(
        host,
        port,
        username=account.smtp_username,
        password=credentials.password,
        tls=_tls_mode(host, port, use_tls=account.smtp_use_tls),
        verify=account.smtp_use_tls and not is_loopback(host),
    )


def _tls_mode(host: str, port: int, *, use_tls: bool) -> TlsMode:
    if not use_tls:
        return "none"
    if is_loopback(host) and port != IMPLICIT_TLS_PORT:
        return "opportunistic"
    return "implicit" if port == IMPLICIT_TLS_PORT else "starttls"
