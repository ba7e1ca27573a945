"""The independent client, a process of its own: asks /healthz and sends a mail every 20 ms, and writes down each delay.

A line per request: kind, moment of start, delay, lateness of this client itself, status. The lateness says how long the
machine kept this process from running; a delay includes it.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import aiohttp

INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class Reading:
    """One request of the independent client; times in seconds."""

    kind: str
    at: float
    delay: float
    late: float
    status: int


def readings_of(lines: Sequence[str]) -> list[Reading]:
    return [Reading(*json.loads(line)) for line in lines if line.endswith("]")]


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


async def _ask_for_ever(session: aiohttp.ClientSession, kind: str, url: str) -> None:
    mail = {"to": "witness@example.org", "subject": "Still here", "text": "Hello."}
    due = time.monotonic()
    while True:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        late, start = max(0.0, time.monotonic() - due), time.monotonic()
        status = 0
        with suppress(aiohttp.ClientError, TimeoutError):
            sending = (
                session.get(f"{url}/healthz") if kind == "health" else session.post(f"{url}/v1/deliveries", json=mail)
            )
            async with sending as answer:
                await answer.read()
                status = answer.status
        now = time.monotonic()
        sys.stdout.write(json.dumps([kind, start, now - start, late, status]) + "\n")
        due = max(due + INTERVAL_S, now)


async def main(url: str, key: str) -> None:
    """Run until killed."""
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as session:
        await asyncio.gather(_ask_for_ever(session, "health", url), _ask_for_ever(session, "mail", url))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.stdin.readline().strip()))
