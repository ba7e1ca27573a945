"""transports.gmail: mail through the Gmail API, as a member of a Google Workspace domain.

NAME       GmailTransport, one mailbox; GmailCredentials, the service account that may use it
FILES      credentials  the service account's key file
           token        access tokens: requested with a signed claim, cached, renewed before they expire
           addressing   recipients in the headers, as the API requires
           replies      Google's response → reply
           transport    the `Transport` protocol
PROMISES   `send` returns a `Reply` whatever Google or the network does. If Google does not respond, `send` at once
           searches the mailbox for the message (`rfc822msgid`). `was_sent` searches later: delivery calls it with the
           account of an ambiguous attempt before the next attempt, also after a crash.
SCOPES     sending needs only `gmail.send`. The search needs `gmail.readonly`, because `gmail.metadata` does not allow
           it; its token is requested separately and on demand, so a domain that delegates only `gmail.send` can send,
           but its ambiguous mail stays ambiguous.
NOT        the envelope's sender: Gmail writes its own return path, and bounces go to the mailbox
SECURITY   keys and tokens appear in no text, log or representation; tokens come from Google or from the base URL
"""

from postroom.transports.gmail.credentials import GmailCredentials
from postroom.transports.gmail.transport import GmailTransport

__all__ = ["GmailCredentials", "GmailTransport"]
