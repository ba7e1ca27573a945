"""What an erasure is, as people and programs see it. Pure."""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from email_validator import validate_email


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
    waits_for: tuple[str, ...]  # what could not be cleaned yet: a file or a store, and why

    @property
    def is_done(self) -> bool:
        return self.state is ErasureState.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRun:
    """What an erasure needs to know while it runs."""

    id: int
    state: ErasureState
    address: str
    pseudonym: str
    delivery_ids: tuple[int, ...]
    last_file_id: int

    @property
    def spellings(self) -> tuple[str, ...]:
        return spellings(self.address)


def spellings(address: str) -> tuple[str, ...]:
    """An address in lower case as others may have written it, the given form first.

    A domain has an ASCII form and one in letters of its own. Letters beyond ASCII are also sought in upper case, for
    bytes have no case but that of ASCII, and as the numbers that JSON may write for them.
    """
    local, _, domain = address.rpartition("@")
    written = [address]
    if "xn--" in domain:
        told = validate_email(f"x@{domain}", check_deliverability=False, test_environment=True).domain
        written.append(f"{local}@{told.lower()}")
    raised = ["".join(letter if letter.isascii() else letter.upper() for letter in each) for each in written]
    escaped = [json.dumps(each)[1:-1] for each in (*written, *raised)]
    return tuple(dict.fromkeys((*written, *raised, *escaped)))
