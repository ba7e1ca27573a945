"""Stores of archive files: a local folder, or an S3-compatible bucket.

Writes are atomic: a folder writes under a temporary name, syncs and renames; a bucket shows an upload when it is
complete. A path is claimed before its first write; the claim fails if a file exists. Later writes replace the file.
The record of a piece names the store it was written to. Files of another room are read-only.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from uuid import uuid4

from postroom.archive.errors import (
    ArchiveDamaged,
    ArchiveExtraMissing,
    ArchiveForeign,
    ArchivePathTaken,
    ArchiveUnreachable,
)
from postroom.archive.model import ArchiveOptions, Segment
from postroom.archive.settings import parse_archive_url
from postroom.runtime.aws_credentials import CredentialChain, find_region

if TYPE_CHECKING:
    from obstore.store import S3Store

_UPLOAD_CHUNK = 8 * 1024 * 1024  # S3 requires parts of at least 5 MB; larger ones need more memory per upload


class Objects(Protocol):
    """Operations on the files of a store."""

    async def check(self) -> None:
        """Raise `ArchiveUnreachable` unless a file could be written now; leaves no file behind."""

    async def claim(self, path: str) -> None:
        """Create an empty file at an unused path, for `put` to replace; raises `ArchivePathTaken` if a file exists."""

    async def put(self, path: str, source: Path) -> None:
        """Store a local file at this path durably, replacing the previous content."""

    async def fetch(self, path: str, target: Path) -> None:
        """Download a file; raises `ArchiveDamaged` if it does not exist."""

    async def delete(self, path: str) -> None:
        """Remove a file; no error if it does not exist."""

    async def exists(self, path: str) -> bool:
        """True if a file exists at this path."""

    async def paths_in(self, folder: str) -> list[str]:
        """The sorted paths of all files in a folder."""


class Folder:
    """An archive in a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def check(self) -> None:
        try:
            await asyncio.to_thread(self._check)
        except OSError as error:
            raise ArchiveUnreachable(
                f"The archive's folder {self._root} is not writable: {error.strerror or error}."
            ) from error

    async def claim(self, path: str) -> None:
        try:
            await asyncio.to_thread(self._claim, self._root / path)
        except FileExistsError as error:
            raise _taken(path) from error

    async def put(self, path: str, source: Path) -> None:
        await asyncio.to_thread(self._put, self._root / path, source)

    async def fetch(self, path: str, target: Path) -> None:
        try:
            await asyncio.to_thread(shutil.copyfile, self._root / path, target)
        except FileNotFoundError as error:
            if not await asyncio.to_thread(self._root.is_dir):
                raise ArchiveUnreachable(f"The archive's folder {self._root} does not exist.") from error
            raise ArchiveDamaged(f"{path} is not in the archive.") from error

    async def delete(self, path: str) -> None:
        target = self._root / path
        for left in (target, _unfinished(target)):  # the temporary file of a killed process too
            await asyncio.to_thread(left.unlink, missing_ok=True)

    async def exists(self, path: str) -> bool:
        return await asyncio.to_thread((self._root / path).exists)

    async def paths_in(self, folder: str) -> list[str]:
        return await asyncio.to_thread(self._paths_in, folder)

    def _check(self) -> None:
        """Write an unnamed temporary file into the folder, or into its nearest existing parent."""
        existing = next(place for place in (self._root, *self._root.parents) if place.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass

    def _claim(self, target: Path) -> None:
        _make_folder(target.parent)
        os.close(_create(target))

    def _paths_in(self, folder: str) -> list[str]:
        files = (path for path in (self._root / folder).rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self._root)) for path in files)

    def _put(self, target: Path, source: Path) -> None:
        _make_folder(target.parent)
        fresh = _unfinished(target)
        fresh.unlink(missing_ok=True)
        with source.open("rb") as whole, os.fdopen(_create(fresh), "wb") as file:
            shutil.copyfileobj(whole, file)
        _sync(fresh)
        fresh.replace(target)
        # The partition is dropped once this file exists: its directory entry must survive a power cut too.
        for directory in (target.parent, *target.parent.relative_to(self._root).parents):
            _sync(self._root / directory)


class Bucket:
    """An archive in a bucket; credentials come from AWS's default chain (`runtime.aws_credentials`)."""

    def __init__(self, url: str, *, endpoint: str | None = None) -> None:
        self._url, self._store = url, _bucket(url, endpoint)

    async def check(self) -> None:
        from obstore import delete_async, put_async

        probe = f".postroom-{uuid4()}"
        with self._translated(probe):
            await put_async(self._store, probe, b"", use_multipart=False)
            await delete_async(self._store, probe)

    async def claim(self, path: str) -> None:
        """Write if nothing exists at the path; stores without conditional writes are queried first."""
        from obstore import put_async
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        if await self.exists(path):
            raise _taken(path)
        try:
            with self._translated(path):
                await put_async(self._store, path, b"", mode="create")
        except ArchiveUnreachable as error:
            if isinstance(error.__cause__, AlreadyExistsError | PreconditionError):
                raise _taken(path) from error
            if "NotImplemented" not in str(error.__cause__):
                raise

    async def put(self, path: str, source: Path) -> None:
        from obstore import put_async

        with self._translated(path):
            await put_async(self._store, path, source, chunk_size=_UPLOAD_CHUNK)

    async def fetch(self, path: str, target: Path) -> None:
        from obstore import get_async

        with self._translated(path):
            answer = await get_async(self._store, path)
            with target.open("wb") as file:
                async for chunk in answer.stream(min_chunk_size=_UPLOAD_CHUNK):
                    await asyncio.to_thread(file.write, bytes(chunk))

    async def delete(self, path: str) -> None:
        from obstore import delete_async

        with contextlib.suppress(ArchiveDamaged), self._translated(path):
            await delete_async(self._store, path)

    async def exists(self, path: str) -> bool:
        from obstore import head_async

        with contextlib.suppress(ArchiveDamaged), self._translated(path):
            await head_async(self._store, path)
            return True
        return False

    async def paths_in(self, folder: str) -> list[str]:
        from obstore import list as list_objects

        with self._translated(folder):
            return sorted([item["path"] async for page in list_objects(self._store, folder) for item in page])

    @contextlib.contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise ArchiveUnreachable(f"The bucket of {self._url} does not exist.") from error
            raise ArchiveDamaged(f"{path} is not in the archive.") from error
        except BaseError as error:
            raise ArchiveUnreachable(f"The archive's store refused {path}: {str(error).splitlines()[0]}") from error


class ReadOnly:
    """A store with files of another room: every change is rejected."""

    def __init__(self, objects: Objects) -> None:
        self.check, self.fetch = objects.check, objects.fetch
        self.exists, self.paths_in = objects.exists, objects.paths_in

    async def claim(self, path: str) -> None:
        self._refuse(path)

    async def put(self, path: str, source: Path) -> None:  # noqa: ARG002 - part of the protocol; nothing is written
        self._refuse(path)

    async def delete(self, path: str) -> None:
        self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise ArchiveForeign(
            f"{path} belongs to the room that this one is a copy of, and only that room may change it. "
            "If the original room no longer exists, run: postroom archive adopt"
        )


def open_objects(url: str, *, endpoint: str | None = None) -> Objects:
    """The store of a URL: `s3://bucket/prefix`, `file:///path`, or a path."""
    store_url = normal_url(url)
    if store_url.startswith("s3://"):
        return Bucket(store_url, endpoint=endpoint)
    return Folder(Path(store_url.removeprefix("file://")))


def normal_url(url: str) -> str:
    """The normal form of a URL, as recorded; raises `ArchiveUnreachable` for an invalid one."""
    try:
        return parse_archive_url(url)
    except ValueError as error:
        raise ArchiveUnreachable(f"The archive's URL {error}.") from error


def objects_of(segment: Segment, options: ArchiveOptions) -> Objects:
    """The store of a piece's file; read-only if the file belongs to another room."""
    url = options.copy_url or segment.store_url
    if url is None:
        raise ArchiveUnreachable(f"The record of {segment.path} names no store.")
    objects = open_objects(url, endpoint=options.endpoint)
    return ReadOnly(objects) if segment.is_foreign else objects


def _bucket(url: str, endpoint: str | None) -> "S3Store":
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError as error:
        raise ArchiveExtraMissing("obstore") from error
    try:
        options: dict[str, Any] = {"credential_provider": _S3Credentials(CredentialChain())}
        if (region := find_region()) is not None:
            options["region"] = region
        if endpoint is not None:
            options |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
            options["client_options"] = {"allow_http": endpoint.startswith("http://")}
        return S3Store.from_url(url, **options)
    except (BaseError, ValueError) as error:
        raise ArchiveUnreachable(f"{url} is not a valid bucket: {str(error).splitlines()[0]}") from error


class _S3Credentials:
    """The credentials of this process in the form that obstore expects."""

    def __init__(self, chain: CredentialChain) -> None:
        self._chain = chain

    async def __call__(self) -> dict[str, Any]:
        found = await self._chain.current()
        return {
            "access_key_id": found.access_key_id,
            "secret_access_key": found.secret_access_key,
            "token": found.session_token,
            "expires_at": found.expires_at,
        }


def _taken(path: str) -> ArchivePathTaken:
    return ArchivePathTaken(f"A file that this room did not write exists at {path}; it was not overwritten.")


def _unfinished(target: Path) -> Path:
    return target.with_name(f".{target.name}.unfinished")


def _make_folder(folder: Path) -> None:
    """Create the folder and its parents with mode 0700."""
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _create(path: Path) -> int:
    """Create a file with mode 0600: it contains addresses."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
