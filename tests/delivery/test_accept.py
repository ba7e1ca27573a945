"""Acceptance: committed or not at all, once per key, in anybody's transaction."""

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from postroom.db.pool import Pool
from postroom.delivery import service
from postroom.delivery.model import Acceptance, Address, DeliveryRequest, Lane, State
from postroom.errors import BadInput, IdempotencyConflict


def mail(**fields: object) -> DeliveryRequest:
    given: dict[str, object] = {"to": (Address("ada@example.org"),), "subject": "Hello", "text": "Hello, Ada."}
    return DeliveryRequest(**(given | fields))  # type: ignore[arg-type]


async def test_an_accepted_request_is_queued(pool: Pool) -> None:
    """A request without a template is queued and can be claimed."""
    async with pool.acquire() as connection:
        accepted = await service.accept(connection, mail())
    delivery = await service.get_delivery(pool, accepted.id)
    assert delivery.state is State.QUEUED
    assert [recipient.address for recipient in delivery.recipients] == ["ada@example.org"]
