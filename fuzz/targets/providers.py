"""Webhooks of mail providers: events with mutated values, most of them with a valid signature."""

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from random import Random
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from fuzz.arena import Arena
from fuzz.mutate import at_home, mutate, mutate_value
from fuzz.tally import Case
from fuzz.wire import as_json, exchange, request
from postroom.feedback.providers import postmark, sendgrid

_SENDGRID = [
    {"event": "bounce", "email": "ann@example.org", "status": "5.1.1", "reason": "550 unknown", "timestamp": 1.7e9},
    {"event": "spamreport", "email": "ann@example.org", "sg_event_id": "a", "smtp-id": "<1@example.org>"},
]
_MAILGUN = {
    "event": "failed",
    "id": "a",
    "recipient": "ann@example.org",
    "severity": "permanent",
    "timestamp": 1.7e9,
    "delivery-status": {"code": 550, "enhanced-code": "5.1.1", "message": "unknown"},
    "message": {"headers": {"message-id": "1@example.org"}},
}
_POSTMARK = {
    "RecordType": "Bounce",
    "Type": "HardBounce",
    "ID": 1,
    "MessageID": "a",
    "Email": "ann@example.org",
    "Description": "unknown",
    "BouncedAt": "2026-01-01T00:00:00Z",
}
_SES = {
    "Type": "Notification",
    "MessageId": "a",
    "TopicArn": "arn:aws:sns:eu-west-1:1:other",  # not ours: a topic of ours would fetch a certificate from Amazon
    "Message": "{}",
    "Timestamp": "2026-01-01T00:00:00Z",
    "SignatureVersion": "2",
    "Signature": "AA==",
    "SigningCertURL": "https://127.0.0.1/a.pem",
}
Signed = tuple[bytes, dict[str, str]]


async def attack(arena: Arena, random: Random, case: Case) -> None:
    """One event of one provider."""
    name, sign = random.choice(sorted(_PROVIDERS.items()))
    body, proof = sign(arena, random)
    if random.random() < 0.2:
        body = mutate(random, body, 2)
    raw = request("POST", f"/v1/feedback/{name}", headers={"content-type": "application/json", **proof}, body=body)
    status, answer = await exchange(arena.http, raw)
    case.http(status, f"{name} {body[:400]!r} -> {answer[-300:]!r}" if status >= 500 else "")


def _mutated(random: Random, value: Any) -> Any:
    for _ in range(random.randint(0, 3)):
        value = mutate_value(random, value)
    return value


def _sign_sendgrid(arena: Arena, random: Random) -> Signed:
    body, moment = as_json(_mutated(random, _SENDGRID)), str(int(time.time()))
    signature = arena.sendgrid_key.sign(moment.encode() + body, ec.ECDSA(SHA256()))
    return body, {sendgrid.TIMESTAMP: moment, sendgrid.SIGNATURE: base64.b64encode(signature).decode()}


def _sign_mailgun(arena: Arena, random: Random) -> Signed:
    moment = str(random.choice((int(time.time()), int(time.time()), 0, 10**11, 10**12 - 1)))
    token = f"{random.getrandbits(64):x}"
    signature = hmac.new(arena.mailgun_key.encode(), f"{moment}{token}".encode(), hashlib.sha256).hexdigest()
    proof = {"timestamp": moment, "token": token, "signature": signature}
    return as_json({"signature": proof, "event-data": _mutated(random, _MAILGUN)}), {}


def _sign_postmark(arena: Arena, random: Random) -> Signed:
    return as_json(_mutated(random, _POSTMARK)), {postmark.HEADER: arena.postmark_secret}


def _sign_ses(_arena: Arena, random: Random) -> Signed:
    return as_json(at_home(_mutated(random, _SES))), {}


_PROVIDERS: dict[str, Callable[[Arena, Random], Signed]] = {
    "sendgrid": _sign_sendgrid,
    "mailgun": _sign_mailgun,
    "postmark": _sign_postmark,
    "ses": _sign_ses,
}
