"""What an erasure is, as people and programs see it. Pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class ErasureState(StrEnum):
    """How far an erasure is."""

    DATABASE = "database"
    ARCHIVE = "archive"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """One erasure; it does not say of whom."""

    id: int
    state: ErasureState
    requested_at: datetime
    finished_at: datetime | None
    requested_by: str
    counts: dict[str, int]  # rows touched, by table; files of the archive under `archive`

    @property
    def is_done(self) -> bool:
        return self.state is ErasureState.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What an erasure needs to know while it runs."""

    id: int
    state: ErasureState
    address: str
    pseudonym: str
    delivery_ids: tuple[int, ...]
    last_file_id: int
