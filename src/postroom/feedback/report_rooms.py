"""The rooms of a process that get reports, and the room of a report.

Each room signs its return paths with a key of its own, so a return path finds its room, in the envelope or in the text
of a report. A report without one belongs to the home room, which is POSTROOM_SCHEMA among many rooms: no other tenant
may read it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from postroom.db.pool import Pool
from postroom.post.keyed_hash import RoomKey, SecretKey
from postroom.post.message_id import room_keys
from postroom.post.return_path import quoted_return_paths, read_return_path


@dataclass(frozen=True, slots=True)
class ReportRoom:
    """A room that gets reports: its connections, and the keys of its return paths."""

    pool: Pool = field(repr=False, compare=False)
    keys: tuple[RoomKey, ...] = field(repr=False)
    is_home: bool = True


RoomPools = Callable[[], Iterable[tuple[str, Pool]]]
ReportRooms = Callable[[], Iterable[ReportRoom]]
"""The rooms of the process. The iterator ends with `DatabaseError` if some cannot be known now."""


def report_rooms(pools: RoomPools, secrets: Sequence[SecretKey], *, home: str) -> ReportRooms:
    """The rooms of these names and connections; `pools` ends with `DatabaseError` if some cannot be known now."""
    keys_of = lru_cache(maxsize=4096)(lambda name: room_keys(secrets, name))

    def listed() -> Iterator[ReportRoom]:
        for name, pool in pools():
            yield ReportRoom(pool, keys_of(name), is_home=name == home)

    return listed


def find_room(rooms: ReportRooms, raw: bytes, *, domain: str | None, to: Sequence[str] = ()) -> ReportRoom | None:
    """The room of a report: by the address that received it, by a return path that it quotes, else the home room."""
    signer = None if domain is None else find_signer(rooms, [*to, *quoted_return_paths(raw)], domain=domain)
    return signer or next((room for room in rooms() if room.is_home), None)


def find_signer(rooms: ReportRooms, addresses: Sequence[str], *, domain: str) -> ReportRoom | None:
    """The room that made one of these return paths. A thousand rooms take some milliseconds."""
    for address in addresses:
        for room in rooms():
            if read_return_path(address, domain=domain, keys=room.keys) is not None:
                return room
    return None
