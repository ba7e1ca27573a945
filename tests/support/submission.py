"""Submitting with the standard library's client, in a thread."""

import asyncio
import smtplib
from collections.abc import Callable
from email.message import EmailMessage
from typing import TypeVar

from tests.intake.conftest import Served
from tests.support.patience import PATIENCE_S

from postroom.db.pool import Pool
from postroom.delivery import service as delivery_service
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.model import Delivery

Result = TypeVar("Result")
MAIL = b"From: shop@example.com\r\nTo: ada@example.org\r\nSubject: Hi\r\n%b\r\nHello\r\n"


def letter(subject: str = "Hello", **headers: str) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.com", "Ada <ada@example.org>", subject
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    message.set_content("Hello, Ada.")
    return message


async def with_client(served: Served, use: Callable[[smtplib.SMTP], Result], *, login: bool = True) -> Result:
    """Run a client of the standard library in a thread."""

    def work() -> Result:
        with smtplib.SMTP("127.0.0.1", served.port, timeout=PATIENCE_S) as client:
            client.ehlo("client.example")
            if login:
                client.login("anyone", served.key)
            return use(client)

    return await asyncio.to_thread(work)


async def deliveries(pool: Pool) -> list[Delivery]:
    found, _cursor = await delivery_service.list_deliveries(pool, DeliveryFilter())
    return [await delivery_service.get_delivery(pool, one.id) for one in reversed(found)]


def submit(client: smtplib.SMTP, data: bytes, *recipients: str) -> tuple[int, bytes]:
    """One transaction by hand; returns the answer to the message."""
    client.mail("shop@example.com")
    for recipient in recipients or ("ada@example.org",):
        client.rcpt(recipient)
    return client.data(data)
