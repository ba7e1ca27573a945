"""The archive of steps: months move into files when statistics and every publisher have read them."""

from datetime import datetime
from pathlib import Path

from tests.support.archive import JANUARY, options_for, run

from postroom.archive.model import Month
from postroom.archive.restore import restore_month
from postroom.db.pool import Pool
from postroom.db.room import Room
from postroom.erasure.service import erase
from postroom.events import EventStore, Query
from postroom.stats.worker import Rollup

STEPS = "SELECT * FROM delivery_steps ORDER BY position"
ANN = "ann@example.org"


async def add_steps(pool: Pool, month: datetime, count: int, source: str = "tests") -> None:
    await pool.execute(
        """
        INSERT INTO delivery_steps (transaction_id, delivery_id, at, step, outcome, lane, channel, source, reason,
            attempt_no, campaign_id, domain)
        SELECT (SELECT id FROM step_transaction()), n, $1::timestamptz + n * interval '1 minute', 'sent', 'sent',
            'bulk', 'email', $3, CASE WHEN n % 3 = 0 THEN 'because' END, 1, nullif(n % 2, 0), 'example.org'
        FROM generate_series(1, $2::bigint) AS n
        """,
        month,
        count,
        source,
    )


async def count(pool: Pool) -> None:
    while await Rollup(pool).run_once() or await pool.fetchval(
        "SELECT EXISTS (SELECT FROM delivery_steps AS s, stats_cursor AS c WHERE s.position > c.position)"
    ):
        pass


async def test_a_month_of_steps_survives_archive_and_restore(room: Room, tmp_path: Path) -> None:
    """Transaction ids, enums and times are restored unchanged, and the facts can be read again."""
    await room.pool.execute("SELECT ensure_partitions('delivery_steps', 0, $1)", JANUARY)
    await add_steps(room.pool, JANUARY, 30)
    await count(room.pool)
    before = [tuple(row) for row in await room.pool.fetch(STEPS)]
    options = options_for(tmp_path)
    report = await run(room, options)
    assert [(segment.table_name, segment.rows) for segment in report.archived] == [("delivery_steps", 30)]
    assert await room.pool.fetch(STEPS) == []
    await restore_month(room, options, Month("delivery_steps", JANUARY), attach=True, actor="tests")
    assert [tuple(row) for row in await room.pool.fetch(STEPS)] == before
    assert len((await EventStore(room.pool).read(Query.of("DeliverySent"))).events) == 30


async def test_a_month_that_is_not_counted_yet_stays(room: Room, tmp_path: Path) -> None:
    """Neither a partition nor late rows leave before the rollup has passed them."""
    options = options_for(tmp_path)
    await add_steps(room.pool, JANUARY, 3)
    assert (await run(room, options)).archived == []
    await count(room.pool)
    assert [segment.rows for segment in (await run(room, options)).archived] == [3]


async def test_a_month_that_is_not_published_yet_stays(room: Room, tmp_path: Path) -> None:
    """A publisher of facts that is behind keeps the month; a publisher of other events does not."""
    options = options_for(tmp_path)
    await room.pool.execute("INSERT INTO outbox_topics (name, types) VALUES ('sent', '{DeliverySent}'), ('x', '{X}')")
    await room.pool.execute("INSERT INTO outbox_topic_progress (topic, publisher) VALUES ('sent', 'log'), ('x', 'log')")
    await add_steps(room.pool, JANUARY, 3)
    await count(room.pool)
    assert (await run(room, options)).archived == []
    await room.pool.execute(
        "UPDATE outbox_topic_progress SET last_transaction_id = s.transaction_id, last_position = s.position"
        " FROM delivery_steps AS s WHERE topic = 'sent' AND s.delivery_id = 3"
    )
    assert [segment.rows for segment in (await run(room, options)).archived] == [3]


async def test_an_address_in_a_source_is_erased(room: Room, tmp_path: Path) -> None:
    """An application may use an address as its source: it is erased from steps in the database and in files."""
    await add_steps(room.pool, JANUARY, 3, source=f"mailbox:{ANN}")
    await count(room.pool)
    options = options_for(tmp_path)
    await run(room, options)
    await add_steps(room.pool, JANUARY, 3, source=f"mailbox:{ANN}")
    done = await erase(room, options, address=ANN, actor="tests")
    assert (done.is_done, done.counts["delivery_steps"]) == (True, 3)
    await restore_month(room, options, Month("delivery_steps", JANUARY), attach=False, actor="tests")
    for table in ("delivery_steps", "delivery_steps_restored_2030_01"):
        sources = {row["source"] for row in await room.pool.fetch(f"SELECT source FROM {table}")}
        assert len(sources) == 1
        assert ANN not in sources.pop()
