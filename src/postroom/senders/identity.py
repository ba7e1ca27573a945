"""Who a mail is from when an account carries it.

A provider lets a mailbox write as its own domain and no other, and receivers check that the two align. A From of the
account's domain stays; any other becomes the account, and answers still go to whom the mail named.
"""

from dataclasses import dataclass

from postroom.senders.model import SenderAccount


@dataclass(frozen=True, slots=True)
class Mailbox:
    """An address and the name shown beside it."""

    email: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who stands in From, and who in Reply-To if the mail names nobody there."""

    sender: Mailbox
    reply_to: Mailbox | None = None


def identify(account: SenderAccount, named: Mailbox | None, *, has_reply_to: bool) -> Identity:
    """The From and Reply-To of a mail that names this From, or none, and leaves through this account."""
    own = Mailbox(account.email, account.display_name)
    if named is None:
        return Identity(own)
    if _domain(named.email) == _domain(account.email):
        return Identity(named)
    shown = Mailbox(account.email, account.display_name or named.name)
    return Identity(shown, None if has_reply_to else named)


def _domain(email: str) -> str:
    return email.rpartition("@")[2].lower()
