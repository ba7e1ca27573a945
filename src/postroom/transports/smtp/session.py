"""Messages over one open connection.

`send_all` sends a message and those that follow it in its feed, and ends each with its reply. With PIPELINING the
whole envelope, DATA included, is one write, and every answer is read (RFC 2920); without it each command waits for its
answer. If the server accepted DATA although no recipient is left, it is sent the empty message it waits for, and its
answer is ignored.

The envelope of the next message travels in the write of the content before it, which RFC 2920 allows: one write and
one read per message instead of two. Its content has not left then, so it is never ambiguous:

- If the connection ends before its envelope is answered, it needs another connection.
- If the answer to the content before it takes longer than `LONGEST_BEHIND_S`, it is returned to the feed, and the
  connection is closed after that answer. After DATA a message can be withdrawn in no other way.
- If the content before it was refused and so is its envelope, the server may only be out of step: it needs another
  connection.

Only servers that answer quickly get envelopes ahead (`ServerPace`): others would lose a connection for each.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from postroom.post.reply import Envelope, RecipientReply, Reply, Stage
from postroom.transports.base import FeedMail, MailFeed
from postroom.transports.smtp.answer import GO_AHEAD, SERVICE_CLOSING, RefusedStage, SmtpReply, judge, refusals
from postroom.transports.smtp.opening import Timeouts, answer_reply
from postroom.transports.smtp.protocol import SmtpClientConnection

DATA = b"DATA\r\n"
SIZE_DIGITS = 20  # of the announced SIZE (RFC 1870)
END = EMPTY_MESSAGE = b".\r\n"
UNSPEAKABLE_RECIPIENT = (553, "5.1.3", "the address cannot be written in a command")
LARGEST_AHEAD = 65_536  # bytes of a content that the next envelope follows at once; larger content takes long to leave
LONGEST_BEHIND_S = 1.0  # how long an envelope waits for the answer to the content before it
QUICK_ANSWER_S = 0.3  # the last content was answered within this time: the next envelope may follow the content
CAREFUL_S = 600.0
"""How long no envelope follows a content at once after a connection ended before the answer to such a content. A server
that announces PIPELINING and fails at this would make every other message ambiguous."""

# No character that could end the command or leave its brackets, and none that cannot be encoded.
_UNSPEAKABLE = re.compile("[\x00-\x1f\x7f<>\ud800-\udfff]")
_ANY_LINE_END = re.compile(rb"\r\n|\r|\n")
_NOT_LINE_END = bytes(octet for octet in range(256) if octet not in b"\r\n")
# A bare CR, or a line that starts with a dot. The search starts at each CR, and takes half the time of `in` or `count`.
_BARE_CR_OR_DOT = re.compile(rb"\r(?!\n(?!\.))")


class _PreparedMail(msgspec.Struct, frozen=True, gc=False):
    """A message prepared for one connection."""

    mail: FeedMail
    recipients: tuple[str, ...]
    commands: list[bytes]
    content: bytes  # as transmitted
    unspeakable: tuple[RecipientReply, ...] = ()


@dataclass(slots=True)
class ServerPace:
    """How quickly a server answers, over all connections of a transport."""

    answer_s: float = math.inf  # of the last content
    careful_until: float = -math.inf

    def may_follow(self, now: float) -> bool:
        """True if an envelope may follow a content at once."""
        return self.answer_s <= QUICK_ANSWER_S and now >= self.careful_until


@dataclass(slots=True)
class SmtpSession:
    """The connection in use and the facts that every reply about it carries."""

    connection: SmtpClientConnection
    remote_host: str
    timeouts: Timeouts
    pace: ServerPace
    messages_left: int  # that this connection may take
    is_kept: bool = False  # the connection has carried a message: it may have been closed meanwhile
    _size_limit: int = field(init=False)
    _is_eight_bit: bool = field(init=False)
    _is_pipelined: bool = field(init=False)

    def __post_init__(self) -> None:
        extensions = self.connection.extensions
        self._size_limit = size_limit(extensions.get("SIZE", ""))
        self._is_eight_bit, self._is_pipelined = "8BITMIME" in extensions, "PIPELINING" in extensions

    async def send_all(self, mail: FeedMail, feed: MailFeed) -> FeedMail | None:
        """Send this message and those that can follow it at once. Returns one that needs another connection."""
        offer = self._prepare(mail)
        if isinstance(offer, Reply):
            feed.ended(mail, offer)
            return None
        self._follow(mail)
        if self.connection.needs_reset and not await self._reset():
            return self._not_taken(offer, self._silent(Stage.SENDER), feed)
        self._enter()
        answers = await self._speak(offer.commands)
        while (verdict := judge(offer.recipients, answers)) is None:
            behind, is_refused = await self._hand_over(offer, answers, feed)
            if behind is None or self.connection.trouble is not None:
                return None if behind is None else behind.mail
            self.is_kept = True
            self._follow(behind.mail)
            self._enter()
            if not feed.begin(behind.mail):
                self.connection.abort()
                return None
            if self.connection.has_answers_behind:  # nearly always
                answers = self.connection.take_answers()
            else:
                answers = await self.connection.answers_behind(max(self.timeouts.command, self.timeouts.data))
            if is_refused and judge(behind.recipients, answers) is not None:
                self.connection.abort()
                return behind.mail
            offer = behind
        return await self._refused(offer, verdict, answers, feed)

    async def _hand_over(
        self, offer: _PreparedMail, answers: list[SmtpReply], feed: MailFeed
    ) -> tuple[_PreparedMail | None, bool]:
        """Send the content and end the message. Returns the one whose envelope follows; true: this one was refused."""
        behind = self._take_next(offer, feed)
        # the content is sent only if a recipient was accepted: a single one was not refused
        refused = refusals(offer.recipients, answers[1:-1]) if len(offer.recipients) > 1 else ()
        connection, is_ahead = self.connection, behind is not None
        await connection.hand_over(offer.content, self.timeouts.data, behind.commands if behind is not None else ())
        since = connection.now()
        patience = min(LONGEST_BEHIND_S, self.timeouts.final) if is_ahead else self.timeouts.final
        final = await connection.final_answer(patience, is_patient=is_ahead)
        if final is None and behind is not None:
            final, behind = await self._unanswered(behind, since, feed)
        self.pace.answer_s = connection.now() - since
        reply = self._reply(final, refused)
        feed.ended(offer.mail, self._with_unspeakable(offer, reply))
        return behind, final is not None and final.negative

    def _prepare(self, mail: FeedMail) -> _PreparedMail | Reply:
        """The message for this connection, or the reply if this server cannot accept it.

        An address that cannot be written in a command is rejected locally; the others are sent without it.
        """
        envelope = mail.envelope
        unspeakable: tuple[RecipientReply, ...] = ()
        is_simple = _is_simple(envelope)
        if not is_simple:
            envelope, unspeakable = _speakable(envelope)
            if (impossible := self._impossible(envelope)) is not None:
                return impossible
        encoded = mail.encode(eight_bit=self._is_eight_bit)
        if not isinstance(encoded, bytes):
            return encoded
        if 0 < self._size_limit < len(encoded):
            text = f"{len(encoded)} bytes are over the server's limit of {self._size_limit}"
            return self._local(Stage.SENDER, 552, "5.3.4", text)
        is_utf8 = not is_simple and envelope.needs_smtputf8
        commands = envelope_commands(envelope, self.connection.extensions, encoded, is_utf8=is_utf8)
        is_stuffed = getattr(mail.content, "is_stuffed", False)
        content = encoded + END if is_stuffed and encoded.endswith(b"\r\n") else stuffed(encoded)
        return _PreparedMail(mail, envelope.recipients, commands, content, unspeakable)

    def _take_next(self, offer: _PreparedMail, feed: MailFeed) -> _PreparedMail | None:
        """The next message of the feed, if its envelope may follow this content at once."""
        connection = self.connection
        if self.messages_left <= 0 or len(offer.content) > LARGEST_AHEAD:
            return None
        if not self._is_pipelined or not self.pace.may_follow(connection.now()):
            return None
        while (mail := feed.take()) is not None:
            mail.progress.follow(_at_recipient)
            following = self._prepare(mail)
            if isinstance(following, _PreparedMail):  # asking for a Struct that it is not takes Python code
                return following
            if feed.begin(mail):
                feed.ended(mail, following)
        return None

    def _follow(self, mail: FeedMail) -> None:
        """Let the stage of the connection be that of this message."""
        self.connection.begin_message()
        mail.progress.follow(self.connection.stage)

    def _enter(self) -> None:
        """Begin a transaction of this connection."""
        self.connection.messages += 1
        self.messages_left -= 1
        self.connection.needs_reset = True

    async def _unanswered(
        self, behind: _PreparedMail, since: float, feed: MailFeed
    ) -> tuple[SmtpReply | None, _PreparedMail | None]:
        """The content was not answered soon: return the message behind it to the feed, and wait on.

        If the connection has ended, there is nothing to wait for, and the message behind needs another one.
        """
        connection = self.connection
        final, waiting = None, behind if connection.trouble is not None else None
        if waiting is None:
            feed.returned(behind.mail)
            final = await connection.final_answer(max(since + self.timeouts.final - connection.now(), 0.0))
            if connection.trouble is None:
                connection.abort()
        if final is None and connection.content_finished:
            self.pace.careful_until = connection.now() + CAREFUL_S
        return final, waiting

    def _reply(self, final: SmtpReply | None, refused: tuple[RecipientReply, ...]) -> Reply:
        """The reply to a message whose content was sent, wholly or in part."""
        connection = self.connection
        if not connection.content_finished:
            return self._report(Stage.CONTENT, final if final is not None and final.negative else None, refused)
        if final is None or not final.positive:
            return self._report(Stage.FINAL, final, refused)
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

    async def _refused(
        self, offer: _PreparedMail, verdict: RefusedStage, answers: list[SmtpReply], feed: MailFeed
    ) -> FeedMail | None:
        """End a message whose envelope was refused or not answered."""
        if verdict.stage is not Stage.CONTENT and answers and answers[-1].code == GO_AHEAD:
            await self.connection.ask(EMPTY_MESSAGE, 1, self.timeouts.final)
        return self._not_taken(offer, self._report(verdict.stage, verdict.answer, verdict.refused), feed)

    def _not_taken(self, offer: _PreparedMail, reply: Reply, feed: MailFeed) -> FeedMail | None:
        """End a message, unless a kept connection was found closed: then it can safely use a new one."""
        unanswered = reply.code is None or reply.code == SERVICE_CLOSING
        if self.is_kept and unanswered and self.connection.lost and not self.connection.content_started:
            return offer.mail
        feed.ended(offer.mail, self._with_unspeakable(offer, reply))
        return None

    def _with_unspeakable(self, offer: _PreparedMail, reply: Reply) -> Reply:
        return replace(reply, recipients=(*reply.recipients, *offer.unspeakable)) if offer.unspeakable else reply

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

    async def _reset(self) -> bool:
        answers = await self.connection.ask(b"RSET\r\n", 1, self.timeouts.command)
        if answers and not answers[0].positive:
            self.connection.fail("RSET was refused", lost=True)
        return self.connection.trouble is None

    async def _speak(self, commands: list[bytes]) -> list[SmtpReply]:
        if self._is_pipelined:
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


def _is_simple(envelope: Envelope) -> bool:
    """True for nearly every envelope: one recipient, and ASCII addresses that can be written in a command."""
    if len(envelope.recipients) != 1 or envelope.has_utf8_headers:
        return False
    [recipient] = envelope.recipients
    addresses = envelope.sender + recipient
    return bool(recipient) and addresses.isascii() and _UNSPEAKABLE.search(addresses) is None


def _speakable(envelope: Envelope) -> tuple[Envelope, tuple[RecipientReply, ...]]:
    """The envelope without the addresses that cannot be written in a command, and their replies; all if none can."""
    speakable = tuple(filter(is_speakable, envelope.recipients))
    if not speakable or len(speakable) == len(envelope.recipients):
        return envelope, ()
    unspoken = (address for address in envelope.recipients if not is_speakable(address))
    return replace(envelope, recipients=speakable), tuple(
        RecipientReply(address, *UNSPEAKABLE_RECIPIENT) for address in unspoken
    )


@lru_cache(maxsize=64)
def size_limit(announced: str) -> int:
    """The announced SIZE, or 0. RFC 1870 allows twenty digits; Python raises an error on long numbers."""
    return int(announced) if announced.isdecimal() and len(announced) <= SIZE_DIGITS else 0


def _at_recipient() -> Stage:
    return Stage.RECIPIENT


def is_speakable(address: str) -> bool:
    """True if the address can be written between the brackets of a command without ending it."""
    return bool(address) and _UNSPEAKABLE.search(address) is None


def envelope_commands(
    envelope: Envelope, extensions: Mapping[str, str], encoded: bytes, *, is_utf8: bool
) -> list[bytes]:
    """MAIL, one RCPT per recipient and DATA, with the parameters that the server's extensions allow."""
    mail = f"MAIL FROM:<{envelope.sender}>"
    if "SIZE" in extensions:
        mail += f" SIZE={len(encoded)}"
    if "8BITMIME" in extensions and not encoded.isascii():
        mail += " BODY=8BITMIME"
    if is_utf8:
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
    if line_ends != b"\r\n" * (len(line_ends) // 2) or _BARE_CR_OR_DOT.search(content) is not None:
        content = _ANY_LINE_END.sub(b"\r\n", content).replace(b"\r\n.", b"\r\n..")
    if content.startswith(b"."):
        content = b"." + content
    return content + (END if content.endswith(b"\r\n") or not content else b"\r\n.\r\n")
