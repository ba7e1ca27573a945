"""The archive: what is old leaves, is proven, and nothing is lost or doubled."""

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


async def test_a_closed_month_moves_to_the_archive(room: Room, tmp_path: Path) -> None:
    """Its rows are in one file, its partition is gone, younger months stay."""
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


async def test_partitions_are_made_two_months_ahead(room: Room, tmp_path: Path) -> None:
    """For now and the next two months, of every table that is archived."""
    report = await run(room, options_for(tmp_path))
    assert report.partitions_made >= 3
    made = await tables(room.pool, "%2030%")
    assert {"attempts_2030_06", "attempts_2030_07", "attempts_2030_08"} <= set(made)
    assert (await run(room, options_for(tmp_path))).partitions_made == 0


async def test_rows_of_the_default_partition_are_archived_too(room: Room, tmp_path: Path) -> None:
    """A month without a partition moves out of the default one, and a new partition of it can be made again."""
    await add_attempts(room.pool, JANUARY, 120)
    await add_attempts(room.pool, MAY, 5, first=1001)
    report = await run(room, options_for(tmp_path))
    assert [(segment.month, segment.rows) for segment in report.archived] == [("2030-01", 120)]
    assert await delivery_ids(room.pool, "attempts_default") == list(range(1001, 1006))
    await make_months(room.pool, JANUARY)


async def test_what_comes_late_is_a_second_part(room: Room, tmp_path: Path) -> None:
    """Rows of a month that was archived before are neither lost nor mixed up with the first file."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 20)
    await run(room, options_for(tmp_path))
    await add_attempts(room.pool, JANUARY, 5, first=101)
    report = await run(room, options_for(tmp_path))
    assert [(segment.part, segment.rows) for segment in report.archived] == [(2, 5)]
    assert archived_ids(tmp_path) == [*range(1, 21), *range(101, 106)]


async def test_a_row_that_arrives_between_export_and_detach_is_not_lost(room: Room, tmp_path: Path) -> None:
    """The frozen table is compared with the file before it is dropped; if it has more, it is written again."""
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


async def test_a_row_that_was_changed_after_its_export_is_written_again(room: Room, tmp_path: Path) -> None:
    """The same number of rows is not enough: the contents are compared."""
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


async def test_a_damaged_file_is_noticed_and_nothing_is_dropped(room: Room, tmp_path: Path) -> None:
    """A file that changed between writing and reading back stops the piece; the next run writes it again."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 20)

    def damage(step: str) -> None:
        if step == "exported":
            [path] = files_of(tmp_path)
            path.write_bytes(path.read_bytes()[:-1] + b"?")

    report = await run_archive(room, options_for(tmp_path), actor="tests", clock=at_now, signal=damage)
    assert "checksum is another" in report.failed["attempts 2030-01 part 1"]
    assert len(await delivery_ids(room.pool)) == 20
    await run(room, options_for(tmp_path))
    assert archived_ids(tmp_path) == list(range(1, 21))


async def test_verify_names_the_file_that_is_damaged_and_the_one_that_is_missing(room: Room, tmp_path: Path) -> None:
    """Each with what is wrong; the others are good."""
    for month in (JANUARY, FEBRUARY):
        await add_attempts(room.pool, month, 10, first=month.month * 100)
    options = options_for(tmp_path)
    await run(room, options)
    assert [finding.is_good async for finding in verify_archive(room.pool, options)] == [True, True]
    first, second = files_of(tmp_path)
    first.write_bytes(first.read_bytes() + b"\0")
    second.unlink()
    problems = [finding.problem async for finding in verify_archive(room.pool, options)]
    assert [str(problem).split()[1:3] for problem in problems] == [["is", "not"], ["is", "not"]]
    assert "checksum" in str(problems[0])
    assert "not in the archive" in str(problems[1])


async def test_the_archive_forgets_after_a_year(room: Room, tmp_path: Path) -> None:
    """The file goes, the record stays and says so, and the audit log knows."""
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


async def test_a_file_is_kept_and_forgotten_where_it_was_written(room: Room, tmp_path: Path) -> None:
    """The record says which store; a changed setting leaves no file behind and finds every one."""
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


async def test_a_piece_that_was_begun_elsewhere_is_finished_here(room: Room, tmp_path: Path) -> None:
    """What a killed run left in the other store is removed, and the record follows."""
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


async def test_each_table_has_its_own_time(room: Room, tmp_path: Path) -> None:
    """Attempts stay as long as they should, opens go sooner, and are forgotten sooner."""
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
def test_a_time_for_a_table_that_is_not_archived_is_refused(value: str) -> None:
    """By the variable's name, at the start."""
    with pytest.raises(SettingInvalid, match="POSTROOM_ARCHIVE_AFTER"):
        read_settings({"POSTROOM_ARCHIVE_AFTER": value})


async def test_four_times_the_rows_take_no_more_memory(room: Room, tmp_path: Path) -> None:
    """Memory follows the step, not the month; each month is archived by a process of its own."""
    peaks = []
    for month, rows in ((JANUARY, 30_000), (FEBRUARY, 120_000)):
        await make_months(room.pool, month)
        await add_attempts(room.pool, month, rows)
        peaks.append(await peak_kilobytes(Orders(room.url, str(tmp_path), NOW, pages=64)))
    assert await delivery_ids(room.pool) == []
    assert peaks[1] - peaks[0] < 12_000  # with the whole month in memory it is 50,000 and more


async def test_one_process_at_a_time(room: Room, tmp_path: Path) -> None:
    """A second one is told so and does nothing."""
    async with archive_session(room):
        with pytest.raises(ArchiveBusy):
            await run(room, options_for(tmp_path))


async def test_a_reader_who_does_not_leave_postpones_the_detaching(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is waited for briefly, workers are not held up, and the piece goes on at the next run."""
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


async def test_every_archived_table_goes_the_same_way(room: Room, tmp_path: Path) -> None:
    """Opens and clicks, with addresses of networks and truth values, come out as they went in."""
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
    """It is told by its name, again at every run, and whatever else is old leaves."""
    await room.pool.execute(
        "INSERT INTO archived_partitions (state, is_attached, part, from_time, to_time, table_name, source_name, path)"
        " VALUES ('exporting', false, 1, '2029-01-01Z', '2029-02-01Z', 'attempts', 'attempts_gone', 'nowhere')"
    )
    await add_attempts(room.pool, JANUARY, 10)
    report = await run(room, options_for(tmp_path))
    assert list(report.failed) == ["attempts 2029-01 part 1"]
    assert [(segment.month, segment.rows) for segment in report.archived] == [("2030-01", 10)]
    assert list((await run(room, options_for(tmp_path))).failed) == ["attempts 2029-01 part 1"]


async def test_a_piece_left_in_a_store_that_is_gone_is_written_to_the_new_one(room: Room, tmp_path: Path) -> None:
    """Its table is still here, so nothing is lost, and nothing waits for a store that nobody has any more."""
    await make_months(room.pool, JANUARY)
    await add_attempts(room.pool, JANUARY, 10)

    def stop(step: str) -> None:
        if step == "exported":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await run_archive(room, options_for(tmp_path / "old"), actor="tests", clock=at_now, signal=stop)
    shutil.rmtree(tmp_path / "old")
    (tmp_path / "old").write_text("no folder any more")
    report = await run(room, options_for(tmp_path / "new"))
    assert ([segment.rows for segment in report.archived], report.failed) == ([10], {})
    assert archived_ids(tmp_path / "new") == list(range(1, 11))


async def test_verify_goes_on_after_a_store_that_does_not_answer(room: Room, tmp_path: Path) -> None:
    """Each file has its finding, and those of the other store are good."""
    await add_attempts(room.pool, JANUARY, 10)
    await run(room, options_for(tmp_path / "old"))
    await add_attempts(room.pool, FEBRUARY, 10, first=101)
    await run(room, options_for(tmp_path / "new"))
    shutil.rmtree(tmp_path / "old")
    problems = [finding.problem async for finding in verify_archive(room.pool, options_for(tmp_path / "new"))]
    assert ("is not there" in str(problems[0]), problems[1]) == (True, None)


async def test_verify_of_a_table_that_is_not_archived_is_refused(room: Room, tmp_path: Path) -> None:
    """With the names of those that are."""
    with pytest.raises(BadInput, match="attempts, open_events, click_events"):
        _ = [finding async for finding in verify_archive(room.pool, options_for(tmp_path), table="letters")]
