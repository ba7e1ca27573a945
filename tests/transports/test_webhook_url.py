"""Validation of webhook deliveries."""

from typing import Any

import pytest

from postroom.delivery.check import check_batch, check_url
from postroom.delivery.model import Channel, DeliveryRequest
from postroom.errors import BadInput
from postroom.post.address import Address
from postroom.post.mime import Attachment

GOOD = "https://hooks.example.org/greet"


@pytest.mark.parametrize(
    "url",
    [
        GOOD,
        "http://hooks.example.org",
        "HTTPS://Hooks.Example.org:8443/a/b?c=d&e=%20",
        "http://127.0.0.1:8080/",
        "http://[2001:db8::1]/",
        "http://[::ffff:192.0.2.1]/",
        "http://192.0.2.1.example.org/",
        "https://example.org/" + "x" * 2028,
    ],
)
def test_a_url_that_can_be_posted_to(url: str) -> None:
    """Http or https, a host, perhaps a port; where it leads is judged when it is posted."""
    assert check_url(url) is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.org",
        "ftp://example.org/",
        "https://",
        "https:///path",
        "https://example.org:port/",
        "https://example.org:0/",
        "https://example.org:99999/",
        "https://[::1/",
        "https://user@example.org/",
        "https://user:word@example.org/",
        "https://example.org/#part",
        "https://example.org/with space",
        "https://example.org/\r\nX: y",
        "https://exämple.org/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://0177.0.0.1/",
        "http://127.0.0.1./",
        "https://example.org/" + "x" * 2029,
    ],
)
def test_a_url_that_cannot(url: str) -> None:
    """Another scheme, no host, credentials, fragments, addresses in disguise, anything unprintable, too long."""
    assert check_url(url) is not None


@pytest.mark.parametrize(
    "fields, field",
    [
        ({"to": ()}, "to"),
        ({"to": (Address(GOOD), Address(GOOD))}, "to"),
        ({"to": (Address("ada@example.org"),)}, "to[0]"),
        ({"cc": (Address(GOOD),)}, "to"),
        ({"text": None}, "text"),
        ({"html": "<p>"}, "html"),
        ({"template": "birthday", "text": None}, "text"),
        ({"attachments": (Attachment("a.txt", "text/plain", "aGk="),)}, "attachments"),
    ],
)
def test_a_webhook_is_one_url_and_one_body(fields: dict[str, Any], field: str) -> None:
    """Fields of mail are rejected by name."""
    given: dict[str, Any] = {"to": (Address(GOOD),), "text": "{}", "channel": Channel.WEBHOOK}
    check_batch([DeliveryRequest(**given)])
    with pytest.raises(BadInput) as caught:
        check_batch([DeliveryRequest(**(given | fields))])
    assert caught.value.errors[0].field == field


def test_mail_still_needs_an_address() -> None:
    """A URL is no recipient of mail."""
    with pytest.raises(BadInput, match="not an e-mail address"):
        check_batch([DeliveryRequest(to=(Address(GOOD),), subject="Hello", text="Hello")])
