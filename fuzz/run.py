"""Run targets against an arena and gather what came of it."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

from fuzz.arena import Arena
from fuzz.tally import Case, Tally
from fuzz.targets import TARGETS
from fuzz.witness import Reading, readings_of

CONCURRENT = 8
WAIT_S = 90.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One target: its counts, its time span, and the server's largest memory meanwhile."""

    tally: Tally
    since: float
    until: float
    peak_mb: int


async def run_target(arena: Arena, target: str, *, seed: int, seconds: float, most: int | None = None) -> Outcome:
    """Run cases for so long, several at once; `most` ends it earlier."""
    tally, numbers, since = Tally(target), count(), time.monotonic()
    arena.forget_peak()

    async def attack() -> None:
        while time.monotonic() < since + seconds and arena.is_alive():
            number = next(numbers)
            if most is not None and number >= most:
                return
            await run_case(arena, tally, seed=seed, number=number)

    await asyncio.gather(*(attack() for _ in range(CONCURRENT)))
    return Outcome(tally, since, time.monotonic(), arena.peak_mb())


async def run_case(arena: Arena, tally: Tally, *, seed: int, number: int) -> None:
    """One case, which is a function of seed, target and number."""
    tally.cases += 1
    case = Case(f"--seed {seed} {tally.target}#{number}", tally)
    try:
        async with asyncio.timeout(WAIT_S):
            await TARGETS[tally.target](arena, Random(f"{seed}:{tally.target}:{number}"), case)
    except TimeoutError:
        tally.fail(case.name, f"no answer in {WAIT_S} s")


@contextmanager
def witness(arena: Arena, file: Path) -> Iterator[None]:
    """The independent client beside the block; its readings are in the file afterwards."""
    with file.open("w") as sink:
        command = [sys.executable, "-m", "fuzz.witness", f"http://127.0.0.1:{arena.http}"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sink, cwd=Path(__file__).parents[1])
        assert process.stdin is not None
        process.stdin.write(arena.key.encode() + b"\n")
        process.stdin.close()
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def readings_during(file: Path, outcome: Outcome) -> list[Reading]:
    found: Sequence[Reading] = readings_of(file.read_text().splitlines())
    return [each for each in found if outcome.since <= each.at < outcome.until]
