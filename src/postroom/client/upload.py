"""A file that is sent as the body of a request, in pieces, with its progress."""

import os
from asyncio import to_thread
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO

File = str | os.PathLike[str] | IO[bytes]
"""A path, or a file opened in binary mode."""

OnProgress = Callable[[int, int | None], object]
"""Called after each piece with the bytes sent and the bytes of the file; None if its size is unknown."""

PIECE = 64 * 1024  # bounds memory; a progress bar moves often enough

_MEDIA_TYPES = {".csv": "text/csv", ".jsonl": "application/x-ndjson", ".ndjson": "application/x-ndjson"}


def media_type_of(file: File, accepted: tuple[str, ...]) -> str:
    """The media type by the name of the file; the first accepted one if the name has no known ending."""
    name = getattr(file, "name", "") if hasattr(file, "read") else file
    found = _MEDIA_TYPES.get(Path(str(name)).suffix.lower())
    return found if found in accepted else accepted[0]


def open_file(file: File) -> AbstractContextManager[IO[bytes]]:
    """The file, to be closed here only if it was opened here."""
    return Path(file).open("rb") if isinstance(file, str | os.PathLike) else nullcontext(file)


class FileUpload:
    """The pieces of an open file."""

    def __init__(self, file: IO[bytes], progress: OnProgress | None) -> None:
        self._file, self._progress = file, progress
        self._sent = 0
        self._total = _size(file)

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._file.read(PIECE):
            yield piece
            self._advance(len(piece))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await to_thread(self._file.read, PIECE):
            yield piece
            self._advance(len(piece))

    def _advance(self, count: int) -> None:
        self._sent += count
        if self._progress is not None:
            self._progress(self._sent, self._total)


def _size(file: IO[bytes]) -> int | None:
    """The bytes from here to the end; None for a pipe."""
    if not file.seekable():
        return None
    here = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(here)
    return end - here
