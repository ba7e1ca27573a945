"""The bounce listener: strangers without a key."""

from random import Random

from fuzz.arena import BOUNCE_DOMAIN, Arena
from fuzz.tally import Case
from fuzz.targets.smtp import converse


async def attack(arena: Arena, random: Random, case: Case) -> None:
    """One connection to the bounce listener."""
    to = random.choice((f"postmaster@{BOUNCE_DOMAIN}", f"bounce+1.aaaaaaaaaaaaaaaa@{BOUNCE_DOMAIN}"))
    recipient = f"RCPT TO:<{to}>".encode()
    await converse(arena.bounces, random, case, opening=[b"EHLO mx.example.org"], recipient=recipient)
