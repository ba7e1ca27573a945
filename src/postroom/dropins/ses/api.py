"""The endpoint of SES's API."""

import asyncio
import re
from functools import partial

import msgspec

from postroom.delivery.api import traceparent_of
from postroom.delivery.service import AcceptCombiner
from postroom.dropins.ses.answers import XML, Taken, other_call_refused, refusal, version_1_refused
from postroom.dropins.ses.service import SignatureReused, claim_signature
from postroom.dropins.ses.shapes import requests_of
from postroom.dropins.ses.sign_in import SesSignIn, SigningKey
from postroom.errors import BadInput
from postroom.intake.parsing import read_aside
from postroom.runtime.endpoint import Answer, Call, Endpoint

_INVOCATION = "amz-sdk-invocation-id"
_NEXT_SECOND_S = 1.0
"""Signatures name a second: a client that is answered after this time signs the same call in another one."""
_KEY = re.compile(r"[!-~]{1,240}")


class AnyQuery(msgspec.Struct, frozen=True):
    """The query of an unsupported call; not read."""


async def refuse_other_call(_call: Call) -> Answer:
    return other_call_refused()


async def refuse_version_1(_call: Call) -> Answer:
    return version_1_refused()


def claims(call: Call) -> bool:
    """True for a call that a client of SES signed."""
    return "/ses/aws4_request" in call.headers.get("authorization", "")


def refuse_unknown(call: Call, _error: Exception, _problem: Answer) -> Answer | None:
    """The answer to a call of SES's API that Postroom does not have; None for any other path."""
    path: str = call.asgi["path"]
    if path.startswith("/v2/"):
        return other_call_refused()
    return version_1_refused() if claims(call) else None


def _refuse(_call: Call, error: Exception, _problem: Answer) -> Answer | None:
    return refusal(error)


def _refuse_version_1(_call: Call, _error: Exception, _problem: Answer) -> Answer:
    return version_1_refused()


def _refuse_other_call(_call: Call, _error: Exception, _problem: Answer) -> Answer:
    return other_call_refused()


async def send_ses_email(call: Call) -> Answer:
    signer, raw = await call.tool(SesSignIn).read(call)
    idempotency_key = await _idempotency_key(call, signer)
    requests = await read_aside(
        len(raw),
        signer.key.name,
        requests_of,
        raw,
        source=signer.key.name,
        idempotency_key=idempotency_key,
        traceparent=traceparent_of(call),
    )
    if len(requests) == 1:
        return Answer(Taken(str((await call.tool(AcceptCombiner).accept(requests[0], key_id=signer.key.id)).id)))
    accepted = await call.tool(AcceptCombiner).accept_together(requests, key_id=signer.key.id, share_key=True)
    return Answer(Taken(str(accepted[0].id)))


async def _idempotency_key(call: Call, signer: SigningKey) -> str:
    """The caller's own if it is signed, the one under which AWS's libraries repeat a call, or the signature itself.

    Some libraries do not sign their `amz-sdk-invocation-id`, and sign two equal calls of one second alike. So a
    signature counts for the first of them, and the other is asked to sign again in the next second: a recorded request
    with another id is not another mail.
    """
    given = signer.signed(call, "idempotency-key")
    if given is not None:
        if not _KEY.fullmatch(given):
            raise BadInput.of("Idempotency-Key", "must be 1 to 240 visible ASCII characters")
        return given
    invocation = call.headers.get(_INVOCATION, "")
    if not _KEY.fullmatch(invocation):
        invocation = ""
    if not invocation or signer.signed(call, _INVOCATION) is None:
        try:
            await claim_signature(call.room.pool, signer.claim.signature, invocation)
        except SignatureReused:
            await asyncio.sleep(_NEXT_SECOND_S)
            raise
    return f"aws:{invocation or signer.claim.signature}"


def _refusing(method: str) -> Endpoint:
    return Endpoint(
        method=method,
        path="/v2/email/{call:path}",
        handler=refuse_other_call,
        summary="Reject calls of Amazon SES that Postroom does not support.",
        scope=None,
        tag="ses",
        query=AnyQuery,
        refuse=_refuse_other_call,
        stream=True,
    )


_endpoint = partial(Endpoint, scope=None, tag="ses")

ENDPOINTS = (
    _endpoint(
        "POST", "/v2/email/outbound-emails", send_ses_email, "Accept a mail, as clients of Amazon SES do.",
        answers={200: Taken}, problems=(403, 409), refuse=_refuse, stream=True,
    ),
    _endpoint(
        "POST", "/", refuse_version_1,
        "Refuse calls of version 1 of Amazon SES, which post forms here, and name the version to use.", media_type=XML,
        refuse=_refuse_version_1, stream=True,
    ),
    *(_refusing(method) for method in ("DELETE", "GET", "PATCH", "POST", "PUT")),
)  # fmt: skip
