#!/usr/bin/env python3
"""A test with the pytest plugin: it starts Postroom, and gives the mail that was captured."""

import smtplib
from email.message import EmailMessage
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from postroom.inbox.pytest_plugin import PytestInbox


def test_code_reaches_the_person(postroom_inbox: "PytestInbox") -> None:
    postroom_inbox.send(to=["ada@example.org"], subject="Your code", text="It is 123456.", tags={"kind": "login"})

    mail = postroom_inbox.wait_for("ada@example.org")
    assert mail["subject"] == "Your code"
    assert "123456" in mail["text"]


def test_program_that_speaks_smtp_is_captured(postroom_inbox: "PytestInbox") -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.org", "bob@example.org", "Your order"
    message.set_content("Thank you.")
    with smtplib.SMTP("127.0.0.1", postroom_inbox.smtp_port) as client:
        client.login("any", "password")
        client.send_message(message)

    assert postroom_inbox.wait_for(query="to:bob subject:order")["text"].strip() == "Thank you."


def test_inbox_is_empty_at_first(postroom_inbox: "PytestInbox") -> None:
    assert postroom_inbox.messages() == []
    with pytest.raises(TimeoutError, match="Captured: none"):
        postroom_inbox.wait_for("nobody@example.org", timeout=0)
