"""A small IMAP server on loopback with fault injection: the part of RFC 3501 and RFC 6851 that one client needs."""

import asyncio
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

USER, PASSWORD = "bounces", "open sesame"


@dataclass
class Letterbox:
    """The state of the server: folders of messages by UID with flags, and the faults to inject."""

    folders: dict[str, dict[int, bytes]] = field(default_factory=lambda: {"INBOX": {}, "Done": {}})
    seen: set[int] = field(default_factory=set)
    capabilities: str = "IMAP4rev1 UIDPLUS MOVE"
    drop_at: str | None = None  # close the connection at this command, once
    deleted: set[int] = field(default_factory=set)
    commands: list[str] = field(default_factory=list)

    def put(self, *messages: bytes) -> None:
        inbox = self.folders["INBOX"]
        for message in messages:
            inbox[max([100, *inbox, *self.folders["Done"]]) + 1] = message


class _Session:
    def __init__(self, box: Letterbox, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._box, self._reader, self._writer = box, reader, writer
        self._folder = "INBOX"

    async def run(self) -> None:
        self._say("* OK ready")
        while line := await self._reader.readline():
            tag, _, rest = line.decode().rstrip("\r\n").partition(" ")
            words = shlex.split(rest.replace("\\", "\\\\"))
            name = " ".join(words[:2]).upper() if words[0].upper() == "UID" else words[0].upper()
            self._box.commands.append(name)
            if self._box.drop_at == name:
                self._box.drop_at = None
                return
            self._say(f"{tag} {self._answer(name, words)}")
            await self._writer.drain()
            if name == "LOGOUT":
                return

    def _say(self, text: str) -> None:
        self._writer.write(text.encode() + b"\r\n")

    def _answer(self, name: str, words: list[str]) -> str:
        if name == "LOGIN" and words[1:] != [USER, PASSWORD]:
            return "NO wrong"
        if name == "SELECT" and words[1] not in self._box.folders:
            return "NO no such folder"
        if (command := getattr(self, f"_{name.lower().replace(' ', '_')}", None)) is not None:
            command(*words[2:] if name.startswith("UID") else words[1:])
        return "OK done"

    def _capability(self) -> None:
        self._say(f"* CAPABILITY {self._box.capabilities}")

    def _select(self, folder: str) -> None:
        self._folder = folder
        self._say(f"* {len(self._messages)} EXISTS")

    def _uid_search(self, _criterion: str) -> None:
        waiting = [str(uid) for uid in sorted(self._messages) if uid not in self._box.seen]
        self._say(" ".join(["* SEARCH", *waiting]))

    def _uid_store(self, wanted: str, _action: str, flag: str) -> None:
        flags = self._box.seen if "Seen" in flag else self._box.deleted
        flags |= set(self._uids(wanted))

    def _uid_copy(self, wanted: str, folder: str) -> None:
        self._box.folders[folder] |= {uid: self._messages[uid] for uid in self._uids(wanted)}

    def _uid_move(self, wanted: str, folder: str) -> None:
        self._uid_copy(wanted, folder)
        self._remove(self._uids(wanted))

    def _uid_expunge(self, wanted: str) -> None:
        self._remove([uid for uid in self._uids(wanted) if uid in self._box.deleted])

    @property
    def _messages(self) -> dict[int, bytes]:
        return self._box.folders[self._folder]

    def _uids(self, wanted: str) -> list[int]:
        return [int(each) for each in wanted.split(",") if int(each) in self._messages]

    def _remove(self, uids: list[int]) -> None:
        for uid in uids:
            del self._messages[uid]

    def _uid_fetch(self, wanted: str, *_items: str) -> None:
        for number, uid in enumerate(self._uids(wanted), 1):
            raw = self._messages[uid]
            self._writer.write(b"* %d FETCH (UID %d BODY[]<0> {%d}\r\n" % (number, uid, len(raw)) + raw + b")\r\n")


@asynccontextmanager
async def serving(box: Letterbox) -> AsyncIterator[str]:
    """Run the server during the block; yields the URL of its mailbox."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _Session(box, reader, writer).run()
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    password = re.sub(" ", "%20", PASSWORD)
    try:
        yield f"imap://{USER}:{password}@127.0.0.1:{port}/INBOX"
    finally:
        server.close()
        await server.wait_closed()
