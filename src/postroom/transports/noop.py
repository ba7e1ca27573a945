"""The no-op transport: accepts everything and keeps nothing, so that the ledger alone can be measured."""

from postroom.post.reply import Content, Envelope, Reply, Stage

DISCARDED = Reply(stage=Stage.FINAL, code=250, text="discarded")


class NoopTransport:
    """Answers every message as a server that took it would. The content is not even encoded."""

    name = "noop"

    async def send(self, envelope: Envelope, content: Content) -> Reply:  # noqa: ARG002 - the seam's signature
        return DISCARDED

    async def close(self) -> None:
        """Nothing is held, so there is nothing to give back."""
