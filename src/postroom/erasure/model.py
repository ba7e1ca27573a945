"""Models of erasure. Pure."""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from email_validator import validate_email


class ErasureState(StrEnum):
    """The state of an erasure."""

    DATABASE = "database"
    ARCHIVE = "archive"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """One erasure, without its address."""

    id: int
    state: ErasureState
    requested_at: datetime
    finished_at: datetime | None
    requested_by: str
    counts: dict[str, int]  # changed rows by table; archive files under `archive`
    waits_for: tuple[str, ...]  # files and stores that failed, each with the reason

    @property
    def is_done(self) -> bool:
        return self.state is ErasureState.DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRun:
    """The values that a running erasure uses."""

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
    """The spellings of a lower-case address, the given form first.

    A domain has an ASCII and a Unicode form. Non-ASCII letters are also searched in upper case, because bytes are
    compared case-insensitively only for ASCII, and as the escapes that JSON may use for them.
    """
    local, _, domain = address.rpartition("@")
    written = [address]
    if "xn--" in domain:
        ascii_domain = validate_email(f"x@{domain}", check_deliverability=False, test_environment=True).domain
        written.append(f"{local}@{ascii_domain.lower()}")
    raised = ["".join(letter if letter.isascii() else letter.upper() for letter in each) for each in written]
    escaped = [json.dumps(each)[1:-1] for each in (*written, *raised)]
    return tuple(dict.fromkeys((*written, *raised, *escaped)))
