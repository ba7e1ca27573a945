"""Opens a connection that can take mail: connect, greeting, EHLO, TLS, login.

Each step returns None if the next may follow, or the `Reply` that ends the attempt. Stages: CONNECT up to and
including EHLO, TLS for everything about the channel, LOGIN for credentials.
"""

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from postroom.post.meaning import Hardness, meaning_of
from postroom.post.reply import RecipientReply, Reply, Stage
from postroom.transports.guard import AddressForbidden, GuardedResolver
from postroom.transports.smtp.answer import SmtpReply, clean_text
from postroom.transports.smtp.hint import parse_retry_hint
from postroom.transports.smtp.protocol import SmtpClientConnection, describe
from postroom.transports.smtp.relay import SmtpRelay

CONTINUE = 334  # challenge of AUTH (RFC 4954)
PERMANENT = 500  # the first code of permanent replies
MAX_COMMAND = 512  # RFC 5321 4.5.3.1.4, with its CRLF


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds (RFC 5321 4.5.3.2).

    The final one is the RFC's full ten minutes: a shorter one causes duplicates, because the server may still be
    storing the message.
    """

    connect: float = 30.0  # a host that is up answers within seconds; others are tried again later
    greeting: float = 60.0
    command: float = 60.0
    data: float = 120.0  # the go-ahead, and each block of content
    final: float = 600.0
    idle: float = 60.0  # how long an unused connection is kept


@dataclass(frozen=True, slots=True)
class ConnectionOpener:
    """The settings needed to open a connection to the relay."""

    relay: SmtpRelay
    local_name: str
    timeouts: Timeouts
    context: ssl.SSLContext | None
    guard: GuardedResolver | None = None  # None: the operator named the server, so any address is allowed

    async def open(self) -> SmtpClientConnection | Reply:
        """Return a connection ready for MAIL, or the reply that explains the failure."""
        connection = await self._connect()
        if isinstance(connection, Reply):
            return connection
        try:
            failure = await self._prepare(connection)
            if failure is not None:
                connection.quit()
                # Shielded: cancelling this task must not cancel the connection's own future.
                await asyncio.wait([connection.closed])
                return failure
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _connect(self) -> SmtpClientConnection | Reply:
        try:
            async with asyncio.timeout(self.timeouts.connect):
                return await self._connect_to_any(await self._addresses())
        except TimeoutError:
            return self._failed(Stage.CONNECT, f"no connection within {self.timeouts.connect:g} s")
        except AddressForbidden as error:
            return self._failed(Stage.CONNECT, str(error))
        except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
            return self._failed(Stage.CONNECT, describe(error))

    async def _addresses(self) -> list[str]:
        """The addresses to connect to; with a guard, only those it has checked, so that a name is resolved once."""
        if self.guard is None:
            return [self.relay.host]
        return [found["host"] for found in await self.guard.resolve(self.relay.host, self.relay.port)]

    async def _connect_to_any(self, hosts: list[str]) -> SmtpClientConnection:
        loop = asyncio.get_running_loop()
        for host in hosts:
            connection = SmtpClientConnection(loop)
            try:
                await loop.create_connection(partial(_itself, connection), host, self.relay.port)
            except OSError:
                if host is hosts[-1]:
                    raise
            else:
                return connection
        raise OSError("the host has no address")

    async def _prepare(self, connection: SmtpClientConnection) -> Reply | None:
        if self.relay.tls == "implicit" and (failure := await self._secure(connection)):
            return failure
        greeting = await connection.greeting(self.timeouts.greeting)
        if not (greeting and greeting[0].positive):
            return self._refused(Stage.CONNECT, greeting, connection)
        if failure := await self._hello(connection):
            return failure
        if self.relay.tls in {"starttls", "opportunistic"} and (failure := await self._start_tls(connection)):
            return failure
        return await self._login(connection) if self.relay.username is not None else None

    async def _hello(self, connection: SmtpClientConnection) -> Reply | None:
        connection.extensions = MappingProxyType({})
        answers = await self._ask(connection, f"EHLO {self.local_name}")
        if answers and answers[0].positive:
            connection.extensions = parse_extensions(answers[0])
            return None
        if answers and (answers[0].code or 0) >= PERMANENT:  # a server from before ESMTP
            answers = await self._ask(connection, f"HELO {self.local_name}")
            if answers and answers[0].positive:
                return None
        return self._refused(Stage.CONNECT, answers, connection)

    async def _start_tls(self, connection: SmtpClientConnection) -> Reply | None:
        optional = self.relay.tls == "opportunistic"
        if "STARTTLS" not in connection.extensions:
            return None if optional else self._failed(Stage.TLS, "STARTTLS is required and not offered")
        answers = await self._ask(connection, "STARTTLS")
        if not (answers and answers[0].positive):
            still_usable = optional and connection.trouble is None
            return None if still_usable else self._refused(Stage.TLS, answers, connection)
        # Extensions offered before TLS may be forged: discard them and send EHLO again (RFC 3207 4.2).
        return await self._secure(connection) or await self._hello(connection)

    async def _secure(self, connection: SmtpClientConnection) -> Reply | None:
        assert self.context is not None, "a relay with TLS comes with its context"
        await connection.secure(self.context, self.relay.host, self.timeouts.connect)
        return None if connection.trouble is None else self._refused(Stage.TLS, [], connection)

    async def _login(self, connection: SmtpClientConnection) -> Reply | None:
        if connection.tls is None and not self.relay.on_loopback:
            return self._failed(Stage.LOGIN, "credentials are not sent without TLS")
        mechanisms = connection.extensions.get("AUTH", "").upper().split()
        if "PLAIN" in mechanisms:
            answers = await self._login_plain(connection)
        elif "LOGIN" in mechanisms:
            answers = await self._login_login(connection)
        else:
            return self._failed(Stage.LOGIN, "neither AUTH PLAIN nor AUTH LOGIN is offered")
        if answers and answers[0].positive:
            return None
        return self._without_secrets(self._refused(Stage.LOGIN, answers, connection))

    async def _login_plain(self, connection: SmtpClientConnection) -> list[SmtpReply]:
        token = self._plain_token()
        command = f"AUTH PLAIN {token}"
        if len(command) + 2 <= MAX_COMMAND:
            return await self._ask(connection, command)
        return await self._dialogue(connection, "AUTH PLAIN", token)

    async def _login_login(self, connection: SmtpClientConnection) -> list[SmtpReply]:
        username, password = (_base64(text or "") for text in (self.relay.username, self.relay.password))
        return await self._dialogue(connection, "AUTH LOGIN", username, password)

    async def _dialogue(self, connection: SmtpClientConnection, *lines: str) -> list[SmtpReply]:
        answers: list[SmtpReply] = []
        for line in lines:
            answers = await self._ask(connection, line)
            if not answers or (line is not lines[-1] and answers[0].code != CONTINUE):
                break
        return answers

    async def _ask(self, connection: SmtpClientConnection, command: str) -> list[SmtpReply]:
        return await connection.ask(f"{command}\r\n".encode(), 1, self.timeouts.command)

    def _plain_token(self) -> str:
        return _base64(f"\0{self.relay.username}\0{self.relay.password}")

    def _without_secrets(self, reply: Reply) -> Reply:
        """Remove the credentials from a server's text, which may repeat them, before the ledger stores it."""
        text = reply.text
        for secret in (self.relay.password or "", _base64(self.relay.password or ""), self._plain_token()):
            text = text.replace(secret, "***") if secret else text
        return Reply(reply.stage, reply.code, reply.enhanced, text, reply.retry_after_s, reply.remote_host, reply.tls)

    def _refused(self, stage: Stage, answers: list[SmtpReply], connection: SmtpClientConnection) -> Reply:
        if not answers:
            return self._failed(stage, connection.trouble or "no answer", connection.tls)
        return answer_reply(stage, answers[0], remote_host=self.relay.address, tls=connection.tls)

    def _failed(self, stage: Stage, text: str, tls: str | None = None) -> Reply:
        return Reply(stage=stage, text=text, remote_host=self.relay.address, tls=tls)


def answer_reply(
    stage: Stage,
    answer: SmtpReply,
    *,
    remote_host: str,
    tls: str | None,
    recipients: tuple[RecipientReply, ...] = (),
) -> Reply:
    """The reply of the attempt if one negative answer decides it.

    A positive answer where only a negative one is valid (250 to DATA, 354 to MAIL) is not trusted: the reply has no
    code.
    """
    if not answer.negative:
        said = f"unexpected answer: {answer.code or ''} {answer.text}"
        text = clean_text(" ".join(said.split()))
        return Reply(stage=stage, text=text, remote_host=remote_host, tls=tls, recipients=recipients)
    text = answer.text
    is_later = meaning_of(stage, answer.code, answer.enhanced, text).hardness is Hardness.LATER
    return Reply(
        stage=stage,
        code=answer.code,
        enhanced=answer.enhanced,
        text=text,
        retry_after_s=parse_retry_hint(text) if is_later else None,
        remote_host=remote_host,
        tls=tls,
        recipients=recipients,
    )


def parse_extensions(answer: SmtpReply) -> Mapping[str, str]:
    """The keywords of an EHLO answer with their parameters; its first line is a greeting."""
    extensions: dict[str, str] = {}
    for line in answer.body[1:]:
        # Servers older than RFC 2554 write "AUTH=PLAIN LOGIN".
        keyword, _, parameters = line.replace("AUTH=", "AUTH ", 1).partition(" ")
        extensions[keyword.upper()] = f"{extensions.get(keyword.upper(), '')} {parameters}".strip()
    return MappingProxyType(extensions)


def _itself(connection: SmtpClientConnection) -> SmtpClientConnection:
    return connection


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode("ascii")
