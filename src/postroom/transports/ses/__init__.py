"""transports.ses: mail through Amazon SES, by the API of version 2.

NAME       SesTransport, the way out through one account in one region
FILES      message    what is asked: the raw message, who sends, who receives
           verdict    what AWS's answers amount to
           transport  the seam
PROMISES   `send` returns a `Reply` whatever AWS or the network does; the id that SES gave the message is in its text.
           SES takes 50 recipients of a message at once: the others are deferred, one by one, and go next time.
NOT        the envelope's sender, unless `return_path` asks for it: SES writes its own return path, and an address that
           is not verified there would refuse every message
SECURITY   every request is signed (`runtime.aws`); the secret appears in no text, log or representation
"""

from postroom.transports.ses.transport import SesTransport

__all__ = ["SesTransport"]
