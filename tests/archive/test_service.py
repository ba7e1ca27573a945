"""The archive run: old months leave the database, verified, and no row is lost or duplicated."""

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.archive import (
    FEBRUARY,
    JANUARY,
    MAY,
    NOW,
    add_attempts,
    archived_ids,
    at_now,
    delivery_ids,
    files_of,
    make_months,
    options_for,
    run,
    tables,
)
from tests.support.archive_process import Orders, peak_kilobytes

from postroom.archive.errors import ArchiveBusy
from postroom.archive.model import ArchiveOptions, Month, SegmentState
from postroom.archive.parquet import read_tables
from postroom.archive.restore import restore_month
from postroom.archive.service import archive_session, list_segments, run_archive, verify_archive
from postroom.db.room import Room
from postroom.errors import BadInput, SettingInvalid
from postroom.settings import read_settings


async def test_old_month_moves_to_the_archive(room: Room, tmp_path: Path) -> None:
    """Its rows are in one file, its partition is dropped, younger months stay."""
    await make_months(room.pool, JANUARY, MAY)
    await add_attempts(room.pool, JANUARY, 500)
    await add_attempts(room.pool, MAY, 10, first=1001)
    report = await run(room, options_for(tmp_path))
    [segment] = report.archived
    assert (segment.table_name, segment.month, segment.rows, segment.state) == (
        "attempts",
        "2030-01",
        500,
        SegmentState.ARCHIVED,
    )
    assert archived_ids(tmp_path) == list(range(1, 501))
    assert await delivery_ids(room.pool) == list(range(1001, 1011))
    assert "attempts_2030_01" not in await tables(room.pool)


async def test_partitions_are_created_two_months_ahead(room: Room, tmp_path: Path) -> None:
    """Every archived table has partitions for the current and the next two months."""
    report = await run(room, options_for(tmp_path))
    assert report.partitions_made >= 3
    made = await tables(room.pool, "%2030%")
    assert {"attempts_2030_06", "attempts_2030_07", "attempts_2030_08"} <= set(made)
    assert (await run(room, options_for(tmp_path))).partitions_made == 0


async def test_rows_of_the_default_partition_are_archived(room: Room, tmp_path: Path) -> None:
    """A month without a partition moves out of the default one, and its partition can be created again."""
    await add_attempts(room.pool, JANUARY, 120)
    await add_attempts(room.pool, MAY, 5, first=1001)
    report = await run(room, options_for(tmp_path))
    assert [(segment.month, segment.rows) for segment in report.archived] == [("2030-01", 120)]
    assert await delivery_ids(room.pool, "attempts_default") == list(range(1001, 1006))
    await make_months(room.pool, JANUARY)


async def test_late_rows_become_a_second_piece(room: Room, tmp_path: Path) -> None:
    """Rows that arrive after their month was archived are stored in a file of their own."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 20)
    await run(room, options_for(tmp_path))
    await add_attempts(room.pool, JANUARY, 5, first=101)
    report = await run(room, options_for(tmp_path))
    assert [(segment.part, segment.rows) for segment in report.archived] == [(2, 5)]
    assert archived_ids(tmp_path) == [*range(1, 21), *range(101, 106)]


async def test_row_inserted_between_export_and_detach_is_not_lost(room: Room, tmp_path: Path) -> None:
    """The frozen table is compared with the file before it is dropped; if they differ, it is exported again."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 20)
    heard: list[str] = []

    def late(step: str) -> None:
        heard.append(step)
        if step == "verified" and heard.count("verified") == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await run_archive(room, options_for(tmp_path), actor="tests", clock=at_now, signal=late)
    await add_attempts(room.pool, JANUARY, 1, first=99)
    [segment] = (await run(room, options_for(tmp_path))).archived
    assert segment.rows == 21
    assert archived_ids(tmp_path) == [*range(1, 21), 99]


async def test_row_changed_after_its_export_is_exported_again(room: Room, tmp_path: Path) -> None:
    """Contents are compared, not only the number of rows."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 20)
    options = options_for(tmp_path)

    def stop(step: str) -> None:
        if step == "verified":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await run_archive(room, options, actor="tests", clock=at_now, signal=stop)
    await room.pool.execute("UPDATE attempts SET reply_text = 'changed' WHERE delivery_id = 7")
    await run(room, options)
    [path] = files_of(tmp_path)
    [table] = read_tables(path)
    assert "changed" in table.column("reply_text").to_pylist()


async def test_damaged_file_stops_the_drop(room: Room, tmp_path: Path) -> None:
    """A file that changed before it was read back stops the piece; the next run writes it again."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 20)

    def damage(step: str) -> None:
        if step == "exported":
            [path] = files_of(tmp_path)
            path.write_bytes(path.read_bytes()[:-1] + b"?")

    report = await run_archive(room, options_for(tmp_path), actor="tests", clock=at_now, signal=damage)
    assert "checksum differs" in report.failed["attempts 2030-01 part 1"]
    assert len(await delivery_ids(room.pool)) == 20
    await run(room, options_for(tmp_path))
    assert archived_ids(tmp_path) == list(range(1, 21))


async def test_verify_names_damaged_and_missing_files(room: Room, tmp_path: Path) -> None:
    """Each has its problem; the other files are valid."""
    for month in (JANUARY, FEBRUARY):
        await add_attempts(room.pool, month, 10, first=month.month * 100)
    options = options_for(tmp_path)
    await run(room, options)
    assert [finding.is_good async for finding in verify_archive(room.pool, options)] == [True, True]
    first, second = files_of(tmp_path)
    first.write_bytes(first.read_bytes() + b"\0")
    second.unlink()
    problems = [finding.problem async for finding in verify_archive(room.pool, options)]
    assert [str(problem).split()[1:3] for problem in problems] == [["is", "damaged:"], ["is", "not"]]
    assert "checksum" in str(problems[0])
    assert "not in the archive" in str(problems[1])


async def test_archived_month_expires_after_a_year(room: Room, tmp_path: Path) -> None:
    """The file is deleted, the record stays as expired, and the audit log has an entry."""
    await add_attempts(room.pool, JANUARY, 10)
    options = options_for(tmp_path)
    await run(room, options)
    assert (await run(room, options, NOW + timedelta(days=200))).expired == []
    report = await run(room, options, NOW + timedelta(days=366))
    assert [(segment.month, segment.state) for segment in report.expired] == [("2030-01", SegmentState.EXPIRED)]
    assert [path for path in files_of(tmp_path) if path.parent.name == "2030-01"] == []
    subjects = await room.pool.fetch(
        "SELECT action FROM audit_log WHERE subject IN ('partition:attempts_late_2030_01_1', $1)",
        f"archive:{report.expired[0].id}",
    )
    assert sorted(row["action"] for row in subjects) == ["archive.drop", "archive.expire"]


async def test_file_is_found_in_the_store_it_was_written_to(room: Room, tmp_path: Path) -> None:
    """The record names the store; after a change of the setting every file is found and expired."""
    old, new = options_for(tmp_path / "old"), options_for(tmp_path / "new")
    await add_attempts(room.pool, JANUARY, 10)
    await run(room, old)
    await add_attempts(room.pool, FEBRUARY, 10, first=101)
    await run(room, new)
    stores = [segment.store_url for segment in await list_segments(room.pool)]
    assert stores == [f"file://{tmp_path}/old", f"file://{tmp_path}/new"]
    assert [finding.is_good async for finding in verify_archive(room.pool, new)] == [True, True]
    copy = replace(new, copy_url=str(tmp_path / "old"))
    assert [finding.is_good async for finding in verify_archive(room.pool, copy)] == [True, False]

    await run(room, new, NOW + timedelta(days=400))
    left = [*files_of(tmp_path / "old"), *files_of(tmp_path / "new")]
    assert not [path for path in left if path.parent.name in {"2030-01", "2030-02"}]


async def test_piece_begun_in_another_store_is_finished_in_the_new_one(room: Room, tmp_path: Path) -> None:
    """The file of a killed run in the old store is removed, and the record names the new store."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 10)

    def stop(step: str) -> None:
        if step == "stored":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await run_archive(room, options_for(tmp_path / "old"), actor="tests", clock=at_now, signal=stop)
    assert len(files_of(tmp_path / "old")) == 1
    [segment] = (await run(room, options_for(tmp_path / "new"))).archived
    assert segment.store_url == f"file://{tmp_path}/new"
    assert files_of(tmp_path / "old") == []
    assert archived_ids(tmp_path / "new") == list(range(1, 11))


async def test_each_table_has_its_own_retention(room: Room, tmp_path: Path) -> None:
    """Opens are archived and expired sooner than attempts."""
    await add_attempts(room.pool, MAY, 10)
    await room.pool.execute(
        "INSERT INTO open_events (email_queue_id, opened_at, recipient_email) VALUES (1, $1, 'p@example.org')", MAY
    )
    settings = read_settings(
        {"POSTROOM_ARCHIVE_AFTER": "attempts=90d,open_events=10d", "POSTROOM_ARCHIVE_RETENTION": "open_events=30d"}
    )
    chosen = replace(ArchiveOptions.of(settings), url=str(tmp_path))
    assert [segment.table_name for segment in (await run(room, chosen)).archived] == ["open_events"]
    later = await run(room, chosen, NOW + timedelta(days=120))
    assert [segment.table_name for segment in later.archived if segment.rows] == ["attempts"]
    assert [segment.table_name for segment in later.expired if segment.rows] == ["open_events"]


@pytest.mark.parametrize("value", ["attempts=90d,letters=1d", "attempts", "attempts=soon"])
def test_retention_of_an_unknown_table_is_rejected(value: str) -> None:
    """The error at the start names the variable."""
    with pytest.raises(SettingInvalid, match="POSTROOM_ARCHIVE_AFTER"):
        read_settings({"POSTROOM_ARCHIVE_AFTER": value})


async def test_memory_does_not_grow_with_the_month(room: Room, tmp_path: Path) -> None:
    """Memory depends on the size of a step; each month is archived by a process of its own."""
    peaks = []
    for month, rows in ((JANUARY, 30_000), (FEBRUARY, 120_000)):
        await make_months(room.pool, month)
        await add_attempts(room.pool, month, rows)
        peaks.append(await peak_kilobytes(Orders(room.url, str(tmp_path), NOW, pages=64)))
    assert await delivery_ids(room.pool) == []
    assert peaks[1] - peaks[0] < 12_000  # with the whole month in memory it is more than 50,000


async def test_only_one_process_works_on_the_archive(room: Room, tmp_path: Path) -> None:
    """A second run raises `ArchiveBusy` and changes nothing."""
    async with archive_session(room):
        with pytest.raises(ArchiveBusy):
            await run(room, options_for(tmp_path))


async def test_long_reader_postpones_the_detach(room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock has a short timeout, so workers are not blocked; the next run continues."""
    monkeypatch.setattr("postroom.archive.service.LOCK_TRIES", 1)
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 10)
    options = options_for(tmp_path, months_ahead=0)
    async with room.pool.acquire() as reader, reader.transaction():
        await reader.fetch("SELECT FROM attempts")
        report = await run(room, options)
    assert report.postponed == ["attempts 2030-01 part 1"]
    assert [segment.state for segment in await list_segments(room.pool)] == [SegmentState.VERIFIED]
    assert len((await run(room, options)).archived) == 1


async def test_opens_and_clicks_survive_archive_and_restore(room: Room, tmp_path: Path) -> None:
    """IP addresses and booleans are restored unchanged."""
    for table, column, more in (("open_events", "opened_at", ""), ("click_events", "clicked_at", ", link_url")):
        await room.pool.execute(
            f"INSERT INTO {table} "
            f"(email_queue_id, {column}, is_machine, ip_address, recipient_email, user_agent{more}) "
            f"SELECT n, $1, n % 2 = 0, '192.0.2.7', 'p' || n || '@example.org', NULL{', chr(64)' if more else ''} "
            "FROM generate_series(1, 30) AS n",
            JANUARY,
        )
    options = options_for(tmp_path)
    report = await run(room, options)
    assert {(segment.table_name, segment.rows) for segment in report.archived} == {
        ("open_events", 30),
        ("click_events", 30),
    }
    await restore_month(room, options, Month("open_events", JANUARY), attach=True, actor="tests")
    row = await room.pool.fetchrow("SELECT * FROM open_events WHERE email_queue_id = 4")
    assert (row["is_machine"], str(row["ip_address"]), row["opened_at"]) == (True, "192.0.2.7", JANUARY)


async def test_one_piece_that_fails_does_not_stop_the_others(room: Room, tmp_path: Path) -> None:
    """Each run reports the failed piece by name and archives the others."""
    await room.pool.execute(
        "INSERT INTO archived_partitions (state, is_attached, part, from_time, to_time, table_name, source_name, path)"
        " VALUES ('exporting', false, 1, '2029-01-01Z', '2029-02-01Z', 'attempts', 'attempts_gone', 'nowhere')"
    )
    await add_attempts(room.pool, JANUARY, 10)
    report = await run(room, options_for(tmp_path))
    assert list(report.failed) == ["attempts 2029-01 part 1"]
    assert [(segment.month, segment.rows) for segment in report.archived] == [("2030-01", 10)]
    assert list((await run(room, options_for(tmp_path))).failed) == ["attempts 2029-01 part 1"]


async def test_piece_in_a_lost_store_is_written_to_the_new_one(room: Room, tmp_path: Path) -> None:
    """Its table still exists, so it is exported again."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 10)

    def stop(step: str) -> None:
        if step == "exported":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await run_archive(room, options_for(tmp_path / "old"), actor="tests", clock=at_now, signal=stop)
    shutil.rmtree(tmp_path / "old")
    (tmp_path / "old").write_text("not a folder")
    report = await run(room, options_for(tmp_path / "new"))
    assert ([segment.rows for segment in report.archived], report.failed) == ([10], {})
    assert archived_ids(tmp_path / "new") == list(range(1, 11))


async def test_verify_continues_after_an_unreachable_store(room: Room, tmp_path: Path) -> None:
    """Each file of that store has a problem, and those of the other store are valid."""
    await add_attempts(room.pool, JANUARY, 10)
    await run(room, options_for(tmp_path / "old"))
    await add_attempts(room.pool, FEBRUARY, 10, first=101)
    await run(room, options_for(tmp_path / "new"))
    shutil.rmtree(tmp_path / "old")
    problems = [finding.problem async for finding in verify_archive(room.pool, options_for(tmp_path / "new"))]
    assert ("does not exist" in str(problems[0]), problems[1]) == (True, None)


async def test_verify_rejects_an_unknown_table(room: Room, tmp_path: Path) -> None:
    """The error lists the archived tables."""
    with pytest.raises(BadInput, match="attempts, delivery_steps, open_events, click_events"):
        _ = [finding async for finding in verify_archive(room.pool, options_for(tmp_path), table="letters")]
