"""Files at the command line: reports as .eml and mbox, people as CSV. A command must end without a traceback."""

import asyncio
import tempfile
from pathlib import Path
from random import Random

from fuzz.arena import BOUNCE_DOMAIN, Arena
from fuzz.mutate import mutate
from fuzz.tally import Case
from fuzz.targets.mail import a_mail
from fuzz.targets.uploads import csv

_PEOPLE = b"email,first_name,last_name,birthday,time_zone\nann@example.org,Ann,A,1990-02-28,Europe/London\n"


async def attack(arena: Arena, random: Random, case: Case) -> None:
    """Run one command on one file."""
    if random.random() < 0.4:
        name, content, words = "people.csv", csv(random, _PEOPLE), ["users", "import"]
    elif random.random() < 0.5:
        name, content, words = "report.eml", a_mail(random), ["feedback", "ingest", "--domain", BOUNCE_DOMAIN]
    else:
        mails = (
            b"From x@example.org Thu Jan  1 00:00:00 2026\n" + a_mail(random) for _ in range(random.randint(1, 30))
        )
        name, content = "reports.mbox", mutate(random, b"\n".join(mails), 2)
        words = ["feedback", "ingest", "--domain", BOUNCE_DOMAIN]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(content)
        done = await asyncio.to_thread(arena.command, *words, str(file))
    case.tally.count(f"exit {done.returncode}")
    if b"Traceback" in done.stderr or done.returncode not in (0, 1, 2):
        case.tally.fail(case.name, f"{words} exit {done.returncode}: {done.stderr[-400:].decode(errors='replace')}")
