"""The errors of inbox; the whole tree is drawn in `postroom.errors`."""

from postroom.errors import ConflictError, InputError, NotFoundError


class InboxMessageNotFound(NotFoundError):
    """There is no such message in the inbox."""


class InboxWaitTimeout(NotFoundError):
    """No such message arrived before the timeout."""


class MessageTooComplex(InputError):
    """The message needs more memory or time than reading a message may take; only its raw bytes can be read."""


class ReleaseOff(ConflictError):
    """Captured mail cannot leave: set POSTROOM_INBOX_RELEASE_RELAY to an SMTP relay."""
