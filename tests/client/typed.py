"""A user's program for mypy, which runs over the tests too: it is never executed.

`assert_type` states the types of results, and an unused `type: ignore` is an error: mypy has to refuse each such line.
"""

from pathlib import Path
from typing import Literal, assert_type

import postroom
from postroom.client.api.campaigns import Upload
from postroom.client.api.deliveries import Accepted, Delivery, DeliveryBody, DeliverySummary
from postroom.client.api.events import EventPage, NewEvent, SequencedEvent
from postroom.sync import Client as BlockingClient


async def asynchronous(client: postroom.Client, file: Path) -> None:
    """Methods are awaited, listings are iterated with `async for`."""
    sent = await client.deliveries.send(to="ada@example.org", subject="Hello", text="Hello.", lane="bulk")
    assert_type(sent, Accepted)
    delivery = await client.deliveries.get(sent.id)
    assert_type(delivery, Delivery)
    assert_type(delivery.lane, Literal["auth", "bulk", "transactional"])
    async for summary in client.deliveries.list(status="failed"):
        assert_type(summary, DeliverySummary)
    async for page in client.events.list(type="OrderPlaced").pages():
        assert_type(page, EventPage)
    async for event in client.events.list().follow():
        assert_type(event, SequencedEvent)
    assert_type(await client.campaigns.upload_recipients(1, file, progress=print), Upload)
    async for chunk in client.suppressions.export():
        assert_type(chunk, bytes)

    await client.deliveries.send(subject="Hello")  # type: ignore[call-arg]
    await client.deliveries.send(to="ada@example.org", sbject="Hello")  # type: ignore[call-arg]
    await client.deliveries.get("7")  # type: ignore[arg-type]
    client.deliveries.list(status="lost")  # type: ignore[arg-type]
    client.deliveries.list().follow()  # type: ignore[misc]
    client.delivery  # type: ignore[attr-defined]  # noqa: B018 - an attribute that does not exist
    for _summary in client.deliveries.list():  # type: ignore[attr-defined]
        pass


def synchronous(client: BlockingClient, file: Path) -> None:
    """Methods return results, listings are iterated with `for`."""
    sent = client.deliveries.send(to=["ada@example.org"], subject="Hello", text="Hello.", from_="shop@example.org")
    assert_type(sent, Accepted)
    for summary in client.deliveries.list(status="failed"):
        assert_type(summary, DeliverySummary)
    for event in client.events.list(tag=["order=1"]):
        assert_type(event, SequencedEvent)
    client.deliveries.send_batch(deliveries=[DeliveryBody(to="ada@example.org", template="welcome")])
    client.events.append(events=[NewEvent(type="OrderPlaced", data={"order": 1})])
    assert_type(client.campaigns.upload_recipients(1, str(file)), Upload)
    assert_type(client.inbox.get_raw(1), bytes)

    client.events.append(events=[NewEvent(data={})])  # type: ignore[call-arg]
    client.campaigns.create(name=1, subject="a")  # type: ignore[arg-type]
    client.deliveries.cancel()  # type: ignore[call-arg]
