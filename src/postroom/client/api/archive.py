"""The endpoints of archive, and their types.

Generated from the table of endpoints by `./dev docs`: do not edit.
"""

from __future__ import annotations  # evaluated when an endpoint is first called

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from postroom.client.calls import Kind, Resource, ResultPage, call, listing

if TYPE_CHECKING:
    SegmentState = Literal["archived", "collecting", "detached", "expired", "exported", "exporting", "verified"]
else:  # a newer server may have more values
    SegmentState = str


class Segment(Struct, frozen=True, kw_only=True):
    """One piece: a month of a table, or rows of that month that arrived later."""

    id: int
    state: SegmentState
    table: str
    part: int
    rows: int | None
    bytes: int | None
    archived_at: datetime | None
    expired_at: datetime | None
    restored_as: str | None
    path: str
    content_sha256: str | None
    month: str


class Erasure(Struct, frozen=True, kw_only=True):
    """One erasure, without its address."""

    id: int
    requested_at: datetime
    finished_at: datetime | None
    counts: dict[str, int]
    waits_for: list[str]
    status: str


class ArchiveApi(Resource[Kind]):
    """The endpoints of archive."""

    @listing("/v1/archive")
    def list(self, *, cursor: str | None = None, limit: int = 50, table: str | None = None) -> ResultPage[Segment]:
        """List the pieces of the archive, finished and in progress."""

    @call("POST", "/v1/erasures", body=True)
    def create_erasure(self, *, email: str, keep_accounts: bool = False) -> Erasure:
        """Erase a person; 202 while files of the archive are still to be rewritten."""

    @listing("/v1/erasures")
    def list_erasures(self, *, cursor: str | None = None, limit: int = 50) -> ResultPage[Erasure]:
        """List erasures, newest first, without their addresses."""

    @call("GET", "/v1/erasures/{erasure_id}")
    def get_erasure(self, erasure_id: int) -> Erasure:
        """The progress of an erasure."""
