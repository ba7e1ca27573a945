"""The command: an entry that another program adds to a stream to have a mail delivered. Pure.

A command is flat, as a Redis stream entry is; elsewhere it is the same fields in one JSON object:

| field           | contains                                                                                     |
|-----------------|----------------------------------------------------------------------------------------------|
| source          | the name of the producer; required                                                           |
| payload_mode    | `rendered` (the payload has subject and bodies) or `template` (it names one); required       |
| payload_json    | the body of `POST /v1/deliveries`; required. In JSON it may also be an object                |
| idempotency_key | the command is accepted once per key. Default: `delivery_id`. One of them is required        |
| delivery_id     | the producer's own id. It is not part of the content: a repetition may carry another         |
| requested_at_ms | time of the request, in milliseconds since 1970; checked, not stored                         |
| request_id      | for the producer's logs; not stored                                                          |
| trace_id        | 32 hexadecimal digits, or a whole `traceparent`; the attempt's spans belong to that trace    |

`decode_command` returns a validated request, or the reason why the command is malformed; it never raises.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from postroom.delivery.check import CheckedRequest, check_source
from postroom.delivery.shapes import DeliveryBody, request_from
from postroom.errors import BadInput, FieldError
from postroom.intake.model import Malformed
from postroom.runtime.wrong_field import find_wrong_field

FIELDS = (
    "delivery_id",
    "source",
    "payload_mode",
    "idempotency_key",
    "requested_at_ms",
    "request_id",
    "trace_id",
    "payload_json",
)
MODES = ("rendered", "template")
LONGEST_LABEL = 255  # bounds a label; larger ones are usually another field
LATEST_MS = 253_402_300_800_000  # the end of the year 9999

_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_MILLISECONDS = re.compile(r"\d{1,15}")
_SHOWN = 200  # of a value in an error

_fields = msgspec.json.Decoder(dict[str, Any])
_body = msgspec.json.Decoder(DeliveryBody)

Problems = Iterator[FieldError]


def decode_command(raw: bytes) -> CheckedRequest | Malformed:
    """Decode a command into a request, or the reason why it is malformed."""
    try:
        fields = _fields.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Malformed("not_a_command", (FieldError("command", "is not a JSON object of fields in UTF-8"),))
    source = _readable_source(fields)
    if errors := tuple(_field_problems(fields)):
        return Malformed("bad_field", errors, source)
    try:
        body = _decode_payload(fields["payload_json"])
        _check_mode(fields["payload_mode"], body)
        return request_from(
            body,
            source=fields["source"],
            idempotency_key=fields.get("idempotency_key") or fields["delivery_id"],
            traceparent=_traceparent(fields.get("trace_id")),
        )
    except BadInput as bad:
        return Malformed("bad_payload", tuple(_inside_payload(bad)), source)


def read_fields(raw: bytes) -> dict[str, Any]:
    """The readable fields of a command; empty if it is not a JSON object."""
    try:
        return _fields.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def pack_fields(fields: Mapping[bytes, bytes]) -> bytes:
    """Pack flat fields of bytes into the JSON object in which a command is decoded, stored and corrected.

    Bytes that are not UTF-8 are stored as `{"base64": …}`, so that an operator sees exactly what was received.
    """
    packed = {_name(name): _value(value) for name, value in fields.items()}
    return msgspec.json.encode(packed)


def _name(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _value(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": value}


def _readable_source(fields: Mapping[str, Any]) -> str | None:
    source = fields.get("source")
    if not isinstance(source, str) or not 0 < len(source) <= LONGEST_LABEL or not source.isprintable():
        return None
    return source


def _field_problems(fields: Mapping[str, Any]) -> Problems:
    if unreadable := [name for name, value in fields.items() if _is_octets(value)]:
        yield from (FieldError(name[:_SHOWN], "is not UTF-8") for name in unreadable)
        return
    for name in fields:
        if name not in FIELDS:
            yield FieldError(name[:_SHOWN], "is not a field of a command")
    for name in ("delivery_id", "source", "idempotency_key", "request_id", "trace_id"):
        value = fields.get(name)
        if value is not None and not (isinstance(value, str) and len(value) <= LONGEST_LABEL):
            yield FieldError(name, f"must be text of at most {LONGEST_LABEL} characters")
    yield from _missing(fields)
    if not _is_milliseconds(fields.get("requested_at_ms")):
        yield FieldError("requested_at_ms", "must be milliseconds since 1970")


def _is_octets(value: Any) -> bool:
    """True for the `{"base64": …}` value that `pack_fields` makes of bytes that are not UTF-8."""
    return isinstance(value, dict) and value.keys() == {"base64"}


def _missing(fields: Mapping[str, Any]) -> Problems:
    if not fields.get("source"):
        yield FieldError("source", "is required")
    elif (reason := check_source(str(fields["source"]))) is not None:
        yield FieldError("source", reason)
    if not fields.get("idempotency_key") and not fields.get("delivery_id"):
        yield FieldError("idempotency_key", "is required, unless a delivery_id is given")
    if fields.get("payload_mode") not in MODES:
        yield FieldError("payload_mode", f"must be {' or '.join(MODES)}")
    if not isinstance(fields.get("payload_json"), str | dict):
        yield FieldError("payload_json", "must be a JSON object")


def _is_milliseconds(value: Any) -> bool:
    if isinstance(value, str):
        return value == "" or (_MILLISECONDS.fullmatch(value) is not None and int(value) < LATEST_MS)
    return value is None or (type(value) is int and 0 <= value < LATEST_MS)


def _decode_payload(payload: str | dict[str, Any]) -> DeliveryBody:
    try:
        return msgspec.convert(payload, DeliveryBody) if isinstance(payload, dict) else _body.decode(payload)
    except msgspec.ValidationError as error:
        raise BadInput.of(*find_wrong_field(str(error), DeliveryBody)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadInput.of("", f"is not JSON: {error}") from None


def _check_mode(mode: str, body: DeliveryBody) -> None:
    if mode == "template" and body.template is None:
        raise BadInput.of("template", "is required with payload_mode=template")
    if mode == "rendered" and body.template is not None:
        raise BadInput.of("template", "cannot be given with payload_mode=rendered")


def _traceparent(trace: str | None) -> str | None:
    """The traceparent of the command. An invalid one is ignored, as W3C requires: it is no reason to reject a mail."""
    if trace is None or _TRACEPARENT.fullmatch(trace):
        return trace
    if not _TRACE_ID.fullmatch(trace):
        return None
    # A parent needs a span id; without one from the producer, one derived from the trace id is used.
    return f"00-{trace}-{hashlib.sha256(trace.encode()).hexdigest()[:16]}-01"


def _inside_payload(bad: BadInput) -> Problems:
    """Prefix the paths of payload fields; the command's own fields keep their names."""
    for error in bad.errors:
        is_own = error.field in ("source", "idempotency_key")
        path = error.field if is_own else f"payload_json.{error.field}".rstrip(".")
        yield FieldError(path[:_SHOWN], error.message)
