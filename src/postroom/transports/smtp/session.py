"""One message over one open connection.

`deliver` sends the envelope and the content and returns the reply. With PIPELINING the whole envelope, DATA
included, is one write, and every answer is read (RFC 2920); without it each command waits for its answer. If the
server accepted DATA although no recipient is left, it is sent the empty message it waits for, and its answer is
ignored.
"""

import re
from dataclasses import dataclass

from msgspec.structs import replace

from postroom.post.reply import Content, Envelope, RecipientReply, Reply, Stage
from postroom.transports.smtp.answer import SmtpReply
from postroom.transports.smtp.envelope_replies import GO_AHEAD, judge, refusals
from postroom.transports.smtp.opening import Timeouts, answer_reply
from postroom.transports.smtp.protocol import SmtpClientConnection

DATA = b"DATA\r\n"
SIZE_DIGITS = 20  # of the announced SIZE (RFC 1870)
EMPTY_MESSAGE = b".\r\n"
UNSPEAKABLE_RECIPIENT = (553, "5.1.3", "the address cannot be written in a command")

# No character that could end the command or leave its brackets, and none that cannot be encoded.
_UNSPEAKABLE = re.compile("[\x00-\x1f\x7f<>\ud800-\udfff]")
_ANY_LINE_END = re.compile(rb"\r\n|\r|\n")
_NOT_LINE_END = bytes(octet for octet in range(256) if octet not in b"\r\n")
# For these two a search takes half the time of `in` or `count`.
_BARE_CR = re.compile(rb"\r(?!\n)")
_LEADING_DOT = re.compile(rb"\n\.")


@dataclass(slots=True)
class SmtpSession:
    """The connection in use and the facts that every reply about it carries."""

    connection: SmtpClientConnection
    remote_host: str
    timeouts: Timeouts

    async def deliver(self, envelope: Envelope, content: Content) -> Reply:
        """Try to hand one message over and return the reply.

        An address that cannot be written in a command is rejected locally; the others are sent without it.
        """
        speakable = tuple(filter(is_speakable, envelope.recipients))
        if len(speakable) == len(envelope.recipients) or not speakable:
            return await self._deliver(envelope, content)
        reply = await self._deliver(replace(envelope, recipients=speakable), content)
        unspoken = (address for address in envelope.recipients if not is_speakable(address))
        refused = tuple(RecipientReply(address, *UNSPEAKABLE_RECIPIENT) for address in unspoken)
        return replace(reply, recipients=(*reply.recipients, *refused))

    async def _deliver(self, envelope: Envelope, content: Content) -> Reply:
        connection = self.connection
        connection.content_started = connection.content_finished = False
        if (impossible := self._impossible(envelope)) is not None:
            return impossible
        encoded = content.encode(eight_bit="8BITMIME" in connection.extensions)
        if (oversize := self._oversize(len(encoded))) is not None:
            return oversize
        if connection.needs_reset and not await self._reset():
            return self._silent(Stage.SENDER)
        connection.messages += 1
        connection.needs_reset = True
        answers = await self._speak(envelope_commands(envelope, connection, encoded))
        verdict = judge(envelope.recipients, answers)
        if verdict is None:
            return await self._hand_over(envelope, encoded, answers)
        if verdict.stage is not Stage.CONTENT and answers and answers[-1].code == GO_AHEAD:
            await connection.ask(EMPTY_MESSAGE, 1, self.timeouts.final)
        return self._report(verdict.stage, verdict.answer, verdict.refused)

    def _impossible(self, envelope: Envelope) -> Reply | None:
        """Reject locally, with its own code, a message that this server cannot accept."""
        if envelope.sender and not is_speakable(envelope.sender):
            return self._local(Stage.SENDER, 553, "5.1.7", "the address cannot be written in a command")
        if not envelope.recipients:
            return self._local(Stage.RECIPIENT, 554, "5.5.1", "there is no recipient")
        if not is_speakable(envelope.recipients[0]):  # then none is: the others were removed before
            return self._local(Stage.RECIPIENT, *UNSPEAKABLE_RECIPIENT)
        if envelope.needs_smtputf8 and "SMTPUTF8" not in self.connection.extensions:
            text = "the server does not take internationalised addresses"
            return self._local(Stage.SENDER, 553, "5.6.7", text)
        return None

    def _oversize(self, size: int) -> Reply | None:
        announced = self.connection.extensions.get("SIZE", "")
        # RFC 1870 allows twenty digits; without a limit Python would raise an error on long numbers.
        limit = int(announced) if announced.isdecimal() and len(announced) <= SIZE_DIGITS else 0
        if not 0 < limit < size:
            return None
        return self._local(Stage.SENDER, 552, "5.3.4", f"{size} bytes are over the server's limit of {limit}")

    async def _reset(self) -> bool:
        answers = await self.connection.ask(b"RSET\r\n", 1, self.timeouts.command)
        if answers and not answers[0].positive:
            self.connection.fail("RSET was refused", lost=True)
        return self.connection.trouble is None

    async def _speak(self, commands: list[bytes]) -> list[SmtpReply]:
        if "PIPELINING" in self.connection.extensions:
            patience = max(self.timeouts.command, self.timeouts.data)  # the group ends with DATA
            return await self.connection.ask(b"".join(commands), len(commands), patience)
        answers: list[SmtpReply] = []
        for command in commands:
            if command is DATA and not any(answer.positive for answer in answers[1:]):
                break
            patience = self.timeouts.data if command is DATA else self.timeouts.command
            answers += await self.connection.ask(command, 1, patience)
            if self.connection.trouble is not None or not answers[0].positive:
                break
        return answers

    async def _hand_over(self, envelope: Envelope, encoded: bytes, answers: list[SmtpReply]) -> Reply:
        connection = self.connection
        refused = refusals(envelope.recipients, answers[1:-1])
        said = await connection.hand_over(stuffed(encoded), self.timeouts.data, self.timeouts.final)
        if not connection.content_finished:
            early = said[0] if said and said[0].negative else None
            return self._report(Stage.CONTENT, early, refused)
        if not (said and said[0].positive):
            return self._report(Stage.FINAL, said[0] if said else None, refused)
        final = said[0]
        connection.needs_reset = False
        enhanced, text = final.parts
        return Reply(
            stage=Stage.FINAL,
            code=final.code,
            enhanced=enhanced,
            text=text,
            remote_host=self.remote_host,
            tls=connection.tls,
            recipients=refused,
        )

    def _report(self, stage: Stage, answer: SmtpReply | None, refused: tuple[RecipientReply, ...]) -> Reply:
        """The reply for an attempt that did not succeed."""
        if answer is None:
            return self._silent(stage, refused)
        if not answer.negative:
            self.connection.fail("answered what was not asked")
        return answer_reply(stage, answer, remote_host=self.remote_host, tls=self.connection.tls, recipients=refused)

    def _silent(self, stage: Stage, refused: tuple[RecipientReply, ...] = ()) -> Reply:
        trouble = self.connection.trouble or "no answer"
        tls = self.connection.tls
        return Reply(stage, text=trouble, remote_host=self.remote_host, tls=tls, recipients=refused)

    def _local(self, stage: Stage, code: int, enhanced: str, text: str) -> Reply:
        return Reply(stage, code, enhanced, text, remote_host=self.remote_host, tls=self.connection.tls)


def is_speakable(address: str) -> bool:
    """True if the address can be written between the brackets of a command without ending it."""
    return bool(address) and _UNSPEAKABLE.search(address) is None


def envelope_commands(envelope: Envelope, connection: SmtpClientConnection, encoded: bytes) -> list[bytes]:
    """MAIL, one RCPT per recipient and DATA, with the parameters that the server's extensions allow."""
    extensions = connection.extensions
    mail = f"MAIL FROM:<{envelope.sender}>"
    if "SIZE" in extensions:
        mail += f" SIZE={len(encoded)}"
    if "8BITMIME" in extensions and not encoded.isascii():
        mail += " BODY=8BITMIME"
    if envelope.needs_smtputf8:
        mail += " SMTPUTF8"
    if "DSN" in extensions:
        # ENVID is xtext (RFC 3461); a number is its own xtext.
        mail += f" RET=HDRS ENVID={envelope.delivery_id}"
    recipients = [f"RCPT TO:<{address}>\r\n".encode() for address in envelope.recipients]
    return [f"{mail}\r\n".encode(), *recipients, DATA]


def stuffed(content: bytes) -> bytes:
    """Content as transmitted: lines end in CRLF, a leading dot is doubled, a lone dot closes it.

    A bare CR or LF, which composed content does not have, becomes CRLF: a server that is lenient about line ends
    could otherwise see the end of one message and the commands of another inside the text (SMTP smuggling).
    """
    line_ends = content.translate(None, _NOT_LINE_END)
    if line_ends != b"\r\n" * (len(line_ends) // 2) or _BARE_CR.search(content) is not None:
        content = _ANY_LINE_END.sub(b"\r\n", content)
    if _LEADING_DOT.search(content) is not None:
        content = content.replace(b"\r\n.", b"\r\n..")
    if content.startswith(b"."):
        content = b"." + content
    return content + (b".\r\n" if content.endswith(b"\r\n") or not content else b"\r\n.\r\n")
