"""Submission with the programs people use: swaks and msmtp as they are installed, and their words over a socket."""

import asyncio
import base64
import shutil
import ssl
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trustme
from tests.intake.conftest import Serve, Served
from tests.support.patience import PATIENCE_S
from tests.support.submission import deliveries

from postroom.db.pool import Pool
from postroom.delivery.model import Delivery, RecipientKind

LETTER = b"To: Ada <ada@example.org>\nSubject: Hello\n\nHello, Ada.\n.a line with a dot\n"

Dialogue = Callable[[str], list[tuple[str, str]]]
"""From the key to what is said and the code of each answer."""


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: submission with it is NOT tested, only with its words")
    return found


async def ran(command: Sequence[str], data: bytes = b"") -> None:
    """Run a client to its end; it must be content."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE_S):
        said, _nothing = await process.communicate(data)
    assert process.returncode == 0, said.decode("utf-8", "replace")


def addressed(delivery: Delivery) -> list[tuple[str, str]]:
    return sorted(
        (each.kind.value, each.address) for each in delivery.recipients if each.kind is not RecipientKind.REPLY_TO
    )


def swaks(served: Served, *options: str) -> list[str]:
    return [
        program("swaks"), "--server", f"127.0.0.1:{served.port}", "--from", "shop@example.com",
        "--to", "ada@example.org,bob@example.org", "--header", "Subject: Hello", "--body", "Hello, Ada.",
        "--auth-user", "anyone", "--auth-password", served.key, *options,
    ]  # fmt: skip


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
@pytest.mark.parametrize("how", ["one by one", "pipelined"])
async def test_swaks_submits(serve: Serve, pool: Pool, mechanism: str, how: str) -> None:
    """Either mechanism, with or without pipelining."""
    async with serve() as served:
        await ran(swaks(served, "--auth", mechanism, *(["--pipeline"] if how == "pipelined" else [])))
    [delivery] = await deliveries(pool)
    assert (delivery.subject, (delivery.text or "").strip()) == ("Hello", "Hello, Ada.")
    assert addressed(delivery) == [("to", "ada@example.org"), ("to", "bob@example.org")]


@pytest.mark.parametrize("option", ["--tls", "--tls-on-connect"])
async def test_swaks_submits_under_tls(serve: Serve, pool: Pool, server_tls: ssl.SSLContext, option: str) -> None:
    """By STARTTLS, and from the first byte."""
    support = await asyncio.to_thread(subprocess.run, [program("swaks"), "--support"], capture_output=True, check=True)
    if b"=== TLS supported" not in support.stdout:
        pytest.skip("swaks has no TLS (libnet-ssleay-perl): submission with it under TLS is NOT tested")
    async with serve(tls=server_tls, implicit=option == "--tls-on-connect") as served:
        await ran(swaks(served, "--auth", "PLAIN", option))
    assert len(await deliveries(pool)) == 1


def msmtp(served: Served, directory: Path, *options: str) -> list[str]:
    """The key is in a file, as people keep it."""
    settings = directory / "msmtprc"
    settings.write_text(
        f"account default\nhost 127.0.0.1\nport {served.port}\nfrom shop@example.com\n"
        f"user anyone\npassword {served.key}\n" + "".join(f"{option}\n" for option in options)
    )
    settings.chmod(0o600)
    return [program("msmtp"), f"--file={settings}", "--", "ada@example.org", "eve@example.org"]


@pytest.mark.parametrize("mechanism", ["plain", "login"])
async def test_msmtp_submits(serve: Serve, pool: Pool, tmp_path: Path, mechanism: str) -> None:
    """Either mechanism; who is not named in the letter gets a blind copy, and a leading dot survives."""
    async with serve() as served:
        await ran(msmtp(served, tmp_path, f"auth {mechanism}", "tls off"), LETTER)
    [delivery] = await deliveries(pool)
    assert addressed(delivery) == [("bcc", "eve@example.org"), ("to", "ada@example.org")]
    assert (delivery.text or "").strip() == "Hello, Ada.\n.a line with a dot"


@pytest.mark.parametrize("starttls", ["on", "off"])
async def test_msmtp_submits_under_tls(
    serve: Serve, pool: Pool, tmp_path: Path, authority: trustme.CA, server_tls: ssl.SSLContext, starttls: str
) -> None:
    """By STARTTLS and from the first byte, with the certificate checked and the mechanism left to it."""
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    async with serve(tls=server_tls, implicit=starttls == "off") as served:
        options = ("auth on", "tls on", f"tls_starttls {starttls}", f"tls_trust_file {trusted}")
        await ran(msmtp(served, tmp_path, *options), LETTER)
    assert len(await deliveries(pool)) == 1


def plain(key: str) -> list[tuple[str, str]]:
    return [(f"AUTH PLAIN {_coded(chr(0) + 'u' + chr(0) + key)}\r\n", "235")]


def plain_asked(key: str) -> list[tuple[str, str]]:
    return [("AUTH PLAIN\r\n", "334"), (f"{_coded(chr(0) + 'u' + chr(0) + key)}\r\n", "235")]


def login(key: str) -> list[tuple[str, str]]:
    return [("AUTH LOGIN\r\n", "334"), (f"{_coded('u')}\r\n", "334"), (f"{_coded(key)}\r\n", "235")]


def login_named(key: str) -> list[tuple[str, str]]:
    return [(f"AUTH LOGIN {_coded('u')}\r\n", "334"), (f"{_coded(key)}\r\n", "235")]


def _coded(words: str) -> str:
    return base64.b64encode(words.encode()).decode()


async def expect(reader: asyncio.StreamReader, code: str) -> None:
    """The next answer, of one line or many, has this code."""
    while (line := (await reader.readline()).decode())[3:4] == "-":
        assert line.startswith(code), line
    assert line.startswith(f"{code} "), line


STEPS = [
    ("MAIL FROM:<shop@example.com>\r\n", "250"),
    ("RCPT TO:<ada@example.org>\r\n", "250"),
    ("RCPT TO:<eve@example.org>\r\n", "250"),
    ("DATA\r\n", "354"),
]


@pytest.mark.parametrize(
    "greeting, authenticate",
    [
        ("EHLO host", plain),
        ("EHLO localhost", login),
        ("ehlo [127.0.0.1]", plain_asked),
        ("EHLO [IPv6:::1]", login_named),
    ],
)
@pytest.mark.parametrize("how", ["one by one", "pipelined"])
async def test_the_words_of_mail_programs(
    serve: Serve, pool: Pool, greeting: str, authenticate: Dialogue, how: str
) -> None:
    """Every way in which swaks, msmtp and their like greet, log in and hand over is understood."""
    pipelined = how == "pipelined"
    async with serve() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        await expect(reader, "220")
        for words, code in [(f"{greeting}\r\n", "250"), *authenticate(served.key)]:
            writer.write(words.encode())
            await expect(reader, code)
        if pipelined:
            writer.write("".join(words for words, _code in STEPS).encode())
        for words, code in STEPS:
            if not pipelined:
                writer.write(words.encode())
            await expect(reader, code)
        writer.write(LETTER.replace(b"\n", b"\r\n").replace(b"\r\n.", b"\r\n..") + b".\r\nQUIT\r\n")
        await expect(reader, "250")
        await expect(reader, "221")
        writer.close()
    [delivery] = await deliveries(pool)
    assert addressed(delivery) == [("bcc", "eve@example.org"), ("to", "ada@example.org")]
    assert (delivery.text or "").strip() == "Hello, Ada.\n.a line with a dot"
