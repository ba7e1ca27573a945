"""A trial: connect, log in, send a mail from an account to itself, and report each step."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr

from postroom.post.reply import Envelope, Reply, Stage
from postroom.senders.model import AuthType, SenderAccount
from postroom.transports.base import Transport

_SUCCESS = 300  # SMTP replies below 300 are positive
_STEPS = {
    Stage.CONNECT: "connect",
    Stage.TLS: "secure",
    Stage.LOGIN: "log in",
    Stage.SENDER: "sender",
    Stage.RECIPIENT: "recipient",
    Stage.CONTENT: "content",
    Stage.FINAL: "taken",
}


@dataclass(frozen=True, slots=True)
class TrialStep:
    """One step of a trial."""

    name: str
    ok: bool
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """The steps of a trial; `ok` if the mail was accepted."""

    ok: bool
    steps: tuple[TrialStep, ...]


@dataclass(frozen=True, slots=True)
class _Letter:
    raw: bytes

    def encode(self, *, eight_bit: bool) -> bytes:  # noqa: ARG002 - ASCII serves every server
        return self.raw


async def run_trial(account: SenderAccount, transport: Transport) -> Trial:
    """Send one mail from the account to itself. It does not count against the quota."""
    message_id = f"<trial.{secrets.token_hex(8)}@{account.email.rpartition('@')[2]}>"
    envelope = Envelope(0, message_id, account.email, (account.email,))
    try:
        reply = await transport.send(envelope, _Letter(_letter(account, message_id)))
    finally:
        await transport.close()
    return Trial(_is_taken(reply), tell(reply, is_plain=account.auth_type is AuthType.SMTP and reply.tls is None))


def tell(reply: Reply, *, is_plain: bool = False) -> tuple[TrialStep, ...]:
    """The steps up to the one that decided; all before it succeeded. TLS is absent on a plain connection."""
    stages = [stage for stage in _STEPS if not (is_plain and stage is Stage.TLS and reply.stage is not stage)]
    passed = tuple(TrialStep(_STEPS[stage], ok=True) for stage in stages[: stages.index(reply.stage)])
    said = " ".join(str(part) for part in (reply.code, reply.enhanced, reply.text) if part)
    return (*passed, TrialStep(_STEPS[reply.stage], ok=_is_taken(reply), detail=said or None))


def _is_taken(reply: Reply) -> bool:
    return reply.code is not None and reply.code < _SUCCESS


def _letter(account: SenderAccount, message_id: str) -> bytes:
    message = EmailMessage(policy=SMTP)
    message["From"] = formataddr((account.display_name or "", account.email))
    message["To"] = account.email
    message["Subject"] = "Postroom: this mailbox can send"
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = message_id
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("This test mail was sent by Postroom from this mailbox to itself. The mailbox can send.\n")
    return message.as_bytes()
