"""A Postroom of the fuzzer's own: `postroom up` with an embedded database, on loopback, in a temporary directory."""

import base64
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

BOUNCE_DOMAIN = "bounces.example.org"
START_S = 120.0
STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Arena:
    """Where the server listens, how to get in, and what it says."""

    process: subprocess.Popen[bytes]
    environment: dict[str, str]
    log: Path
    http: int
    smtp: int
    bounces: int
    key: str
    access_key_id: str
    secret_access_key: str
    sendgrid_key: ec.EllipticCurvePrivateKey
    mailgun_key: str
    postmark_secret: str

    @property
    def auth(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def tracebacks(self) -> int:
        return self.log.read_text(errors="replace").count("Traceback (most recent call last)")

    def peak_mb(self) -> int:
        """The most memory the server had in use since `forget_peak`."""
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024
        return 0

    def forget_peak(self) -> None:
        with suppress(OSError):
            Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def command(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a `postroom` command in this room."""
        return subprocess.run(
            [sys.executable, "-m", "postroom.cli", *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=STOP_S,
        )


@contextmanager
def running_arena(folder: Path) -> Iterator[Arena]:
    """Start everything in this folder; it ends with the block."""
    http, smtp, bounces = _ports(3)
    sendgrid, mailgun, postmark = ec.generate_private_key(ec.SECP256R1()), secrets.token_hex(16), secrets.token_hex(16)
    public = sendgrid.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POSTROOM_")}
    environment = {
        **kept,
        "POSTROOM_DATA_DIR": str(folder / "data"),
        "POSTROOM_HTTP_ADDR": f"127.0.0.1:{http}",
        "POSTROOM_SMTP_ADDR": f"127.0.0.1:{smtp}",
        "POSTROOM_BOUNCE_ADDR": f"127.0.0.1:{bounces}",
        "POSTROOM_BOUNCE_DOMAIN": BOUNCE_DOMAIN,
        "POSTROOM_LOG_FORMAT": "json",
        "POSTROOM_SECRET_KEY": secrets.token_hex(32),
        "POSTROOM_SENDERS_ALLOW_PRIVATE": "true",  # senders connect to loopback and nowhere else
        "POSTROOM_GMAIL_BASE_URL": "http://127.0.0.1:9",
        "POSTROOM_SES_ENDPOINT_URL": "http://127.0.0.1:9",
        "POSTROOM_SES_TOPICS": "arn:aws:sns:eu-west-1:1:ours",
        "POSTROOM_SENDGRID_PUBLIC_KEY": base64.b64encode(public).decode(),
        "POSTROOM_MAILGUN_SIGNING_KEY": mailgun,
        "POSTROOM_POSTMARK_SECRET": postmark,
    }
    log = folder / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "postroom.cli", "up"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        _until_up(process, log)
        key = (folder / "data" / "api-key").read_text().strip()
        pair = _pair(environment)
        yield Arena(process, environment, log, http, smtp, bounces, key, *pair, sendgrid, mailgun, postmark)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_up(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while "Ctrl-C stops" not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"postroom up did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)


def _pair(environment: dict[str, str]) -> tuple[str, str]:
    command = [sys.executable, "-m", "postroom.cli", "keys", "ses-credentials", "1", "--json"]
    shown = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    return shown["access_key_id"], shown["secret_access_key"]


def _ports(count: int) -> list[int]:
    """Ports of loopback that are free, and that the kernel does not choose for connections."""
    found: list[int] = []
    while len(found) < count:
        port = 20_000 + secrets.randbelow(12_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found
