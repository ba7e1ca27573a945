"""An SMTP server that accepts everything, counts it and throws it away.

It runs as its own process, so that its work is never charged to a client's event loop, and it parses as little as
the protocol allows: three command verbs by their first letter, the end of data by one search. It offers PIPELINING,
8BITMIME and SMTPUTF8 and never refuses a mail.

    with start_sink() as sink:    # with tls=True it also offers STARTTLS
        ...                       # deliver to 127.0.0.1:sink.port
        sink.counts()             # Counts(messages=…, recipients=…)

With `record=path` every accepted mail leaves one line (when, Message-ID, recipients), which `sink.recorded()` reads
back; `only="code-"` keeps just the mail whose first recipient starts so. The clock is CLOCK_MONOTONIC, which all
processes of one machine share. Two verbs of our own serve the handle: XCOUNT answers the counters, XRESET zeroes them.
"""

import argparse
import asyncio
import contextlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import uvloop

REPOSITORY = Path(__file__).resolve().parent.parent
END_OF_DATA = b"\r\n.\r\n"
GREETING = b"220 sink.invalid ESMTP\r\n"
CAPABILITIES = b"250-sink.invalid\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SIZE 67108864\r\n250 SMTPUTF8\r\n"
OK = b"250 2.0.0 OK\r\n"
GO_AHEAD = b"354 End data with <CR><LF>.<CR><LF>\r\n"
TLS_READY = b"220 2.0.0 Ready\r\n"
BYE = b"221 2.0.0 Bye\r\n"
UNKNOWN = b"500 5.5.2 Unknown command\r\n"
RECORDS_PER_WRITE = 512


@dataclass(frozen=True)
class Counts:
    messages: int
    recipients: int


@dataclass(frozen=True)
class Record:
    """One accepted mail: when the last byte was read (monotonic seconds), and for whom."""

    at: float
    message_id: str
    recipients: tuple[str, ...]


class Tally:
    """The messages and recipients accepted by all connections of the sink."""

    def __init__(self, record: Path | None, only: bytes) -> None:
        self.messages = 0
        self.recipients = 0
        self.only = only
        self._file = record.open("ab") if record else None
        self.recording = self._file is not None
        self._lines: list[bytes] = []

    def accept(self, recipients: list[bytes], data: bytes) -> None:
        self.messages += 1
        self.recipients += len(recipients)
        if self.recording and recipients and recipients[0].startswith(self.only):
            self._remember(recipients, data)

    def reset(self) -> None:
        self.messages = self.recipients = 0

    def flush(self) -> None:
        if self._file and self._lines:
            self._file.write(b"".join(self._lines))
            self._file.flush()
            self._lines.clear()

    def _remember(self, recipients: list[bytes], data: bytes) -> None:
        line = b"%d\t%s\t%s\n" % (time.monotonic_ns(), message_id_of(data), b" ".join(recipients))
        self._lines.append(line)
        if len(self._lines) >= RECORDS_PER_WRITE:
            self.flush()


def message_id_of(data: bytes) -> bytes:
    """The Message-ID header's value, or nothing when the mail has none."""
    headers = b"\r\n" + data.partition(b"\r\n\r\n")[0]
    start = headers.lower().find(b"\r\nmessage-id:")
    if start < 0:
        return b""
    value, _, rest = headers[start + len(b"\r\nmessage-id:") :].partition(b"\r\n")
    if not value.strip():  # folded: the value stands on the next line
        value = rest.partition(b"\r\n")[0]
    return value.strip()


def address_in(command: bytes) -> bytes:
    """The address between the angle brackets of MAIL FROM or RCPT TO."""
    return command[command.find(b"<") + 1 : command.rfind(b">")]


class SinkProtocol(asyncio.Protocol):
    """One connection. Commands are read line by line, data up to its closing dot."""

    def __init__(self, tally: Tally, tls: ssl.SSLContext | None) -> None:
        self._tally = tally
        self._tls = tls
        self._unread = b""
        self._in_data = False
        self._recipients: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(GREETING)
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self._unread = self._unread + data if self._unread else data
        replies: list[bytes] = []
        while self._unread:
            step = self._read_data if self._in_data else self._read_command
            if not step(replies):
                break
        if replies:
            self._transport.write(b"".join(replies))
        if replies and replies[-1] is BYE:
            self._transport.close()
        if replies and replies[-1] is TLS_READY:
            self._securing = self._loop.create_task(self._secure())

    async def _secure(self) -> None:
        assert self._tls
        secured = await self._loop.start_tls(self._transport, self, self._tls, server_side=True)
        assert secured
        self._transport, self._tls = secured, None

    def _read_command(self, replies: list[bytes]) -> bool:
        line, newline, rest = self._unread.partition(b"\r\n")
        if not newline:
            return False
        self._unread = rest
        replies.append(self._answer(line))
        return True

    def _answer(self, line: bytes) -> bytes:
        verb = line[:4].upper()
        if verb == b"RCPT":
            self._recipients.append(address_in(line))
            return OK
        if verb == b"MAIL":
            self._recipients = []
            return OK
        if verb == b"DATA":
            self._in_data = True
            return GO_AHEAD
        return self._answer_rare(verb)

    def _answer_rare(self, verb: bytes) -> bytes:
        if verb == b"XCOU":
            self._tally.flush()
            return b"250 %d %d\r\n" % (self._tally.messages, self._tally.recipients)
        if verb == b"XRES":
            self._tally.reset()
            return OK
        if verb == b"RSET":
            self._recipients = []
        capabilities = CAPABILITIES.replace(b"250 ", b"250-STARTTLS\r\n250 ") if self._tls else CAPABILITIES
        if verb == b"STAR" and self._tls:
            return TLS_READY
        replies = {b"EHLO": capabilities, b"HELO": OK, b"NOOP": OK, b"RSET": OK, b"QUIT": BYE}
        return replies.get(verb, UNKNOWN)

    def _read_data(self, replies: list[bytes]) -> bool:
        # An empty mail is a lone dot: there is no line break of its own before it.
        end = -2 if self._unread.startswith(b".\r\n") else self._unread.find(END_OF_DATA)
        if end == -1:
            return False
        self._tally.accept(self._recipients, self._unread[: max(end, 0)])
        self._unread = self._unread[end + len(END_OF_DATA) :]
        self._in_data = False
        replies.append(OK)
        return True


@dataclass(frozen=True)
class Sink:
    """A running sink, seen from the process that started it."""

    port: int
    record: Path | None = None
    authority: Path | None = None  # of its certificate, if it offers STARTTLS
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        tls = f"?tls=starttls&ca_file={self.authority}" if self.authority else ""
        return f"smtp://{self.host}:{self.port}{tls}"

    def counts(self) -> Counts:
        messages, recipients = self._ask(b"XCOUNT").split()
        return Counts(int(messages), int(recipients))

    def reset(self) -> None:
        """Zero the counters; what was recorded stays recorded."""
        self._ask(b"XRESET")

    def recorded(self) -> list[Record]:
        """Every recorded mail, oldest first."""
        assert self.record, "the sink was started without a record file"
        self.counts()  # makes the sink write what it still holds
        return [read_record(line) for line in self.record.read_text("utf-8").splitlines()]

    def _ask(self, verb: bytes) -> str:
        with socket.create_connection((self.host, self.port), timeout=30) as connection:
            lines = connection.makefile("rb")
            lines.readline()
            connection.sendall(verb + b"\r\n")
            return lines.readline().decode("ascii").removeprefix("250 ").strip()


def read_record(line: str) -> Record:
    nanoseconds, message_id, recipients = line.split("\t")
    return Record(int(nanoseconds) / 1e9, message_id, tuple(recipients.split()))


@contextlib.contextmanager
def start_sink(*, record: Path | None = None, only: str = "", tls: bool = False) -> Iterator[Sink]:
    """A sink process on a free port of the loopback interface, stopped at the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.sink", f"--only={only}"]
        authority = make_certificate(Path(folder)) if tls else None
        if authority:
            command.append(f"--certificate={folder}/server.pem")
        if record:
            record.touch()
            command.append(f"--record={record}")
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
            assert process.stdout
            try:
                yield Sink(int(process.stdout.readline()), record, authority)
            finally:
                process.terminate()


def make_certificate(folder: Path) -> Path:
    """Write the sink's certificate with its key; return the file of its authority."""
    import trustme  # only for TLS: cryptography takes a tenth of a second

    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    return folder / "authority.pem"


def server_context(certificate: Path | None) -> ssl.SSLContext | None:
    """The server's side of TLS."""
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def serve(tally: Tally, port: int, tls: ssl.SSLContext | None) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = await loop.create_server(lambda: SinkProtocol(tally, tls), "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await stopped.wait()
    server.close()
    tally.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sink", description="Accept, count and forget mail.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one and prints it")
    parser.add_argument("--record", type=Path, help="append one line per mail to this file")
    parser.add_argument("--only", default="", help="record only mail whose first recipient starts so")
    parser.add_argument("--certificate", type=Path, help="offer STARTTLS with the certificate and key in this file")
    options = parser.parse_args()
    tally = Tally(options.record, options.only.encode())
    uvloop.run(serve(tally, options.port, server_context(options.certificate)))


if __name__ == "__main__":
    main()
