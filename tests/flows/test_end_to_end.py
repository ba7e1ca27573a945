"""The whole way, composed as a process composes it: accepted, rendered, sent to the capture inbox, written."""

import asyncio
import os
from dataclasses import replace

import pytest
from tests.support.builders import (
    a_checked_mail,
    a_mail,
    accepted,
    addresses,
    attempts_of,
    outcomes_of,
    state_of,
    until,
)
from tests.support.smtp_server import smtp_server

from postroom.app import run_worker
from postroom.db.pool import connect
from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.model import DeliveryState, Lane

WELCOME = {"name": "Ada", "product": "Postroom", "url": "https://example.org"}


async def work(room: Room) -> None:
    """Empty the queue once, as `postroom work --until-empty` does."""
    async with asyncio.timeout(60):
        await run_worker(room, stop=asyncio.Event(), until_empty=True)


async def inbox(room: Room) -> list[str]:
    """The subjects of everything that arrived, oldest first."""
    async with room.pool.acquire() as connection:
        return [row["subject"] for row in await connection.fetch("SELECT subject FROM inbox_messages ORDER BY id")]


@pytest.mark.skipif("TEST_POSTGRES_MAJOR" in os.environ, reason="an older PostgreSQL is tried directly alone")
async def test_flows_open_their_room_in_both_ways(
    request: pytest.FixtureRequest, room: Room, database_url: str
) -> None:
    """The fixture of the room once ignored these settings, and every flow ran directly."""
    way = request.node.callspec.params["room_settings"]
    assert (room.url != database_url) == (way == "pgbouncer")


async def test_content_and_templates_arrive(room: Room) -> None:
    """Ready content and a rendered template end in the inbox, each with one attempt that says sent."""
    plain, rendered = await accepted(
        room.pool, a_mail(subject="Plain"), a_mail(template="welcome", variables=WELCOME, locale="fr-FR")
    )
    await work(room)
    assert sorted(await inbox(room)) == ["Bienvenue sur Postroom, Ada", "Plain"]
    for delivery in (plain, rendered):
        assert await state_of(room.pool, delivery) is DeliveryState.SENT
        assert [attempt.outcome for attempt in await attempts_of(room.pool, delivery)] == ["sent"]


async def test_only_committed_mail_is_delivered(room: Room) -> None:
    """From an application's own transaction, by Python and by SQL."""
    application = await connect(room.url, "public", pooled=room.settings.is_pooled)
    for subject, keeps in (("kept", True), ("dropped", False)):
        transaction = application.transaction()
        await transaction.start()
        await service.accept_from_application(
            application, a_checked_mail(subject=f"{subject} by Python"), room=room.name
        )
        await application.execute(
            "SELECT postroom.send('{a@example.org}', p_subject => $1::text, p_text => 'Hi')", f"{subject} by SQL"
        )
        await (transaction.commit() if keeps else transaction.rollback())
    await application.close()
    await work(room)
    assert sorted(await inbox(room)) == ["kept by Python", "kept by SQL"]


async def test_every_lane_and_every_recipient_is_served(room: Room) -> None:
    """Three lanes, and To, Cc and Bcc of each."""
    ids = await accepted(
        room.pool,
        *(
            a_mail("a@example.org", cc=addresses("c@example.org"), bcc=addresses("b@example.org"), lane=lane)
            for lane in Lane
        ),
    )
    await work(room)
    served = {"a@example.org": "delivered", "c@example.org": "delivered", "b@example.org": "delivered"}
    assert [await outcomes_of(room.pool, delivery) for delivery in ids] == [served] * 3


@pytest.mark.parametrize("transport, state", [("stub", DeliveryState.SUPPRESSED), ("noop", DeliveryState.SENT)])
async def test_the_settings_choose_the_way_out(room: Room, transport: str, state: DeliveryState) -> None:
    """Stub and no-op send nothing; what is written differs."""
    [delivery] = await accepted(room.pool)
    await work(replace(room, settings=replace(room.settings, transport=transport)))
    assert await state_of(room.pool, delivery) is state
    assert await inbox(room) == []


async def test_capture_captures_although_there_are_sender_accounts(room: Room) -> None:
    """Mail leaves through an account only after the operator has chosen a transport that uses accounts."""
    async with smtp_server() as server:
        await room.pool.execute(
            "INSERT INTO sender_accounts (email, auth_type, smtp_host, smtp_port, smtp_use_tls, send_delay_ms)"
            " VALUES ('news@example.org', 'smtp', '127.0.0.1', $1, false, 0)",
            server.port,
        )
        await accepted(room.pool, a_mail(subject="captured"))
        await work(room)
        assert (await inbox(room), server.messages) == (["captured"], [])
        await accepted(room.pool, a_mail(subject="sent"))
        await work(
            replace(
                room,
                settings=replace(room.settings, transport="senders", senders_allow_private=True, secret_key=bytes(32)),
            )
        )
        assert (await inbox(room), len(server.messages)) == (["captured"], 1)


async def test_without_an_account_the_senders_transport_defers(room: Room) -> None:
    """Mail that no account can carry is tried again, and its attempt says why."""
    [delivery] = await accepted(room.pool)
    await work(replace(room, settings=replace(room.settings, transport="senders")))
    assert [attempt.outcome for attempt in await attempts_of(room.pool, delivery)] == ["deferred"]


async def test_a_process_stops_when_asked(room: Room) -> None:
    """All loops end, and nothing is left claimed."""
    stop = asyncio.Event()
    running = asyncio.create_task(run_worker(room, stop=stop))
    await until(room.pool, "EXISTS (SELECT FROM workers WHERE cardinality(asleep) = 3)")
    stop.set()
    await asyncio.wait_for(running, 60)
    async with room.pool.acquire() as connection:
        assert await connection.fetchval("SELECT count(*) FROM workers") == 0
