"""One connection of the submission server: the rules for keys, TLS and sizes."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from aiosmtpd.smtp import AuthResult, LoginPassword

from postroom.intake.smtp.handler import SubmissionHandler
from postroom.runtime.peers import LOOPBACK, is_within
from postroom.runtime.refusals import signed_in
from postroom.runtime.smtp_server import SmtpConnection, SmtpServer

MOST_AUTHS = 3  # per connection: slows guessing, allows a typing error
UNLIMITED = 10**9  # aiosmtpd requires a number; long sessions of a submitting program are normal
STRANGER_TIMEOUT_S = 60
"""Total time to authenticate; NOOP does not extend it."""
TIMEOUT_S = 300
"""Timeout between commands: five minutes, as RFC 5321 requires."""


_PLAIN_ADDRESS = re.compile(r"<([A-Za-z0-9._+=-]+@[A-Za-z0-9.-]+)>((?: .*)?)")


class SubmissionSession(SmtpConnection):
    """SMTP with one client. No mail command works before AUTH."""

    # Some clients compare the prompts with these texts.
    AuthLoginUsernameChallenge = "Username:"
    AuthLoginPasswordChallenge = "Password:"

    def __init__(self, handler: SubmissionHandler, server: SmtpServer) -> None:
        super().__init__(
            handler,
            server,
            timeout=STRANGER_TIMEOUT_S,
            auth_required=True,
            auth_require_tls=True,
            authenticator=_collect,
            command_call_limit={"AUTH": MOST_AUTHS, "*": UNLIMITED},
        )
        self._submissions = handler
        self._stranger: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self._stranger is None:  # STARTTLS calls connection_made a second time
            self._stranger = self.loop.call_later(STRANGER_TIMEOUT_S, self._leave_stranger)
        tls = transport.get_extra_info("ssl_object")
        # Loopback traffic cannot be intercepted.
        self._auth_require_tls = tls is None and not is_within(self.peer, LOOPBACK)
        if tls is not None and self.session is not None and self.session.ssl is None:
            self.session.ssl = {"ssl_object": tls}  # the library only detects TLS started by STARTTLS

    def connection_lost(self, error: Exception | None) -> None:
        if self._stranger is not None:
            self._stranger.cancel()
        super().connection_lost(error)

    def _leave_stranger(self) -> None:
        if isinstance(self.transport, asyncio.Transport):
            self.transport.write(b"421 4.4.2 Authenticate within %d seconds\r\n" % STRANGER_TIMEOUT_S)
            self.transport.close()

    async def smtp_AUTH(self, arg: str | None) -> None:  # noqa: N802 - the command's name
        """Accept mechanism names in any case (RFC 4422 writes them in capitals, some programs do not)."""
        mechanism, space, rest = (arg or "").partition(" ")
        await super().smtp_AUTH(f"{mechanism.upper()}{space}{rest}")

    async def auth_PLAIN(self, server: Any, args: list[str]) -> Any:  # noqa: N802 - the mechanism's name
        return await self._verify(await super().auth_PLAIN(server, args))

    async def auth_LOGIN(self, server: Any, args: list[str]) -> Any:  # noqa: N802 - the mechanism's name
        return await self._verify(await super().auth_LOGIN(server, args))

    def _getaddr(self, arg: str) -> tuple[str | None, str | None]:
        # A fast path for nearly every address; the standard library's full grammar is a hundred times slower.
        if (plain := _PLAIN_ADDRESS.fullmatch(arg)) is not None:
            return plain[1], plain[2]
        return super()._getaddr(arg)

    def _getparams(self, params: Sequence[str]) -> dict[str, str | bool] | None:
        # Authenticated relays add AUTH=<> to every sender (RFC 4954): ignored.
        found = super()._getparams(params)
        return found and {name: value for name, value in found.items() if name != "AUTH"}

    async def _verify(self, collected: Any) -> Any:
        """Collect the credentials only: the library wants a synchronous result, and checking a key is asynchronous."""
        words = collected.auth_data
        if not isinstance(words, LoginPassword):
            return collected
        user, key = (word.decode("utf-8", "replace") for word in (words.login, words.password))
        found = await self._submissions.verify(user, key, self.peer)
        if isinstance(found, str):
            return AuthResult(success=False, handled=False, message=found)
        self._timeout_duration = TIMEOUT_S
        self._reset_timeout()
        if self._stranger is not None:
            self._stranger.cancel()
        signed_in("smtp")
        return AuthResult(success=True, auth_data=found)


def _collect(_server: Any, _session: Any, _envelope: Any, _mechanism: str, words: LoginPassword) -> Any:
    return AuthResult(success=False, handled=False, auth_data=words)
