"""The notice about malformed commands."""

import asyncio

from tests.support.builders import Hands
from tests.support.command_line import running
from tests.support.intake import accepting, entries, raw
from tests.support.patience import PATIENCE_S
from tests.support.retention import swept

from postroom.db.pool import Pool
from postroom.delivery import service as delivery_service
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.model import Delivery
from postroom.delivery.notices import Notifier
from postroom.intake import service
from postroom.intake.notice import NOTICE, RETENTION
from postroom.post.address import Address
from postroom.settings import Settings

ADMIN = Address("admin@example.org")


def notice(pool: Pool) -> Notifier:
    return Notifier(pool, ADMIN, [NOTICE], Settings())


async def mails(pool: Pool) -> list[Delivery]:
    found, _cursor = await delivery_service.list_deliveries(pool, DeliveryFilter(recipient=ADMIN.email))
    return [await delivery_service.get_delivery(pool, one.id) for one in found]


async def test_administrator_is_notified_once(pool: Pool) -> None:
    """One mail reports the number of new malformed commands and the command to list them; each is reported once."""
    await service.accept_commands(pool, entries(b"junk", raw(payload_mode="x"), raw()))
    assert await notice(pool).run_once() == 1
    assert await notice(pool).run_once() == 0
    [mail] = await mails(pool)
    assert (mail.subject, mail.source) == ("Postroom: 2 commands could not be read", "postroom")
    assert "postroom malformed list" in (mail.text or "")


async def test_resubmitted_command_is_not_reported(pool: Pool) -> None:
    """There is nothing left to do about it."""
    await service.accept_commands(pool, entries(raw(payload_mode="x")))
    await service.resubmit(pool, 1, actor="a", changes={"payload_mode": "rendered"})
    assert await notice(pool).run_once() == 0
    assert await mails(pool) == []


async def test_dismissed_command_is_not_reported(pool: Pool) -> None:
    """A dismissed command is not reported."""
    await service.accept_commands(pool, entries(b"junk"))
    await service.dismiss(pool, [1], actor="tests")
    assert await notice(pool).run_once() == 0


async def test_several_processes_tell_once(pool: Pool) -> None:
    """A concurrent second notice finds no unreported command."""
    await service.accept_commands(pool, entries(b"junk"))
    assert sorted(await asyncio.gather(*(notice(pool).run_once() for _process in range(4)))) == [0, 0, 0, 1]
    assert len(await mails(pool)) == 1


async def test_workers_tell(database_url: str, pool: Pool) -> None:
    """`postroom work` watches, if it knows whom to tell."""
    await service.accept_commands(pool, entries(b"junk"))
    settings = {"POSTROOM_DATABASE_URL": database_url, "POSTROOM_ADMIN_EMAIL": ADMIN.email}
    async with accepting(database_url) as accepted:
        with running("work", settings=settings) as worker:
            async with asyncio.timeout(PATIENCE_S):
                await accepted.wait()
            assert await asyncio.to_thread(worker.stop) == 0
    assert len(await mails(pool)) == 1


async def test_malformed_commands_are_kept_for_a_month(pool: Pool) -> None:
    hands = Hands()
    await pool.execute(
        "INSERT INTO malformed_commands (recorded_at, source, reason, raw) VALUES ($1, 'test', 'json', '')", hands()
    )
    hands.forward(days=30)
    assert await swept(pool, RETENTION, clock=hands) == 0
    hands.forward(seconds=1)
    assert await swept(pool, RETENTION, clock=hands) == 1
