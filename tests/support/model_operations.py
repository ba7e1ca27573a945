"""Random operations on a room, as applications, operators and administrators call them at the same time."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from tests.support.archive import options_for
from tests.support.campaigns import a_running_campaign

import postroom
from postroom.campaigns import service as campaigns
from postroom.db.faults import DATABASE_ERRORS
from postroom.db.room import Room
from postroom.delivery import service
from postroom.delivery.filter import DeliveryFilter
from postroom.delivery.mass import service as mass
from postroom.delivery.mass.model import MassKind
from postroom.delivery.model import Lane
from postroom.erasure.service import erase
from postroom.errors import PostroomError
from postroom.feedback.model import NewSuppression, SuppressionReason
from postroom.feedback.service import suppress

ACTOR = "tests"
PEOPLE = 60  # of a campaign
CAMPAIGNS = 6
AT_ONCE = 12  # deliveries of a mass action
FIRST_MAILS = 20  # accepted before anything else is done with them
REST_S = 0.05  # at most, between two operations of a client


@dataclass
class Known:
    """Everything that the clients know about a room."""

    deliveries: list[int] = field(default_factory=list)
    acknowledged: dict[str, set[int]] = field(default_factory=dict)  # delivery ids by idempotency key
    unwanted: dict[str, float] = field(default_factory=dict)  # suppressed and erased addresses, since when
    pseudonyms: dict[str, str] = field(default_factory=dict)  # erased addresses by pseudonym
    campaigns: list[int] = field(default_factory=list)
    settled: set[int] = field(default_factory=set)
    cancelled: dict[int, tuple[int, ...]] = field(default_factory=dict)  # deliveries by mass action
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)  # operations that ended with an error of the database


class Client:
    """One client, with random numbers of its own."""

    def __init__(self, room: Room, known: Known, directory: Path, *, seed: int, number: int, people: int) -> None:
        self._room, self._pool, self._known, self._directory = room, room.pool, known, directory
        self._random, self._number, self._people = Random(f"{seed}-{number}"), number, people
        self._operations: Mapping[str, tuple[float, Callable[[], Awaitable[None]]]] = {
            "send": (45, self._send),
            "cancel": (15, self._cancel),
            "retry": (10, self._retry),
            "resend": (6, self._resend),
            "settle": (4, self._settle),
            "erase": (3, self._erase),
            "suppress": (3, self._suppress),
            "mass action": (4, self._mass_action),
            "reschedule": (3, self._reschedule),
            "start campaign": (2, self._start_campaign),
            "steer campaign": (5, self._steer_campaign),
        }

    async def run(self, operations: int) -> None:
        for _ in range(operations):
            await self._step()
            await asyncio.sleep(self._random.uniform(0, REST_S))

    async def _step(self) -> None:
        weights = [weight for weight, _ in self._operations.values()]
        [name] = self._random.choices(list(self._operations), weights)
        if len(self._known.deliveries) < FIRST_MAILS:
            name = "send"
        try:
            await self._operations[name][1]()
        except PostroomError as error:
            self._known.refused[type(error).__name__] += 1
        except DATABASE_ERRORS as error:
            self._known.failed.append(f"{name} ended with {type(error).__name__}: {error}")
        else:
            self._known.done[name] += 1

    # ── mail ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _person(self) -> str:
        return f"p{self._random.randrange(self._people)}@d{self._random.randrange(4)}.example"

    def _delivery(self) -> int:
        return self._random.choice(self._known.deliveries)

    def _later(self, seconds: float) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._random.uniform(0, seconds))

    async def _send(self) -> None:
        key = f"{self._number}-{len(self._known.deliveries)}-{self._random.randrange(10**9)}"
        to = {self._person() for _ in range(self._random.choice((1, 1, 1, 2, 3)))}
        send_at = self._later(8) if self._random.random() < 0.3 else None
        expires_at = datetime.now(UTC) + timedelta(seconds=10) if self._random.random() < 0.1 else None
        async with self._pool.acquire() as connection:
            delivery = await postroom.send(
                connection,
                to=sorted(to),
                subject="Model",
                text="Hello",
                lane=self._random.choice(list(Lane)),
                idempotency_key=key,
                send_at=send_at,
                expires_at=expires_at,
                room=self._room.name,
            )
        self._known.acknowledged[key] = {delivery}
        self._known.deliveries.append(delivery)

    async def _cancel(self) -> None:
        await service.cancel(self._pool, self._delivery(), actor=ACTOR)

    async def _retry(self) -> None:
        await service.retry(self._pool, self._delivery(), actor=ACTOR)

    async def _resend(self) -> None:
        self._known.deliveries.append(await service.resend(self._pool, self._delivery(), actor=ACTOR))

    async def _reschedule(self) -> None:
        await service.reschedule(self._pool, self._delivery(), send_at=self._later(5), actor=ACTOR)

    async def _settle(self) -> None:
        letters, _cursor = await service.list_dead_letters(self._pool, reason="ambiguous")
        if letters:
            delivery = self._random.choice(letters).delivery_id
            await service.settle(self._pool, delivery, actor=ACTOR)
            self._known.settled.add(delivery)

    async def _mass_action(self) -> None:
        kind = self._random.choice(list(MassKind))
        ids = tuple(sorted(set(self._random.sample(self._known.deliveries, AT_ONCE))))
        action = await mass.start(self._pool, kind, DeliveryFilter(ids=ids), actor=ACTOR)
        if kind is MassKind.CANCEL:
            self._known.cancelled[action.id] = ids

    # ── people ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _erase(self) -> None:
        person = self._person()
        erasure = await erase(self._room, options_for(self._directory), address=person, actor=ACTOR)
        self._known.unwanted.setdefault(person, time.time())
        pseudonym = await self._pool.fetchval("SELECT pseudonym FROM erasures WHERE id = $1", erasure.id)
        self._known.pseudonyms[pseudonym] = person

    async def _suppress(self) -> None:
        person = self._person()
        await suppress(self._pool, NewSuppression(email=person, reason=SuppressionReason.COMPLAINT), actor=ACTOR)
        self._known.unwanted.setdefault(person, time.time())

    # ── campaigns ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _start_campaign(self) -> None:
        number = len(self._known.campaigns)
        if number < CAMPAIGNS:
            people = [f"c{number}x{person}@d1.example" for person in range(PEOPLE)]
            self._known.campaigns.append(await a_running_campaign(self._pool, people, name=f"Campaign {number}"))

    async def _steer_campaign(self) -> None:
        if not self._known.campaigns:
            return
        pause, resume, cancel = campaigns.pause_campaign, campaigns.resume_campaign, campaigns.cancel_campaign
        steer = self._random.choice((pause, pause, resume, resume, resume, cancel))
        await steer(self._pool, self._random.choice(self._known.campaigns), actor=ACTOR)
