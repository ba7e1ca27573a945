"""A trial: connect, log in and send a mail from an account to itself, and say how far it got."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr

from postroom.post.reply import Envelope, Reply, Stage
from postroom.senders.model import AuthType, SenderAccount
from postroom.transports.base import Transport

_SUCCESS = 300
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
    """How far a trial got; `ok` if the mail was taken."""

    ok: bool
    steps: tuple[TrialStep, ...]


@dataclass(frozen=True, slots=True)
class _Letter:
    raw: bytes

    def encode(self, *, eight_bit: bool) -> bytes:  # noqa: ARG002 - ASCII serves every server
        return self.raw


async def run_trial(account: SenderAccount, transport: Transport) -> Trial:
    """Send one mail from the account to itself. It is not counted: a person asked for it."""
    message_id = f"<trial.{secrets.token_hex(8)}@{account.email.rpartition('@')[2]}>"
    envelope = Envelope(0, message_id, account.email, (account.email,))
    try:
        reply = await transport.send(envelope, _Letter(_letter(account, message_id)))
    finally:
        await transport.close()
    return Trial(_is_taken(reply), tell(reply, is_plain=account.auth_type is AuthType.SMTP and reply.tls is None))


def tell(reply: Reply, *, is_plain: bool = False) -> tuple[TrialStep, ...]:
    """Every step up to the one that decided; the steps before it went well. A plain line was never made secure."""
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
    message.set_content("Somebody asked Postroom to send a mail from this mailbox to itself. It can.\n")
    return message.as_bytes()
