"""transports.gmail: mail through the Gmail API, as a member of a Google Workspace domain.

NAME       GmailTransport, the way out through one mailbox; GmailCredentials, the service account that may use it
FILES      credentials  the service account's key file
           token        access tokens: a signed claim, exchanged, kept, renewed before it ends
           addressing   the recipients as the API wants them: in the headers
           verdict      what Google's answers amount to
           transport    the seam
PROMISES   `send` returns a `Reply` whatever Google or the network does. When Google does not answer, `send` asks at
           once whether the message is in the mailbox (`rfc822msgid`). `was_sent` asks the same later: delivery calls it
           through the account of an ambiguous attempt before the next attempt, also after a crash.
SCOPES     `gmail.send` is all that sending needs. The question needs `gmail.readonly`, because searching is denied to
           `gmail.metadata`; a token for it is asked for separately and only then, so a domain that delegates
           `gmail.send` alone sends as well and only leaves doubtful mail doubtful.
NOT        the envelope's sender: Gmail writes its own return path, and bounces go to the mailbox
SECURITY   keys and tokens appear in no text, log or representation; tokens come from Google or from the base URL
"""

from postroom.transports.gmail.credentials import GmailCredentials
from postroom.transports.gmail.transport import GmailTransport

__all__ = ["GmailCredentials", "GmailTransport"]
