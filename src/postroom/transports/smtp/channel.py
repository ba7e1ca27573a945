"""The TLS of one connection, over memory: the connection moves the bytes. No input or output of its own.

The TLS transports of asyncio and uvloop hide how many bytes have left: below them lies a second buffer, and with a
write buffer limit of zero they report a full buffer while it is empty. Here the connection keeps its plain transport,
whose buffer is the only one.
"""

import ssl
from contextlib import suppress

READ_AT_MOST = 65_536  # four records
LONGEST_RECORD = 16_384  # bytes of plain text (RFC 8446 5.1)
RECORD_OVERHEAD = 128  # header, nonce, MAC and padding of any cipher suite need less


class TlsChannel:
    """Plain bytes in, records out, and back."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self.is_open = False  # the handshake has ended
        self.is_ended = False  # the other side said that nothing follows
        self.error: ssl.SSLError | None = None  # nothing that follows can be read

    @property
    def version(self) -> str | None:
        """The version of the protocol, as `TLSv1.3`."""
        return self._tls.version()

    def encrypt(self, data: bytes | memoryview) -> bytes:
        """The records that carry these bytes; raises `ssl.SSLError`, also in the midst of a renegotiation."""
        written = self._tls.write(data)
        while written < len(data):
            written += self._tls.write(memoryview(data)[written:])
        return self._outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        """The plain text of received bytes, up to an error; empty for TLS's own messages, as those of the handshake."""
        self._incoming.write(data)
        read: list[bytes] = []
        try:
            if not self.is_open:
                self._tls.do_handshake()
                self.is_open = True
            while self._incoming.pending or self._tls.pending():
                if not (plain := self._tls.read(READ_AT_MOST)):
                    self.is_ended = True
                    break
                read.append(plain)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = error
        return b"".join(read)

    def to_send(self) -> bytes:
        """Bytes of TLS itself that wait to be sent: of the handshake, alerts, new keys."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def farewell(self) -> bytes:
        """The bytes that announce the end of the connection; the other side's are not waited for."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        return self.to_send()


def most_encrypted(size: int) -> int:
    """At most so many bytes of records carry so many bytes of plain text, which may begin within a record."""
    return size + RECORD_OVERHEAD * (2 + size // LONGEST_RECORD)
