"""Signature Version 4: signatures equal botocore's, and botocore's are verified."""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from postroom.runtime.aws import Authorization, AwsCredentials, SignatureRefused, parse_authorization, sign, verify

NOW = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
CREDENTIALS = AwsCredentials("EXAMPLEKEY", "example/secret+key")
JSON = {"Content-Type": "application/json", "Content-Length": "2"}

REQUESTS: dict[str, tuple[str, str, dict[str, str], bytes]] = {
    "post json": ("POST", "https://email.eu-central-1.amazonaws.com/v2/email/outbound-emails", JSON, b"{}"),
    "no path": ("GET", "https://kms.eu-west-1.amazonaws.com", {}, b""),
    "port": ("POST", "http://127.0.0.1:4566/", JSON, b"{}"),
    "default port": ("POST", "https://kms.example.org:443/", JSON, b"{}"),
    "query": ("GET", "https://example.org/?b=2&a=1&a=0&c&d=%20%2F", {}, b""),
    "odd path": ("GET", "https://example.org/a%20b/./c/../d~//e/", {}, b""),
    "target header": ("POST", "https://example.org/", {"X-Amz-Target": "TrentService.Encrypt", **JSON}, b"{}"),
    "spaces in a header": ("POST", "https://example.org/", {"X-Amz-Meta": "  a   b "}, b"x"),
    "unsigned headers": ("POST", "https://example.org/", {"User-Agent": "x", "Expect": "100-continue"}, b"x"),
}
every_request = pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())


def by_botocore(
    method: str, url: str, headers: dict[str, str], body: bytes, *, service: str = "ses", token: str | None = None
) -> dict[str, str]:
    """The headers after botocore signed at the current time."""
    kind: Any = botocore.auth.S3SigV4Auth if service == "s3" else botocore.auth.SigV4Auth
    request = AWSRequest(method=method, url=url, headers=headers, data=body)
    kind(Credentials("EXAMPLEKEY", "example/secret+key", token), service, "eu-central-1").add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def moment_of(headers: dict[str, str]) -> datetime:
    return datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


def signed(
    method: str,
    url: str,
    headers: dict[str, str],
    body: bytes,
    *,
    service: str = "ses",
    token: str | None = None,
    now: datetime = NOW,
) -> dict[str, str]:
    credentials = AwsCredentials("EXAMPLEKEY", "example/secret+key", token)
    return sign(method, url, headers, body, credentials=credentials, region="eu-central-1", service=service, now=now)


def received(method: str, url: str, headers: dict[str, str], body: bytes) -> dict[str, Any]:
    """A signed request as a server receives it."""
    parts = urlsplit(url)
    added = {name.lower(): value for name, value in {**headers, **signed(method, url, headers, body)}.items()}
    port = {"http": ":80", "https": ":443"}[parts.scheme]
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return {
        "method": method,
        "target": target,
        "headers": {"host": parts.netloc.removesuffix(port), **added},
        "body": body,
    }


def judge(request: dict[str, Any], *, now: datetime = NOW, secret: str = "example/secret+key") -> Authorization:
    """The claim of a request whose signature is accepted."""
    claim = parse_authorization(request["headers"].get("authorization"))
    verify(
        claim,
        request["method"],
        target=request["target"],
        headers=request["headers"],
        content=hashlib.sha256(request["body"]).hexdigest(),
        secret_access_key=secret,
        now=now,
    )
    return claim


def good() -> dict[str, Any]:
    return received(*REQUESTS["post json"])


@every_request
def test_botocore_signs_the_same(request_: tuple[str, str, dict[str, str], bytes]) -> None:
    """For every kind of request the Authorization header equals that of AWS's own library."""
    theirs = by_botocore(*request_)
    ours = signed(*request_, now=moment_of(theirs))
    assert ours["Authorization"] == theirs["authorization"]
    assert ours["X-Amz-Date"] == theirs["x-amz-date"]


def test_a_session_token_is_signed_too() -> None:
    """Temporary credentials send their token, and it is part of the signature."""
    request = REQUESTS["post json"]
    theirs = by_botocore(*request, token="token")
    ours = signed(*request, token="token", now=moment_of(theirs))
    assert ours["Authorization"] == theirs["authorization"]
    assert ours["X-Amz-Security-Token"] == "token"


def test_s3_has_its_own_rules() -> None:
    """For S3 the path is signed as it is sent, and a header has the hash of the content."""
    url = "https://bucket.s3.amazonaws.com/a%20b//c"
    theirs = by_botocore("PUT", url, {}, b"content", service="s3")
    ours = signed("PUT", url, {}, b"content", service="s3", now=moment_of(theirs))
    assert ours["Authorization"] == theirs["authorization"]
    assert ours["X-Amz-Content-SHA256"] == theirs["x-amz-content-sha256"]


def test_secrets_stay_out_of_representations() -> None:
    """Neither the secret nor the token appears in repr."""
    shown = repr(AwsCredentials("EXAMPLEKEY", "example-secret", "example-token"))
    assert "EXAMPLEKEY" in shown
    assert "secret'" not in shown
    assert "example-token" not in shown


@every_request
def test_valid_signatures_are_accepted(request_: tuple[str, str, dict[str, str], bytes]) -> None:
    """A server with the same secret accepts every one of these requests."""
    assert judge(received(*request_)).access_key_id == "EXAMPLEKEY"


def test_a_proxy_may_add_headers() -> None:
    """Unsigned headers may change."""
    request = good()
    request["headers"] |= {"via": "1.1 proxy", "user-agent": "other"}
    assert judge(request).access_key_id == "EXAMPLEKEY"


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "body": ({"body": b"{ }"}, "mismatch"),
    "method": ({"method": "PUT"}, "mismatch"),
    "path": ({"target": "/v2/email/outbound-bulk-emails"}, "mismatch"),
    "query": ({"target": "/v2/email/outbound-emails?a=1"}, "mismatch"),
}


@pytest.mark.parametrize("change, reason", CHANGES.values(), ids=CHANGES.keys())
def test_changed_request_is_rejected(change: dict[str, Any], reason: str) -> None:
    """No part of the request can be replaced."""
    with pytest.raises(SignatureRefused) as refused:
        judge({**good(), **change})
    assert refused.value.reason == reason


HEADERS: dict[str, tuple[dict[str, str], str]] = {
    "other host": ({"host": "example.org"}, "mismatch"),
    "other type": ({"content-type": "text/plain"}, "mismatch"),
    "other moment": ({"x-amz-date": "20310506T070810Z"}, "mismatch"),
    "other day": ({"x-amz-date": "20310507T070809Z"}, "mismatch"),
    "no moment": ({"x-amz-date": ""}, "incomplete"),
    "content hash of another body": ({"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}, "mismatch"),
    "no signature": ({"authorization": ""}, "incomplete"),
    "a bearer": ({"authorization": "Bearer pr_x"}, "incomplete"),
    "another algorithm": ({"authorization": "AWS4-HMAC-SHA1 Credential=a"}, "incomplete"),
}


@pytest.mark.parametrize("change, reason", HEADERS.values(), ids=HEADERS.keys())
def test_changed_signed_header_is_rejected(change: dict[str, str], reason: str) -> None:
    """A signed header cannot be replaced, and an incomplete signature is rejected."""
    request = good()
    request["headers"] |= change
    with pytest.raises(SignatureRefused) as refused:
        judge(request)
    assert refused.value.reason == reason


def test_missing_signed_header_is_rejected() -> None:
    """Removing a signed header invalidates the signature."""
    request = good()
    del request["headers"]["content-type"]
    with pytest.raises(SignatureRefused, match="missing"):
        judge(request)


@pytest.mark.parametrize("name", ["host", "x-amz-date"])
def test_host_and_moment_must_be_signed(name: str) -> None:
    """Without them a signature could be used for another host, or without a time limit."""
    header = good()["headers"]["authorization"]
    names = header.partition("SignedHeaders=")[2].partition(",")[0]
    without = ";".join(part for part in names.split(";") if part != name)
    with pytest.raises(SignatureRefused, match="signed headers"):
        parse_authorization(header.replace(names, without))


def test_wrong_secret_is_rejected() -> None:
    """The access key id alone is not enough."""
    with pytest.raises(SignatureRefused) as refused:
        judge(good(), secret="another")
    assert refused.value.reason == "mismatch"


@pytest.mark.parametrize("minutes", [-4.9, 4.9])
def test_small_clock_skew_is_accepted(minutes: float) -> None:
    """The request is accepted within the limit, in both directions."""
    assert judge(good(), now=NOW + timedelta(minutes=minutes)).access_key_id == "EXAMPLEKEY"


@pytest.mark.parametrize("minutes", [-5.1, 5.1])
def test_expired_signature_is_rejected(minutes: float) -> None:
    """Beyond the limit, in both directions, the request is rejected as expired."""
    with pytest.raises(SignatureRefused) as refused:
        judge(good(), now=NOW + timedelta(minutes=minutes))
    assert refused.value.reason == "expired"
