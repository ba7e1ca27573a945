"""transports.smtp: mail handed to one relay over kept, pipelined connections.

NAME       SmtpTransport, the way out over SMTP; SmtpRelay, which server and how it is reached
FILES      relay       the relay's URL
           answer      reply lines → answers; everything the other side says passes here
           hint        "try again in 300 seconds" → 300.0
           protocol    one connection: write, wait for answers, keep deadlines
           opening     connect, greeting, EHLO, STARTTLS, AUTH
           verdict     what the answers to an envelope amount to
           session     one message over one open connection
           pool        connections kept, reused, limited
           transport   the seam: acquire, open, deliver, give back
PROMISES   `send` returns a `Reply` whatever the server or the network does. A message is tried a second
           time only on a fresh connection, only when a kept one turned out dead, and only if no byte of
           content had left. After the closing dot, silence is reported as stage FINAL without a code. The
           `Passage` of a message tells its stage at any time, and an expired message is not offered.
SECURITY   STARTTLS is required and verified unless the relay's URL says otherwise. Credentials never travel
           in the clear except on loopback, and never appear in a text, a log or a representation.
"""

from postroom.transports.smtp.hint import parse_retry_hint
from postroom.transports.smtp.opening import Timeouts
from postroom.transports.smtp.relay import SmtpRelay
from postroom.transports.smtp.transport import SmtpTransport

__all__ = ["SmtpRelay", "SmtpTransport", "Timeouts", "parse_retry_hint"]
