"""The doctor's checks of this host: ports, files, templates, the transport. `live_checks` judges the last ones."""

import asyncio
import shutil
from pathlib import Path

from postroom.accounts.letter import TEMPLATES as ACCOUNT_TEMPLATES
from postroom.archive.model import ArchiveOptions
from postroom.archive.objects import open_objects
from postroom.embedded.server import running_url
from postroom.errors import PostroomError
from postroom.mail.dkim_keys import load_signers
from postroom.mail.publishing import load_catalog
from postroom.post.reply import Reply, Stage
from postroom.runtime import uvicorn_server
from postroom.runtime.finding import Finding, fail, ok, warn
from postroom.settings import Settings
from postroom.transports.smtp import SmtpRelay, SmtpTransport

CONNECT_TIMEOUT_S = 5.0  # a relay that needs longer delays every delivery
GIGABYTE = 1024**3  # bytes
# Time to react: a larger value warns on small disks, a smaller one when it is nearly too late
DISK_WARNS = 2 * GIGABYTE
DISK_FAILS = GIGABYTE // 4  # PostgreSQL stops when WAL cannot be written (a segment has 16 MB)

_REMEDY = {
    Stage.CONNECT: "check the relay, its port and the firewall",
    Stage.TLS: "check host, port and certificate: smtps:// is for port 465, smtp:// for 587",
    Stage.LOGIN: "correct the user name or the password in POSTROOM_SMTP_RELAY",
}


async def examine(settings: Settings) -> list[Finding]:
    return [
        await embedded(settings),
        await port(settings),
        templates(settings),
        disk(settings),
    ]


async def embedded(settings: Settings) -> Finding:
    if settings.database_url is not None or settings.servers:
        variable = "POSTROOM_DATABASE_URL" if settings.database_url is not None else "POSTROOM_SERVERS"
        return ok("embedded server", f"not used: {variable} is set")
    directory = settings.data_dir.absolute()
    if await running_url(directory) is None:
        return fail("embedded server", f"not running under {directory}", "start it with `postroom up`")
    return ok("embedded server", f"running under {directory}")


async def port(settings: Settings) -> Finding:
    host, number = settings.http_addr
    shown = f"{host}:{number}"
    try:
        uvicorn_server.bind(settings.http_addr).close()
    except PostroomError as error:
        if await _is_postroom(host, number):
            return ok("http address", f"{shown} is answered by Postroom")
        return warn("http address", error.message, "set POSTROOM_HTTP_ADDR to a free address")
    return ok("http address", f"{shown} is free: no API runs there")


async def _is_postroom(host: str, number: int) -> bool:
    """True if the listening process answers `/healthz` as Postroom does."""
    request = f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, number)
            try:
                writer.write(request)
                answer = await reader.read(4096)
            finally:
                writer.close()
    except OSError:  # TimeoutError is one
        return False
    return b" 200 " in answer.partition(b"\r\n")[0] and b"x-request-id" in answer.lower()


def templates(settings: Settings) -> Finding:
    try:
        catalog = load_catalog(settings)
    except PostroomError as error:
        return fail("templates", error.message, "fix the file, or check POSTROOM_TEMPLATE_DIR")
    mute = [name for name in ACCOUNT_TEMPLATES.values() if not catalog.speaks(name, settings.default_locale)]
    if mute:
        lacking = f"{', '.join(mute)}: nothing in {settings.default_locale}, the language of POSTROOM_DEFAULT_LOCALE"
        return warn("templates", lacking, f"write {mute[0]}/en, or set POSTROOM_DEFAULT_LOCALE to a language they have")
    return ok("templates", f"{len(catalog.names())} parse")


def signatures(settings: Settings) -> Finding:
    try:
        signers = load_signers(settings.dkim_keys)
    except PostroomError as error:
        is_file_trouble = isinstance(error.__cause__, OSError)
        remedy = "correct the path in POSTROOM_DKIM_KEYS, or let this user read the file"
        return fail(
            "dkim", error.message, remedy if is_file_trouble else "write POSTROOM_DKIM_KEYS as domain:selector:path"
        )
    if signers:
        entries = [entry.strip() for entry in (settings.dkim_keys or "").split(",") if entry.strip()]
        paths = [Path(entry.split(":", 2)[2]) for entry in entries]
        if exposed := [str(path) for path in paths if path.stat().st_mode & 0o077]:
            return warn("dkim", f"others can read {', '.join(exposed)}", f"chmod 600 {' '.join(exposed)}")
        return ok("dkim", f"signs for {', '.join(sorted(signers))}")
    if settings.transport == "smtp":
        return warn("dkim", "mail leaves unsigned", "set POSTROOM_DKIM_KEYS, unless the relay signs")
    if settings.transport == "senders":
        return ok("dkim", "no keys; the providers of the sender accounts sign")
    return ok("dkim", "no keys; no mail leaves")


async def transport(settings: Settings) -> Finding:
    if settings.transport == "senders":
        return ok("transport", "senders: mail leaves through the sender accounts")
    if settings.transport != "smtp":
        return ok("transport", f"{settings.transport}: no mail leaves this installation")
    try:
        relay = SmtpRelay.parse(settings.smtp_relay or "")
    except ValueError as error:
        return fail("transport", f"POSTROOM_SMTP_RELAY: {error}", "write it as smtp://user:password@host:587")
    probed = SmtpTransport(relay, local_name=settings.message_domain)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            refused = await probed.probe()
    except TimeoutError:
        refused = Reply(Stage.CONNECT, text=f"no answer in {CONNECT_TIMEOUT_S:g} s")
    if refused is None:
        return ok(
            "transport", f"smtp: {relay.address} {'takes the login' if relay.username else 'accepts connections'}"
        )
    reason = " ".join(str(part) for part in (refused.code, refused.enhanced, refused.text) if part)
    return fail("transport", f"smtp to {relay.address} ends at {refused.stage}: {reason}", _REMEDY[refused.stage])


def secret(settings: Settings) -> Finding:
    if settings.secret_key is not None or (settings.data_dir / "secret-key").exists():
        return ok("secret key", "set")
    return warn("secret key", "not set", "set POSTROOM_SECRET_KEY to 64 hex characters; `postroom up` makes one")


def disk(settings: Settings) -> Finding:
    directory = _existing(settings.data_dir.absolute())
    free = shutil.disk_usage(directory).free
    shown = f"{free / GIGABYTE:.1f} GB free at {directory}"
    if settings.database_url is not None:
        return ok("disk", f"{shown}; the database has its own")
    if free < DISK_FAILS:
        return fail("disk", shown, "make room before PostgreSQL stops")
    return warn("disk", shown, "make room soon") if free < DISK_WARNS else ok("disk", shown)


async def archive(settings: Settings) -> Finding:
    options = ArchiveOptions.of(settings)
    url = options.url
    if url is None:
        advice = "set POSTROOM_ARCHIVE_URL to a folder that all workers share, or to s3://bucket/prefix"
        return warn("archive", "nowhere: old months stay in the database", advice)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await open_objects(url, endpoint=options.endpoint).check()
    except (PostroomError, TimeoutError) as error:
        reason = str(error) or f"{url}: no answer in {CONNECT_TIMEOUT_S:g} s"
        return fail("archive", reason, "check POSTROOM_ARCHIVE_URL, its rights, and that it is mounted")
    folder = Path(url.removeprefix("file://"))
    is_own = settings.archive_url is None or url.startswith("s3://")  # the default folder is created when it is needed
    if not is_own and not await asyncio.to_thread(folder.exists):
        return warn("archive", f"{folder} is not there", "mount what should be there, or make the folder")
    return ok("archive", url)


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())
