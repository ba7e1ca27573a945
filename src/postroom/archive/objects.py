"""Where the archive's files lie: a folder of this machine, or a bucket that speaks S3.

A file is there whole or not at all: a folder gets it under another name first and syncs it to the disk before it is
renamed; a bucket shows an upload only when it is complete. Writing the same path again replaces the file. A piece that
was written is found in the store it was written to: the record says which.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from postroom.archive.model import ArchiveOptions, Segment
from postroom.errors import ArchiveDamaged, ArchiveExtraMissing, ArchiveUnreachable
from postroom.settings import parse_archive_url

if TYPE_CHECKING:
    from obstore.store import S3Store

_UPLOAD_CHUNK = 8 * 1024 * 1024


class Objects(Protocol):
    """The four things that are done with files."""

    async def put(self, path: str, source: Path) -> None:
        """Store a local file under this path, durably, replacing what was there."""

    async def fetch(self, path: str, target: Path) -> None:
        """Bring a file here; raises `ArchiveDamaged` when it is not there."""

    async def delete(self, path: str) -> None:
        """Remove a file; one that is not there is fine."""

    async def exists(self, path: str) -> bool:
        """Whether there is a file under this path."""


class Folder:
    """An archive in a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, path: str, source: Path) -> None:
        await asyncio.to_thread(self._put, self._root / path, source)

    async def fetch(self, path: str, target: Path) -> None:
        try:
            await asyncio.to_thread(shutil.copyfile, self._root / path, target)
        except FileNotFoundError as error:
            raise ArchiveDamaged(f"{path} is not in the archive.") from error

    async def delete(self, path: str) -> None:
        target = self._root / path
        for left in (target, _unfinished(target)):  # what a killed process was writing goes with it
            await asyncio.to_thread(left.unlink, missing_ok=True)

    async def exists(self, path: str) -> bool:
        return await asyncio.to_thread((self._root / path).exists)

    def _put(self, target: Path, source: Path) -> None:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = _unfinished(target)
        shutil.copyfile(source, fresh)
        _sync(fresh)
        fresh.replace(target)
        # The partition is dropped on the strength of this file: its name must outlive a power cut, too.
        for directory in (target.parent, *target.parent.relative_to(self._root).parents):
            _sync(self._root / directory)


class Bucket:
    """An archive in a bucket; credentials come from the usual AWS_* variables."""

    def __init__(self, url: str, *, endpoint: str | None = None) -> None:
        self._store = _bucket(url, endpoint)

    async def put(self, path: str, source: Path) -> None:
        from obstore import put_async

        with _translated(path):
            await put_async(self._store, path, source, chunk_size=_UPLOAD_CHUNK)

    async def fetch(self, path: str, target: Path) -> None:
        from obstore import get_async

        with _translated(path):
            answer = await get_async(self._store, path)
            with target.open("wb") as file:
                async for chunk in answer.stream(min_chunk_size=_UPLOAD_CHUNK):
                    await asyncio.to_thread(file.write, bytes(chunk))

    async def delete(self, path: str) -> None:
        from obstore import delete_async

        with contextlib.suppress(ArchiveDamaged), _translated(path):
            await delete_async(self._store, path)

    async def exists(self, path: str) -> bool:
        from obstore import head_async

        with contextlib.suppress(ArchiveDamaged), _translated(path):
            await head_async(self._store, path)
            return True
        return False


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError as error:
        raise ArchiveDamaged(f"{path} is not in the archive.") from error
    except BaseError as error:
        raise ArchiveUnreachable(f"The archive's store refused {path}: {str(error).splitlines()[0]}") from error


def open_objects(url: str, *, endpoint: str | None = None) -> Objects:
    """The archive that a URL names: `s3://bucket/prefix`, `file:///path`, or simply a path; nothing else is one."""
    store_url = normal_url(url)
    if store_url.startswith("s3://"):
        return Bucket(store_url, endpoint=endpoint)
    return Folder(Path(store_url.removeprefix("file://")))


def normal_url(url: str) -> str:
    """A URL as it is recorded; raises `ArchiveUnreachable` when no archive can be there."""
    try:
        return parse_archive_url(url)
    except ValueError as error:
        raise ArchiveUnreachable(f"The archive's URL {error}.") from error


def objects_of(segment: Segment, options: ArchiveOptions) -> Objects:
    """The store that a piece lies in."""
    url = options.copy_url or segment.store_url or options.url
    if url is None:
        raise ArchiveUnreachable(f"Nobody says where {segment.path} is: POSTROOM_ARCHIVE_URL is not set.")
    return open_objects(url, endpoint=options.endpoint)


def _bucket(url: str, endpoint: str | None) -> "S3Store":
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError as error:
        raise ArchiveExtraMissing("obstore") from error
    try:
        if endpoint is None:
            return S3Store.from_url(url)
        is_plain = endpoint.startswith("http://")
        return S3Store.from_url(
            url, endpoint=endpoint, virtual_hosted_style_request=False, client_options={"allow_http": is_plain}
        )
    except (BaseError, ValueError) as error:
        raise ArchiveUnreachable(f"{url} is no bucket: {str(error).splitlines()[0]}") from error


def _unfinished(target: Path) -> Path:
    return target.with_name(f".{target.name}.unfinished")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
