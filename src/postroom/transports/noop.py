"""The no-op transport: accepts everything and stores nothing, to measure the ledger alone."""

from postroom.post.reply import Content, Envelope, Reply, Stage

DISCARDED = Reply(stage=Stage.FINAL, code=250, text="discarded")


class NoopTransport:
    """Replies to every message like a server that accepted it. The content is not encoded."""

    name = "noop"

    def answer(self, envelope: Envelope, content: Content) -> Reply:  # noqa: ARG002 - signature of the protocol
        return DISCARDED

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        return self.answer(envelope, content)

    async def close(self) -> None:
        """Do nothing; no resource is held."""
