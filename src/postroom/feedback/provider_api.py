"""HTTP endpoints of providers' webhooks. Public paths: each handler verifies the provider before it reads an event.

A request without valid proof gets 401 and stores nothing. Events that are not needed are counted and get 200, because a
provider would repeat them for days. A repeated event changes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec

from postroom.errors import BadInput, LimitError, NotFoundError, Unauthenticated
from postroom.feedback import store
from postroom.feedback.metrics import WEBHOOKS
from postroom.feedback.providers import ProviderOptions, ProviderReports, mailgun, postmark, sendgrid, ses
from postroom.feedback.providers.receive import receive
from postroom.post.message_id import room_keys
from postroom.runtime.clock import Clock, utc_now
from postroom.runtime.endpoint import MEGABYTE, Answer, Call, Endpoint, Handler

TAG = "feedback"

Given = TypeVar("Given")
Decoded = TypeVar("Decoded")


class Received(msgspec.Struct, frozen=True):
    """The number of new events and of ignored events."""

    recorded: int
    ignored: int


@dataclass(frozen=True, slots=True)
class Providers:
    """The handlers, with the keys that verify requests."""

    options: ProviderOptions
    verifier: ses.Verifier
    clock: Clock = utc_now

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
        if not sendgrid.is_genuine(call.raw, call.headers, key=key):
            raise _refused("sendgrid")
        return await self._record(call, _decoded(sendgrid.read, call.raw), "sendgrid")

    async def receive_mailgun(self, call: Call) -> Answer:
        key = self.options.mailgun_key
        if key is None:
            raise _absent()
        request = _decoded(mailgun.read_request, call.raw)
        if not mailgun.is_genuine(request, key=key, now=self._now()):
            raise _refused("mailgun")
        return await self._record(call, mailgun.read(request), "mailgun", token=request.signature.token)

    async def receive_postmark(self, call: Call) -> Answer:
        secret = self.options.postmark_secret
        if secret is None:
            raise _absent()
        if not postmark.is_genuine(call.headers, secret=secret):
            raise _refused("postmark")
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
    handlers: Mapping[str, tuple[str, Handler, object]] = {
        "ses": ("Amazon SES, through SNS.", providers.receive_ses, options.ses_topics),
        "sendgrid": ("SendGrid's event webhook.", providers.receive_sendgrid, options.sendgrid_key),
        "mailgun": ("Mailgun's webhooks.", providers.receive_mailgun, options.mailgun_key),
        "postmark": ("Postmark's webhooks.", providers.receive_postmark, options.postmark_secret),
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
            most_body=MEGABYTE if proof else 0,  # without a key to verify it, nothing is read
        )
        for name, (summary, handler, proof) in handlers.items()
    ]


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
