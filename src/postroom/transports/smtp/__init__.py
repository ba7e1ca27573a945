"""transports.smtp: mail sent to one relay over kept, pipelined connections.

NAME       SmtpTransport, the SMTP client; SmtpRelay, a server and its connection settings
FILES      relay       the relay's URL
           answer      reply lines → answers → verdict on an envelope; parses all input from the server
           hint        "try again in 300 seconds" → 300.0
           channel     TLS over memory: plain bytes ↔ records
           protocol    one connection: write, wait for answers, enforce timeouts
           opening     connect, greeting, EHLO, STARTTLS, AUTH
           session     messages over one open connection, each next envelope behind the content before it
           transport   the `Transport` protocol: acquire, open, deliver, release; the pool of kept connections
PROMISES   `send` returns a `Reply` whatever the server or the network does. A message is tried a second
           time only on a new connection, only after a kept one was found closed, and only if no byte of
           content had left. A timeout after the closing dot is reported as stage FINAL without a code.
           A message whose envelope travelled behind another's content is never ambiguous before its own content.
           `SendProgress` has the stage of a message at any time, and an expired message is not offered.
SECURITY   STARTTLS is required and verified unless the relay's URL says otherwise. Credentials never travel
           in the clear except on loopback, and never appear in a text, a log or a representation.
"""

from postroom.transports.smtp.hint import parse_retry_hint
from postroom.transports.smtp.opening import Timeouts
from postroom.transports.smtp.relay import SmtpRelay
from postroom.transports.smtp.transport import SmtpTransport

__all__ = ["SmtpRelay", "SmtpTransport", "Timeouts", "parse_retry_hint"]
