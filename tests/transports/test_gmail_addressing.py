"""Recipients in the headers match the envelope."""

from email import message_from_bytes, policy

from postroom.transports.gmail.addressing import addressed

HEAD = (
    b"From: Room <room@example.org>\r\n"
    b"To: Ann <ann@example.org>,\r\n =?utf-8?q?B=C3=B6b?= <Bob@example.org>\r\n"
    b"Cc: cyd@example.org\r\n"
    b"DKIM-Signature: v=1; b=abc\r\n"
    b"Subject: hello\r\n"
)
RAW = HEAD + b"\r\nTo: this is text\r\n\r\nend\r\n"
EVERYBODY = ("ann@example.org", "bob@example.org", "cyd@example.org")


def read(raw: bytes) -> dict[str, str]:
    message = message_from_bytes(raw, policy=policy.default)
    return {name.lower(): str(value) for name, value in message.items()}


def test_a_message_to_those_it_names_is_left_alone() -> None:
    """Nothing is rewritten when the envelope and the headers agree, whatever the case of letters."""
    assert addressed(RAW, EVERYBODY) is RAW


def test_recipient_without_a_header_is_a_blind_copy() -> None:
    """A recipient of the envelope alone is added as Bcc, and nothing else changes."""
    raw = addressed(RAW, (*EVERYBODY, "dan@example.org", "eve@example.org"))
    assert raw == HEAD + b"Bcc: dan@example.org,\r\n eve@example.org\r\n" + RAW[len(HEAD) :]


def test_excluded_recipient_is_removed_from_headers() -> None:
    """An excluded person is removed from the headers, with the signature over them."""
    headers = read(addressed(RAW, ("bob@example.org", "cyd@example.org")))
    assert headers["to"] == "Böb <Bob@example.org>"
    assert headers["cc"] == "cyd@example.org"
    assert "dkim-signature" not in headers
    assert "bcc" not in headers


def test_header_without_recipients_is_removed() -> None:
    """An empty Cc is removed; an empty To becomes undisclosed recipients."""
    headers = read(addressed(RAW, ("dan@example.org",)))
    assert (headers["to"], headers["bcc"]) == ("undisclosed-recipients:;", "dan@example.org")
    assert "cc" not in headers


def test_a_blind_copy_in_the_message_is_replaced() -> None:
    """A Bcc header cannot add a recipient."""
    headers = read(addressed(b"Bcc: mal@example.org\r\n" + RAW, EVERYBODY))
    assert "bcc" not in headers
    assert headers["to"] == "Ann <ann@example.org>, Böb <Bob@example.org>"


def test_the_body_stays_as_it_is() -> None:
    """Text that looks like a header in the body is unchanged."""
    assert addressed(RAW, ("dan@example.org",)).endswith(b"\r\n\r\nTo: this is text\r\n\r\nend\r\n")


def test_a_message_without_a_body_is_whole() -> None:
    """Headers alone are a message too."""
    assert addressed(b"Subject: a\r\n", ("dan@example.org",)) == b"Subject: a\r\nBcc: dan@example.org\r\n\r\n"
