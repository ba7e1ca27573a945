"""A feed of messages for a transport, which records everything that the transport did with them."""

from collections.abc import Callable

from tests.support.smtp_server import Letter, envelope

from postroom.post.reply import Content, Reply, Stage
from postroom.transports.base import FeedMail, SendProgress


class Feed:
    """Messages to these recipients, and everything that the transport did with them."""

    def __init__(self, *recipients: str, content: Content | None = None) -> None:
        self.waiting = [FeedMail(envelope(each), content or Letter(), SendProgress()) for each in recipients]
        self.open: list[FeedMail] = []
        self.begun: list[str] = []
        self.replies: dict[str, Reply] = {}
        self.given_back: list[str] = []
        self.refuses: set[str] = set()
        self.on_begin: Callable[[str], None] = lambda _recipient: None

    def take(self) -> FeedMail | None:
        if not self.waiting:
            return None
        self.open.append(self.waiting.pop(0))
        return self.open[-1]

    def begin(self, mail: FeedMail) -> bool:
        recipient = mail.envelope.recipients[0]
        self.on_begin(recipient)
        if recipient in self.refuses:
            self.open.remove(mail)
            return False
        if recipient not in self.begun:
            self.begun.append(recipient)
        return True

    def ended(self, mail: FeedMail, reply: Reply) -> None:
        self.open.remove(mail)
        recipient = mail.envelope.recipients[0]
        assert recipient in self.begun
        assert recipient not in self.replies
        self.replies[recipient] = reply

    def returned(self, mail: FeedMail) -> None:
        self.open.remove(mail)
        assert mail.envelope.recipients[0] not in self.begun
        self.given_back.append(mail.envelope.recipients[0])

    @property
    def results(self) -> dict[str, tuple[Stage, int | None]]:
        return {recipient: (reply.stage, reply.code) for recipient, reply in self.replies.items()}
