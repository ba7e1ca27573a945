"""Backups: verified when made, complete when restored, usable in another cluster."""

import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg
import msgspec
import pytest
from tests.support.archive import ACTOR, JANUARY, NOW, add_attempts, options_for, run
from tests.support.archive_process import Orders, run_to_its_end
from tests.support.builders import a_mail, accepted, suppress
from tests.support.embedded import FAST
from tests.support.events import seen_up_to
from tests.support.sessions import burn_transactions

from postroom.archive.model import ArchiveOptions
from postroom.archive.parquet import file_sha256
from postroom.backup.errors import BackupFailed, RoomNotEmpty
from postroom.backup.model import BackupManifest, TableCount, differences
from postroom.backup.service import make_backup, manifest_path, read_manifest, restore_backup, verify_backup
from postroom.cli.output import report
from postroom.db.errors import MigrationPending
from postroom.db.room import Room, open_room
from postroom.db.url import without_password
from postroom.embedded.binaries import find_binaries
from postroom.embedded.server import EmbeddedServer
from postroom.erasure.service import erase
from postroom.errors import BadInput
from postroom.events import Event, EventStore, Query
from postroom.settings import Settings


@pytest.fixture(scope="module")
async def other_cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedServer]:
    """A server with much lower transaction ids than the test server."""
    # An autovacuum worker's transaction would hold back followers there.
    quiet = replace(FAST, extra=(("autovacuum", "off"),))
    async with EmbeddedServer(tmp_path_factory.mktemp("other") / "data", quiet) as server:
        yield server


@pytest.fixture
async def other_url(other_cluster: EmbeddedServer) -> AsyncIterator[str]:
    """An empty database in the other cluster."""
    admin = await asyncpg.connect(other_cluster.url)
    await admin.execute("CREATE DATABASE elsewhere")
    yield urlunsplit(urlsplit(other_cluster.url)._replace(path="/elsewhere"))
    await admin.execute("DROP DATABASE elsewhere WITH (FORCE)")
    await admin.close()


async def collect(room: Room) -> list[int]:
    """The tokens that the collector dequeues next."""
    async with room.pool.acquire() as connection, connection.transaction():
        return [row["id"] for row in await connection.fetch("SELECT id FROM dequeue_tokens(100)")]


async def sign_up(room: Room, *names: str) -> None:
    for name in names:
        await room.pool.execute("INSERT INTO accounts (email, login) VALUES ($1, $2)", f"{name}@example.org", name)


async def test_backup_is_restored_unchanged_in_another_cluster(room: Room, tmp_path: Path, other_url: str) -> None:
    """Every table has every value, as counted in the manifest."""
    await accepted(room.pool, a_mail("ann@example.org"), a_mail("bob@example.org"))
    file = tmp_path / "room.backup"
    made = await make_backup(room, file, actor=ACTOR)
    assert made == await read_manifest(file)
    assert {table.name: table.rows for table in made.tables}["deliveries"] == 2
    await restore_backup(other_url, file, actor=ACTOR)
    async with open_room(Settings(database_url=other_url)) as back:
        rows = await back.pool.fetch("SELECT email FROM delivery_recipients ORDER BY email")
        assert [row["email"] for row in rows] == ["ann@example.org", "bob@example.org"]
        assert await accepted(back.pool, a_mail("carol@example.org")) == [3]


async def test_followers_continue_after_a_restore(room: Room, tmp_path: Path, other_url: str) -> None:
    """With lower transaction ids new events follow the old ones; a follower skips and repeats none."""
    await burn_transactions(room.url, 3000)
    await EventStore(room.pool).append([Event.of("Said", {"n": n}, talk=1) for n in range(3)])
    seen, _ = await EventStore(room.pool).follow(Query.of(tags=["talk=1"]), limit=2)
    file = tmp_path / "room.backup"
    await make_backup(room, file, actor=ACTOR, verify=False)
    await restore_backup(other_url, file, actor=ACTOR)
    async with open_room(Settings(database_url=other_url)) as back:
        await EventStore(back.pool).append(Event.of("Said", {"n": 3}, talk=1))
        rest = await EventStore(back.pool).follow(Query.of("Said"), after=seen_up_to(seen[-1].place))
        assert [event.data["n"] for event in rest.events] == [2, 3]
        told = await EventStore(back.pool).read(Query.of(tags=["talk=1"]))
        assert [event.data["n"] for event in told.events] == [0, 1, 2, 3]


async def test_token_collector_continues_after_a_restore(room: Room, tmp_path: Path, other_url: str) -> None:
    """Collected tokens are not collected again; waiting and new ones are."""
    await burn_transactions(room.url, 3000)
    await sign_up(room, "ann", "bob")
    collected = await collect(room)
    await sign_up(room, "carol")
    waiting = await room.pool.fetchval("SELECT max(id) FROM tokens")
    file = tmp_path / "room.backup"
    await make_backup(room, file, actor=ACTOR, verify=False)
    await restore_backup(other_url, file, actor=ACTOR)
    async with open_room(Settings(database_url=other_url)) as back:
        await sign_up(back, "dave")
        new = await back.pool.fetchval("SELECT max(id) FROM tokens")
        assert len(collected) == 2
        assert await collect(back) == [waiting, new]
        assert await collect(back) == []


async def test_room_can_be_restored_under_another_name(room: Room, tmp_path: Path) -> None:
    """Original and copy work side by side in one database."""
    await accepted(room.pool, a_mail("ann@example.org"))
    file = tmp_path / "room.backup"
    await make_backup(room, file, actor=ACTOR, verify=False)
    await restore_backup(room.url, file, actor=ACTOR, room="annex")
    async with open_room(Settings(database_url=room.url, schema="annex")) as annex:
        assert await accepted(annex.pool, a_mail("bob@example.org")) == [2]
        assert await annex.pool.fetchval("SELECT count(*) FROM annex.deliveries") == 2
        assert await annex.pool.fetchval("SELECT count(*) FROM postroom.deliveries") == 1
        baked = await annex.pool.fetch(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'annex'::regnamespace "
            "AND proconfig::text LIKE '%postroom%'"
        )
        assert [row["proname"] for row in baked] == []


@pytest.mark.parametrize("step", ["begun", "restored", "migrated"])
async def test_killed_restore_is_finished_by_repeating_it(
    room: Room, tmp_path: Path, other_url: str, step: str
) -> None:
    """No process opens the half-restored room; the same restore finishes it, and another file is rejected."""
    await burn_transactions(room.url, 3000)
    await sign_up(room, "ann")
    assert len(await collect(room)) == 1
    await sign_up(room, "bob")
    waiting = await room.pool.fetchval("SELECT max(id) FROM tokens")
    file, other = tmp_path / "room.backup", tmp_path / "other.backup"
    await make_backup(room, file, actor=ACTOR, verify=False)
    await accepted(room.pool)
    await make_backup(room, other, actor=ACTOR, verify=False)

    dying = Orders(other_url, str(tmp_path), NOW, task="bring_back", die_at=step)
    assert await run_to_its_end(dying) == -signal.SIGKILL
    with pytest.raises(MigrationPending):
        async with open_room(Settings(database_url=other_url)):
            pass
    with pytest.raises(RoomNotEmpty, match="another file"):
        await restore_backup(other_url, other, actor=ACTOR)

    await restore_backup(other_url, file, actor=ACTOR)
    async with open_room(Settings(database_url=other_url)) as back:
        assert await collect(back) == [waiting]
        assert await collect(back) == []
    with pytest.raises(RoomNotEmpty, match="exists"):
        await restore_backup(other_url, file, actor=ACTOR)


async def test_restore_does_not_overwrite_a_room(room: Room, tmp_path: Path) -> None:
    """An existing room or file is an error."""
    file = tmp_path / "room.backup"
    await make_backup(room, file, actor=ACTOR, verify=False)
    with pytest.raises(RoomNotEmpty):
        await restore_backup(room.url, file, actor=ACTOR)
    with pytest.raises(BackupFailed, match="already exists"):
        await make_backup(room, file, actor=ACTOR)


@pytest.mark.parametrize("name", ["Annex 1", "pg_annex", "public", "", "information_schema"])
async def test_invalid_room_name_is_rejected(room: Room, tmp_path: Path, name: str) -> None:
    """The rule is that of POSTROOM_SCHEMA, checked before anything is created."""
    file = tmp_path / "room.backup"
    await make_backup(room, file, actor=ACTOR, verify=False)
    schemas = "SELECT nspname FROM pg_namespace ORDER BY 1"
    before = await room.pool.fetch(schemas)
    with pytest.raises(BadInput, match="as"):
        await restore_backup(room.url, file, actor=ACTOR, room=name)
    assert await room.pool.fetch(schemas) == before


@pytest.mark.parametrize("was_there", [True, False])
async def test_failed_restore_leaves_nothing_behind(room: Room, tmp_path: Path, *, was_there: bool) -> None:
    """The schema that it created is dropped; an empty one that existed before stays, with its privileges."""
    file = tmp_path / "room.backup"
    made = await make_backup(room, file, actor=ACTOR, verify=False)
    file.write_bytes(b"nonsense")
    wrong = replace(made, room="annex", sha256=file_sha256(file))
    manifest_path(file).write_bytes(msgspec.json.encode(wrong))
    if was_there:
        await room.pool.execute("CREATE SCHEMA annex")
    with pytest.raises(BackupFailed):
        await restore_backup(room.url, file, actor=ACTOR)
    assert await room.pool.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = 'annex'") == int(was_there)
    assert await room.pool.fetchval("SELECT to_regclass('annex.restoring')") is None


async def test_a_copy_does_not_own_the_files_of_the_archive(room: Room, tmp_path: Path) -> None:
    """A room restored under another name only reads the original's files."""
    await add_attempts(room.pool, JANUARY, 3)
    await run(room, options_for(tmp_path / "archive"))
    file = tmp_path / "room.backup"
    await make_backup(room, file, actor=ACTOR, verify=False)
    await restore_backup(room.url, file, actor=ACTOR, room="annex")
    rows = await room.pool.fetch("SELECT id FROM annex.archive_room UNION SELECT id FROM archive_room")
    assert len(rows) == 2


async def test_an_error_names_the_missing_backup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error is about the file, not about the database."""
    missing = tmp_path / "b3.backup"
    with pytest.raises(FileNotFoundError) as caught:
        missing.read_bytes()
    assert report(caught.value) == 2
    assert capsys.readouterr().err == f"postroom: {missing} does not exist.\n"
    made = BackupManifest(room="x", made_at=NOW, server="17", migration="0001", bytes=1, sha256="", tables=())
    manifest_path(missing).write_bytes(msgspec.json.encode(made))
    with pytest.raises(BackupFailed, match=r"b3\.backup does not exist"):
        await verify_backup(missing)


async def test_damaged_backup_is_rejected(room: Room, tmp_path: Path, other_url: str) -> None:
    """The checksum is compared before the restore; a backup without its manifest is rejected."""
    file = tmp_path / "room.backup"
    await make_backup(room, file, actor=ACTOR, verify=False)
    assert (await verify_backup(file)).room == "postroom"
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(BackupFailed, match="checksum"):
        await verify_backup(file)
    with pytest.raises(BackupFailed, match="checksum"):
        await restore_backup(other_url, file, actor=ACTOR)
    manifest_path(file).unlink()
    with pytest.raises(BackupFailed, match=r"not a backup of Postroom, or its manifest room\.backup\.manifest\.json"):
        await verify_backup(file)
    manifest_path(file).write_bytes(b"{}")
    with pytest.raises(BackupFailed, match="is not the manifest of a backup"):
        await verify_backup(file)


async def test_an_erased_person_stays_suppressed_after_a_restore(room: Room, tmp_path: Path, other_url: str) -> None:
    """The key is part of the room, so the hash still matches the person."""
    await suppress(room.pool, "ann@example.org")
    await erase(room, ArchiveOptions(url=str(tmp_path)), address="ann@example.org", actor=ACTOR)
    file = tmp_path / "room.backup"
    await make_backup(room, file, actor=ACTOR, verify=False)
    await restore_backup(other_url, file, actor=ACTOR)
    async with open_room(Settings(database_url=other_url)) as back:
        is_listed = "SELECT EXISTS (SELECT FROM suppressions WHERE address = erased_address('Ann@Example.org'))"
        assert await back.pool.fetchval(is_listed) is True


def test_differences_are_listed_by_table() -> None:
    """Missing tables, other row counts and other values are listed."""
    expected = (TableCount("a", 1, 5), TableCount("b", 1, 5), TableCount("c", 1, 5), TableCount("d", 1, 5))
    found = (TableCount("a", 1, 5), TableCount("b", 2, 5), TableCount("c", 1, 6))
    assert differences(expected, found) == ["b has 2 rows instead of 1", "c has different values", "d is missing"]


async def test_password_is_not_among_program_arguments(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of the host can read the arguments of pg_dump."""
    real, bin_dir, told = find_binaries(), tmp_path / "bin", tmp_path / "told"
    bin_dir.mkdir()
    for name in ("postgres", "initdb"):
        (bin_dir / name).symlink_to(real.tool(name))
    script = f'#!/bin/sh\necho "$PGPASSWORD at $*" > {told}\nexec {real.tool("pg_dump")} "$@"\n'
    (bin_dir / "pg_dump").write_text(script)
    (bin_dir / "pg_dump").chmod(0o755)
    monkeypatch.setenv("PG_BIN", str(bin_dir))
    address, password = without_password(room.direct_url)
    assert password
    keyed = replace(room, direct=f"{address}?password={quote(password)}")
    await make_backup(keyed, tmp_path / "room.backup", actor=ACTOR, verify=False)
    in_secret, _, openly = told.read_text().partition(" at ")
    assert (in_secret, password in openly) == (password, False)


async def test_backup_is_private_to_its_owner(room: Room, tmp_path: Path) -> None:
    """Its mode is 0600 from the first byte; a leftover file with another mode is replaced."""
    file = tmp_path / "room.backup"
    (tmp_path / ".room.backup.unfinished").write_text("left")
    (tmp_path / ".room.backup.unfinished").chmod(0o644)
    before = os.umask(0o022)
    try:
        await make_backup(room, file, actor=ACTOR, verify=False)
    finally:
        os.umask(before)
    assert (file.stat().st_mode & 0o777, manifest_path(file).stat().st_mode & 0o777) == (0o600, 0o600)
