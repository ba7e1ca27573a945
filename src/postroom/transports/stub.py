"""The stub transport: sends nothing and reports that, which ends every delivery as suppressed."""

from postroom.post.reply import Content, Envelope, Reply, Stage

SUPPRESSED = Reply(stage=Stage.FINAL, suppress=True, text="stub")


class StubTransport:
    """For staging systems that run the whole product but must not send mail."""

    name = "stub"

    def answer(self, envelope: Envelope, content: Content) -> Reply:  # noqa: ARG002 - signature of the protocol
        return SUPPRESSED

    async def send(self, envelope: Envelope, content: Content) -> Reply:
        return self.answer(envelope, content)

    async def close(self) -> None:
        """Do nothing; no resource is held."""
