"""Submission: streams of commands, with and without a key, and mutated mail."""

import asyncio
import base64
from contextlib import suppress
from random import Random

from fuzz.arena import Arena
from fuzz.mutate import TOKENS, mutate
from fuzz.tally import Case
from fuzz.targets.mail import a_mail
from fuzz.wire import PATIENCE_S, connected

_COMMANDS: tuple[bytes, ...] = (
    b"MAIL FROM:<ann@example.org>",
    b"MAIL FROM:<>",
    b"MAIL FROM:<ann@example.org> SIZE=99999999999 BODY=8BITMIME SMTPUTF8",
    b"RCPT TO:<bob@example.org>",
    b"RCPT TO:<bounce+1.x@bounces.example.org>",
    b"RCPT TO:<postmaster@bounces.example.org>",
    b'RCPT TO:<"a b"@[127.0.0.1]>',
    b"RCPT TO:<" + b"x" * 400 + b"@example.org>",
    b"NOOP",
    b"RSET",
    b"VRFY ann",
    b"EXPN x",
    b"HELP",
    b"STARTTLS",
    b"AUTH LOGIN",
    b"AUTH PLAIN =",
    b"AUTH CRAM-MD5",
    b"EHLO [::1]",
    b"HELO",
    b"BDAT 5 LAST",
    b"XCLIENT",
)


async def attack(arena: Arena, random: Random, case: Case) -> None:
    """One connection to the submission port."""
    opening = [b"EHLO fuzz.example.org"]
    if random.random() < 0.8:
        opening.append(b"AUTH PLAIN " + base64.b64encode(f"\0me\0{arena.key}".encode()))
    await converse(arena.smtp, random, case, opening=opening, recipient=b"RCPT TO:<bob@example.org>")


async def converse(port: int, random: Random, case: Case, *, opening: list[bytes], recipient: bytes) -> None:
    """Say the opening, then random commands, then perhaps a mail."""
    said = [*opening, *(_command(random) for _ in range(random.randint(0, 4)))]
    if random.random() < 0.8:
        said += [b"RSET", b"MAIL FROM:<ann@example.org>", *[recipient] * random.choice((1, 1, 1, 150)), b"DATA"]
        ending = random.choice((b"\r\n.\r\n", b"\r\n.\r\n", b"\r\n.\r\n", b"\n.\n\r\n.\r\n", b"\r.\r\r\n.\r\n"))
        said.append(a_mail(random) + ending[:-2])
    try:
        async with asyncio.timeout(PATIENCE_S), connected(port) as (reader, writer):
            case.smtp(await _reply(reader))
            for line in said:
                writer.write(line + b"\r\n")
                await writer.drain()
                if (code := await _reply(reader)) == 0:
                    break
                case.smtp(code)
    except (OSError, ValueError):
        case.tally.count("closed")
    except TimeoutError:
        case.tally.count("no answer")


def _command(random: Random) -> bytes:
    command = random.choice(_COMMANDS)
    if random.random() < 0.5:
        return command
    # Without a line end: one more line is one more answer, which would be taken for the next command's.
    return mutate(random, command, 2).translate(None, b"\r\n") + random.choice((b"", *TOKENS)).translate(None, b"\r\n")


async def _reply(reader: asyncio.StreamReader) -> int:
    line = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(10):
            while (line := await reader.readline())[3:4] == b"-":
                pass
    return int(line[:3]) if line[:3].isdigit() else 0
