"""Transports that send nothing: each has one reply to every message, and does not encode its content."""

from postroom.post.reply import Content, Envelope, Reply, Stage


class _ReplyTransport:
    reply: Reply

    def answer(self, envelope: Envelope, content: Content) -> Reply:  # noqa: ARG002 - signature of the protocol
        return self.reply

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        return self.answer(envelope, content)

    async def close(self) -> None:
        """Do nothing; no resource is held."""


class NoopTransport(_ReplyTransport):
    """Replies like a server that accepted the message, to measure the ledger alone."""

    name = "noop"
    reply = Reply(stage=Stage.FINAL, code=250, text="discarded")


class StubTransport(_ReplyTransport):
    """Reports that nothing was sent, which ends every delivery as suppressed: for staging systems."""

    name = "stub"
    reply = Reply(stage=Stage.FINAL, suppress=True, text="stub")
