"""Read bounces from a mailbox over IMAP.

Each pass logs in, reads the unseen messages, records them, and only then marks them as seen or moves them. If a pass
fails (a lost connection, an unavailable database), the rest stays unseen for the next pass; a recorded but unmarked
message is recognised as a known report. The standard library's client runs in a thread.

A mailbox may serve many rooms; `report_rooms` finds the room of a report. While a server is unavailable, the reports of
its rooms stay unseen, and those of the others are recorded. A report that belongs to no room is marked and logged.
"""

import asyncio
import imaplib
import re
import ssl
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import unquote, urlsplit

import structlog

from postroom.db.errors import DatabaseError
from postroom.db.faults import DATABASE_ERRORS
from postroom.feedback.attribution import Incoming, ReturnPaths
from postroom.feedback.ingest import Ingested, ingest
from postroom.feedback.reading import ReportReaders
from postroom.feedback.report_rooms import ReportRoom, ReportRooms, find_room
from postroom.post.report import LARGEST
from postroom.runtime.loop import Backoff, Loop

ORIGIN = "imap"
TIMEOUT_S = 60  # a slow mailbox is not an error, a silent one is
AT_ONCE = 20  # messages per fetch: bounds memory, and an interruption repeats at most these

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImapOptions:
    """The mailbox, and whether read messages are moved to a folder or marked as seen."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    folder: str = "INBOX"
    move_to: str | None = None
    encrypted: bool = True
    tls: ssl.SSLContext | None = None
    interval: timedelta = timedelta(minutes=1)  # each pass logs in, and servers limit logins

    @classmethod
    def parse(cls, url: str) -> "ImapOptions":
        """Parse `imaps://user:password@host:993/INBOX?move=Done`; the ValueError never contains the password."""
        parts = urlsplit(url)
        if parts.scheme not in ("imap", "imaps") or not parts.hostname or not parts.username:
            raise ValueError("must be imaps://user:password@host/folder")
        is_local = parts.hostname in ("127.0.0.1", "localhost", "::1")
        if parts.scheme == "imap" and not is_local:
            raise ValueError("must be imaps, so that the password is encrypted in transit")
        _, _, move_to = parts.query.partition("move=")
        return cls(
            host=parts.hostname,
            port=parts.port or (993 if parts.scheme == "imaps" else 143),
            user=unquote(parts.username),
            password=unquote(parts.password or ""),
            folder=unquote(parts.path.strip("/")) or "INBOX",
            move_to=unquote(move_to) or None,
            encrypted=parts.scheme == "imaps",
        )


class ImapPoller:
    """Reads the reports in one mailbox; `domain` is the one of our return paths."""

    def __init__(
        self, rooms: ReportRooms, options: ImapOptions, *, domain: str | None, stop: asyncio.Event | None = None
    ) -> None:
        self._rooms, self._options, self._domain = rooms, options, domain
        self._readers = ReportReaders(processes=1)
        self._stop = stop or asyncio.Event()

    def loop(self) -> Loop:
        """Read at every interval, with back-off after a rejected login, which might otherwise lock the account."""
        interval_s = self._options.interval.total_seconds()
        return Loop(
            "bounce mailbox",
            self.run_once,
            rest=self._options.interval,
            expected=(imaplib.IMAP4.error,),
            interruption=Backoff(2 * interval_s, 15 * interval_s),
        )

    async def run_once(self) -> Ingested:
        """Read all unseen messages; errors of the network are raised, and those of the database at the end."""
        total, errors = Ingested(), list[Exception]()
        mailbox = ImapMailbox(self._options)
        try:
            waiting = await asyncio.to_thread(mailbox.open)
            for start in range(0, len(waiting), AT_ONCE):
                if self._stop.is_set():
                    break
                uids = waiting[start : start + AT_ONCE]
                messages = await asyncio.to_thread(mailbox.fetch, uids)
                for room, mine in self._by_room(messages, errors).items():
                    try:
                        total += await self._record(room, [messages[uid] for uid in mine])
                    except DATABASE_ERRORS as error:
                        errors.append(error)
                    else:
                        await asyncio.to_thread(mailbox.put_away, mine)
        finally:
            self._readers.close()
            await asyncio.to_thread(mailbox.close)
        if errors:
            raise errors[0]
        return total

    def _by_room(self, messages: Mapping[int, bytes], errors: list[Exception]) -> dict[ReportRoom | None, list[int]]:
        """The messages of each room. Those whose room cannot be known now are left out."""
        found = defaultdict[ReportRoom | None, list[int]](list)
        for uid, raw in messages.items():
            try:
                found[find_room(self._rooms, raw, domain=self._domain)].append(uid)
            except DatabaseError as error:
                errors.append(error)
        return found

    async def _record(self, room: ReportRoom | None, messages: Sequence[bytes]) -> Ingested:
        if room is None:
            _log.warning("reports_without_room", messages=len(messages))
            return Ingested()
        incoming = [Incoming(raw, ORIGIN) for raw in messages]
        paths = ReturnPaths(self._domain, room.keys)
        return await ingest(room.pool, incoming, paths=paths, read=self._readers.read)


class ImapMailbox:
    """One session with the server; blocking."""

    def __init__(self, options: ImapOptions) -> None:
        self._options = options
        self._client: imaplib.IMAP4 | None = None

    def open(self) -> list[int]:
        """Log in and return the UIDs of the unseen messages."""
        options = self._options
        if options.encrypted:
            tls = options.tls or ssl.create_default_context()
            client: imaplib.IMAP4 = imaplib.IMAP4_SSL(options.host, options.port, ssl_context=tls, timeout=TIMEOUT_S)
        else:
            client = imaplib.IMAP4(options.host, options.port, timeout=TIMEOUT_S)
        self._client = client
        client.login(options.user, options.password)
        self._do(client.select(_quoted(options.folder)))
        found = self._do(client.uid("SEARCH", "UNSEEN"))
        return [int(uid) for line in found if isinstance(line, bytes) for uid in line.split()]

    def fetch(self, uids: Sequence[int]) -> dict[int, bytes]:
        """Fetch the messages without marking them, up to the size limit of a report."""
        assert self._client is not None
        wanted = ",".join(map(str, uids))
        answer = self._do(self._client.uid("FETCH", wanted, f"(UID BODY.PEEK[]<0.{LARGEST}>)"))
        return dict(_messages(answer))

    def put_away(self, uids: Sequence[int]) -> None:
        """Mark messages as seen, and move them if a folder is configured."""
        assert self._client is not None
        client, wanted = self._client, ",".join(map(str, uids))
        self._do(client.uid("STORE", wanted, "+FLAGS.SILENT", r"(\Seen)"))
        if self._options.move_to is None:
            return
        folder = _quoted(self._options.move_to)
        if "MOVE" in client.capabilities:
            self._do(client.uid("MOVE", wanted, folder))
            return
        self._do(client.uid("COPY", wanted, folder))
        self._do(client.uid("STORE", wanted, "+FLAGS.SILENT", r"(\Deleted)"))
        if (
            "UIDPLUS" in client.capabilities
        ):  # a plain EXPUNGE would also remove messages that other clients have marked
            self._do(client.uid("EXPUNGE", wanted))

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            try:
                client.logout()
            except (OSError, imaplib.IMAP4.error):
                client.shutdown()  # the connection is already lost; only our socket is left

    @staticmethod
    def _do(answer: tuple[str, Sequence[object]]) -> Sequence[object]:
        status, data = answer
        if status != "OK":
            raise imaplib.IMAP4.error(f"the server answered {status}")
        return data


def _messages(answer: Sequence[object]) -> Iterator[tuple[int, bytes]]:
    for item in answer:
        if isinstance(item, tuple) and len(item) > 1:
            head, raw = item[0], item[1]
            found = re.search(rb"UID (\d+)", head)
            if found is not None:
                yield int(found[1]), raw


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
