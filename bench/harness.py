"""Runs subjects side by side: interleaved rounds (A, B, C, A, B, C, …), sizes that last, medians.

Interleaving spreads a slow minute of the machine over every subject instead of charging it to one. Experiments
measured as a rate get two warm-up rounds first, which are not counted: they fill caches and tell how many operations
make the round last the asked-for seconds. Statements are counted in a small round after them, and only there, because
the server's log of them costs time.
"""

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from bench.rows import Experiment
from bench.server import Arena

MEASURE_PATIENCE_S = 3_600  # growth among ten million rows takes about half an hour; nothing takes longer

Readings = Mapping[str, float]
"""The result of one measurement: a value for each row of its experiment."""

Measure = Callable[[int], Awaitable[Readings]]
"""Performs an experiment at the given size and tells what it found."""

Counting = Callable[[], AbstractAsyncContextManager[None]]
"""A block in which a measurement counts its statements: `cost.Meter.counting_statements`."""

WARM_UPS = 2
"""The first is too short to time a fast subject; the second, sized by it, is not."""

GROWTH = 200
"""How much larger than the warm-up a round may be: a warm-up too short to time must not ask for hours."""


class Subject(Protocol):
    """One contender: Postroom, a peer, or the bare database."""

    name: str

    async def open(self, arena: Arena) -> None:
        """Make its databases and schema; called once, before any measurement."""

    async def close(self) -> None:
        """Give back connections and processes."""

    def measures(self) -> Mapping[str, Measure]:
        """The experiments it can take part in, by name."""


@dataclass(frozen=True)
class Plan:
    """How long and how often. `size` overrides what the warm-up would choose."""

    rounds: int = 3
    seconds: float = 3.0
    quick: bool = False
    size: int | None = None
    most: int = 400_000  # keeps a very fast subject from filling the disk


@dataclass
class Results:
    """Every value of every round, and what went wrong."""

    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, subject: str, readings: Readings) -> None:
        for row, value in readings.items():
            self.samples.setdefault(row, {}).setdefault(subject, []).append(value)

    def median(self, row: str, subject: str) -> float | None:
        values = self.samples.get(row, {}).get(subject)
        return statistics.median(values) if values else None

    def ratio(self, row: str, subject: str, other: str) -> float | None:
        """How many times `other` the subject is in this row; unknown without both, or beside a zero."""
        ours, theirs = self.median(row, subject), self.median(row, other)
        return ours / theirs if ours is not None and theirs else None


def counted_part(readings: Readings, *, statements: bool) -> Readings:
    """The statements of one operation, or everything else."""
    return {row: value for row, value in readings.items() if row.endswith("-statements") is statements}


def size_for(experiment: Experiment, plan: Plan, rate: float | None) -> int:
    """How many operations the next round performs: asked for, fixed, or as many as last the plan's seconds."""
    if plan.size is not None:
        return plan.size
    if experiment.first is None:
        return experiment.quick if plan.quick else experiment.full
    if rate is None:
        return experiment.first
    wished = round(rate * plan.seconds)
    return max(experiment.first, min(wished, experiment.first * GROWTH, plan.most))


def size_of_count(experiment: Experiment, plan: Plan) -> int:
    """How many operations the round performs that counts statements: few, unless the experiment has a fixed size.

    A campaign of 500 mails needs four times as many statements per mail as one of 20,000, because its workers start.
    """
    size = size_for(experiment, plan, None)
    return size if experiment.first is None else min(size, experiment.first)


class Rounds:
    """One experiment's rounds over all the subjects that can do it."""

    def __init__(self, experiment: Experiment, plan: Plan, announce: Callable[[str], None], counting: Counting) -> None:
        self._experiment = experiment
        self._plan = plan
        self._announce = announce
        self._counting = counting
        self._rates: dict[str, float] = {}

    async def run(self, subjects: Sequence[Subject], results: Results) -> None:
        contenders = [subject for subject in subjects if self._experiment.name in subject.measures()]
        if self._experiment.first is not None and self._plan.size is None:
            for _ in range(WARM_UPS):
                contenders = await self._round("warm-up", contenders, self._warm_up, results)
        if any(row.name == f"{self._experiment.name}-statements" for row in self._experiment.rows):
            contenders = await self._round("statements", contenders, self._count, results)
        for number in range(1, self._plan.rounds + 1):
            contenders = await self._round(f"round {number}", contenders, self._measure, results)

    async def _round(
        self,
        label: str,
        contenders: Sequence[Subject],
        measure: Callable[[Subject], Awaitable[Readings]],
        results: Results,
    ) -> list[Subject]:
        """Measure each contender once; who fails is reported and takes no further part."""
        standing = []
        for subject in contenders:
            self._announce(f"{self._experiment.name} · {label} · {subject.name}")
            try:
                results.add(subject.name, await measure(subject))
            except Exception as fault:  # noqa: BLE001 - one broken subject must not cost the others their run
                results.failures[self._experiment.name, subject.name] = f"{type(fault).__name__}: {fault}"
                continue
            standing.append(subject)
        return standing

    async def _warm_up(self, subject: Subject) -> Readings:
        await self._measure(subject)
        return {}

    async def _count(self, subject: Subject) -> Readings:
        async with self._counting():
            readings = await self._perform(subject, size_of_count(self._experiment, self._plan))
        return counted_part(readings, statements=True)

    async def _measure(self, subject: Subject) -> Readings:
        size = size_for(self._experiment, self._plan, self._rates.get(subject.name))
        readings = await self._perform(subject, size)
        if self._experiment.first is not None:
            self._rates[subject.name] = readings[self._experiment.name]
        return counted_part(readings, statements=False)

    async def _perform(self, subject: Subject, size: int) -> Readings:
        async with asyncio.timeout(MEASURE_PATIENCE_S):
            return await subject.measures()[self._experiment.name](size)


async def run_experiments(
    experiments: Sequence[Experiment],
    subjects: Sequence[Subject],
    plan: Plan,
    *,
    announce: Callable[[str], None],
    counting: Counting,
) -> Results:
    results = Results()
    for experiment in experiments:
        await Rounds(experiment, plan, announce, counting).run(subjects, results)
    return results


async def open_subjects(subjects: Sequence[Subject], arena: Arena, results: Results) -> list[Subject]:
    """Open each subject; one that cannot even start is reported and left out."""
    ready = []
    for subject in subjects:
        try:
            await subject.open(arena)
        except Exception as fault:  # noqa: BLE001 - as above
            results.failures["open", subject.name] = f"{type(fault).__name__}: {fault}"
        else:
            ready.append(subject)
    return ready
