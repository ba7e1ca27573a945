"""A claimed mail as the account that carries it may write it: see `postroom.senders.identity`."""

from msgspec.structs import replace

from postroom.delivery.model import Outgoing, Recipient, RecipientKind, RecipientOutcome
from postroom.post.address import Address
from postroom.senders.identity import Mailbox, identify
from postroom.senders.model import SenderAccount


def written_by(outgoing: Outgoing, account: SenderAccount) -> Outgoing:
    """The same mail with the From and Reply-To that this account can answer for."""
    named = None if outgoing.sender is None else Mailbox(outgoing.sender.email, outgoing.sender.name)
    has_reply_to = any(each.kind is RecipientKind.REPLY_TO for each in outgoing.recipients)
    identity = identify(account, named, has_reply_to=has_reply_to)
    recipients = outgoing.recipients
    if identity.reply_to is not None:
        answers = Recipient(
            RecipientKind.REPLY_TO, 0, identity.reply_to.email, identity.reply_to.name, RecipientOutcome.PENDING
        )
        recipients = (*recipients, answers)
    return replace(outgoing, sender=Address(identity.sender.email, identity.sender.name), recipients=recipients)
