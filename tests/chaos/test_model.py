"""Random operations and kills, after which all tables agree: `./dev chaos model` in small."""

import os
import random
import sys
from pathlib import Path

from tests.support.model import Plan, run

from postroom.db.room import Room

OPERATIONS = 240


async def test_everything_agrees_after_random_operations(room: Room, tmp_path: Path) -> None:
    """Queue, ledger, steps, facts, figures, campaigns and the mail received agree, with a new seed each time.

    TEST_MODEL_SEED repeats the choices of a seed.
    """
    seed = int(os.environ.get("TEST_MODEL_SEED") or random.randrange(10**6))
    sys.stdout.write(f"seed {seed}: ./dev chaos model --rounds 1 --operations {OPERATIONS} --seed {seed}\n")
    mail, known = await run(room, Plan(seed, OPERATIONS), tmp_path)
    assert mail.problems() == [], f"TEST_MODEL_SEED={seed}"
    assert known.done["send"] > 0
    assert mail.copies
