"""Folder and bucket: one suite for both, and a bucket through the whole archive."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.archive import JANUARY, NOW, add_attempts, delivery_ids, options_for, run
from tests.support.archive_process import Orders, run_to_its_end

from postroom.archive.errors import ArchiveDamaged, ArchiveForeign, ArchivePathTaken, ArchiveUnreachable
from postroom.archive.model import ArchiveOptions, Month, SegmentState
from postroom.archive.objects import Objects, ReadOnly, objects_of, open_objects
from postroom.archive.query import query_archive
from postroom.archive.restore import restore_month
from postroom.archive.service import list_segments, verify_archive
from postroom.archive.settings import parse_archive_url
from postroom.db.room import Room
from postroom.erasure.service import erase
from postroom.errors import SettingInvalid
from postroom.settings import read_settings


@pytest.fixture(params=["folder", "bucket"])
async def objects(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Objects]:
    if request.param == "folder":
        (tmp_path / "archive").mkdir()
        yield open_objects(str(tmp_path / "archive"))
    else:
        options: ArchiveOptions = request.getfixturevalue("bucket")
        assert options.url is not None
        yield open_objects(options.url, endpoint=options.endpoint)


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


async def test_stored_file_is_fetched_unchanged(objects: Objects, tmp_path: Path) -> None:
    """A large multipart file too; a second `put` replaces it."""
    large = os.urandom(17 * 1024 * 1024)
    await objects.put("a/b/c.parquet", written(tmp_path / "first", b"first"))
    await objects.put("a/b/c.parquet", written(tmp_path / "second", large))
    await objects.fetch("a/b/c.parquet", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == large
    assert await objects.exists("a/b/c.parquet")


async def test_missing_file_fails_fetch_and_not_delete(objects: Objects, tmp_path: Path) -> None:
    """The error of `fetch` names the file."""
    with pytest.raises(ArchiveDamaged, match=r"nothing\.parquet"):
        await objects.fetch("nothing.parquet", tmp_path / "back")
    await objects.delete("nothing.parquet")
    assert not await objects.exists("nothing.parquet")


async def test_store_that_rejects_credentials_is_unreachable(
    s3_endpoint: str, tmp_path: Path, bucket: ArchiveOptions
) -> None:
    """The error differs from that of a missing file."""
    elsewhere = open_objects("s3://no-such-bucket/archive", endpoint=s3_endpoint)
    with pytest.raises((ArchiveUnreachable, ArchiveDamaged)):
        await elsewhere.put("a.parquet", written(tmp_path / "a", b"a"))


@pytest.mark.parametrize(
    "url", ["gs://bucket/archive", "https://example.org/archive", "s3://", "file://archive", "s3://key:secret@mail"]
)
def test_invalid_archive_url_is_rejected(url: str) -> None:
    """The error at the start names the variable; a folder called `gs:` is never created."""
    with pytest.raises(SettingInvalid, match="POSTROOM_ARCHIVE_URL: must be a folder") as refused:
        read_settings({"POSTROOM_ARCHIVE_URL": url})
    assert "secret" not in str(refused.value)
    with pytest.raises(ArchiveUnreachable, match="must be a folder"):
        open_objects(url)


def test_folder_url_is_recorded_with_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory of a process does not matter."""
    monkeypatch.chdir(tmp_path)
    assert (
        parse_archive_url("archive") == parse_archive_url(f"file://{tmp_path}/archive/") == f"file://{tmp_path}/archive"
    )
    assert parse_archive_url("s3://mail/archive/") == "s3://mail/archive"


def test_invalid_bucket_is_archive_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's exception becomes `ArchiveUnreachable`, which the loop survives."""
    monkeypatch.setenv("AWS_UNSIGNED_PAYLOAD", "perhaps")
    with pytest.raises(ArchiveUnreachable, match="is not a valid bucket"):
        open_objects("s3://mail")


async def test_run_killed_after_upload_is_finished_by_the_next(room: Room, bucket: ArchiveOptions) -> None:
    """The unrecorded upload is replaced, and every row is stored once."""
    assert bucket.url is not None
    await add_attempts(room.pool, JANUARY, 40)
    dying = Orders(room.url, bucket.url, NOW, die_at="stored", endpoint=bucket.endpoint)
    assert await run_to_its_end(dying) == -signal.SIGKILL
    [piece] = await list_segments(room.pool)
    assert await open_objects(bucket.url, endpoint=bucket.endpoint).exists(piece.path)
    assert piece.state is SegmentState.EXPORTING
    assert (await run(room, bucket)).rows == 40
    assert await delivery_ids(room.pool) == []
    answer = await query_archive(room.pool, bucket, "SELECT count(*), count(DISTINCT delivery_id) FROM attempts")
    assert answer.rows == [(40, 40)]
    assert [found.problem async for found in verify_archive(room.pool, bucket)] == [None]


async def test_bucket_works_through_the_whole_archive(room: Room, bucket: ArchiveOptions, tmp_path: Path) -> None:
    """A month is archived, verified, queried, erased in and restored from an S3-compatible store."""
    await add_attempts(room.pool, JANUARY, 40)
    await room.pool.execute("UPDATE attempts SET reply_text = 'no ann@example.org here' WHERE delivery_id < 5")
    assert (await run(room, bucket)).rows == 40
    assert await delivery_ids(room.pool) == []
    answer = await query_archive(room.pool, bucket, "SELECT count(*) FROM attempts WHERE reply_text LIKE '%ann@%'")
    assert answer.rows == [(4,)]
    await erase(room, bucket, address="ann@example.org", actor="tests")
    answer = await query_archive(room.pool, bucket, "SELECT count(*) FROM attempts WHERE reply_text LIKE '%ann@%'")
    assert answer.rows == [(0,)]
    assert [found.problem async for found in verify_archive(room.pool, bucket)] == [None]
    [piece] = await list_segments(room.pool)
    stray = f"{piece.path.partition('/')[0]}/attempts/stray.parquet"
    await objects_of(piece, bucket).put(stray, written(tmp_path / "stray", b"?"))
    for table in (None, "attempts"):
        found = [(found.path, found.problem) async for found in verify_archive(room.pool, bucket, table=table)]
        assert found[1:] == [(stray, "this file has no record")]
    await restore_month(room, bucket, Month("attempts", JANUARY), attach=True, actor="tests")
    assert len(await delivery_ids(room.pool)) == 40
    assert options_for(tmp_path).endpoint is None


async def test_path_can_be_claimed_once(objects: Objects, tmp_path: Path) -> None:
    """A second claim fails and changes nothing; the first claimant may write repeatedly."""
    await objects.claim("room/a.parquet")
    with pytest.raises(ArchivePathTaken, match=r"room/a\.parquet"):
        await objects.claim("room/a.parquet")
    await objects.put("room/a.parquet", written(tmp_path / "a", b"first"))
    with pytest.raises(ArchivePathTaken):
        await objects.claim("room/a.parquet")
    await objects.fetch("room/a.parquet", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"first"


async def test_one_of_two_concurrent_claims_succeeds(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store itself rejects the second claim when both saw a free path."""

    async def nothing_seen(_path: str) -> bool:
        return False

    monkeypatch.setattr(objects, "exists", nothing_seen)
    claims = await asyncio.gather(*(objects.claim("a.parquet") for _ in range(4)), return_exceptions=True)
    assert sorted(type(claim).__name__ for claim in claims) == [*["ArchivePathTaken"] * 3, "NoneType"]


async def test_paths_in_lists_one_folder(objects: Objects, tmp_path: Path) -> None:
    """Paths are complete, and folders whose names share a prefix are not listed."""
    for path in ("room/x/b.parquet", "room/a.parquet", "room-2/c.parquet"):
        await objects.put(path, written(tmp_path / "file", b"x"))
    assert await objects.paths_in("room") == ["room/a.parquet", "room/x/b.parquet"]
    assert await objects.paths_in("nobody") == []


async def test_store_check_leaves_no_file(objects: Objects) -> None:
    """The check succeeds and the store is empty afterwards."""
    await objects.check()
    assert await objects.paths_in("") == []


async def test_missing_bucket_or_folder_is_unreachable(room: Room, bucket: ArchiveOptions, tmp_path: Path) -> None:
    """The error names the bucket or folder instead of a missing file."""
    elsewhere = open_objects("s3://no-such-bucket/archive", endpoint=bucket.endpoint)
    with pytest.raises(ArchiveUnreachable, match="bucket of s3://no-such-bucket/archive does not exist"):
        await elsewhere.fetch("a.parquet", tmp_path / "back")
    with pytest.raises(ArchiveUnreachable, match="does not exist"):
        await elsewhere.check()
    await add_attempts(room.pool, JANUARY, 4)
    await run(room, bucket)
    await room.pool.execute("UPDATE archived_partitions SET store_url = 's3://no-such-bucket/archive'")
    problems = [str(found.problem) async for found in verify_archive(room.pool, bucket)]
    assert "bucket of s3://no-such-bucket/archive does not exist" in problems[0]
    with pytest.raises(ArchiveUnreachable, match=r"folder .*nowhere does not exist"):
        await open_objects(str(tmp_path / "nowhere")).fetch("a.parquet", tmp_path / "back")


async def test_files_of_another_room_are_read_only(objects: Objects, tmp_path: Path) -> None:
    """The error of a write or delete names the owner of the file."""
    await objects.put("a.parquet", written(tmp_path / "a", b"theirs"))
    theirs = ReadOnly(objects)
    await theirs.fetch("a.parquet", tmp_path / "back")
    for change in (theirs.put("a.parquet", tmp_path / "a"), theirs.delete("a.parquet"), theirs.claim("b.parquet")):
        with pytest.raises(ArchiveForeign, match="archive adopt"):
            await change
    assert await objects.paths_in("") == ["a.parquet"]


async def test_folder_and_files_are_private_to_their_owner(tmp_path: Path) -> None:
    """Modes are 0700 and 0600 with any umask, because files contain addresses."""
    root = tmp_path / "made" / "archive"
    folder = open_objects(str(root))
    before = os.umask(0o022)
    try:
        await folder.claim("room/attempts/a.parquet")
        for path in ("room/attempts/a.parquet", "room/attempts/a.manifest.json"):
            await folder.put(path, written(tmp_path / "local", b"content"))
    finally:
        os.umask(before)
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in (root.parent, *root.rglob("*"))}
    assert modes == {
        "made": 0o700,
        "made/archive/room": 0o700,
        "made/archive/room/attempts": 0o700,
        "made/archive/room/attempts/a.parquet": 0o600,
        "made/archive/room/attempts/a.manifest.json": 0o600,
    }


async def test_bucket_uses_the_credentials_of_an_aws_profile(
    bucket: ArchiveOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS's shared credentials file is read."""
    (tmp_path / "credentials").write_text("[archive]\naws_access_key_id = test\naws_secret_access_key = test\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "archive")
    assert bucket.url is not None
    await open_objects(bucket.url, endpoint=bucket.endpoint).check()
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ArchiveUnreachable):
        await open_objects(bucket.url, endpoint=bucket.endpoint).check()
