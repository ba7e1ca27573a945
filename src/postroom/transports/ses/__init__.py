"""transports.ses: mail through version 2 of the Amazon SES API.

NAME       SesTransport, one account in one region
FILES      message    the request: raw message, sender, recipients
           replies    AWS response → reply
           transport  the `Transport` protocol
PROMISES   `send` returns a `Reply` whatever AWS or the network does; the id that SES gave the message is in its text.
           SES accepts 50 recipients per request: the others are deferred and sent with the next attempt.
NOT        the envelope's sender, unless `return_path` is set: SES writes its own return path, and rejects every message
           whose return path is not verified there
SECURITY   every request is signed (`runtime.aws`); the secret appears in no text, log or representation
"""

from postroom.transports.ses.transport import SesTransport

__all__ = ["SesTransport"]
