"""AWS Signature Version 4: sign requests as a client, and verify them as a server.

`sign` returns the headers to add. The caller must send exactly the URL, headers and body it signed; `Host` and headers
that proxies change need not be given. `sign` handles Amazon S3's own rule for paths.

`verify` requires that host, time (within 5 minutes) and body are signed, and rejects the request otherwise. Signatures
are compared in constant time.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol
from urllib.parse import quote, unquote_to_bytes, urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"
CLOCK_SKEW = timedelta(minutes=5)  # as AWS
CONTENT_HASH = "x-amz-content-sha256"

_MOMENT = "%Y%m%dT%H%M%SZ"
_UNSIGNED = frozenset({"authorization", "connection", "expect", "transfer-encoding", "user-agent", "x-amzn-trace-id"})
"""Headers that clients, libraries and proxies set or change."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
_AUTHORIZATION = re.compile(
    rf"{ALGORITHM} +Credential=(?P<key>[\w+=.@-]{{1,128}})/(?P<day>\d{{8}})/(?P<region>[a-z0-9-]{{1,64}})"
    r"/(?P<service>[a-z0-9-]{1,64})/aws4_request *, *SignedHeaders=(?P<headers>[a-z0-9;_.-]{1,2000})"
    r" *, *Signature=(?P<signature>[0-9a-f]{64})"
)


class CredentialSource(Protocol):
    """A source of credentials: fixed ones, or `runtime.aws_credentials.CredentialChain`."""

    async def current(self) -> "AwsCredentials":
        """Credentials that are valid now. Raises `ConfigurationError` if no source has any."""


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """Credentials of a signer. Secret and token are left out of `repr`."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_at: datetime | None = None

    async def current(self) -> "AwsCredentials":
        """Fixed credentials are their own source."""
        return self


@dataclass(frozen=True, slots=True)
class Authorization:
    """The unverified claims of an `Authorization` header."""

    access_key_id: str
    day: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    signature: str


class SignatureRefused(Exception):  # noqa: N818 - a condition, like the leaves of errors.py
    """The signature is not valid. `reason`: incomplete, expired or mismatch."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def sign(  # noqa: PLR0913 - a request has four parts, and a signature four more
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    credentials: AwsCredentials,
    region: str,
    service: str,
    now: datetime,
) -> dict[str, str]:
    """The headers to add to a request: `Authorization`, `X-Amz-Date` and, if needed, token and content hash."""
    added = {"X-Amz-Date": now.astimezone(UTC).strftime(_MOMENT)}
    if credentials.session_token is not None:
        added["X-Amz-Security-Token"] = credentials.session_token
    if service == "s3":
        added["X-Amz-Content-SHA256"] = hashlib.sha256(body).hexdigest()
    parts = urlsplit(url)
    values = {"host": _host(url), **_lowered(headers), **_lowered(added)}
    names = tuple(sorted(name for name in values if name not in _UNSIGNED))
    path = parts.path or "/"
    content = hashlib.sha256(body).hexdigest()
    path = path if service == "s3" else _encoded_path(path)
    request = _canonical(method, path, parts.query, names=names, values=values, content=content)
    day = added["X-Amz-Date"][:8]
    claim = Authorization(credentials.access_key_id, day, region, service, names, "")
    signature = _signature(claim, credentials.secret_access_key, moment=added["X-Amz-Date"], request=request)
    added["Authorization"] = (
        f"{ALGORITHM} Credential={credentials.access_key_id}/{_scope(claim)}, "
        f"SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    return added


def presign(
    url: str, *, credentials: AwsCredentials, region: str, service: str, lifetime: timedelta, now: datetime
) -> str:
    """The URL of a GET request with the signature among its parameters, valid for `lifetime`."""
    moment = now.astimezone(UTC).strftime(_MOMENT)
    claim = Authorization(credentials.access_key_id, moment[:8], region, service, ("host",), "")
    added = {
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key_id}/{_scope(claim)}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(int(lifetime.total_seconds())),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.session_token is not None:
        added["X-Amz-Security-Token"] = credentials.session_token
    parts = urlsplit(url)
    query = "&".join([parts.query, *(f"{name}={quote(value, safe='')}" for name, value in added.items())])
    content = hashlib.sha256(b"").hexdigest()
    request = _canonical("GET", parts.path or "/", query, names=("host",), values={"host": _host(url)}, content=content)
    signature = _signature(claim, credentials.secret_access_key, moment=moment, request=request)
    return f"{parts.scheme}://{parts.netloc}{parts.path}?{query}&X-Amz-Signature={signature}"


def parse_authorization(header: str | None) -> Authorization:
    """Parse the header, so that the caller can look up the secret of its key. Raises `SignatureRefused`."""
    found = _AUTHORIZATION.fullmatch(header.strip()) if header else None
    if found is None:
        raise SignatureRefused("incomplete", f"The request is not signed with {ALGORITHM}.")
    names = tuple(found["headers"].split(";"))
    if len(set(names)) != len(names) or not {"host", "x-amz-date"} <= set(names):
        raise SignatureRefused("incomplete", "Host and X-Amz-Date must be among the signed headers.")
    return Authorization(found["key"], found["day"], found["region"], found["service"], names, found["signature"])


def announced_content(claim: Authorization, headers: Mapping[str, str]) -> str | None:
    """The SHA-256 of the body in hexadecimal, if the client sent it in a signed header; `verify` needs no body then."""
    return headers.get(CONTENT_HASH) if CONTENT_HASH in claim.signed_headers else None


def verify(  # noqa: PLR0913 - the parameters of `sign`, from the server's side
    claim: Authorization,
    method: str,
    *,
    target: str,
    headers: Mapping[str, str],
    content: str,
    secret_access_key: str,
    now: datetime,
) -> None:
    """Return if the holder of the secret signed this request within 5 minutes; raise `SignatureRefused` if not.

    `target` is the undecoded path and query; `headers` have lower-case names; `content` is the SHA-256 of the body in
    hexadecimal.
    """
    moment = headers.get("x-amz-date", "")
    _check_moment(claim, moment, now)
    if any(name not in headers for name in claim.signed_headers):
        raise SignatureRefused("incomplete", "A signed header is missing.")
    check_content(headers, content)
    path, _, query = target.partition("?")
    names = tuple(sorted(claim.signed_headers))
    request = _canonical(method, _encoded_path(path or "/"), query, names=names, values=headers, content=content)
    expected = _signature(claim, secret_access_key, moment=moment, request=request)
    if not hmac.compare_digest(expected, claim.signature):
        raise SignatureRefused("mismatch", "The signature does not match the request and the secret key.")


def check_content(headers: Mapping[str, str], content: str) -> None:
    """Raise `SignatureRefused` if the client announced another SHA-256 than the body has."""
    announced = headers.get(CONTENT_HASH)
    if announced is not None and not hmac.compare_digest(announced.encode(), content.encode()):
        raise SignatureRefused("mismatch", "X-Amz-Content-SHA256 is not the hash of the body.")


def _check_moment(claim: Authorization, moment: str, now: datetime) -> None:
    try:
        signed_at = datetime.strptime(moment, _MOMENT).replace(tzinfo=UTC)
    except ValueError:
        raise SignatureRefused("incomplete", "X-Amz-Date is not a moment such as 20240131T120000Z.") from None
    if not moment.startswith(claim.day):
        raise SignatureRefused("mismatch", "The date of the credential is not the date of the request.")
    if abs(now - signed_at) > CLOCK_SKEW:
        raise SignatureRefused("expired", "The request was signed more than 5 minutes ago, or ahead of time.")


def _canonical(
    method: str, path: str, query: str, *, names: Iterable[str], values: Mapping[str, str], content: str
) -> str:
    headers = "".join(f"{name}:{' '.join(values[name].split())}\n" for name in names)
    return "\n".join([method.upper(), path, _encoded_query(query), headers, ";".join(names), content])


def _signature(claim: Authorization, secret: str, *, moment: str, request: str) -> str:
    text = "\n".join([ALGORITHM, moment, _scope(claim), hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{secret}".encode()
    for part in (claim.day, claim.region, claim.service, "aws4_request"):
        key = hmac.digest(key, part.encode(), hashlib.sha256)
    return hmac.digest(key, text.encode(), hashlib.sha256).hex()


def _scope(claim: Authorization) -> str:
    return f"{claim.day}/{claim.region}/{claim.service}/aws4_request"


def _encoded_path(path: str) -> str:
    """The path without dot segments and empty segments, percent-encoded a second time."""
    steps: list[str] = []
    for step in path.split("/"):
        if step == "..":
            del steps[-1:]
        elif step not in ("", "."):
            steps.append(step)
    ending = "/" if steps and path.endswith("/") else ""
    return quote("/" + "/".join(steps) + ending, safe="/~")


def _encoded_query(query: str) -> str:
    pairs = (pair.partition("=") for pair in query.split("&") if pair)
    return "&".join(f"{key}={value}" for key, value in sorted((_encoded(k), _encoded(v)) for k, _, v in pairs))


def _encoded(text: str) -> str:
    return quote(unquote_to_bytes(text), safe="-_.~")


def _host(url: str) -> str:
    """The `Host` header an HTTP client sends: without credentials and without the default port."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].lower()
    return host.removesuffix(f":{_DEFAULT_PORTS[parts.scheme]}") if parts.scheme in _DEFAULT_PORTS else host


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
