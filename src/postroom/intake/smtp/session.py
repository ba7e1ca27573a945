"""One connection: aiosmtpd's protocol with our rules about keys, TLS and sizes."""

import asyncio
import ipaddress
import ssl
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from postroom.intake.smtp.handler import SubmissionHandler

COMMAND_LIMIT = 2048
MOST_AUTHS = 3
UNLIMITED = 10**9
TIMEOUT_S = 300
"""RFC 5321 asks for five minutes between commands."""


class SubmissionSession(SMTP):
    """Speaks SMTP with one client. No command that names mail works before AUTH."""

    # RFC 5321 allows 1000 octets; programs that write HTML in one line do not care, and we compose anew anyway.
    line_length_limit = 1024 * 1024
    # What clients that compare the prompts expect to see.
    AuthLoginUsernameChallenge = "Username:"
    AuthLoginPasswordChallenge = "Password:"

    def __init__(
        self,
        handler: SubmissionHandler,
        *,
        hostname: str,
        size_limit: int,
        tls: ssl.SSLContext | None,
        opened: Callable[["SubmissionSession"], bool],
        closed: Callable[["SubmissionSession"], None],
    ) -> None:
        super().__init__(
            handler,
            data_size_limit=size_limit,
            enable_SMTPUTF8=True,
            hostname=hostname,
            ident="Postroom",
            tls_context=tls,
            timeout=TIMEOUT_S,
            auth_required=True,
            auth_require_tls=True,
            authenticator=_collect,
            command_call_limit={"AUTH": MOST_AUTHS, "*": UNLIMITED},
            loop=asyncio.get_running_loop(),
        )
        self._submissions, self._opened, self._closed_callback = handler, opened, closed
        # aiosmtpd keeps these in the class, shared and reset by every connection.
        self.command_size_limits = defaultdict(lambda: COMMAND_LIMIT)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._auth_require_tls = not _is_local(transport.get_extra_info("peername"))

    async def _handle_client(self) -> None:
        if not self._opened(self):
            await self.dismiss("421 4.3.2 Too many connections, please try again later")
            return
        try:
            await super()._handle_client()
        finally:
            self._closed_callback(self)

    async def dismiss(self, answer: str) -> None:
        """Say why and hang up."""
        if self.transport is not None:
            await self.push(answer)
            self.transport.close()

    async def push(self, status: Any) -> None:
        # The server's own refusals of large messages, with the code that programs look for.
        if isinstance(status, str) and status.startswith("552 Error:"):
            status = status.replace("552 Error:", "552 5.3.4", 1)
        await super().push(status)

    async def smtp_AUTH(self, arg: str | None) -> None:  # noqa: N802 - the command's name
        """Mechanisms are known in any case (RFC 4422 writes them in capitals, some programs do not)."""
        mechanism, space, rest = (arg or "").partition(" ")
        await super().smtp_AUTH(f"{mechanism.upper()}{space}{rest}")

    async def auth_PLAIN(self, server: Any, args: list[str]) -> Any:  # noqa: N802 - the mechanism's name
        return await self._verify(await super().auth_PLAIN(server, args))

    async def auth_LOGIN(self, server: Any, args: list[str]) -> Any:  # noqa: N802 - the mechanism's name
        return await self._verify(await super().auth_LOGIN(server, args))

    async def _verify(self, collected: Any) -> Any:
        """The library asks for a verdict at once; ours needs the database, so the words are collected first."""
        words = collected.auth_data
        if not isinstance(words, LoginPassword):
            return collected
        found = await self._submissions.verify(words.password.decode("utf-8", "replace"))
        if isinstance(found, str):
            return AuthResult(success=False, handled=False, message=found)
        return AuthResult(success=True, auth_data=found)


def _collect(_server: Any, _session: Any, _envelope: Any, _mechanism: str, words: LoginPassword) -> Any:
    return AuthResult(success=False, handled=False, auth_data=words)


def _is_local(peer: Any) -> bool:
    """True if the client runs on this host, so that nobody can listen in."""
    if not isinstance(peer, tuple):
        return True  # a local socket has no address
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
