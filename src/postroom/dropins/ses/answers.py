"""Responses to clients of SES: an id, or an error with AWS's name, which its libraries turn into exceptions."""

import msgspec

from postroom.db.faults import is_connection_lost
from postroom.dropins.ses.service import SignatureReused
from postroom.dropins.ses.sign_in import BodyDropped, KeyUnknown
from postroom.errors import BadInput, IdempotencyConflict, KeyExpired, PostroomError, ScopeMissing
from postroom.limits.errors import FromNotAllowed, QuotaExceeded, RateExceeded, RoomClosed
from postroom.runtime.aws import SignatureRefused
from postroom.runtime.endpoint import Answer, ProtocolError

XML = "text/xml"

_UNKNOWN = (403, "UnrecognizedClientException", "The security token included in the request is invalid.")
_NO_DATABASE = (503, "ServiceUnavailable", "The database is not reachable. Retry the request.")
_NAMES: dict[type, tuple[int, str]] = {
    BadInput: (400, "BadRequestException"),
    IdempotencyConflict: (409, "ConflictException"),
    ScopeMissing: (403, "AccessDeniedException"),
    KeyExpired: (403, "ExpiredTokenException"),
    RateExceeded: (429, "TooManyRequestsException"),
    QuotaExceeded: (429, "LimitExceededException"),
    FromNotAllowed: (400, "MailFromDomainNotVerifiedException"),
    RoomClosed: (400, "SendingPausedException"),
    SignatureRefused: (403, "InvalidSignatureException"),
    SignatureReused: (429, "TooManyRequestsException"),
    BodyDropped: (503, "ServiceUnavailable"),
}


_OTHER = "Postroom supports SendEmail only, POST /v2/email/outbound-emails."
_VERSION_1 = b"""<ErrorResponse xmlns="http://ses.amazonaws.com/doc/2010-12-01/"><Error><Type>Sender</Type>\
<Code>InvalidAction</Code><Message>Postroom speaks version 2 of SES only: use its client, boto3.client('sesv2'), \
which posts to /v2/email/outbound-emails.</Message></Error><RequestId>none</RequestId></ErrorResponse>"""


class Taken(msgspec.Struct, frozen=True, rename="pascal"):
    """The id of a mail that was taken: its delivery's."""

    message_id: str


class SesError(msgspec.Struct, frozen=True):
    """The reason why a request was rejected; the name of the error is in a header."""

    message: str


def refusal(error: Exception) -> Answer | None:
    """The answer to an error that a client can understand; None for one that is our fault."""
    if isinstance(error, ProtocolError):
        return other_call_refused()
    if isinstance(error, KeyUnknown):
        status, name, message = _UNKNOWN
    elif is_connection_lost(error):
        status, name, message = _NO_DATABASE
    elif (named := next((_NAMES[kind] for kind in type(error).__mro__ if kind in _NAMES), None)) is not None:
        (status, name), message = named, str(error)
    else:
        return None
    if isinstance(error, SignatureRefused) and error.reason == "incomplete":
        name = "MissingAuthenticationTokenException"
    headers = {"x-amzn-errortype": name}
    if isinstance(error, PostroomError) and error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    return Answer(SesError(message), status, headers=headers)


def other_call_refused() -> Answer:
    """The answer to any other call of version 2."""
    return Answer(SesError(_OTHER), 404, headers={"x-amzn-errortype": "UnknownOperationException"})


def version_1_refused() -> Answer:
    """The answer to a client of SES version 1, in the XML that it reads errors from."""
    return Answer(_VERSION_1, 400, XML)
