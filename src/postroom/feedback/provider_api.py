"""HTTP endpoints of providers' webhooks. Public paths: each handler verifies the provider before it reads an event.

Before that, a request may hold 64 kB; SendGrid's batches are larger and signed as a whole, so two at a time may.

A request without valid proof gets 401 and stores nothing. Events that are not needed are counted and get 200, because a
provider would repeat them for days. A repeated event changes nothing.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from postroom.errors import BadInput, LimitError, NotFoundError, Unauthenticated
from postroom.feedback import store
from postroom.feedback.metrics import WEBHOOKS
from postroom.feedback.providers import ProviderOptions, ProviderReports, mailgun, postmark, sendgrid, ses
from postroom.feedback.providers.receive import receive
from postroom.post.message_id import room_keys
from postroom.runtime.clock import Clock, utc_now
from postroom.runtime.endpoint import MEGABYTE, PUBLIC_BODY, Answer, Call, Endpoint, Handler, ProtocolError

TAG = "feedback"

Given = TypeVar("Given")
Decoded = TypeVar("Decoded")


class Received(msgspec.Struct, frozen=True):
    """The number of new events and of ignored events."""

    recorded: int
    ignored: int


@dataclass(slots=True)
class LargeBatches:
    """Places for bodies above 64 kB of clients that have proven nothing yet."""

    free: int = 2  # a provider repeats a refused request for a day

    def take(self) -> bool:
        """Take a place. Raises `LimitError` if none is free."""
        if not self.free:
            raise LimitError("Too many large requests are being read; try again later.")
        self.free -= 1
        return True

    def give_back(self, is_taken: bool) -> None:  # noqa: FBT001 - the result of `take`
        self.free += is_taken


@dataclass(frozen=True, slots=True)
class Providers:
    """The handlers, with the keys that verify requests."""

    options: ProviderOptions
    verifier: ses.Verifier
    clock: Clock = utc_now
    large_batches: LargeBatches = field(default_factory=LargeBatches)

    async def receive_ses(self, call: Call) -> Answer:
        if not self.options.ses_topics:
            raise _absent()
        envelope = _decoded(ses.read_envelope, call.raw)
        try:
            is_genuine = await self.verifier.is_genuine(envelope, now=self._now())
            if is_genuine and envelope.Type == ses.CONFIRMATION:
                await self.verifier.confirm(envelope)
        except OSError:  # Amazon is unreachable; SNS will retry
            raise LimitError("The certificate cannot be fetched now; try again later.") from None
        if not is_genuine:
            raise _refused("ses")
        if envelope.Type != ses.NOTIFICATION:
            return Answer(Received(0, 1))
        return await self._record(call, _decoded(ses.read, envelope), "ses")

    async def receive_sendgrid(self, call: Call) -> Answer:
        key = self.options.sendgrid_key
        if key is None:
            raise _absent()
        async with self._read_batch(call) as raw:
            if not sendgrid.is_genuine(raw, call.headers, key=key):
                raise _refused("sendgrid")
            return await self._record(call, _decoded(sendgrid.read, raw), "sendgrid")

    @asynccontextmanager
    async def _read_batch(self, call: Call) -> AsyncIterator[bytes]:
        """A body whose signature covers it, as SendGrid sends up to 768 kB; a few at a time may exceed 64 kB."""
        raw, is_large = bytearray(), False
        assert call.chunks is not None, "the endpoint streams"
        try:
            async for chunk in call.chunks:
                if len(raw) + len(chunk) > PUBLIC_BODY and not is_large:
                    is_large = self.large_batches.take()
                raw += chunk
                if len(raw) > MEGABYTE:
                    detail = "The body of this request may have at most 1 MB."
                    raise ProtocolError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, field="body")
            yield bytes(raw)
        finally:
            self.large_batches.give_back(is_large)

    async def receive_mailgun(self, call: Call) -> Answer:
        key = self.options.mailgun_key
        if key is None:
            raise _absent()
        request = _decoded(mailgun.read_request, call.raw)
        if not mailgun.is_genuine(request, key=key, now=self._now()):
            raise _refused("mailgun")
        return await self._record(call, mailgun.read(request), "mailgun", token=request.signature.token)

    async def admit_postmark(self, call: Call) -> None:
        """Check the secret, which Postmark sends in a header, before the body is read."""
        secret = self.options.postmark_secret
        if secret is None:
            raise _absent()
        if not postmark.is_genuine(call.headers, secret=secret):
            raise _refused("postmark")

    async def receive_postmark(self, call: Call) -> Answer:
        return await self._record(call, _decoded(postmark.read, call.raw), "postmark")

    async def _record(self, call: Call, batch: ProviderReports, provider: str, *, token: str | None = None) -> Answer:
        """Record the events of a verified request; a token is valid once."""
        keys = room_keys(call.room.settings.secret_keys, call.room.settings.schema)
        async with call.room.pool.acquire() as connection, connection.transaction():
            if token is not None and not await store.use_token(connection, token=token, now=None):
                return Answer(Received(0, 1))
            recorded = await receive(connection, batch, provider=provider, keys=keys)
        return Answer(Received(recorded, batch.ignored))

    def _now(self) -> datetime:
        return self.clock() or utc_now()


def endpoints(
    options: ProviderOptions, *, fetch: ses.Fetch = ses.fetch_document, clock: Clock = utc_now
) -> list[Endpoint]:
    """The webhooks of all providers; those without a configured secret return 404."""
    providers = Providers(options, ses.Verifier(options.ses_topics, fetch), clock)
    # Without a key to verify it, nothing is read.
    handlers: Mapping[str, tuple[str, Handler, Mapping[str, Any]]] = {
        "ses": ("Amazon SES, through SNS.", providers.receive_ses, _body(options.ses_topics)),
        "sendgrid": ("SendGrid's event webhook.", providers.receive_sendgrid, {"stream": True}),
        "mailgun": ("Mailgun's webhooks.", providers.receive_mailgun, _body(options.mailgun_key)),
        "postmark": (
            "Postmark's webhooks.",
            providers.receive_postmark,
            {"admit": providers.admit_postmark, "most_body": MEGABYTE},
        ),
    }
    return [
        Endpoint(
            method="POST",
            path=f"/v1/feedback/{name}",
            handler=handler,
            summary=f"{summary} Requests must carry the provider's signature or secret.",
            scope=None,
            tag=TAG,
            answers={200: Received},
            problems=(400, 401, 404, 429),
            **reading,
        )
        for name, (summary, handler, reading) in handlers.items()
    ]


def _body(proof: object) -> Mapping[str, Any]:
    return {"most_body": PUBLIC_BODY if proof else 0}


def _decoded(read: Callable[[Given], Decoded], given: Given) -> Decoded:
    try:
        return read(given)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadInput.of("body", "is not a request of this provider") from None


def _refused(provider: str) -> Unauthenticated:
    WEBHOOKS.labels(provider, "refused").inc()
    return Unauthenticated("The signature is not valid for this provider.")


def _absent() -> NotFoundError:
    return NotFoundError("This provider is not configured.")
