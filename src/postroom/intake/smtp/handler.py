"""The replies of the submission server to AUTH, MAIL, RCPT and DATA.

| answer       | when                                                                                       |
|--------------|--------------------------------------------------------------------------------------------|
| 250 2.0.0    | committed; the text names the (first) delivery, and whether an earlier submission made it  |
| 450 4.7.1    | the key or the room has reached its rate or daily quota; the text says when to try again     |
| 451 4.3.0    | the database is unreachable, or an internal error: try again                               |
| 452 4.5.3    | too many recipients for one mail: send the others in another transaction                   |
| 530 / 535    | no AUTH, or a key that may not submit (454: too many invalid keys, or no database)        |
| 550 5.7.1    | a From that the key or the room does not permit, or a closed room                         |
| 552 5.3.4    | the message is too large                                                                   |
| 553 5.1.x    | not an address                                                                             |
| 554 5.6.0    | the message cannot be accepted; the text names the header or part                          |
| 554 5.5.4    | its key was used with another message                                                      |
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import structlog

from postroom.db.errors import DatabaseError
from postroom.db.faults import is_connection_lost
from postroom.delivery.check import MAX_RECIPIENTS, CheckedRequest
from postroom.delivery.model import Accepted
from postroom.delivery.service import AcceptCombiner
from postroom.errors import (
    AccessError,
    BadInput,
    IdempotencyConflict,
    LimitError,
    PostroomError,
    Unauthenticated,
    WrongKeysTooOften,
)
from postroom.intake.metrics import SUBMISSIONS
from postroom.intake.parsing import read_aside
from postroom.intake.smtp.submission import SubmittedEnvelope, read_copies
from postroom.post.address import parse_address
from postroom.runtime.refusals import sign_in_refused
from postroom.runtime.smtp_server import DATABASE_AWAY, OUR_FAULT

Authenticate = Callable[[str, str], Awaitable[tuple[str, int | None]]]
"""A function from a presented key and the client's address to the name and the id of the key; None: it has no limits.

Raises an `AccessError` if the key may not submit, `WrongKeysTooOften` if the address presented too many invalid keys.
"""


@dataclass(frozen=True, slots=True)
class SubmissionRoom:
    """The room of a client: it checks the client's key and accepts its mail."""

    accepting: AcceptCombiner
    authenticate: Authenticate


RoomOf = Callable[[str], AbstractAsyncContextManager[SubmissionRoom]]
"""The room of a user name. Raises an `AccessError` for a name without a room."""


def one_room(accepting: AcceptCombiner, authenticate: Authenticate) -> RoomOf:
    """The same room for every user name."""
    room = SubmissionRoom(accepting, authenticate)
    return lambda _user: nullcontext(room)


ACCEPT_TIMEOUT_S = 60  # clients wait ten minutes after the final dot (RFC 5321); an earlier 451 lets them retry
LONGEST_TEXT = 400  # a reply line has at most 512 characters (RFC 5321)
NO_SENDER = "<>"

UNKNOWN_SENDER = "530 5.7.0 Authentication required"
WRONG_PASSWORD = "The password must be a valid API key, pr_...; with many rooms the user name is the room"  # noqa: S105 - a sentence
_TOO_LARGE = ("message", "text", "html", "attachments")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Submitter:
    """The authenticated client. The key is checked again for each message, so that a revoked key stops working."""

    user: str
    name: str
    key_id: int | None
    key: str = field(repr=False)


class SubmissionHandler:
    """The hooks of the SMTP server, shared by all its connections."""

    name = "submission"

    def __init__(self, room_of: RoomOf) -> None:
        self._room_of = room_of
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def finish(self) -> None:
        await self._idle.wait()

    async def close(self) -> None:
        """Do nothing: the handler has no resources beyond its connections."""

    async def verify(self, user: str, key: str, client: str) -> Submitter | str:
        """The holder of this key in the room of the user name, or the reply that rejects it."""
        try:
            async with self._room_of(user) as room:
                return Submitter(user, *await room.authenticate(key, client), key)
        except WrongKeysTooOften as error:
            sign_in_refused("smtp", client, error.code)
            return f"454 4.7.0 {error.message}"
        except AccessError as error:
            sign_in_refused("smtp", client, error.code)
            return f"535 5.7.8 {WRONG_PASSWORD if type(error) is Unauthenticated else error.message}"
        except Exception as error:  # noqa: BLE001 - the client may retry after any error
            _log.warning("submission_unverified", error=type(error).__name__)
            return "454 4.7.0 The key cannot be checked now, please try again later"

    async def handle_EHLO(  # noqa: N802 - a hook, by the server's name for it
        self, _server: Any, session: Any, _envelope: Any, hostname: str, responses: list[str]
    ) -> list[str]:
        session.host_name = hostname
        return [responses[0], "250-PIPELINING", *responses[1:]]

    async def handle_MAIL(  # noqa: N802 - a hook, by the server's name for it
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        submitter = session.auth_data
        if not isinstance(submitter, Submitter):
            return UNKNOWN_SENDER
        if isinstance(refusal := await self.verify(submitter.user, submitter.key, server.peer), str):
            return refusal
        # Bounce reports have an empty envelope sender; their From header names the author.
        if address != NO_SENDER and (problem := _address_problem(address)) is not None:
            return f"553 5.1.7 The sender's address {problem}"
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 2.1.0 OK"

    async def handle_RCPT(  # noqa: N802 - a hook, by the server's name for it
        self, _server: Any, _session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        if len(envelope.rcpt_tos) >= MAX_RECIPIENTS:
            return f"452 4.5.3 At most {MAX_RECIPIENTS} recipients, send the others in another transaction"
        if (problem := _address_problem(address)) is not None:
            return f"553 5.1.3 The recipient's address {problem}"
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - as above
        submitter = session.auth_data
        if not isinstance(submitter, Submitter):
            return UNKNOWN_SENDER
        if server.is_too_large:
            return "552 5.3.4 The message is larger than this server accepts"
        self._in_flight += 1
        self._idle.clear()
        try:
            answer = await self._submit(envelope, submitter)
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()
        SUBMISSIONS.labels(answer[:3]).inc()
        return answer

    async def handle_exception(self, error: Exception) -> str:
        _log.error("submission_failed", error=type(error).__name__)
        return OUR_FAULT

    async def _submit(self, envelope: Any, submitter: Submitter) -> str:
        try:
            async with asyncio.timeout(ACCEPT_TIMEOUT_S):
                requests = await _read(envelope, submitter.name)
                async with self._room_of(submitter.user) as room:
                    return _accepted(await _accept(room.accepting, requests, submitter.key_id))
        except (BadInput, LimitError, AccessError, IdempotencyConflict) as error:
            return refusal_of(error)
        except (DatabaseError, TimeoutError):
            return DATABASE_AWAY
        except Exception as error:
            if is_connection_lost(error):
                return DATABASE_AWAY
            if isinstance(error, asyncpg.DataError):
                return "554 5.6.0 The message contains data that cannot be stored"
            raise


async def _accept(accepting: AcceptCombiner, requests: Sequence[CheckedRequest], key_id: int | None) -> list[Accepted]:
    if len(requests) == 1:
        return [await accepting.accept(requests[0], key_id=key_id)]
    # One transaction for all deliveries: a rejected message must not be sent to some recipients.
    return await accepting.accept_together(requests, key_id=key_id)


async def _read(envelope: Any, source: str) -> list[CheckedRequest]:
    sender = None if envelope.mail_from == NO_SENDER else envelope.mail_from
    given = SubmittedEnvelope(sender, tuple(envelope.rcpt_tos))
    return await read_aside(len(envelope.content), source, read_copies, envelope.content, given, source=source)


def refusal_of(error: PostroomError) -> str:
    """The one-line reply to a message that is invalid or not permitted."""
    if isinstance(error, BadInput):
        return _refusal_of_input(error)
    if isinstance(error, IdempotencyConflict):
        return "554 5.5.4 This Idempotency-Key or Message-ID was already used with another message"
    status = "450 4.7.1" if isinstance(error, LimitError) else "550 5.7.1"
    return f"{status} {error.message[:LONGEST_TEXT]}"


def _refusal_of_input(bad: BadInput) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in bad.message).split())[:LONGEST_TEXT]
    is_size = all(
        error.field in _TOO_LARGE and ("at most" in error.message or "too large" in error.message)
        for error in bad.errors
    )
    return f"552 5.3.4 {text}" if is_size else f"554 5.6.0 {text}"


def _accepted(answers: Sequence[Accepted]) -> str:
    # Only the first id: a reply has at most 512 octets (RFC 5321), and some clients treat a longer one as a failure.
    ids = str(answers[0].id) + (f" and {len(answers) - 1} more" if len(answers) > 1 else "")
    if all(accepted.replayed for accepted in answers):
        return f"250 2.0.0 Already accepted as {ids}"
    return f"250 2.0.0 Accepted as {ids}"


def _address_problem(address: str) -> str | None:
    try:
        parse_address(address.encode("utf-8", "surrogateescape").decode())
    except UnicodeDecodeError:
        return "is not UTF-8"
    except ValueError as error:
        reason = "".join(c if c.isprintable() else " " for c in str(error))[:LONGEST_TEXT]
        return f"is not one: {reason}" if reason[:1].isupper() else reason  # some reasons are sentences
    return None
