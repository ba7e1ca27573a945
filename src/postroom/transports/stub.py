"""The stub transport: tries nothing and says so, which ends every delivery as suppressed."""

from postroom.post.reply import Content, Envelope, Reply, Stage

SUPPRESSED = Reply(stage=Stage.FINAL, suppress=True, text="stub")


class StubTransport:
    """For staging systems that run the whole product but must not write to anybody."""

    name = "stub"

    async def send(self, envelope: Envelope, content: Content) -> Reply:  # noqa: ARG002 - the seam's signature
        return SUPPRESSED

    async def close(self) -> None:
        """Nothing is held, so there is nothing to give back."""
