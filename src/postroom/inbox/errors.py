"""The errors of inbox; the whole tree is drawn in `postroom.errors`."""

from postroom.errors import ConflictError, NotFoundError


class InboxMessageNotFound(NotFoundError):
    """There is no such message in the inbox."""


class InboxWaitTimeout(NotFoundError):
    """No such message arrived before the timeout."""


class ReleaseOff(ConflictError):
    """Captured mail cannot leave: set POSTROOM_INBOX_RELEASE_RELAY to an SMTP relay."""
