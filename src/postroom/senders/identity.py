"""The From and Reply-To of a mail that a sender account carries.

A provider lets a mailbox send as its own domain only, and receivers check that the two align. A From of the account's
domain stays; any other From is replaced by the account and becomes the Reply-To.
"""

from dataclasses import dataclass

from postroom.post.address import Address, domain_of
from postroom.senders.model import SenderAccount


@dataclass(frozen=True, slots=True)
class Identity:
    """The address in From, and the one in Reply-To if the mail has no Reply-To of its own."""

    sender: Address
    reply_to: Address | None = None


def identify(account: SenderAccount, named: Address | None, *, has_reply_to: bool) -> Identity:
    """Return the From and Reply-To of a mail with this From, or without one, that leaves through this account."""
    if named is None:
        return Identity(Address(account.email, account.display_name))
    if domain_of(named.email) == domain_of(account.email):
        return Identity(named)
    shown = Address(account.email, account.display_name or named.name)
    return Identity(shown, None if has_reply_to else named)
