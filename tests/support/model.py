"""Random operations on a room, and its tables compared: `./dev chaos model [--rounds N] [--seed S]`.

Clients accept, cancel, retry, resend, settle, reschedule, erase and suppress, run mass actions and steer campaigns, all
at random and at the same time. Two processes `postroom work` send to a server that defers, refuses, and drops mail with
and without having taken it, and one of them is killed now and then. Afterwards all mail is let out, and everything
that records it must agree. A seed repeats the choices, not the order in which processes come to them.
"""

import argparse
import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import asyncpg
from tests.support.agreement import disagreements
from tests.support.chaos import Entry, delivery_of
from tests.support.crashing_proxy import with_database
from tests.support.fleet import Fleet, say, sending_settings, workplace
from tests.support.forked import Forked
from tests.support.mail_ledger import MailLedger
from tests.support.model_operations import ACTOR, Client, Known
from tests.support.moody_server import Moods, MoodyServer
from tests.support.patience import PATIENCE_S
from tests.support.smtp_server import Server, smtp_server

from postroom.campaigns.service import resume_campaign
from postroom.db.migrate import migrate
from postroom.db.pool import Pool
from postroom.db.room import Room, open_room
from postroom.embedded.server import EmbeddedServer, ServerOptions
from postroom.errors import PostroomError
from postroom.events import EventStore, Query, split_tag
from postroom.runtime.log import configure_logging
from postroom.settings import Settings

CLIENTS = 4
KILL_S = (2.0, 4.0)  # between two kills
LATE_S = 10.0  # mail that had started may still arrive
POLL_S = 0.1
FACTS = {
    "accepted": "DeliveryAccepted",
    "sent": "DeliverySent",
    "deferred": "DeliveryDeferred",
    "failed": "DeliveryFailed",
    "dead_lettered": "DeliveryDeadLettered",
    "suppressed": "DeliverySuppressed",
    "cancelled": "DeliveryCancelled",
    "redriven": "DeliveryRedriven",
}
_ENTRIES = """
    SELECT d.id, d.lane::text, d.state::text, lower(r.email) AS address,
        count(*) FILTER (WHERE a.outcome = 'ambiguous')
            + (d.reason IS NOT DISTINCT FROM 'erased')::int AS ambiguous, -- its worker may have been killed
        (r.outcome = 'delivered' OR (
            count(*) FILTER (WHERE a.outcome = 'sent') > 0
            AND NOT EXISTS (SELECT FROM other_recipients AS o WHERE o.delivery_id = d.id AND o.kind <> 'reply_to')
        ))::int AS sent
    FROM deliveries AS d
    JOIN delivery_recipients AS r ON r.delivery_id = d.id AND r.kind <> 'reply_to'
    LEFT JOIN attempts AS a ON a.delivery_id = d.id
    GROUP BY d.id, r.kind, r.position, r.email, r.outcome
    ORDER BY d.id
"""
_LET_OUT = """
    UPDATE deliveries SET next_attempt_at = now()
    WHERE next_attempt_at > now() AND next_attempt_at < now() + interval '1 year'
"""
_IS_FINISHED = """
    SELECT NOT EXISTS (SELECT FROM deliveries WHERE finished_at IS NULL) AND NOT EXISTS (SELECT FROM claims)
        AND NOT EXISTS (SELECT FROM campaigns WHERE status = 'active')
        AND NOT EXISTS (SELECT FROM mass_actions WHERE finished_at IS NULL)
        AND NOT EXISTS (SELECT unnest($1::int[]) EXCEPT SELECT pid FROM processes) -- every worker has started
"""
_SENT_AFTER_CANCEL = """
    SELECT a.delivery_id FROM attempts AS a JOIN mass_actions AS m ON m.id = $1
    WHERE a.delivery_id = ANY($2::bigint[]) AND a.delivery_id < m.before_id AND a.started_at > m.finished_at
        AND NOT EXISTS (SELECT FROM delivery_steps AS s WHERE s.delivery_id = a.delivery_id AND s.step = 'redriven')
"""
_STEPS = "SELECT delivery_id, step::text FROM all_steps ORDER BY transaction_id, position"


@dataclass(frozen=True)
class Plan:
    """The size of a run."""

    seed: int
    operations: int = 400


@dataclass(frozen=True)
class RecipientEntry(Entry):
    """One recipient of a delivery as the ledger tells it."""

    address: str

    @property
    def key(self) -> Hashable:
        return self.id, self.address

    @property
    def must_have_arrived(self) -> bool:
        """A delivery is sent when one of its recipients has it."""
        return bool(self.sent)


async def run(room: Room, plan: Plan, directory: Path) -> tuple[MailLedger, Known]:
    """Do the operations, let all mail out, and return the ledger."""
    chance = random.Random(plan.seed)
    moods = Moods(
        chance,
        slowest_s=0.05,
        deferred_recipient=0.06,
        unknown_recipient=0.03,
        deferred=0.05,
        refused=0.02,
        dropped=0.03,
        taken_and_dropped=0.03,
    )
    known = Known()
    async with smtp_server(kind=partial(MoodyServer, moods)) as sink:
        fleet = Fleet(directory, sending_settings(room.url, sink.port, POSTROOM_LEASE="4s"))
        try:
            async with _killed(fleet, chance):
                people = plan.operations // 3
                clients = [
                    Client(room, known, directory, seed=plan.seed, number=number, people=people)
                    for number in range(CLIENTS)
                ]
                await asyncio.gather(*(client.run(plan.operations // CLIENTS) for client in clients))
            await _let_out(room.pool, known, fleet)
            codes = [code for code in await fleet.stop() if code != -signal.SIGKILL]
        finally:
            fleet.kill()
        return await _read(room.pool, known, sink, fleet, codes), known


@asynccontextmanager
async def _killed(fleet: Fleet, chance: random.Random) -> AsyncIterator[None]:
    """Kill one of two workers again and again for as long as the block runs, and start another each time."""
    workers: list[Forked] = [fleet.start("work"), fleet.start("work")]

    async def kill() -> None:
        while True:
            await asyncio.sleep(chance.uniform(*KILL_S))
            worker = workers.pop(0)
            worker.send_signal(signal.SIGKILL)
            workers.append(fleet.start("work"))
            await asyncio.to_thread(worker.wait, PATIENCE_S)

    killing = asyncio.create_task(kill())
    try:
        yield
    finally:
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)


async def _let_out(pool: Pool, known: Known, fleet: Fleet) -> None:
    """Resume every campaign, and make all mail due until it has ended; mail that is left then is in the ledger."""
    for campaign in known.campaigns:
        try:
            await resume_campaign(pool, campaign, actor=ACTOR)
        except PostroomError:  # it was not paused
            continue
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            while not await pool.fetchval(_IS_FINISHED, [worker.pid for worker in fleet.running]):
                await pool.execute(_LET_OUT)
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        return


async def _read(pool: Pool, known: Known, sink: Server, fleet: Fleet, codes: list[int]) -> MailLedger:
    entries = [
        RecipientEntry(**{**row, "address": known.pseudonyms.get(row["address"], row["address"])})
        for row in await pool.fetch(_ENTRIES)
    ]
    copies: Counter[Hashable] = Counter(
        (delivery_of(message), address.lower()) for message in sink.messages for address in message.recipients
    )
    differences = [
        *known.failed,
        *await disagreements(pool),
        *await _facts(pool),
        *await _cancelled(pool, known),
        *await _unwanted(pool, known, sink),
        *_errors(fleet),
    ]
    return MailLedger(known.acknowledged, list(entries), copies, differences, frozenset(known.settled), codes)


async def _facts(pool: Pool) -> list[str]:
    """Deliveries whose facts, as a reader of the event store gets them, differ from the steps in the tables."""
    steps = [(row["delivery_id"], FACTS[row["step"]]) for row in await pool.fetch(_STEPS)]
    query = Query.of(*FACTS.values())
    facts = [(_delivery(event.tags), event.type) async for event in EventStore(pool).stream(query)]
    if facts == steps:
        return []
    return [f"{len(facts)} facts and {len(steps)} steps: {(Counter(facts) - Counter(steps)).most_common(5)} more"]


def _delivery(tags: tuple[str, ...]) -> int:
    return int(dict(map(split_tag, tags))["postroom.delivery"])


async def _cancelled(pool: Pool, known: Known) -> list[str]:
    """Mail that left after the mass cancel that covers it had finished."""
    found = []
    for action, ids in known.cancelled.items():
        rows = await pool.fetch(_SENT_AFTER_CANCEL, action, list(ids))
        found += [f"delivery {row[0]} started after mass cancel {action} had finished" for row in rows]
    return found


async def _unwanted(pool: Pool, known: Known, sink: Server) -> list[str]:
    """Mail that arrived long after its recipient was suppressed, or was erased and it had been accepted."""
    accepted = {row["id"]: row["at"] for row in await pool.fetch(_ACCEPTED)}
    return [
        f"delivery {delivery} arrived at {address}, which was suppressed or erased before"
        for message in sink.messages
        for address in message.recipients
        if message.at > known.unwanted.get(address, message.at) + LATE_S
        and accepted[delivery := delivery_of(message)] < known.unwanted[address]
    ]


_ACCEPTED = "SELECT id, extract(epoch FROM created_at)::float8 AS at FROM deliveries"


def _errors(fleet: Fleet) -> Iterator[str]:
    """Errors that a worker has logged."""
    for log in fleet.logs():
        yield from (line for line in log.splitlines() if '"level": "error"' in line)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="./dev chaos model", description="Random operations, and tables compared.")
    parser.add_argument("--rounds", type=int, default=10, help="number of seeds (10)")
    parser.add_argument("--seed", type=int, help="the first seed; absent: a new one")
    parser.add_argument("--operations", type=int, default=400, help="operations of each round (400)")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the logs of all processes here")
    options = parser.parse_args()
    configure_logging("critical", "text")
    first = random.randrange(10**6) if options.seed is None else options.seed
    plans = [Plan(first + number, options.operations) for number in range(options.rounds)]
    with workplace("model", logs=options.logs) as directory:
        wrong = asyncio.run(_run_all(plans, directory))
    say(f"{options.rounds} seeds, {wrong} with a problem")
    return 1 if wrong else 0


async def _run_all(plans: list[Plan], directory: Path) -> int:
    """Run each plan in a database of its own; returns the number with a problem."""
    wrong = 0
    options = ServerOptions(fsync=False, extra=(("autovacuum", "off"),))  # its workers cannot be ended with a database
    async with EmbeddedServer(directory / "data", options) as server:
        for plan in plans:
            name = f"model_{plan.seed}"
            home = directory / name
            home.mkdir()
            await _execute(server.url, f"CREATE DATABASE {name}")
            url = with_database(server.url, name)
            settings = Settings(database_url=url)
            await migrate(url, settings.schema)
            async with open_room(settings) as room:
                mail, known = await run(room, plan, home)
            await _execute(server.url, f"DROP DATABASE {name} WITH (FORCE)")
            problems = mail.problems()
            wrong += bool(problems)
            for line in (f"seed {plan.seed}: {len(problems)} problems", *lines(mail, known), *problems):
                say(line)
    return wrong


def lines(mail: MailLedger, known: Known) -> Iterator[str]:
    """The run for people."""
    yield f"  done: {dict(known.done.most_common())}"
    yield f"  refused: {dict(known.refused.most_common())}"
    yield from (f"  {line}" for line in mail.lines())


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


if __name__ == "__main__":
    sys.exit(main())
