"""A real SMTP server on loopback that follows a test's script and records everything it receives.

    async with smtp_server(Script(says={"RCPT b@example.org": "550 5.1.1 unknown"})) as server:
        ...                          # send to 127.0.0.1:server.port
        server.messages              # what was accepted
        server.visits                # one per connection: its commands and the chunks they arrived in

A script answers by key: `connect`, a verb (`EHLO`, `MAIL`, `DATA` …), `RCPT <address>`, `content` (while
content is still arriving) and `.` (after it). An answer is a line to say (several for a multi-line reply,
raw bytes for junk), or an act: `DROP` the connection, stay `SILENT`, `Hold` until the test lets go. A list
is used up answer by answer; after it, and without a key, the server behaves well.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from tests.support.silence import LONG_S, let_pass, settle

from postroom.post.reply import Envelope
from postroom.transports.smtp import SmtpRelay, SmtpTransport, Timeouts

ALL_EXTENSIONS = ("PIPELINING", "SIZE 10000000", "8BITMIME", "SMTPUTF8", "DSN", "ENHANCEDSTATUSCODES")
WITHOUT_PIPELINING = ALL_EXTENSIONS[1:]


class Act:
    """An action of the server instead of an answer."""


@dataclass(frozen=True)
class Drop(Act):
    """Close the connection without an answer; with `resets`, as a server that crashes."""

    resets: bool = False


class Silent(Act):
    """Never answer, until the client times out; time passes at once."""


DROP = Drop()
RESET = Drop(resets=True)
SILENT = Silent()


@dataclass
class Hold(Act):
    """Announce that the step was reached and wait for the test before saying `then`."""

    then: "str | Act" = "250 2.0.0 OK"
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class ThenDrop(Act):
    """Answer and close."""

    line: str


@dataclass(frozen=True)
class ThenSay(Act):
    """Answer, and add unsolicited bytes in the same write."""

    line: str
    more: bytes


Said = str | bytes | Act
Says = Mapping[str, Said | list[Said]]


@dataclass
class Script:
    """The behaviour of the server."""

    says: Says = field(default_factory=dict)
    extensions: tuple[str, ...] = ALL_EXTENSIONS
    tls: ssl.SSLContext | None = None  # offers STARTTLS with this certificate
    implicit_tls: bool = False
    users: Mapping[str, str] | None = None  # requires AUTH as one of them
    mechanisms: str = "PLAIN LOGIN"
    challenge: str | None = None  # said instead of the first challenge of a login
    receive_buffer: int | None = None  # bytes; small, so that content cannot leave while the server does not read


@dataclass(frozen=True)
class Message:
    """One accepted message."""

    sender: str
    parameters: tuple[str, ...]
    recipients: tuple[str, ...]
    content: bytes
    tls: bool
    user: str | None
    at: float = field(default_factory=time.time)


@dataclass
class Visit:
    """One connection, from greeting to end."""

    commands: list[str] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    hang_up: Callable[[], None] = lambda: None  # closes the connection from the server's side


class _Gone(Exception):  # noqa: N818 - not an error: the way out of a visit
    """The connection is over."""


class Server:
    """A running server, as the test sees it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.port = 0
        self.visits: list[Visit] = []
        self.messages: list[Message] = []
        self.taken: list[Message] = []  # received whole, whatever was answered
        self.open_now = 0
        self.open_at_most = 0
        self._used: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def commands(self) -> list[str]:
        """All received commands, connection by connection."""
        return [command for visit in self.visits for command in visit.commands]

    def next_saying(self, *keys: str) -> Said | None:
        """The scripted answer for the first key that has one left."""
        for key in keys:
            scripted = self.script.says.get(key)
            if not isinstance(scripted, list):
                if scripted is not None:
                    return scripted
                continue
            used = self._used.get(key, 0)
            if used < len(scripted):
                self._used[key] = used + 1
                return scripted[used]
        return None

    def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Start a visit. Not a coroutine, so that a visit is registered before it starts."""
        task = asyncio.get_running_loop().create_task(self._visit(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit(hang_up=writer.close)
        self.visits.append(visit)
        self.open_now += 1
        self.open_at_most = max(self.open_at_most, self.open_now)
        try:
            with contextlib.suppress(_Gone, ConnectionError, ssl.SSLError):
                await self.converse(visit, reader, writer)
        finally:
            self.open_now -= 1
            writer.transport.abort()
            visit.closed.set()

    async def converse(self, visit: Visit, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hold the conversation of one connection."""
        await Dialogue(self, visit, reader, writer).run()

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Dialogue:
    """One connection's conversation."""

    def __init__(
        self, server: Server, visit: Visit, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._script = server.script
        self._visit = visit
        self._reader = reader
        self._writer = writer
        self._unread = b""
        self._tls = server.script.implicit_tls
        self._user: str | None = None
        self._sender: str | None = None
        self._parameters: tuple[str, ...] = ()
        self._recipients: list[str] = []

    async def run(self) -> None:
        await self._say("220 scripted ESMTP", "connect")
        while True:
            command = (await self._read_until(b"\r\n")).decode()
            self._visit.commands.append(command)
            await self._obey(command)

    async def _obey(self, command: str) -> None:
        verb = command.split(" ", maxsplit=1)[0].upper()
        step = {
            "EHLO": self._ehlo,
            "STARTTLS": self._starttls,
            "AUTH": self._auth,
            "MAIL": self._mail,
            "RCPT": self._rcpt,
            "DATA": self._data,
            "QUIT": self._quit,
        }.get(verb)
        if step is not None:
            await step(command)
            return
        if verb == "RSET":
            self._sender, self._recipients = None, []
        await self._say("250 2.0.0 OK", verb)

    async def _ehlo(self, _: str) -> None:
        offers = [*self._script.extensions]
        if self._script.tls is not None and not self._tls:
            offers.append("STARTTLS")
        if self._script.users is not None:
            offers.append(f"AUTH {self._script.mechanisms}")
        lines = ["scripted", *offers]
        whole = "\r\n".join([*(f"250-{line}" for line in lines[:-1]), f"250 {lines[-1]}"])
        await self._say(whole, "EHLO")

    async def _starttls(self, _: str) -> None:
        if not (await self._say("220 2.0.0 go ahead", "STARTTLS")).startswith("2"):
            return
        assert self._script.tls is not None
        self._unread = b""
        await self._writer.start_tls(self._script.tls)
        self._tls = True

    async def _auth(self, command: str) -> None:
        _, mechanism, *initial = command.split(" ")
        if self._script.challenge is not None:
            await self._write(self._script.challenge)
            return
        if mechanism.upper() == "PLAIN":
            token = initial[0] if initial else await self._challenge("")
            _, user, password = b64decode(token).decode().split("\0")
        else:
            user = b64decode(await self._challenge("VXNlcm5hbWU6")).decode()
            password = b64decode(await self._challenge("UGFzc3dvcmQ6")).decode()
        right = (self._script.users or {}).get(user) == password
        said = await self._say("235 2.7.0 welcome" if right else "535 5.7.8 wrong credentials", "AUTH")
        self._user = user if said.startswith("2") else None

    async def _challenge(self, text: str) -> str:
        await self._write(f"334 {text}")
        return (await self._read_until(b"\r\n")).decode()

    async def _mail(self, command: str) -> None:
        if self._script.users is not None and self._user is None:
            await self._say("530 5.7.0 authentication required")
            return
        if (await self._say("250 2.1.0 OK", "MAIL")).startswith("2"):
            path, *parameters = command[len("MAIL FROM:") :].split(" ")
            self._sender, self._parameters, self._recipients = path.strip("<>"), tuple(parameters), []

    async def _rcpt(self, command: str) -> None:
        address = command[len("RCPT TO:") :].lstrip("<").partition(">")[0]  # parameters may follow
        well = "250 2.1.5 OK" if self._sender is not None else "503 5.5.1 MAIL first"
        if (await self._say(well, f"RCPT {address}", "RCPT")).startswith("2"):
            self._recipients.append(address)

    async def _data(self, _: str) -> None:
        well = "354 go on" if self._recipients else "554 5.5.1 no valid recipients"
        if not (await self._say(well, "DATA")).startswith("3"):
            return
        during = self._server.next_saying("content")
        if during is not None:
            await self._act(during)
        message = self._message(await self._content())
        self._server.taken.append(message)
        if (await self._say("250 2.0.0 queued", ".")).startswith("2"):
            self._server.messages.append(message)
        self._sender, self._recipients = None, []

    def _message(self, content: bytes) -> Message:
        recipients = tuple(self._recipients)
        return Message(self._sender or "", self._parameters, recipients, content, self._tls, self._user)

    async def _quit(self, _: str) -> None:
        await self._say("221 2.0.0 bye", "QUIT")
        await self._writer.drain()
        raise _Gone

    async def _content(self) -> bytes:
        """Read up to the lone dot, taking doubled dots back."""
        received, searched = bytearray(b"\r\n" + self._unread), 0
        while (end := received.find(b"\r\n.\r\n", searched)) < 0:
            searched = max(len(received) - 4, 0)
            received += await self._chunk()
        self._unread = bytes(received[end + 5 :])
        return bytes(received[2 : end + 2]).replace(b"\r\n..", b"\r\n.")

    async def _say(self, well: str, *keys: str) -> str:
        """Answer as scripted, or positively; return the line that was sent."""
        said = self._server.next_saying(*keys)
        return await self._act(well if said is None else said)

    async def _act(self, said: Said) -> str:
        if isinstance(said, str):
            return await self._write(said)
        if isinstance(said, bytes):
            self._writer.write(said)
            return ""
        if isinstance(said, Hold):
            said.reached.set()
            await said.go.wait()
            return await self._act(said.then)
        return await self._misbehave(said)

    async def _misbehave(self, act: Act) -> str:
        if isinstance(act, ThenSay):
            self._writer.write(act.line.encode() + b"\r\n" + act.more)
            return act.line
        if isinstance(act, Silent):
            await settle()
            if not self._reader.at_eof():  # a client that left needs no timeout, and others on this loop may
                let_pass(LONG_S)
            while await self._reader.read(65_536):
                pass
            raise _Gone
        if isinstance(act, ThenDrop):
            await self._write(act.line)
        if act == RESET:
            linger = struct.pack("ii", 1, 0)  # closing sends RST
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._writer.transport.abort()
        self._writer.close()
        raise _Gone

    async def _write(self, line: str) -> str:
        self._writer.write(f"{line}\r\n".encode())
        return line

    async def _read_until(self, end: bytes) -> bytes:
        while end not in self._unread:
            self._unread += await self._chunk()
        found, _, self._unread = self._unread.partition(end)
        return found

    async def _chunk(self) -> bytes:
        chunk = await self._reader.read(65_536)
        if not chunk:
            raise _Gone
        self._visit.chunks.append(chunk)
        return chunk


@contextlib.asynccontextmanager
async def smtp_server(
    script: Script | None = None, kind: Callable[[Script], Server] = Server, *, port: int = 0
) -> AsyncIterator[Server]:
    """Run a server for the length of the block, on any port unless one is given."""
    server = kind(script or Script())
    context = server.script.tls if server.script.implicit_tls else None
    listener = await asyncio.start_server(server.welcome, "127.0.0.1", port, ssl=context)
    if server.script.receive_buffer is not None:
        # Connections inherit the listener's buffer, which must be set before they are made.
        listener.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, server.script.receive_buffer)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        await server.stop()
        await listener.wait_closed()


@dataclass(frozen=True)
class Letter:
    """Content for a transport: `plain` for any server, `eight_bit` for those that take every byte."""

    plain: bytes = b"Subject: hello\r\n\r\nhow are you?\r\n"
    eight_bit: bytes | None = None

    def encode(self, *, eight_bit: bool) -> bytes:
        return self.eight_bit if eight_bit and self.eight_bit is not None else self.plain


def envelope(*recipients: str, sender: str = "from@example.org", delivery_id: int = 7) -> Envelope:
    """An envelope to these recipients, or to one."""
    return Envelope(delivery_id, f"<{delivery_id}@example.org>", sender, recipients or ("a@example.org",))


@contextlib.asynccontextmanager
async def transport_to(
    server: Server,
    *,
    relay: SmtpRelay | None = None,
    timeouts: Timeouts | None = None,
    max_connections: int = 20,
    messages_per_connection: int = 1000,
    is_quick: bool = False,
) -> AsyncIterator[SmtpTransport]:
    """A transport to the server, closed after the block; `is_quick`: it has seen the server answer quickly."""
    transport = SmtpTransport(
        relay or SmtpRelay("127.0.0.1", server.port, tls="none"),
        max_connections=max_connections,
        messages_per_connection=messages_per_connection,
        timeouts=timeouts or Timeouts(connect=60),
    )
    if is_quick:
        transport.pace.answer_s = 0.0
    try:
        yield transport
    finally:
        await transport.close()
