"""An unreadable recipient or campaign does not block others."""

import asyncpg
import pytest
from tests.support.builders import Recording
from tests.support.campaigns import a_campaign, a_campaign_worker, a_running_campaign, states_of, upload

from postroom.campaigns.model import LineFormat, RejectedLine
from postroom.campaigns.worker import Feeder
from postroom.db.pool import Pool
from postroom.delivery.model import Lane

DEEP = '{"a":' * 1500 + "1" + "}" * 1500
POISON = {"deep": DEEP, "number": '{"n": 1e5000}', "list": "[1]", "text": '"name"'}


async def test_poison_recipients_fail_alone(pool: Pool) -> None:
    """Fields that cannot be decoded fail their own mail; the mail of the other recipients is sent."""
    campaign = await a_running_campaign(pool, len(POISON) + 2)
    for number, value in enumerate(POISON.values()):
        await pool.execute(
            "UPDATE campaign_recipients SET custom_data = $2::text::jsonb WHERE email = $1",
            f"p{number}@example.org",
            value,
        )
    while await Feeder(pool).run_once():
        pass
    transport = Recording()
    await a_campaign_worker(pool, transport).run_once(Lane.BULK)
    assert await states_of(pool, campaign) == {"failed": len(POISON), "sent": 2}


async def test_poison_lines_are_rejected_alone(pool: Pool) -> None:
    """Lines of an upload that cannot be stored are rejected; the next line is stored."""
    campaign = await a_campaign(pool)
    lines = [
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"email": "a@example.org", "x": ' + DEEP.encode() + b"}",
        b'{"email": "b@example.org", "n": 1e5000}',
        b'{"email": "c@example.org", "name": "a\\u0000b"}',
        b'{"email": "d@example.org", "name": "\\ud800"}',
        b'{"email": "good@example.org"}',
    ]
    refused: list[RejectedLine] = []
    await upload(pool, campaign.id, b"\n".join(lines) + b"\n", line_format=LineFormat.JSON_LINES, refused=refused)
    assert [row["email"] for row in await pool.fetch("SELECT email FROM campaign_recipients")] == ["good@example.org"]
    assert len(refused) == len(lines) - 1


@pytest.mark.parametrize("moment", ["10000-01-01Z", "infinity", "4000-01-01Z BC"])
async def test_campaign_times_are_readable_by_python(pool: Pool, moment: str) -> None:
    """The table rejects times that the driver cannot decode, which would break reading of all campaigns."""
    campaign = await a_campaign(pool)
    with pytest.raises(asyncpg.CheckViolationError, match="campaigns_start_readable"):
        await pool.execute("UPDATE campaigns SET start_at = $2::text::timestamptz WHERE id = $1", campaign.id, moment)
